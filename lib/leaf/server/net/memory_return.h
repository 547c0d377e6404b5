// Gives memory back to the system when clients that took up much of it have gone: the C library would keep
// it.
#pragma once

#include <malloc.h>

#include <chrono>
#include <cstddef>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/base/time.h"

namespace leaf::server {

// Thread-safe.
//
// It waits until no more of them go: memory between clients that still are there cannot be given back, and
// too little may be left of it to look again.
class MemoryReturn {
 public:
  // To be called now and then. `held`: what clients take up, about; `most`: the same at its highest since the
  // last return, for many clients may come and go between two looks. Returns whether memory was given back.
  bool Look(MonotonicTime now, std::size_t held, std::size_t most) {
    const MutexLock lock(mutex_);
    if (now - looked_at_ < kLookInterval) return false;  // another thread did
    looked_at_ = now;
    const bool they_go = held < std::exchange(held_, held);
    // Seldom, since it keeps threads that need memory waiting for some milliseconds.
    if (they_go || most < kMuch || held > most / 4 || now - returned_at_ < kReturnInterval) return false;
    returned_at_ = now;
    malloc_trim(0);
    return true;
  }

 private:
  static constexpr std::size_t kMuch = std::size_t{4} * 1024 * 1024;
  static constexpr std::chrono::milliseconds kLookInterval{250};
  static constexpr std::chrono::seconds kReturnInterval{2};

  Mutex mutex_;
  MonotonicTime looked_at_ LEAF_GUARDED_BY(mutex_);
  MonotonicTime returned_at_ LEAF_GUARDED_BY(mutex_);
  std::size_t held_ LEAF_GUARDED_BY(mutex_) = 0;  // at the last look
};

}  // namespace leaf::server
