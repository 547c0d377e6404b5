// The real Executor: a fixed number of threads and a heap of timers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"

namespace leaf::sys {

class ThreadPool final : public Executor {
 public:
  // Starts `threads` threads called `name`. Requires: threads > 0.
  ThreadPool(std::string name, std::size_t threads, const Clock& clock);
  ~ThreadPool() override;

  void Post(Task task) override;
  void PostAt(MonotonicTime time, Task task) override;
  void Stop() override;

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
  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_:
  bool stopping_ = false;
  std::uint64_t next_order_ = 0;
  std::deque<Task> ready_;
  std::vector<Timer> timers_;  // a heap, earliest first

  std::vector<std::thread> threads_;
};

}  // namespace leaf::sys
