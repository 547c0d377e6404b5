#include "leaf/sys/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "leaf/base/check.h"

namespace leaf::sys {

ThreadPool::ThreadPool(std::string name, std::size_t threads, const Clock& clock) : clock_(clock) {
  LEAF_CHECK(threads > 0);
  name.resize(std::min<std::size_t>(name.size(), 15));  // the kernel's limit
  try {
    for (std::size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
      pthread_setname_np(threads_.back().native_handle(), name.c_str());
    }
  } catch (const std::system_error& failed) {
    Stop();
    throw std::system_error(failed.code(), "cannot start a thread (" + name + ")");
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    ready_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void ThreadPool::PostAt(MonotonicTime time, Task task) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    timers_.push_back({time, next_order_++, std::move(task)});
    std::push_heap(timers_.begin(), timers_.end(), Later);
  }
  // Even if it is not the earliest: the thread that waits for the earliest may have been given other work.
  wake_.NotifyOne();
}

void ThreadPool::Probe(Task done) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    ++probe_;
    probe_missing_ = threads_.size();
    probe_done_ = std::move(done);
  }
  wake_.NotifyAll();
}

void ThreadPool::Stop() {
  std::deque<Task> dropped_ready;  // destroyed outside the lock: a task may own what posts here
  std::vector<Timer> dropped_timers;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped_ready.swap(ready_);
    dropped_timers.swap(timers_);
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadPool::Work() {
  const MutexLock lock(mutex_);
  std::uint64_t probed = 0;
  while (!stopping_) {
    Task task;
    if (probed != probe_) {
      probed = probe_;
      if (--probe_missing_ > 0) continue;
      task = std::exchange(probe_done_, nullptr);
    } else if (!timers_.empty() && timers_.front().time <= clock_.Monotonic()) {
      std::pop_heap(timers_.begin(), timers_.end(), Later);
      task = std::move(timers_.back().task);
      timers_.pop_back();
    } else if (!ready_.empty()) {
      task = std::move(ready_.front());
      ready_.pop_front();
    } else if (timers_.empty()) {
      wake_.Wait(mutex_);
      continue;
    } else {
      wake_.WaitFor(mutex_, timers_.front().time - clock_.Monotonic());
      continue;
    }
    const MutexUnlock unlock(mutex_);
    task();
    task = nullptr;  // destroyed outside the lock
  }
}

}  // namespace leaf::sys
