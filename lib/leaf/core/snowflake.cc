#include "leaf/core/snowflake.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/limits.h"

namespace leaf::core {

Snowflake::Snowflake(const IdLayout& layout, std::uint64_t worker, WallTime begin,
                     std::chrono::milliseconds window, std::uint64_t seed)
    : layout_(layout),
      worker_(worker),
      window_(window.count()),
      sequence_bits_(layout.sequence_bits()),
      worker_bits_(std::countr_zero(layout.worker_end())),
      sequence_mask_(layout.sequence_end() - 1),
      worker_part_(worker << sequence_bits_),
      position_end_(static_cast<std::uint64_t>(layout.time_end()) << sequence_bits_),
      seed_(seed),
      start_end_(StartEnd(layout)),
      word_(PositionOf(ToTime(begin), 0)),
      ceiling_(ToTime(begin)) {
  LEAF_CHECK(worker < layout.worker_end());
  LEAF_CHECK(window_ > 0);
  LEAF_CHECK(ToTime(begin) >= 0 && ToTime(begin) <= layout.time_end());
}

std::uint64_t Snowflake::StartEnd(const IdLayout& layout) {
  return std::min(kStartEnd, layout.sequence_end() / 2);
}

Snowflake::TakeResult Snowflake::TakePlanned(std::uint64_t word, std::uint64_t count, std::int64_t now_time,
                                             SnowflakeRun& out) {
  LEAF_CHECK(count > 0);
  while (true) {
    const Plan plan = PlanTake(word, count, now_time);
    if (plan.result.outcome != Outcome::kTaken) return plan.result;
    // The word only grows: so every position is given to one taker.
    LEAF_CHECK(plan.run.begin >= word && plan.end > plan.run.begin);
    if (word_.compare_exchange_weak(word, plan.end, std::memory_order_acq_rel, std::memory_order_acquire)) {
      out = plan.run;
      return plan.result;
    }
  }
}

Snowflake::TakeResult Snowflake::Probe(std::uint64_t count, WallTime now) const {
  LEAF_CHECK(count > 0);
  return PlanTake(word_.load(std::memory_order_acquire), count, ToTime(now)).result;
}

Snowflake::Plan Snowflake::PlanTake(std::uint64_t word, std::uint64_t count, std::int64_t now_time) const {
  const auto refuse = [](Outcome outcome, bool extend_wanted, std::int64_t wait_ms) {
    return Plan{{outcome, extend_wanted, std::chrono::milliseconds{wait_ms}}, {}, 0};
  };
  if ((word & kClosedBit) != 0) return refuse(Outcome::kClosed, false, 0);
  // Exclusive limits of an ID's time.
  const std::int64_t ceiling = ceiling_.load(std::memory_order_acquire);
  const std::int64_t ahead = now_time + window_;
  const std::int64_t limit = std::min({ceiling, ahead, layout_.time_end()});

  // A new millisecond, or the one in which the word stands: this one, or one that was borrowed, or one that a
  // clock which went back has left. Never below the word.
  const std::int64_t begin_time = std::max(TimeOf(word), now_time);
  if (begin_time >= layout_.time_end()) return refuse(Outcome::kEnded, false, 0);
  const std::uint64_t begin = Settled(std::max(word, PositionOf(begin_time, 0)));
  std::uint64_t end = begin;
  std::int64_t last_time = begin_time;
  for (std::uint64_t rest = count; last_time < limit; ++last_time) {
    const std::uint64_t left = PositionOf(last_time + 1, 0) - end;
    if (rest <= left) {
      end += rest;
      return {{Outcome::kTaken, ExtensionWanted(ceiling, last_time), {}}, {begin, count, this}, end};
    }
    rest -= left;
    end = PositionOf(last_time + 1, StartOf(last_time + 1));
  }
  if (last_time >= layout_.time_end()) return refuse(Outcome::kEnded, false, 0);
  if (begin_time > ahead) return refuse(Outcome::kClockBack, false, begin_time - ahead + 1);
  if (last_time >= ahead) return refuse(Outcome::kAhead, last_time >= ceiling, last_time - ahead + 1);
  return refuse(Outcome::kAtCeiling, true, 0);
}

std::uint64_t Snowflake::CountMax(const IdLayout& layout, std::chrono::milliseconds window) {
  // The ceiling is kept at two thirds of the window or more.
  const auto millis = static_cast<std::uint64_t>(std::max<std::int64_t>(1, window.count() * 2 / 3));
  const std::uint64_t each = layout.sequence_end() - StartEnd(layout) + 1;
  return millis > kIdEnd / each ? kIdEnd : millis * each;
}

std::vector<IdRange> Snowflake::RangesOf(const SnowflakeRun& run) const {
  LEAF_CHECK(run.source == this);
  std::vector<IdRange> ranges;
  // The same walk as in Take: a millisecond after the first begins at its start.
  std::int64_t time = TimeOf(run.begin);
  std::uint64_t sequence = SequenceOf(run.begin);
  for (std::uint64_t rest = run.count; rest > 0; sequence = StartOf(++time)) {
    const std::uint64_t taken = std::min(rest, layout_.sequence_end() - sequence);
    const std::uint64_t id = layout_.ComposeChecked(time, worker_, sequence);
    ranges.push_back({id, id + taken});
    rest -= taken;
  }
  return ranges;
}

void Snowflake::RaiseCeiling(WallTime ceiling) {
  const std::int64_t time = ToTime(ceiling);
  LEAF_CHECK(time <= layout_.time_end());
  std::int64_t before = ceiling_.load(std::memory_order_relaxed);
  while (before < time && !ceiling_.compare_exchange_weak(before, time, std::memory_order_acq_rel)) {
  }
}

WallTime Snowflake::CeilingAt(WallTime now) const {
  return ToWall(std::min(ToTime(now) + window_, layout_.time_end()));
}

bool Snowflake::ExtensionDue(WallTime now) const {
  const std::int64_t ceiling = ceiling_.load(std::memory_order_acquire);
  const std::uint64_t word = word_.load(std::memory_order_acquire) & ~kClosedBit;
  const std::int64_t remaining = ceiling - std::max(ToTime(now), TimeOf(word));
  return remaining * 3 < window_ * 2 && ToTime(CeilingAt(now)) > ceiling;
}

WallTime Snowflake::End() const {
  const std::uint64_t word = word_.load(std::memory_order_acquire) & ~kClosedBit;
  // A position of sequence 0 is the next one of a millisecond of which nothing is taken.
  return ToWall(TimeOf(word) + (SequenceOf(word) == 0 ? 0 : 1));
}

std::chrono::milliseconds Snowflake::LeadAt(WallTime now) const {
  return std::max(End() - now, std::chrono::milliseconds{0});
}

std::uint64_t Snowflake::StartOf(std::int64_t time) const {
  // The finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the result depends on all of the seed
  // and the time.
  std::uint64_t z = seed_ + static_cast<std::uint64_t>(time) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  return z % start_end_;
}

std::uint64_t Snowflake::Settled(std::uint64_t position) const {
  return SequenceOf(position) == 0 ? position + StartOf(TimeOf(position)) : position;
}

Result<WallTime> PlanStart(WallTime now, WallTime known_end, std::chrono::milliseconds window,
                           std::chrono::milliseconds start_wait) {
  if (now >= known_end) return now;
  const auto behind = known_end - now;
  if (behind <= std::max(window, start_wait)) return known_end;
  return Error{ErrorCode::kClock,
               fmt::format("the wall clock says {}, but IDs up to {} may have been issued: it is {} behind, "
                           "and a start waits {} at most",
                           FormatRfc3339(now), FormatRfc3339(known_end), FormatDuration(behind),
                           FormatDuration(std::max(window, start_wait))),
               "correct the clock, wait until it has passed that time, or raise snowflake.start_wait"};
}

}  // namespace leaf::core
