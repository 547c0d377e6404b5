// The file of tokens (auth.tokens_file): which tokens there are, and what each allows.
//
// A line is one token, in words: its name, then key=value in any order.
//
//   billing roles=ids tags=order*,invoice sha256=9f86d081…            takes IDs of these tags
//   grafana roles=read sha256=…                                       reads
//   night-job roles=ids,read tags=* expires=2027-01-01T00:00:00.000Z ids_per_second=5000 sha256=…
//   api.example.com roles=ids sha256=-                                a client certificate's name, no token
//
// The file has no token in it, only its SHA-256: a token has 256 random bits, so a plain hash cannot be
// reversed by guessing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/access/roles.h"
#include "leaf/access/tag_patterns.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::access {

using TokenHash = std::array<unsigned char, 32>;

// No token is longer; a longer text is none.
inline constexpr std::size_t kTokenBytesMax = 256;
inline constexpr std::size_t kTokenNameMax = 64;
// Some 8000 tokens. A larger file is refused.
inline constexpr std::size_t kTokenFileBytesMax = std::size_t{1024} * 1024;

// SHA-256.
TokenHash HashOf(std::string_view token);

// "leaf_" and 43 characters that stand for the 32 random bytes: scanners for secrets find it by its begin.
std::string MakeToken(const std::array<unsigned char, 32>& random);

struct TokenEntry {
  std::string name;  // 1..kTokenNameMax of letters, digits and . _ - @
  Roles roles{};
  TagPatterns tags{};       // for role ids
  bool snowflakes = false;  // snowflake IDs, too; with `tags` of every tag it is true
  std::optional<WallTime> expires{};
  std::uint64_t ids_per_second = 0;  // 0 for no limit
  std::optional<TokenHash> hash{};   // nothing: for a client certificate alone

  bool IsExpired(WallTime now) const { return expires && *expires <= now; }
};

// Errors: kInvalidArgument that names the name.
Result<void> CheckTokenName(std::string_view name);
// "90d" from now on, or a time that ParseTime reads. Errors: kInvalidArgument, also for a time that has
// passed.
Result<WallTime> ParseExpiry(std::string_view text, WallTime now);

// Empty lines, and those that begin with '#', say nothing. Errors: kConfig that names the line.
Result<std::vector<TokenEntry>> ParseTokenFile(std::string_view text);
// As a line of the file, without its end.
std::string TokenLine(const TokenEntry& entry);
// The name on a line of the file; "" for one that says nothing.
std::string_view NameOnLine(std::string_view line);

}  // namespace leaf::access
