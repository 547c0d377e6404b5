// One worker's snowflake IDs, pure: time is an argument, the ceiling is persisted elsewhere.
//
// Why no ID repeats. An ID is (time, worker, sequence); this class hands out positions, which are (time,
// sequence) packed in one number.
// 1. Here: one word holds the next position. It only grows, and by compare-and-swap only; a taker owns
//    exactly the positions that its own swap passed over.
// 2. Over restarts: no position is taken whose time is at or above the ceiling, a ceiling takes effect only
//    once it is durable, and a start begins at or above every ceiling found. So everything that an
//    earlier process issued, however it ended, lies below where the next one begins.
// 3. Between nodes: worker numbers differ (WorkerRegistry).
// The clock has no part in this. It moves the word forward, and bounds how far (promise P6: never more than
// `window` ahead of the wall clock); if it goes back, time here stands still.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "leaf/base/atomic.h"
#include "leaf/base/id_range.h"
#include "leaf/base/require.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/id_layout.h"

namespace leaf::core {

class Snowflake;

// What one take got: `count` IDs from position `begin` on. `source`, whose worker number they have, tells
// which (FirstId, RangesOf); another object would make other IDs of them.
struct SnowflakeRun {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  const Snowflake* source = nullptr;
};

// Thread-safe. Takes are lock-free and allocate nothing.
class Snowflake {
 public:
  enum class Outcome {
    kTaken,
    kAhead,      // the window ahead of the wall clock is used up: more was asked for than a millisecond holds
    kAtCeiling,  // everything below the durable ceiling is used up
    kClockBack,  // the wall clock is further behind the last ID than the window
    kEnded,      // the layout has no later time
    kClosed,
  };
  struct TakeResult {
    Outcome outcome = Outcome::kClosed;
    bool extend_wanted = false;        // little is left below the ceiling
    std::chrono::milliseconds wait{};  // kAhead, kClockBack: the clock has to go on at least so far
  };

  // The first ID has a time of at least `begin`, and none is issued before RaiseCeiling. `seed`: any number,
  // new for each start. Requires: worker < layout.worker_end(); begin in epoch..LastTime() + 1 ms; window >
  // 0.
  Snowflake(const IdLayout& layout, std::uint64_t worker, WallTime begin, std::chrono::milliseconds window,
            std::uint64_t seed);
  Snowflake(const Snowflake&) = delete;
  Snowflake& operator=(const Snowflake&) = delete;

