#include "leaf/core/segment_buffer.h"

#include <algorithm>

#include "leaf/base/check.h"

namespace leaf::core {

SegmentBuffer::Settled SegmentBuffer::SettleDraw(Draw draw) {
  const auto [position, limit] = draw;
  Settled settled;
  if (limit == 0) return settled;
  const bool refill_wanted = position == refill_at_.load(std::memory_order_relaxed);
  if (position + 1 == limit) CloseAt(limit);
  const bool overshot = position >= limit;
  const bool void_by_now = overshot && position >= limit_.load(std::memory_order_acquire);
  if (!void_by_now && LookUpOne(position, settled.id)) {
    settled.result.outcome = Outcome::kTaken;
  } else if (overshot) {  // in no range: no taker's yet, or void since the limit moved, which is no ID lost
    settled.result.outcome = Outcome::kOvershoot;
    settled.result.position = position;
  } else {
    lost_.fetch_add(1, std::memory_order_relaxed);
    // Deeper only each time that all slots are rewritten while this thread sleeps.
    settled.result = TakeOne(settled.id);
  }
  settled.result.refill_wanted |= refill_wanted;
  return settled;
}

SegmentBuffer::TakeResult SegmentBuffer::Take(std::uint64_t count, IdSpans& out) {
  LEAF_CHECK(count > 0);
  if (count > 1) return TakeMany(count, false, out);
  std::uint64_t id = 0;
  const TakeResult result = TakeOne(id);
  if (result.outcome == Outcome::kTaken) out.Append({id, id + 1});
  return result;
}

SegmentBuffer::TakeResult SegmentBuffer::TakeContiguous(std::uint64_t count, IdSpans& out) {
  LEAF_CHECK(count > 0);
  return TakeMany(count, true, out);
}

SegmentBuffer::TakeResult SegmentBuffer::TakeMany(std::uint64_t count, bool contiguous, IdSpans& out) {
  bool refill_wanted = false;
  while (true) {
    // Compare-and-swap, not an add: a batch that does not fit must consume nothing.
    std::uint64_t drawn = cursor_.load(std::memory_order_relaxed);
    std::uint64_t limit = 0;
    std::uint64_t position = 0;
    do {
      limit = limit_.load(std::memory_order_acquire);
      LEAF_FAILPOINT("take: before the draw");
      if (drawn >= limit || limit - drawn < count) return {Outcome::kDrained, refill_wanted, 0};
      position = contiguous ? FindRun(drawn, limit, count) : drawn;
      if (position == kNever) return {Outcome::kDrained, refill_wanted, 0};
      // What is passed over is drawn, too: no position is left behind the cursor.
    } while (!cursor_.compare_exchange_weak(drawn, position + count, std::memory_order_acq_rel,
                                            std::memory_order_relaxed));
    LEAF_FAILPOINT("take: drawn");
    const std::uint64_t end = position + count;
    refill_wanted |= CrossesRefillPoint(drawn, end - drawn);
    if (end == limit) CloseAt(limit);
    if (position != drawn) skipped_.fetch_add(position - drawn, std::memory_order_relaxed);
    while (position < end) {
      const std::uint64_t found = LookUp(position, end - position, out);
      if (found == 0) break;
      position += found;
    }
    if (position == end) return {Outcome::kTaken, refill_wanted, 0};
    lost_.fetch_add(count, std::memory_order_relaxed);
    out = IdSpans{};
  }
}

bool SegmentBuffer::TakeUpTo(std::uint64_t count, IdSpans& out) {
  std::uint64_t position = cursor_.load(std::memory_order_relaxed);
  std::uint64_t taken = 0;
  std::uint64_t limit = 0;
  do {
    limit = limit_.load(std::memory_order_acquire);
    taken = position >= limit ? 0 : std::min(count, limit - position);
    if (taken == 0) return false;
  } while (!cursor_.compare_exchange_weak(position, position + taken, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
  if (position + taken == limit) CloseAt(limit);
  for (std::uint64_t at = position; at < position + taken;) {
    const std::uint64_t found = LookUp(at, position + taken - at, out);
    // Writers rewrite slots, and this is a writer: nothing can be lost here.
    LEAF_CHECK(found > 0);
    at += found;
  }
  return CrossesRefillPoint(position, taken);
}

bool SegmentBuffer::Resolve(std::uint64_t position, std::uint64_t& id) { return LookUpOne(position, id); }

SegmentBuffer::Installed SegmentBuffer::Install(IdRange range, std::uint64_t low_water) {
  LEAF_CHECK(!range.empty() && range.end <= kMaxIdLimit);
  LEAF_CHECK(range.begin >= ids_end_);
  if (!CanInstall()) return Installed::kNo;

  // Behind a reserve the new span continues it. Otherwise it begins at the cursor, so that positions drawn
  // past the limit become void, or, drawn from now on, part of this span.
  std::uint64_t cursor = cursor_.load(std::memory_order_acquire);
  const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
  std::uint64_t begin = positions_end_;
  if (limit == 0 || cursor >= limit) {
    begin = std::max(begin, cursor);
    // After Clear() the cursor may lag behind the dropped spans; takers wait at the limit meanwhile.
    while (cursor < begin && !cursor_.compare_exchange_weak(cursor, begin, std::memory_order_acq_rel,
                                                            std::memory_order_acquire)) {
    }
    cursor = std::max(cursor, begin);
  }
  const std::uint64_t end = begin + range.size();
  LEAF_CHECK(end > begin);  // 2^64 positions outlast any use

  WriteSlot(slots_[installs_ % kSegmentSlots], begin, end, range.begin - begin);
  ++installs_;
  positions_end_ = end;
  ids_end_ = range.end;

  // Positions in reserve are contiguous up to `end`: the one whose taking leaves `low_water` is a subtraction
  // away.
  const std::uint64_t in_reserve = end - cursor;
  std::uint64_t refill_at = low_water < in_reserve ? end - low_water - 1 : cursor;
  const std::uint64_t next_slot_free_at =
      slots_[installs_ % kSegmentSlots].end.load(std::memory_order_relaxed);
  bool low = low_water >= in_reserve;
  if (next_slot_free_at > std::max(refill_at, cursor)) {
    refill_at = next_slot_free_at - 1;
    low = false;
  }
  if (low) refill_at = kNever;
  refill_at_.store(refill_at, std::memory_order_relaxed);
  MarkPlain(refill_at);
  limit_.store(end, std::memory_order_release);
  if (low) return Installed::kLow;
  // Takers of an older range move on meanwhile. This read-modify-write and theirs have one order: a taker
  // that draws after it sees the new refill point; one that drew before it is seen here.
  return cursor_.fetch_add(0, std::memory_order_acq_rel) > refill_at ? Installed::kLow : Installed::kYes;
}

bool SegmentBuffer::CanInstall() const {
  const std::uint64_t oldest_end = slots_[installs_ % kSegmentSlots].end.load(std::memory_order_relaxed);
  return oldest_end <= cursor_.load(std::memory_order_acquire);
}

std::uint64_t SegmentBuffer::Clear() {
  // The limit first: takers that look from now on are turned away.
  const std::uint64_t limit = limit_.exchange(0, std::memory_order_acq_rel);
  refill_at_.store(kNever, std::memory_order_relaxed);
  // Where a slot begins stays: that only grows.
  for (Slot& slot : slots_) WriteSlot(slot, slot.begin.load(std::memory_order_relaxed), 0, 0);
  const std::uint64_t cursor = cursor_.load(std::memory_order_acquire);
  return cursor < limit ? limit - cursor : 0;
}

std::vector<SegmentBuffer::Held> SegmentBuffer::Ranges() const {
  std::vector<Held> held;
  const std::uint64_t limit = limit_.load(std::memory_order_acquire);
  const std::uint64_t cursor = cursor_.load(std::memory_order_relaxed);
  if (cursor >= limit) return held;
  const std::uint64_t oldest = installs_ > kSegmentSlots ? installs_ - kSegmentSlots : 0;
  for (std::uint64_t number = oldest; number < installs_; ++number) {
    const Slot& slot = slots_[number % kSegmentSlots];
    const std::uint64_t begin = slot.begin.load(std::memory_order_relaxed);
    const std::uint64_t end = slot.end.load(std::memory_order_relaxed);
    const std::uint64_t delta = slot.delta.load(std::memory_order_relaxed);
    if (end > cursor) held.push_back({number, std::max(begin, cursor) + delta, end + delta, end - begin});
  }
  return held;
}

std::uint64_t SegmentBuffer::remaining() const {
  const std::uint64_t limit = limit_.load(std::memory_order_acquire);
  const std::uint64_t cursor = cursor_.load(std::memory_order_relaxed);
  return cursor < limit ? limit - cursor : 0;
}

std::optional<std::uint64_t> SegmentBuffer::LastTaken() const {
  const std::uint64_t cursor = cursor_.load(std::memory_order_relaxed);
  std::optional<std::uint64_t> last;
  for (const Slot& slot : slots_) {
    const std::uint64_t begin = slot.begin.load(std::memory_order_relaxed);
    const std::uint64_t end = slot.end.load(std::memory_order_relaxed);
    if (end == 0 || cursor <= begin) continue;
    const std::uint64_t id = std::min(cursor, end) - 1 + slot.delta.load(std::memory_order_relaxed);
    last = std::max(last.value_or(0), id);
  }
  return last;
}

std::uint64_t SegmentBuffer::FindRun(std::uint64_t position, std::uint64_t limit, std::uint64_t count) const {
  std::uint64_t run_begin = position;
  std::uint64_t run_delta = 0;
  for (std::uint64_t at = position; at < limit;) {
    const std::uint64_t before = at;
    for (const Slot& slot : slots_) {
      std::uint64_t begin = 0;
      std::uint64_t end = 0;
      std::uint64_t delta = 0;
      if (!Read(slot, begin, end, delta) || at < begin || at >= end) continue;
      if (at == position || delta != run_delta) run_begin = at;
      run_delta = delta;
      at = std::min(end, limit);
      break;
    }
    if (at == before) return kNever;
    if (at - run_begin >= count) return run_begin;
  }
  return kNever;
}

bool SegmentBuffer::LookUpOne(std::uint64_t position, std::uint64_t& id) {
  const std::uint32_t hint = hint_.load(std::memory_order_relaxed);
  // One round over all slots, from any hint: the walk is bounded.
  for (std::uint32_t i = 0; i < kSegmentSlots; ++i) {
    const std::uint32_t index = (hint + i) % static_cast<std::uint32_t>(kSegmentSlots);
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t delta = 0;
    if (!Read(slots_[index], begin, end, delta) || position < begin || position >= end) continue;
    if (i != 0) hint_.store(index, std::memory_order_relaxed);
    id = position + delta;
    return true;
  }
  return false;
}

bool SegmentBuffer::CrossesRefillPoint(std::uint64_t position, std::uint64_t count) const {
  // Stored before the limit that let this taker pass, or settled by Install() (see there).
  const std::uint64_t refill_at = refill_at_.load(std::memory_order_relaxed);
  return position <= refill_at && refill_at - position < count;
}

std::uint64_t SegmentBuffer::LookUp(std::uint64_t position, std::uint64_t count, IdSpans& out) {
  const std::uint32_t hint = hint_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < kSegmentSlots; ++i) {
    const std::uint32_t index = (hint + i) % static_cast<std::uint32_t>(kSegmentSlots);
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t delta = 0;
    if (!Read(slots_[index], begin, end, delta) || position < begin || position >= end) continue;
    if (i != 0) hint_.store(index, std::memory_order_relaxed);
    const std::uint64_t found = std::min(count, end - position);
    out.Append({position + delta, position + delta + found});
    return found;
  }
  return 0;
}

void SegmentBuffer::WriteSlot(Slot& slot, std::uint64_t begin, std::uint64_t end, std::uint64_t delta) {
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  slot.plain_end.store(0, std::memory_order_relaxed);
  // Release on each payload store keeps it behind the odd version for readers that acquire it.
  slot.begin.store(begin, std::memory_order_release);
  slot.end.store(end, std::memory_order_release);
  slot.delta.store(delta, std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

void SegmentBuffer::MarkPlain(std::uint64_t refill_at) {
  for (Slot& slot : slots_) {
    const std::uint64_t begin = slot.begin.load(std::memory_order_relaxed);
    const std::uint64_t end = slot.end.load(std::memory_order_relaxed);
    if (end == 0) continue;
    const std::uint64_t plain_end = begin <= refill_at && refill_at < end ? refill_at : end - 1;
    slot.plain_end.store(plain_end, std::memory_order_release);
  }
}

}  // namespace leaf::core
