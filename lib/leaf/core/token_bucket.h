// A rate limit in one atomic word: the generic cell rate algorithm (ITU-T I.371). What is kept is the time at
// which the bucket is full again, so that the rate may change at any moment, and a million buckets cost 8 MB.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "leaf/base/time.h"

namespace leaf::core {

// Thread-safe and lock-free. Starts full.
//
// Invariant: of any `t` seconds at one rate, at most rate * (t + burst) + 1 takes succeed. Two takers that
// read the clock in one order and come here in the other only see less than there is, never more.
class TokenBucket {
 public:
  // Sixteenths of a nanosecond: 36 years fit, and a rate of some 100 000 a second is exact to 0.01 %.
  static constexpr std::uint64_t kTicksPerSecond = 16'000'000'000;

  class Rate {
   public:
    // No limit.
    Rate() = default;
    // One second's worth may come at once, and at least one. More than kTicksPerSecond a second is no limit.
    static Rate PerSecond(std::uint64_t per_second) {
      return FromInterval(per_second == 0 ? 0 : kTicksPerSecond / per_second);
    }
    static Rate FromInterval(std::uint64_t interval) {
      Rate rate;
      rate.interval_ = interval;
      rate.burst_ = std::max(interval, kTicksPerSecond);
      return rate;
    }
    bool is_limit() const { return interval_ > 0; }
    std::uint64_t interval() const { return interval_; }
    // The n-th part of this rate, for one of n users that share it.
    Rate Share(std::uint64_t n) const { return FromInterval(interval_ * std::max<std::uint64_t>(n, 1)); }
    // The same rate, of which `n` times as much may come at once.
    Rate WithBursts(std::uint64_t n) const {
      Rate rate = *this;
      rate.burst_ *= n;
      return rate;
    }

   private:
    friend class TokenBucket;
    std::uint64_t interval_ = 0;  // between two tokens, in ticks
    std::uint64_t burst_ = 0;     // how far ahead of now the bucket may be emptied, in ticks
  };

  // Takes one token, or none if there is none. Requires: the clock is not before its epoch. Each request
  // does: a call would cost as much again.
  [[gnu::always_inline]] bool TryTake(MonotonicTime now, const Rate& rate) {
    if (!rate.is_limit()) return true;
    const std::uint64_t now_ticks = Ticks(now);
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    while (true) {
      const std::uint64_t next = std::max(full_at, now_ticks) + rate.interval_;
      if (next - now_ticks > rate.burst_) return false;
      if (full_at_.compare_exchange_weak(full_at, next, std::memory_order_relaxed)) return true;
    }
  }

  // Takes `n` tokens, or none if there are fewer. Requires: one second's worth at most.
  bool TryTakeMany(MonotonicTime now, const Rate& rate, std::uint64_t n) {
    if (!rate.is_limit()) return true;
    const std::uint64_t now_ticks = Ticks(now);
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    while (true) {
      const std::uint64_t next = std::max(full_at, now_ticks) + n * rate.interval_;
      if (next - now_ticks > rate.burst_) return false;
      if (full_at_.compare_exchange_weak(full_at, next, std::memory_order_relaxed)) return true;
    }
  }

 private:
  static std::uint64_t Ticks(MonotonicTime time) {
    return static_cast<std::uint64_t>(
               std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count()) *
           (kTicksPerSecond / 1'000'000'000);
  }

  std::atomic<std::uint64_t> full_at_{0};
};

}  // namespace leaf::core