  // Takes exactly `count` IDs, ascending, above all taken before, or none. `now`: the wall clock, just read.
  // Requires: count > 0.
  TakeResult Take(std::uint64_t count, WallTime now, SnowflakeRun& out) {
    // Nearly always the word stands in a millisecond that is not over, and has room: no need to plan.
    std::uint64_t word = word_.load(std::memory_order_acquire);
    const std::int64_t now_time = ToTime(now);
    const std::int64_t time = TimeOf(word);  // beyond every limit if it is closed
    const std::int64_t ceiling = ceiling_.load(std::memory_order_acquire);
    const std::uint64_t sequence = SequenceOf(word);
    if (time >= now_time && time < std::min(ceiling, now_time + window_) && sequence != 0 &&
        count - 1 <= sequence_mask_ - sequence) [[likely]] {
      if (word_.compare_exchange_strong(word, word + count, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) [[likely]] {
        out = {word, count, this};
        return {Outcome::kTaken, ExtensionWanted(ceiling, time), {}};
      }
    }
    return TakePlanned(word, count, now_time, out);
  }
  // What Take would say at this moment, taking nothing.
  TakeResult Probe(std::uint64_t count, WallTime now) const;

  // The largest count that can be served at all, whatever the moment.
  static std::uint64_t CountMax(const IdLayout& layout, std::chrono::milliseconds window);
  std::uint64_t count_max() const { return CountMax(layout_, window()); }

  // The first ID of a run, and all of them as ascending ranges. Requires: a run of this object.
  std::uint64_t FirstId(const SnowflakeRun& run) const {
    internal::Require(run.source == this && run.begin < position_end_, "a run of this object");
    return (run.begin & ~sequence_mask_) << worker_bits_ | worker_part_ | (run.begin & sequence_mask_);
  }
  std::vector<IdRange> RangesOf(const SnowflakeRun& run) const;

  // `ceiling` is durable (exclusive): from now on IDs below it may be issued. Never lowers it.
  void RaiseCeiling(WallTime ceiling);
  WallTime ceiling() const { return ToWall(ceiling_.load(std::memory_order_acquire)); }
  // The ceiling to make durable at `now`: the wall clock plus the window, cut to what the layout holds.
  WallTime CeilingAt(WallTime now) const;
  // Whether less than two thirds of the window remain below the ceiling, and it can be raised at `now`.
  bool ExtensionDue(WallTime now) const;

  // Nothing is taken from now on. Async-signal-safe, so that the child of a fork can call it. Idempotent.
  void Close() { word_.fetch_or(kClosedBit, std::memory_order_acq_rel); }
  bool closed() const { return (word_.load(std::memory_order_acquire) & kClosedBit) != 0; }

  // Exclusive end of the times of all IDs taken so far; where this object began if there are none. Final once
  // closed.
  WallTime End() const;
  // Of the wall clock to the end of what was taken: how far IDs are ahead. 0 if they are not.
  std::chrono::milliseconds LeadAt(WallTime now) const;

  const IdLayout& layout() const { return layout_; }
  std::uint64_t worker() const { return worker_; }
  std::chrono::milliseconds window() const { return std::chrono::milliseconds{window_}; }

  // The sequence of a millisecond starts at random below this (Leaf's rule is 100; a power of two keeps
  // id % 2^k even up to 64). Half of a very short sequence at most.
  static constexpr std::uint64_t kStartEnd = 64;

 private:
  static std::uint64_t StartEnd(const IdLayout& layout);

  // Times below are milliseconds since the layout's epoch; signed, as the wall clock can be before it.
  std::int64_t ToTime(WallTime wall) const { return UnixMillis(wall) - layout_.epoch_ms(); }
  WallTime ToWall(std::int64_t time) const { return WallTimeOf(time + layout_.epoch_ms()); }
  std::int64_t TimeOf(std::uint64_t position) const {
    return static_cast<std::int64_t>(position >> sequence_bits_);
  }
  std::uint64_t SequenceOf(std::uint64_t position) const { return position & sequence_mask_; }
  std::uint64_t PositionOf(std::int64_t time, std::uint64_t sequence) const {
    return static_cast<std::uint64_t>(time) << sequence_bits_ | sequence;
  }
  // Takes as PlanTake says; `word` as it was seen last.
  TakeResult TakePlanned(std::uint64_t word, std::uint64_t count, std::int64_t now_time, SnowflakeRun& out);
  bool ExtensionWanted(std::int64_t ceiling, std::int64_t time) const {
    return (ceiling - time) * 3 < window_ * 2;
  }
  // What a take at `now_time` does while the word is `word`: the result, and on kTaken the run and the word
  // after it.
  struct Plan {
    TakeResult result;
    SnowflakeRun run;
    std::uint64_t end = 0;
  };
  Plan PlanTake(std::uint64_t word, std::uint64_t count, std::int64_t now_time) const;
  // Where the sequence of millisecond `time` starts: random, yet the same for every taker that looks.
  std::uint64_t StartOf(std::int64_t time) const;
  // `position`, or the start of its millisecond if nothing of that is taken yet.
  std::uint64_t Settled(std::uint64_t position) const;

  // The top bit: positions have 62 at most, since the worker has one or more.
  static constexpr std::uint64_t kClosedBit = std::uint64_t{1} << 63;
  static constexpr std::size_t kCacheLine = 64;

  const IdLayout layout_;
  const std::uint64_t worker_;
  const std::int64_t window_;  // milliseconds
  // Of the layout and the worker, as each ID needs them.
  const int sequence_bits_;
  const int worker_bits_;
  const std::uint64_t sequence_mask_;
  const std::uint64_t worker_part_;
  const std::uint64_t position_end_;
  const std::uint64_t seed_;
  const std::uint64_t start_end_;
  // Written by every taker.
  alignas(kCacheLine) Atomic<std::uint64_t> word_;
  // Read by every taker, written about once a second.
  alignas(kCacheLine) Atomic<std::int64_t> ceiling_;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

// Where a start at `now` may begin, when IDs up to `known_end` (exclusive; every ceiling found) may exist.
// A wall clock that is behind by up to `window` (after a crash) or `start_wait` is waited for.
// Errors: kClock, with the figures, if it is further behind: then this clock is wrong, or that ceiling is.
Result<WallTime> PlanStart(WallTime now, WallTime known_end, std::chrono::milliseconds window,
                           std::chrono::milliseconds start_wait);

}  // namespace leaf::core
