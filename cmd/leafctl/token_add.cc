// leafctl token add
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "token_output.h"
#include "token_store.h"

namespace leaf::cmd {
namespace {

struct TokenAddOptions {
  std::string name;
  std::vector<std::string> roles;
  std::vector<std::string> tags;
  bool snowflakes = false;
  bool certificate = false;
  std::optional<std::string> expires;
  std::optional<std::string> ids_per_second;
  ConfirmFlags confirm;
};

Error Wrong(std::string message, std::string hint = "") {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(hint)};
}

Result<access::Roles> RolesOf(const TokenAddOptions& options) {
  access::Roles roles;
  for (const std::string& list : options.roles) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string name = list.substr(begin, end - begin);
      const auto role = access::ParseRole(name);
      if (!role) return Wrong(fmt::format("bad --role {}: none of ids, read, admin", Quoted(name)));
      roles.Add(*role);
      begin = end + 1;
    }
  }
  return roles;
}

Result<access::TokenEntry> EntryOf(const TokenAddOptions& options, WallTime now) {
  access::TokenEntry entry;
  entry.name = options.name;
  LEAF_RETURN_IF_ERROR(access::CheckTokenName(entry.name));
  LEAF_ASSIGN_OR_RETURN(entry.roles, RolesOf(options));
  const bool takes_ids = entry.roles.Has(access::Role::kIds);
  if (!takes_ids && (!options.tags.empty() || options.snowflakes || options.ids_per_second))
    return Wrong("--tags, --snowflake and --ids-per-second are for tokens with --role ids");
  entry.tags = access::TagPatterns::All();
  if (!options.tags.empty()) {
    LEAF_ASSIGN_OR_RETURN(entry.tags,
                          access::TagPatterns::Parse(fmt::format("{}", fmt::join(options.tags, ","))));
  }
  entry.snowflakes = options.snowflakes || entry.tags.matches_all();
  if (options.expires) {
    LEAF_ASSIGN_OR_RETURN(entry.expires, access::ParseExpiry(*options.expires, now));
  }
  if (options.ids_per_second) {
    LEAF_ASSIGN_OR_RETURN(entry.ids_per_second,
                          ParseUnsigned("--ids-per-second", *options.ids_per_second, 1, 1'000'000'000));
  }
  return entry;
}

// From the kernel's generator for secrets.
Result<std::string> NewToken() {
  std::array<unsigned char, 32> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return Error{ErrorCode::kInternal, "the system has no random numbers", ""};
  return access::MakeToken(random);
}

Result<std::string> Append(const std::string& text, const access::TokenEntry& entry) {
  LEAF_ASSIGN_OR_RETURN(const auto tokens, access::ParseTokenFile(text));
  for (const access::TokenEntry& other : tokens) {
    if (other.name == entry.name)
      return Error{ErrorCode::kAlreadyExists, fmt::format("token {} exists", entry.name),
                   fmt::format("leafctl token remove {} ends it, or choose another name", entry.name)};
  }
  std::string longer = text + access::TokenLine(entry) + "\n";
  if (longer.size() > access::kTokenFileBytesMax) {
    return Error{ErrorCode::kRefused,
                 fmt::format("no room for token {}: the file of tokens would have more than {} bytes",
                             entry.name, access::kTokenFileBytesMax),
                 "remove tokens that are out of use: leafctl token list"};
  }
  return longer;
}

// A token that could not be written anywhere is of no use.
Result<void> TokenWasShown(CommandContext& context, const std::string& name) {
  auto written = context.out.Flush();
  if (written.ok()) return {};
  return Error{written.error().code, fmt::format("the new token is lost: {}", written.error().message),
               fmt::format("leafctl token remove {}, and add it again", name)};
}

Result<void> RunTokenAdd(CommandContext& context, const TokenAddOptions& options) {
  LEAF_ASSIGN_OR_RETURN(access::TokenEntry entry, EntryOf(options, context.clock.Wall()));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string path, TokenFileOf(*resolved));
  const bool dry_run = options.confirm.dry_run;
  std::string token;
  if (!options.certificate) {
    LEAF_ASSIGN_OR_RETURN(token, NewToken());
    entry.hash = access::HashOf(token);
  }
  if (dry_run) {
    LEAF_ASSIGN_OR_RETURN(const std::string text, TokenFileText(path));
    LEAF_RETURN_IF_ERROR(Append(text, entry));
  } else {
    LEAF_RETURN_IF_ERROR(EditTokenFile(path, resolved->config.state_dir,
                                       [&](const std::string& text) { return Append(text, entry); }));
  }
  if (context.flags.json) {
    Json json = TokenJson(entry, context.clock.Wall());
    if (!options.certificate && !dry_run) json["token"] = token;
    json["file"] = path;
    json["dry_run"] = dry_run;
    WriteJson(context, json);
    return dry_run || options.certificate ? Result<void>() : TokenWasShown(context, entry.name);
  }
  if (dry_run) {
    context.Report(fmt::format("would add token {} to {}", entry.name, path));
    return {};
  }
  context.Note(fmt::format("added {} {} to {}; a running daemon knows it after a reload (SIGHUP){}",
                           options.certificate ? "the certificate name" : "token", entry.name, path,
                           options.certificate ? "" : ". The token is shown this once:"));
  if (!options.certificate) context.out.Write(token + "\n");
  return TokenWasShown(context, entry.name);
}

}  // namespace

Run AddTokenAdd(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TokenAddOptions>();
  app.add_option("NAME", options->name, "Name of the token, for logs and for AUTH on the Redis port")
      ->required();
  app.add_option("--role", options->roles, "What it allows: ids, read, admin; several with commas")
      ->type_name("ROLE")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--tags", options->tags,
                 "Tags whose IDs it may take, such as 'order*,pay'; default all, and snowflake IDs")
      ->type_name("PATTERN")
      ->check(NotEmpty)
      ->allow_extra_args(false);
  app.add_flag("--snowflake", options->snowflakes, "Snowflake IDs beside --tags");
  app.add_option("--expires", options->expires, "When it ends: a duration such as 90d, or a time")
      ->type_name("WHEN");
  app.add_option("--ids-per-second", options->ids_per_second, "Most IDs a second over all its connections")
      ->type_name("N");
  app.add_flag("--certificate", options->certificate,
               "Make no token: NAME is in the certificate of a client (server.tls_client_ca)");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(
      "Appends a line with the hash of the token to auth.tokens_file, which is made if it is missing, and "
      "prints the token: it is kept nowhere else.\n"
      "Examples:\n"
      "  leafctl token add billing --role ids --tags 'order*,invoice'\n"
      "  leafctl token add grafana --role read --expires 365d\n"
      "  (umask 077; leafctl token add ops --role admin >ops.token)");
  return [options](CommandContext& context) { return RunTokenAdd(context, *options); };
}

}  // namespace leaf::cmd
