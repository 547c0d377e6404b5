// A mutex that says what it guards: LEAF_GUARDED_BY at a member, LEAF_REQUIRES at a function that wants the
// mutex held. clang checks every access (scripts/check.sh threads); for g++ the annotations are nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define LEAF_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define LEAF_THREAD_ATTRIBUTE(...)
#endif

// ---- for members and functions

// Read and written only with the mutex held.
#define LEAF_GUARDED_BY(mutex) LEAF_THREAD_ATTRIBUTE(guarded_by(mutex))
// The caller holds the mutexes. A lambda that is called with one held says so as well: clang looks at its
// body by itself, and sees no caller that has it as a std::function.
#define LEAF_REQUIRES(...) LEAF_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))

// ---- for mutexes and locks

#define LEAF_CAPABILITY(name) LEAF_THREAD_ATTRIBUTE(capability(name))
#define LEAF_SCOPED_CAPABILITY LEAF_THREAD_ATTRIBUTE(scoped_lockable)
#define LEAF_ACQUIRE(...) LEAF_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define LEAF_ACQUIRE_SHARED(...) LEAF_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define LEAF_RELEASE(...) LEAF_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define LEAF_RELEASE_SHARED(...) LEAF_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))

namespace leaf {

class LEAF_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LEAF_ACQUIRE() { mutex_.lock(); }
  void unlock() LEAF_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// A Mutex of 4 bytes instead of 40. A Condition cannot wait with it.
// As "Futexes Are Tricky" (Drepper, 2011) has it: a thread that waits says so before it sleeps, so that an
// unlock without waiting threads is one exchange.
class LEAF_CAPABILITY("mutex") SmallMutex {
 public:
  SmallMutex() = default;
  SmallMutex(const SmallMutex&) = delete;
  SmallMutex& operator=(const SmallMutex&) = delete;

  void lock() LEAF_ACQUIRE() {
    std::uint32_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed))
      return;
    // This thread cannot know whether others sleep. So it takes the mutex as awaited, and its own unlock
    // wakes the next one.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }
  void unlock() LEAF_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;  // held, and a thread may be waiting for it
  std::atomic<std::uint32_t> state_{kFree};
};

// For objects of which there are very many. The simulator holds threads up where they wait for a Mutex, and
// would sleep for ever in a SmallMutex; the thread sanitizer checks in which order a Mutex is locked.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LEAF_CHECKS_ORDER_OF_LOCKS
#endif
#endif
#if defined(LEAF_FAILPOINTS) || defined(LEAF_CHECKS_ORDER_OF_LOCKS) || defined(__SANITIZE_THREAD__)
using MutexOfMany = Mutex;
#else
using MutexOfMany = SmallMutex;
#endif

// Holds a mutex for as long as it lives.
template <typename AnyMutex>
class LEAF_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(AnyMutex& mutex) LEAF_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() LEAF_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  AnyMutex& mutex_;
};

// Lets go of a mutex that is held for as long as it lives.
class LEAF_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) LEAF_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  // For clang the end of what the constructor did, which here is to lock.
  ~MutexUnlock() LEAF_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// What threads that hold a mutex wait for. Wait may end for no reason: call it in a loop, which clang looks
// at with the mutex held, as it does not at a predicate.
class Condition {
 public:
  void Wait(Mutex& mutex) LEAF_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    condition_.wait(held);
    held.release();
  }
  // For so long at most.
  template <typename Rep, typename Period>
  void WaitFor(Mutex& mutex, std::chrono::duration<Rep, Period> time) LEAF_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(held, time);
    held.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace leaf
