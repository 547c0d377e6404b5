// How many IDs of a tag to hold in reserve, so that no request has to wait for the database.
//
// Leaf asks for the next range when a tenth of the newest one is used, whatever the rate: with a small step
// and a slow database both ranges are empty before the answer comes (leaf-compat S1, Leaf issue 143). Beyond
// Leaf's rule the reserve here covers what will be asked for while grants take as long as they were seen to
// take, with a margin, and `reserve_time` of outage on top:
//
//   target = burst rate * kGrantLatencyMargin * latency + rate * reserve_time
//
// The burst rate is looked at closely, since a grant takes milliseconds; the rate over a second or more, so
// that one large batch is not taken for an hour of the same. Both, and the latency, follow a rise soon and
// a fall slowly: a reserve that is too large for a while costs little, one that is too small costs requests.
// The size of the grants that fill the reserve stays StepPolicy's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "leaf/base/limits.h"
#include "leaf/base/time.h"

namespace leaf::core {

// IDs a second, seen through samples that are at least `sample_min` apart. A rise counts once two samples in
// a row show it: one large batch is no rate. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(std::chrono::milliseconds sample_min) : sample_min_(sample_min) {}
  void Observe(std::uint64_t issued, MonotonicTime now);
  double ids_per_second() const { return ids_per_second_; }

 private:
  struct Sample {
    std::uint64_t issued = 0;
    MonotonicTime at;
  };
  const std::chrono::milliseconds sample_min_;
  std::optional<Sample> last_;
  double last_seen_ = 0;  // in the sample before
  double ids_per_second_ = 0;
};

// Not thread-safe.
class ReservePolicy {
 public:
  // Requires: reserve_time >= 0.
  explicit ReservePolicy(std::chrono::milliseconds reserve_time);

  // `issued` IDs were handed out in all, as of `now`. A count that went back (IDs dropped) counts as none
  // issued.
  void ObserveIssued(std::uint64_t issued, MonotonicTime now);
  // A grant took so long, from asking until its range could be issued.
  void ObserveGrant(std::chrono::nanoseconds latency);

  // IDs to hold; 0 until a rate was seen. At most kMaxIdLimit.
  std::uint64_t Target() const;

  // Requires: reserve_time >= 0.
  void set_reserve_time(std::chrono::milliseconds reserve_time) { reserve_time_ = reserve_time; }

  double ids_per_second() const { return rate_.ids_per_second(); }
  std::chrono::nanoseconds grant_latency() const { return latency_; }

 private:
  std::chrono::milliseconds reserve_time_;
  RateMeter burst_{kBurstSampleMin};
  RateMeter rate_{kRateSampleMin};
  std::chrono::nanoseconds latency_{0};
};

}  // namespace leaf::core
