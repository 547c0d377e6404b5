// The real Executor: a fixed number of threads and a heap of timers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/mutex.h"

namespace leaf::sys {

class ThreadPool final : public Executor {
 public:
  // Starts `threads` threads called `name`. Requires: threads > 0. Throws std::system_error where the process
  // may start no more; then none of them runs.
  ThreadPool(std::string name, std::size_t threads, const Clock& clock);
  ~ThreadPool() override;

  void Post(Task task) override;
  void PostAt(MonotonicTime time, Task task) override;
  void Stop() override;

  // Runs `done` on one of the threads once each of them has come back for more work after this call: none is
  // stuck. One probe at a time; a second one takes the first one's place. Dropped once Stop() was called.
  void Probe(Task done);

 private:
  struct Timer {
    MonotonicTime time;
    std::uint64_t order = 0;  // first come, first served among equal times
    Task task;
  };
  static bool Later(const Timer& a, const Timer& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
  void Work();

  const Clock& clock_;
  Mutex mutex_;
  Condition wake_;
  bool stopping_ LEAF_GUARDED_BY(mutex_) = false;
  std::uint64_t next_order_ LEAF_GUARDED_BY(mutex_) = 0;
  std::deque<Task> ready_ LEAF_GUARDED_BY(mutex_);
  std::vector<Timer> timers_ LEAF_GUARDED_BY(mutex_);      // a heap, earliest first
  std::uint64_t probe_ LEAF_GUARDED_BY(mutex_) = 0;        // number of the probe under way or last done
  std::size_t probe_missing_ LEAF_GUARDED_BY(mutex_) = 0;  // threads that have not come back
  Task probe_done_ LEAF_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace leaf::sys
