#include "leaf/access/token_file.h"

#include <fmt/format.h>

// The functions without a context of providers: the others bring the whole library into the program.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>
#include <set>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::access {
namespace {

Error BadToken(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), ""}; }

std::string HexOf(const TokenHash& hash) {
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<TokenHash> ParseHash(std::string_view text) {
  TokenHash hash{};
  if (text.size() != 2 * hash.size()) return std::nullopt;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const auto byte = ParseWhole<std::uint8_t>(text.substr(2 * i, 2), 16);
    if (!byte) return std::nullopt;
    hash.at(i) = *byte;
  }
  return hash;
}

// The words of a line, between blanks.
std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

Result<Roles> ParseRoles(std::string_view text) {
  Roles roles;
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    const auto role = ParseRole(name);
    if (!role) return BadToken(fmt::format("bad role {}: none of ids, read, admin", Quoted(name)));
    roles.Add(*role);
    text.remove_prefix(std::min(name.size() + 1, text.size()));
  }
  if (roles.empty()) return BadToken("a token without a role");
  return roles;
}

// What stands behind the name; `seen`: keys so far.
Result<void> TakeWord(std::string_view word, TokenEntry& entry, std::set<std::string_view>& seen) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  if (equals == std::string_view::npos) return BadToken(fmt::format("{} is not key=value", Quoted(word)));
  const std::string_view value = word.substr(equals + 1);
  if (!seen.insert(key).second) return BadToken(fmt::format("{} is there twice", key));
  if (key == "roles") {
    LEAF_ASSIGN_OR_RETURN(entry.roles, ParseRoles(value));
  } else if (key == "tags") {
    LEAF_ASSIGN_OR_RETURN(entry.tags, TagPatterns::Parse(value));
  } else if (key == "snowflakes") {
    if (value != "yes" && value != "no")
      return BadToken(fmt::format("bad snowflakes {}: neither yes nor no", Quoted(value)));
    entry.snowflakes = value == "yes";
  } else if (key == "expires") {
    LEAF_ASSIGN_OR_RETURN(entry.expires, ParseTime(value, WallTime{}));
  } else if (key == "ids_per_second") {
    const auto rate = ParseWhole<std::uint64_t>(value);
    if (!rate) return BadToken(fmt::format("bad ids_per_second {}: no whole number", Quoted(value)));
    if (*rate == 0) return BadToken("bad ids_per_second 0: at least 1; a token without the key has no limit");
    entry.ids_per_second = *rate;
  } else if (key == "sha256") {
    if (value == "-") return {};
    entry.hash = ParseHash(value);
    if (!entry.hash) return BadToken("sha256 is not 64 hexadecimal digits, nor -");
  } else {
    return BadToken(fmt::format("unknown key {}", Quoted(key)));
  }
  return {};
}

Result<TokenEntry> ParseLine(const std::vector<std::string_view>& words) {
  TokenEntry entry;
  entry.name = words.front();
  LEAF_RETURN_IF_ERROR(CheckTokenName(entry.name));
  std::set<std::string_view> seen;
  for (std::size_t i = 1; i < words.size(); ++i) LEAF_RETURN_IF_ERROR(TakeWord(words[i], entry, seen));
  for (const std::string_view needed : {"roles", "sha256"}) {
    if (!seen.contains(needed)) return BadToken(fmt::format("{} is missing", needed));
  }
  if (!seen.contains("tags")) entry.tags = TagPatterns::All();
  if (entry.tags.matches_all() && !seen.contains("snowflakes")) entry.snowflakes = true;
  return entry;
}

}  // namespace

TokenHash HashOf(std::string_view token) {
  TokenHash hash{};
  SHA256_CTX state;
  SHA256_Init(&state);
  SHA256_Update(&state, token.data(), token.size());
  SHA256_Final(hash.data(), &state);
  return hash;
}

std::string MakeToken(const std::array<unsigned char, 32>& random) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string token = "leaf_";
  // Base64 for URLs (RFC 4648, 5), without padding: six bits a character.
  std::uint32_t bits = 0;
  int held = 0;
  for (const unsigned char byte : random) {
    bits = bits << 8U | byte;
    held += 8;
    while (held >= 6) {
      held -= 6;
      token += kDigits[bits >> static_cast<unsigned>(held) & 63U];
    }
  }
  token += kDigits[bits << static_cast<unsigned>(6 - held) & 63U];
  return token;
}

Result<void> CheckTokenName(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kTokenNameMax && name != "default" &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                             c == '.' || c == '_' || c == '-' || c == '@';
                    });
  if (good && !name.starts_with('-')) return {};
  return Error{
      ErrorCode::kInvalidArgument, fmt::format("bad token name {}", Quoted(name)),
      fmt::format("1 to {} letters, digits and . _ - @, not - first, and not \"default\"", kTokenNameMax)};
}

Result<WallTime> ParseExpiry(std::string_view text, WallTime now) {
  WallTime expires;
  if (const auto duration = ParseDuration(text); duration.ok()) {
    // A token that outlives everything has no expiry.
    constexpr std::chrono::hours kMost{24 * 36525};
    if (*duration > kMost)
      return Error{ErrorCode::kInvalidArgument, fmt::format("bad expiry {}: over a century", Quoted(text)),
                   "leave it out for a token that does not expire"};
    expires = now + *duration;
  } else {
    const auto time = ParseTime(text, now);
    if (!time.ok()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad expiry {}: neither a duration nor a time", Quoted(text)),
                   "such as 90d or 2027-01-01"};
    }
    expires = *time;
  }
  if (expires <= now)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad expiry {}: that time has passed", Quoted(text)), ""};
  return expires;
}

Result<std::vector<TokenEntry>> ParseTokenFile(std::string_view text) {
  std::vector<TokenEntry> entries;
  std::set<std::string, std::less<>> names;
  std::set<TokenHash> hashes;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (NameOnLine(line).empty()) continue;
    const auto bad = [&](const Error& error) {
      return Error{ErrorCode::kConfig, fmt::format("line {}: {}", number, error.message), error.hint};
    };
    auto entry = ParseLine(WordsOf(line));
    if (!entry.ok()) return bad(entry.error());
    if (!names.insert(entry->name).second)
      return bad(BadToken(fmt::format("token {} is there twice", entry->name)));
    if (entry->hash && !hashes.insert(*entry->hash).second)
      return bad(BadToken(fmt::format("token {} has the hash of another one", entry->name)));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::string TokenLine(const TokenEntry& entry) {
  std::string line = fmt::format("{} roles={}", entry.name, entry.roles.Text());
  if (entry.roles.Has(Role::kIds) && !entry.tags.Text().empty())
    line += fmt::format(" tags={}", entry.tags.Text());
  if (entry.snowflakes != entry.tags.matches_all())
    line += fmt::format(" snowflakes={}", entry.snowflakes ? "yes" : "no");
  if (entry.expires) line += fmt::format(" expires={}", FormatRfc3339(*entry.expires));
  if (entry.ids_per_second > 0) line += fmt::format(" ids_per_second={}", entry.ids_per_second);
  return line + fmt::format(" sha256={}", entry.hash ? HexOf(*entry.hash) : "-");
}

std::string_view NameOnLine(std::string_view line) {
  const auto words = WordsOf(line);
  return words.empty() || words.front().starts_with('#') ? std::string_view() : words.front();
}

}  // namespace leaf::access
