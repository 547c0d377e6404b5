#include "leaf/sys/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "leaf/base/check.h"

namespace leaf::sys {

ThreadPool::ThreadPool(std::string name, std::size_t threads, const Clock& clock) : clock_(clock) {
  LEAF_CHECK(threads > 0);
  name.resize(std::min<std::size_t>(name.size(), 15));  // the kernel's limit
  try {
    for (std::size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &self = sleepers_.emplace_back()] { Work(self); });
      pthread_setname_np(threads_.back().native_handle(), name.c_str());
    }
  } catch (const std::system_error& failed) {
    Stop();
    throw std::system_error(failed.code(), "cannot start a thread (" + name + ")");
  }
}

ThreadPool::~ThreadPool() { Stop(); }

ThreadPool::Sleeper* ThreadPool::WakeLocked(std::vector<Sleeper*>::iterator place) {
  Sleeper* const sleeper = *place;
  idle_.erase(place);
  if (keeper_ == sleeper) keeper_ = nullptr;
  sleeper->woken = true;
  return sleeper;
}

ThreadPool::Sleeper* ThreadPool::WakeOneLocked() {
  if (idle_.empty()) return nullptr;
  auto place = std::prev(idle_.end());
  // Another one would have to take the keeper's place.
  if (*place == keeper_ && place != idle_.begin()) --place;
  return WakeLocked(place);
}

std::vector<ThreadPool::Sleeper*> ThreadPool::WakeAllLocked() {
  for (Sleeper* const sleeper : idle_) sleeper->woken = true;
  keeper_ = nullptr;
  return std::exchange(idle_, {});
}

void ThreadPool::Post(Task task) {
  Sleeper* woken = nullptr;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    ready_.push_back(std::move(task));
    woken = WakeOneLocked();
  }
  if (woken != nullptr) woken->wake.NotifyOne();
}

void ThreadPool::PostAt(MonotonicTime time, Task task) {
  Sleeper* woken = nullptr;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    const bool is_earliest = timers_.empty() || time < timers_.front().time;
    timers_.push_back({time, next_order_++, std::move(task)});
    std::push_heap(timers_.begin(), timers_.end(), Later);
    if (is_earliest) {
      woken =
          keeper_ == nullptr ? WakeOneLocked() : WakeLocked(std::find(idle_.begin(), idle_.end(), keeper_));
    }
  }
  if (woken != nullptr) woken->wake.NotifyOne();
}

void ThreadPool::Probe(Task done) {
  std::vector<Sleeper*> woken;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    ++probe_;
    probe_missing_ = threads_.size();
    probe_done_ = std::move(done);
    woken = WakeAllLocked();
  }
  for (Sleeper* const sleeper : woken) sleeper->wake.NotifyOne();
}

void ThreadPool::Stop() {
  std::deque<Task> dropped_ready;  // destroyed outside the lock: a task may own what posts here
  std::vector<Timer> dropped_timers;
  std::vector<Sleeper*> woken;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped_ready.swap(ready_);
    dropped_timers.swap(timers_);
    woken = WakeAllLocked();
  }
  for (Sleeper* const sleeper : woken) sleeper->wake.NotifyOne();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadPool::SleepLocked(Sleeper& self) {
  self.woken = false;
  idle_.push_back(&self);
  if (keeper_ == nullptr && !timers_.empty()) keeper_ = &self;
  if (keeper_ == &self) {
    self.wake.WaitFor(mutex_, timers_.front().time - clock_.Monotonic());
  } else {
    self.wake.Wait(mutex_);
  }
  // The timer is due, or it woke for no reason.
  if (!self.woken) WakeLocked(std::find(idle_.begin(), idle_.end(), &self));
}

void ThreadPool::Work(Sleeper& self) {
  const MutexLock lock(mutex_);
  std::uint64_t probed = 0;
  while (!stopping_) {
    Task task;
    bool was_timer = false;
    if (probed != probe_) {
      probed = probe_;
      if (--probe_missing_ > 0) continue;
      task = std::exchange(probe_done_, nullptr);
    } else if (!timers_.empty() && timers_.front().time <= clock_.Monotonic()) {
      std::pop_heap(timers_.begin(), timers_.end(), Later);
      task = std::move(timers_.back().task);
      timers_.pop_back();
      was_timer = true;
    } else if (!ready_.empty()) {
      task = std::move(ready_.front());
      ready_.pop_front();
    } else {
      SleepLocked(self);
      continue;
    }
    // Of the threads that stay idle one has to wait for the timers that are left. And this one may have been
    // woken for a task, and found a timer due.
    const bool is_needed = (keeper_ == nullptr && !timers_.empty()) || (was_timer && !ready_.empty());
    Sleeper* const relief = is_needed ? WakeOneLocked() : nullptr;
    const MutexUnlock unlock(mutex_);
    if (relief != nullptr) relief->wake.NotifyOne();
    task();
    task = nullptr;  // destroyed outside the lock
  }
}

}  // namespace leaf::sys
