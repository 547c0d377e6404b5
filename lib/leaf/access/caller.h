// The caller of a server: what it is called, and what it may do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/access/roles.h"
#include "leaf/access/tag_patterns.h"
#include "leaf/base/clock.h"
#include "leaf/base/error.h"
#include "leaf/base/time.h"
#include "leaf/core/token_bucket.h"

namespace leaf::access {

// IDs a second over all connections of one token. Thread-safe.
class IdLimit {
 public:
  explicit IdLimit(std::uint64_t per_second)
      : per_second_(per_second), rate_(core::TokenBucket::Rate::PerSecond(per_second)) {}

  std::uint64_t per_second() const { return per_second_; }
  // Of any t seconds at most per_second * (t + 1) IDs are admitted. Requires: `ids` of one second at most.
  bool Admit(MonotonicTime now, std::uint64_t ids) { return bucket_.TryTakeMany(now, rate_, ids); }

 private:
  const std::uint64_t per_second_;
  const core::TokenBucket::Rate rate_;
  core::TokenBucket bucket_;
};

// Immutable, but for what is used of the limit. Thread-safe.
struct Caller {
  std::string name;     // for logs and messages: "token billing", "a caller without a token", "uid 1000"
  std::string token{};  // the name of its token, or ""
  Roles roles{};
  TagPatterns tags = TagPatterns::All();
  bool snowflakes = true;
  bool is_known = false;  // by a token, a certificate or the operating system
  std::optional<WallTime> expires{};
  std::shared_ptr<IdLimit> limit{};

  // The error to answer with if the caller may not take these IDs; `tag` is "" for snowflake IDs. Counts them
  // against the limit. Errors: kPermission, kLimited, kTooLarge (more than one second's).
  std::optional<Error> RefuseIds(std::string_view tag, std::uint64_t count, const Clock& clock) const {
    if (tag.empty() ? snowflakes : tags.matches_all() || tags.Matches(tag)) [[likely]]
      return limit ? OverLimit(count, clock.Monotonic()) : std::nullopt;
    return NotForIds(tag);
  }

  // With the roles ids and read, as without any configuration.
  static const Caller& Open();
  // With all roles: the owner of the server, on its Unix socket.
  static const Caller& Operator();

 private:
  std::optional<Error> OverLimit(std::uint64_t count, MonotonicTime now) const;
  Error NotForIds(std::string_view tag) const;
};

}  // namespace leaf::access
