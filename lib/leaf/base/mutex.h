// A mutex that says what it guards: LEAF_GUARDED_BY at a member, LEAF_REQUIRES at a function that wants the
// mutex held. clang checks every access (scripts/check.sh threads); for g++ the annotations are nothing.
#pragma once

#include <chrono>
#include <condition_variable>
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

// Holds a mutex for as long as it lives.
class LEAF_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LEAF_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() LEAF_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
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
