// How many requests a second this node answers, over all and for each tag.
//
// Over all it is shared fairly: each tag that is asked for has its part of the limit for itself, and what the
// others leave of theirs goes to the tag that comes first. One tag that is hammered takes what is left, and
// nothing of what the others use. A request costs one or two compare-and-swaps where there is a limit, and a
// load where there is none; no request ever waits for another.
#pragma once

#include <atomic>
#include <cstdint>

#include "leaf/base/clock.h"
#include "leaf/core/token_bucket.h"

namespace leaf::service {

// What one tag has used of the limits.
struct RequestShare {
  core::TokenBucket own;                    // of the limit of one tag
  core::TokenBucket fair;                   // of this tag's part of the limit over all
  std::atomic<std::uint32_t> last_seen{0};  // the second in which it was asked for last
};

// Thread-safe. `clock` outlives it.
class RequestLimit {
 public:
  explicit RequestLimit(const Clock& clock) : clock_(clock) {}

  // Requests a second; 0 for no limit. Any time: what was used until now counts.
  void Set(std::uint64_t over_all, std::uint64_t of_one_tag);

  // False if there is no limit at all: then nothing has to be asked.
  bool active() const {
    return over_all_.load(std::memory_order_relaxed) != 0 || of_one_tag_.load(std::memory_order_relaxed) != 0;
  }

  enum class Verdict { kAdmitted, kOverAll, kOfOneTag };
  // Of any t seconds at most over_all * (t + 2) requests are admitted, and at most of_one_tag * (t + 1) with
  // one `share`.
  Verdict Admit(RequestShare& share);

  // Of requests for no tag in particular: decoding, names that are not known (yet). The limit of one tag does
  // not hold for them.
  Verdict AdmitOther();
  // The same for the requests of snowflake mode.
  Verdict AdmitSnowflake();

 private:
  bool AdmitOverAll(RequestShare& share, MonotonicTime now);
  // How many shares are in use, counted second by second.
  std::uint64_t CountInUse(RequestShare& share, MonotonicTime now);

  const Clock& clock_;
  // As intervals of core::TokenBucket::Rate; 0 for no limit.
  std::atomic<std::uint64_t> over_all_{0};
  std::atomic<std::uint64_t> of_one_tag_{0};
  alignas(64) core::TokenBucket all_;
  // The second (upper half) and how many shares were seen in it; and how many in the second before.
  alignas(64) std::atomic<std::uint64_t> in_use_{0};
  std::atomic<std::uint64_t> in_use_before_{0};
  alignas(64) RequestShare other_;
  alignas(64) RequestShare snowflake_;
};

}  // namespace leaf::service
