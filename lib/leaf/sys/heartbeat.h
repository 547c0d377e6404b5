// Whether the threads that do the work still come round: what a watchdog is to be told.
//
// Each source is asked in a way that every one of its threads has to pass through, such as
// ThreadPool::Probe. A thread that hangs in a task, or does not run at all, leaves its source's question
// unanswered; an idle one answers at once. A timer of its own, ticking away beside work that hangs, would
// prove nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"

namespace leaf::sys {

// For one thread. `clock` outlives it.
class Heartbeat {
 public:
  // Asks; calls `done` once all threads of the source have answered, on any thread, or never.
  using Probe = std::function<void(Executor::Task done)>;

  explicit Heartbeat(const Clock& clock) : clock_(clock) {}

  // `patience`: how long an answer may take; for threads that may block, longer than what they may block for.
  void Watch(std::string name, Probe probe, std::chrono::milliseconds patience);

  // Asks every source that has answered, and names those that have not for longer than their patience.
  // Never blocks.
  std::vector<std::string> Check();

 private:
  struct Source {
    std::string name;
    Probe probe;
    std::chrono::milliseconds patience{};
    std::shared_ptr<std::atomic<bool>> answered;  // shared with the answer, which may come after the end
    MonotonicTime asked_at;
  };

  const Clock& clock_;
  std::vector<Source> sources_;
};

}  // namespace leaf::sys
