// What fails for many tags at once, for one cause, as a few lines of the log and a count: with the database
// away each tag, and each unknown name that is asked for, would have a line of its own.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/base/error.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/service/tallies.h"

namespace leaf::service {

// Thread-safe. Clock, timers and log outlive it; stop the timers before destroying it.
class FailureLog {
 public:
  // Of one cause: so many lines at once, and then a count each kSummary, as long as there is something to
  // count.
  static constexpr std::uint64_t kAtOnce = 5;
  static constexpr std::chrono::seconds kSummary{10};

  FailureLog(const Clock& clock, Executor& timers, Logger& log) : clock_(clock), timers_(timers), log_(log) {}

  // A grant failed, and `message` says which and why.
  void Tell(ErrorCode cause, const std::string& message);

 private:
  struct Cause {
    std::uint64_t told = 0;    // lines since it was quiet last
    std::uint64_t untold = 0;  // since the last summary
    std::string last;          // of those that were not told
    bool summary_due = false;  // a timer is set
  };
  void Summarize(std::size_t slot);
  void ScheduleSummary(std::size_t slot);

  const Clock& clock_;
  Executor& timers_;
  Logger& log_;
  Mutex mutex_;
  std::array<Cause, kErrorSlots> causes_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
