// The real Executor: a fixed number of threads and a heap of timers.
//
// A thread is woken only if there is something to do. Of those that are idle it is the one that was busy
// last, whose stack and memory are still in a cache; and one of them, the keeper, waits for the earliest
// timer. Invariant: if a timer is set and a thread is idle, then there is a keeper, or a thread was woken
// that has not looked yet.
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
  // A thread, as it is woken. It lives as long as the pool, so it may be notified without the lock.
  struct Sleeper {
    Condition wake;
    bool woken = false;  // and out of idle_
  };
  void Work(Sleeper& self);
  void SleepLocked(Sleeper& self) LEAF_REQUIRES(mutex_);
  // Both return the one to notify, once the lock is free. Null: none is idle.
  Sleeper* WakeOneLocked() LEAF_REQUIRES(mutex_);
  Sleeper* WakeLocked(std::vector<Sleeper*>::iterator place) LEAF_REQUIRES(mutex_);
  std::vector<Sleeper*> WakeAllLocked() LEAF_REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  std::vector<Sleeper*> idle_ LEAF_GUARDED_BY(mutex_);  // the last one was busy last
  Sleeper* keeper_ LEAF_GUARDED_BY(mutex_) = nullptr;   // one of them
  bool stopping_ LEAF_GUARDED_BY(mutex_) = false;
  std::uint64_t next_order_ LEAF_GUARDED_BY(mutex_) = 0;
  std::deque<Task> ready_ LEAF_GUARDED_BY(mutex_);
  std::vector<Timer> timers_ LEAF_GUARDED_BY(mutex_);      // a heap, earliest first
  std::uint64_t probe_ LEAF_GUARDED_BY(mutex_) = 0;        // number of the probe under way or last done
  std::size_t probe_missing_ LEAF_GUARDED_BY(mutex_) = 0;  // threads that have not come back
  Task probe_done_ LEAF_GUARDED_BY(mutex_);

  std::deque<Sleeper> sleepers_;  // one for each thread
  std::vector<std::thread> threads_;
};

}  // namespace leaf::sys
