// A shared mutex on which a writer waits for the readers that are in, and not for those that come after it.
// std::shared_mutex of glibc prefers readers: with eight threads reading in a tight loop a writer was not let
// in at all, with four it waited 383 ms (measured on 2 cores).
#pragma once

#include <pthread.h>

#include "leaf/base/check.h"

namespace leaf::service {

// As std::shared_mutex, for std::shared_lock and std::unique_lock; a thread must not lock it shared twice.
class ReadMostlyMutex {
 public:
  ReadMostlyMutex() {
    pthread_rwlockattr_t attributes;
    LEAF_CHECK(pthread_rwlockattr_init(&attributes) == 0);
    LEAF_CHECK(pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    LEAF_CHECK(pthread_rwlock_init(&lock_, &attributes) == 0);
    pthread_rwlockattr_destroy(&attributes);
  }
  ~ReadMostlyMutex() { pthread_rwlock_destroy(&lock_); }
  ReadMostlyMutex(const ReadMostlyMutex&) = delete;
  ReadMostlyMutex& operator=(const ReadMostlyMutex&) = delete;

  void lock() { LEAF_CHECK(pthread_rwlock_wrlock(&lock_) == 0); }
  void unlock() { LEAF_CHECK(pthread_rwlock_unlock(&lock_) == 0); }
  void lock_shared() { LEAF_CHECK(pthread_rwlock_rdlock(&lock_) == 0); }
  void unlock_shared() { LEAF_CHECK(pthread_rwlock_unlock(&lock_) == 0); }

 private:
  pthread_rwlock_t lock_;
};

}  // namespace leaf::service
