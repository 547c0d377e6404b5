// When a tag's next grant is asked for: one at a time, and after a failure not before a pause that grows.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/random.h"

namespace leaf::service {

// Pure; the tag's mutex guards it.
class RefillSchedule {
 public:
  // A timer after which the grant is asked for again.
  struct Retry {
    std::uint32_t id = 0;
    std::chrono::milliseconds after{};
  };

  // The reserve is low.
  void Want() { wanted_ = true; }
  void Unwant() { wanted_ = false; }
  bool wanted() const { return wanted_; }

  // False while a grant is on its way, or a retry is scheduled; else the grant is on its way from now on.
  bool Begin() {
    if (in_flight_ || retry_scheduled_) return false;
    return in_flight_ = true;
  }
  void End() { in_flight_ = false; }
  bool in_flight() const { return in_flight_; }

  // The table is asked now. The tag's row has been added since then, if a grant is on its way.
  void NoteAsked() { added_meanwhile_ = false; }
  void NoteAdded() { added_meanwhile_ = in_flight_; }
  bool TakeAdded() { return std::exchange(added_meanwhile_, false); }

  // The grant under way has failed, or grants succeed again. Counts consecutive failures.
  void CountFailure() { ++failures_; }
  void ForgetFailures() { failures_ = 0; }
  std::uint32_t failures() const { return failures_; }

  // Requires: failures() > 0.
  Retry ScheduleRetry(Random& random) {
    const std::uint32_t doublings = std::min<std::uint32_t>(failures_ - 1, 10);
    const auto backoff = std::min(kBackoffMin * (1 << doublings), kBackoffMax);
    const std::chrono::milliseconds jitter(random.Below(static_cast<std::uint64_t>(backoff.count()) / 2 + 1));
    retry_scheduled_ = true;
    return {++retry_id_, backoff - jitter};
  }
  bool retry_scheduled() const { return retry_scheduled_; }
  // The timer of that retry is due. False if another one has taken its place, or Begin may be called already.
  bool TakeRetry(std::uint32_t id) {
    if (!retry_scheduled_ || retry_id_ != id) return false;
    retry_scheduled_ = false;
    return true;
  }
  // The retry need not be waited for.
  void SkipRetry() { retry_scheduled_ = false; }

 private:
  bool wanted_ = false;
  bool in_flight_ = false;
  bool retry_scheduled_ = false;
  bool added_meanwhile_ = false;
  std::uint32_t failures_ = 0;
  std::uint32_t retry_id_ = 0;  // of the newest timer; older ones have no say
};

}  // namespace leaf::service
