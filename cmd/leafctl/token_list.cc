// leafctl token list
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "leaf/base/text.h"
#include "token_output.h"
#include "token_store.h"

namespace leaf::cmd {
namespace {

using TokenRow = std::array<std::string, 6>;

Result<void> RunTokenList(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_RETURN_IF_ERROR(TokenFileOf(*resolved));
  LEAF_ASSIGN_OR_RETURN(const auto tokens, ReadTokensIfThere(resolved->config));
  const WallTime now = context.clock.Wall();
  if (context.flags.json) {
    Json list = Json::array();
    for (const access::TokenEntry& entry : tokens) list.push_back(TokenJson(entry, now));
    WriteJson(context, {{"file", resolved->config.auth.tokens_file}, {"tokens", std::move(list)}});
    return {};
  }
  if (tokens.empty()) {
    context.Note(
        fmt::format("{} has no tokens; leafctl token add makes one", resolved->config.auth.tokens_file));
    return {};
  }
  std::vector<TokenRow> rows{{"NAME", "ROLES", "TAGS", "IDS/S", "EXPIRES", "STATE"}};
  for (const access::TokenEntry& entry : tokens) {
    rows.push_back(
        {entry.name + (entry.hash ? "" : " (certificate)"), entry.roles.Text(), Printable(TagsText(entry)),
         entry.ids_per_second > 0 ? std::to_string(entry.ids_per_second) : "-",
         entry.expires ? FormatRfc3339(*entry.expires) : "never", std::string(StateOf(entry, now))});
  }
  std::array<std::size_t, 6> widths{};
  for (const TokenRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths.at(i) = std::max(widths.at(i), row.at(i).size());
  }
  for (const TokenRow& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row.at(i), widths.at(i));
    line.erase(line.find_last_not_of(' ') + 1);
    context.out.Write(line + "\n");
  }
  return {};
}

}  // namespace

Run AddTokenList(CLI::App& app, CommandContext&) {
  app.footer(
      "Shows what is in auth.tokens_file; the tokens themselves are not there.\n"
      "Examples:\n"
      "  leafctl token list");
  return [](CommandContext& context) { return RunTokenList(context); };
}

}  // namespace leaf::cmd
