// leafctl token remove
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/text.h"
#include "token_output.h"
#include "token_store.h"

namespace leaf::cmd {
namespace {

struct TokenRemoveOptions {
  std::vector<std::string> names;
  ConfirmFlags confirm;
};

Result<void> CheckThere(const std::vector<access::TokenEntry>& tokens,
                        const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const access::TokenEntry& entry : tokens) known.push_back(entry.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = NearestName(name, known);
    return Error{ErrorCode::kNotFound, fmt::format("no token {}", Quoted(name)),
                 nearest ? fmt::format("did you mean {}?", *nearest) : "leafctl token list shows them"};
  }
  return {};
}

// Other lines stay as they are, comments, too.
std::string Without(const std::string& text, const std::vector<std::string>& names) {
  std::string left;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    if (std::find(names.begin(), names.end(),
                  access::NameOnLine(std::string_view(line).substr(0, line.find('\n')))) == names.end())
      left += line;
    begin = end;
  }
  return left;
}

Result<void> RunTokenRemove(CommandContext& context, const TokenRemoveOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string path, TokenFileOf(*resolved));
  LEAF_ASSIGN_OR_RETURN(const auto before, ReadTokensIfThere(resolved->config));
  LEAF_RETURN_IF_ERROR(CheckThere(before, options.names));
  const bool dry_run = options.confirm.dry_run;
  if (!dry_run) {
    LEAF_RETURN_IF_ERROR(
        EditTokenFile(path, resolved->config.state_dir, [&](const std::string& text) -> Result<std::string> {
          LEAF_ASSIGN_OR_RETURN(const auto tokens, access::ParseTokenFile(text));
          LEAF_RETURN_IF_ERROR(CheckThere(tokens, options.names));
          return Without(text, options.names);
        }));
  }
  if (context.flags.json) {
    WriteJson(context, {{"removed", options.names}, {"file", path}, {"dry_run", dry_run}});
    return {};
  }
  const std::string names =
      fmt::format("token{} {}", options.names.size() == 1 ? "" : "s", fmt::join(options.names, ", "));
  context.Report(dry_run
                     ? fmt::format("would remove {} from {}", names, path)
                     : fmt::format("removed {} from {}; a running daemon refuses {} after a reload (SIGHUP)",
                                   names, path, options.names.size() == 1 ? "it" : "them"));
  return {};
}

}  // namespace

Run AddTokenRemove(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TokenRemoveOptions>();
  app.add_option("NAME", options->names, "Names of tokens")->required();
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(
      "Takes the lines out of auth.tokens_file. All of them, or none if one does not exist.\n"
      "Examples:\n"
      "  leafctl token remove billing && systemctl reload leafctl");
  return [options](CommandContext& context) { return RunTokenRemove(context, *options); };
}

}  // namespace leaf::cmd
