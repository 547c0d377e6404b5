#include "leaf/service/failure_log.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/duration.h"

namespace leaf::service {

void FailureLog::Tell(ErrorCode cause, const std::string& message) {
  const std::size_t slot = SlotOf(cause);
  bool begins = false;
  {
    const MutexLock lock(mutex_);
    Cause& of = causes_[slot];
    begins = !std::exchange(of.summary_due, true);
    if (of.told >= kAtOnce) {
      ++of.untold;
      of.last = message;
      return;
    }
    ++of.told;
  }
  log_.Warning("{}", message);
  if (begins) ScheduleSummary(slot);
}

void FailureLog::ScheduleSummary(std::size_t slot) {
  timers_.PostAt(clock_.Monotonic() + kSummary, [this, slot] { Summarize(slot); });
}

void FailureLog::Summarize(std::size_t slot) {
  std::uint64_t untold = 0;
  std::string last;
  {
    const MutexLock lock(mutex_);
    Cause& of = causes_[slot];
    untold = std::exchange(of.untold, 0);
    last = std::exchange(of.last, {});
    if (untold == 0) {
      of.told = 0;
      of.summary_due = false;
      return;
    }
  }
  log_.Warning("{} more grants failed within {}; the last: {}", untold, FormatDuration(kSummary), last);
  ScheduleSummary(slot);
}

}  // namespace leaf::service
