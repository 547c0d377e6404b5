// Why a service issues nothing any more: its process ends, or something has made it stop for good.
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/base/result.h"

namespace leaf::service {

inline Error ShuttingDown() {
  return {ErrorCode::kUnavailable, "this server is shutting down", "ask another server"};
}

// Thread-safe. Once raised it stays up.
class StopSign {
 public:
  void Raise(Error why) {
    const MutexLock lock(mutex_);
    if (!why_) why_ = std::move(why);
    raised_.store(true);
  }
  bool raised() const { return raised_.load(); }
  // The first reason that it was raised for; that the server is shutting down if it was not.
  Error why() const {
    const MutexLock lock(mutex_);
    return why_ ? *why_ : ShuttingDown();
  }

 private:
  std::atomic<bool> raised_{false};
  mutable Mutex mutex_;
  std::optional<Error> why_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
