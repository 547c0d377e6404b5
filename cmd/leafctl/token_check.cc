// leafctl token check
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "leaf/base/text.h"
#include "leaf/sys/secret_file.h"
#include "token_output.h"
#include "token_store.h"

namespace leaf::cmd {
namespace {

struct TokenCheckOptions {
  std::string file;
};

// Secrets are never arguments, which other users can see.
Result<std::string> ReadToken(CommandContext& context, const std::string& file,
                              const config::Config& config) {
  std::string path = file.empty() ? config.client.token_file : file;
  if (path.empty() || path == "-") {
    if (path.empty() && context.stdin_is_terminal())
      return Error{ErrorCode::kInvalidArgument, "no token to check", "name a file with it, or pipe it in"};
    auto line = context.ReadLine();
    if (!line || TrimBlanks(*line).empty())
      return Error{ErrorCode::kInvalidArgument, "stdin has no token on its first line", ""};
    return std::string(TrimBlanks(*line));
  }
  LEAF_ASSIGN_OR_RETURN(const std::string text, sys::ReadSecretFile(path));
  return std::string(TrimBlanks(text));
}

Result<void> RunTokenCheck(CommandContext& context, const TokenCheckOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string path, TokenFileOf(*resolved));
  LEAF_ASSIGN_OR_RETURN(const auto tokens, ReadTokensIfThere(resolved->config));
  LEAF_ASSIGN_OR_RETURN(const std::string token, ReadToken(context, options.file, resolved->config));
  const access::TokenHash hash = access::HashOf(token);
  const access::TokenEntry* found = nullptr;
  for (const access::TokenEntry& entry : tokens) {
    if (entry.hash == hash) found = &entry;
  }
  const WallTime now = context.clock.Wall();
  if (found == nullptr)
    return Error{ErrorCode::kPermission, fmt::format("{} has no such token", path), "leafctl token list"};
  if (found->IsExpired(now)) {
    return Error{ErrorCode::kPermission,
                 fmt::format("token {} has expired at {}", found->name, FormatRfc3339(*found->expires)),
                 "leafctl token add makes another"};
  }
  if (context.flags.json) {
    WriteJson(context, TokenJson(*found, now));
    return {};
  }
  context.out.Write(fmt::format(
      "token {}: roles {}, tags {}, {}\n", found->name, found->roles.Text(), Printable(TagsText(*found)),
      found->expires ? "expires at " + FormatRfc3339(*found->expires) : std::string("does not expire")));
  return {};
}

}  // namespace

Run AddTokenCheck(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TokenCheckOptions>();
  app.add_option("FILE", options->file,
                 "File with a token; '-' for stdin. Default client.token_file, or stdin");
  app.footer(
      "Says what a token allows, by auth.tokens_file as it is now. Exit 4 if it is unknown or has expired.\n"
      "Examples:\n"
      "  leafctl token check ops.token\n"
      "  pass show leafctl/ops | leafctl token check");
  return [options](CommandContext& context) { return RunTokenCheck(context, *options); };
}

}  // namespace leaf::cmd
