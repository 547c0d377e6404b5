// Why a service issues nothing any more: its process ends, or something has made it stop for good.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "leaf/base/result.h"

namespace leaf::service {

inline Error ShuttingDown() {
  return {ErrorCode::kUnavailable, "this server is shutting down", "ask another server"};
}

// Thread-safe. Once raised it stays up.
class StopSign {
 public:
  void Raise(Error why) {
    const std::lock_guard lock(mutex_);
    if (!why_) why_ = std::move(why);
    raised_.store(true);
  }
  bool raised() const { return raised_.load(); }
  // The first reason that it was raised for; that the server is shutting down if it was not.
  Error why() const {
    const std::lock_guard lock(mutex_);
    return why_ ? *why_ : ShuttingDown();
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::optional<Error> why_;  // guarded by mutex_
};

}  // namespace leaf::service
