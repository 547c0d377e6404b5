#include "token_output.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "leaf/base/time.h"
#include "token_store.h"

namespace leaf::cmd {

Result<std::string> TokenFileOf(const config::Resolved& resolved) {
  const std::string& path = resolved.config.auth.tokens_file;
  if (!path.empty()) return path;
  return Error{ErrorCode::kConfig, "auth.tokens_file is not set",
               "name a file in leafctl.toml, such as [auth] tokens_file = \"/etc/leafctl/tokens\""};
}

Result<std::vector<access::TokenEntry>> ReadTokensIfThere(const config::Config& config) {
  std::error_code ignored;
  if (!config.auth.tokens_file.empty() && std::filesystem::status(config.auth.tokens_file, ignored).type() ==
                                              std::filesystem::file_type::not_found)
    return std::vector<access::TokenEntry>{};
  return ReadTokens(config);
}

std::string_view StateOf(const access::TokenEntry& entry, WallTime now) {
  constexpr std::chrono::hours kSoon{24 * 14};
  if (entry.IsExpired(now)) return "expired";
  return entry.IsExpired(now + kSoon) ? "expires" : "ok";
}

Json TokenJson(const access::TokenEntry& entry, WallTime now) {
  Json json{{"name", entry.name}, {"roles", Json::array()}};
  for (const access::Role role : {access::Role::kIds, access::Role::kRead, access::Role::kAdmin}) {
    const bool by_admin = role != access::Role::kAdmin && entry.roles.Has(access::Role::kAdmin);
    if (entry.roles.Has(role) && !by_admin) json["roles"].push_back(access::RoleName(role));
  }
  json["tags"] = TagsText(entry) == "-" ? Json(nullptr) : Json(entry.tags.Text());
  json["snowflakes"] = entry.snowflakes && entry.roles.Has(access::Role::kIds);
  json["expires"] = entry.expires ? Json(FormatRfc3339(*entry.expires)) : Json(nullptr);
  json["ids_per_second"] = entry.ids_per_second > 0 ? Json(entry.ids_per_second) : Json(nullptr);
  json["certificate"] = !entry.hash.has_value();
  json["state"] = StateOf(entry, now);
  return json;
}

std::string TagsText(const access::TokenEntry& entry) {
  if (!entry.roles.Has(access::Role::kIds)) return "-";
  std::string text = entry.tags.Text();
  if (entry.snowflakes && !entry.tags.matches_all()) text += " and snowflake IDs";
  return text;
}

}  // namespace leaf::cmd
