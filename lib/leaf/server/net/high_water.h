// The highest level that something has had.
#pragma once

#include <atomic>
#include <cstddef>

namespace leaf::server {

// Thread-safe. A Reset may miss what rises at the same time: a caller that resets raises it again to the
// level that it finds later.
class HighWater {
 public:
  void Rise(std::size_t level) {
    std::size_t highest = level_.load(std::memory_order_relaxed);
    while (highest < level && !level_.compare_exchange_weak(highest, level, std::memory_order_relaxed)) {
    }
  }
  std::size_t level() const { return level_.load(std::memory_order_relaxed); }
  void Reset(std::size_t level) { level_.store(level, std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> level_{0};
};

}  // namespace leaf::server
