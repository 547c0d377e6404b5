// The reserve of one tag: a short queue of granted ranges, from which any number of threads take without a
// lock.
//
// How it works. Takers draw virtual positions from one cursor that only ever grows. Each installed range
// occupies a span of positions; a slot maps the span to the range (id = position + delta). A position is
// drawn once, so an ID is taken once, and because positions are never reused there is no ABA: a taker that
// slept through any number of refills still holds a position that means one ID or none.
//
// Why no ID can repeat (the refill trap). A slot is rewritten for a later range only under its version (a
// seqlock), and a taker accepts a slot only if it contains its own position. A rewritten slot cannot contain
// it, because spans of positions never overlap. What remains is loss: a taker that sleeps between draw and
// look-up until its slot was rewritten (kSegmentSlots installs) drops its position and draws again; the ID is
// skipped and counted (lost()).
//
// The plain way. All positions of a span but two, the refill point and the last one, ask for nothing but
// their ID. A taker reads the slot that served last before it draws, and after the draw only one word of it
// again: where its plain positions end. That word is its version, too: it is 0 while the slot is being
// rewritten, and no later span has the same one. It is lowered where a new refill point comes to lie in an
// older span, before the read-modify-write by which Install() announces that point: a taker that draws after
// it sees that, and settles its position the long way.
//
// Positions past the limit. A taker may draw one: it cannot know before. Such a position belongs to no taker
// yet: Install() places new spans at or above the cursor, so it becomes either part of the new range or void
// for ever. Which of the two is settled by Resolve(), serialised with Install(). Few get there: the taker
// that draws the last position closes the buffer (limit 0), and later takers are turned away by a look at a
// line that is rarely written. Takers do not read the cursor before they draw: with two threads that would be
// a second transfer of its cache line, and cost as much as the draw itself.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "leaf/base/atomic.h"
#include "leaf/base/failpoint.h"
#include "leaf/base/id_range.h"
#include "leaf/base/limits.h"

namespace leaf::core {

// Take calls: thread-safe, lock-free, never allocate. Calls marked "writer" must be serialised by the owner
// with each other (a mutex per tag); takers may run beside them.
class SegmentBuffer {
 public:
  enum class Outcome {
    kTaken,
    kDrained,    // fewer IDs than asked for are in reserve; nothing was consumed
    kOvershoot,  // one ID was asked for and drawn past the limit: settle `position` with Resolve()
  };
  struct TakeResult {
    Outcome outcome = Outcome::kDrained;
    bool refill_wanted = false;  // true for the one taker that crosses the refill point of the last Install()
    std::uint64_t position = 0;  // kOvershoot only
  };

  SegmentBuffer() = default;
  SegmentBuffer(const SegmentBuffer&) = delete;
  SegmentBuffer& operator=(const SegmentBuffer&) = delete;

  // What a take of one ID has drawn, and the limit that let it.
  struct Draw {
    std::uint64_t position = 0;
    std::uint64_t limit = 0;  // 0: nothing was drawn
  };
  // The first half of TakeOne, and nearly always all of it: takes the next ID into `id`. False: see
  // SettleDraw.
  bool TakePlain(std::uint64_t& id, Draw& draw) {
    // Loaded with acquire before any slot is read: a limit is published after its slot.
    draw.limit = limit_.load(std::memory_order_acquire);
    if (draw.limit == 0) [[unlikely]]
      return false;
    // What can be is read before the draw: behind it, which holds up all later reads, two comparisons are
    // left.
    const Slot& slot = slots_[hint_.load(std::memory_order_relaxed)];
    const std::uint64_t plain_end = slot.plain_end.load(std::memory_order_acquire);
    LEAF_FAILPOINT("take: reading a slot");
    const std::uint64_t begin = slot.begin.load(std::memory_order_acquire);
    const std::uint64_t delta = slot.delta.load(std::memory_order_acquire);
    LEAF_FAILPOINT("take: before the draw");
    const std::uint64_t position = cursor_.fetch_add(1, std::memory_order_acq_rel);
    LEAF_FAILPOINT("take: drawn");
    draw.position = position;
    id = position + delta;
    return position < plain_end && position >= begin &&
           slot.plain_end.load(std::memory_order_relaxed) == plain_end;
  }
  // The second half, where the first says false: what becomes of the draw. Takes again if its ID is lost. The
  // ID comes as a value: were TakePlain's passed on, each take would write it to memory, and each draw wait
  // for that.
  struct Settled {
    TakeResult result;
    std::uint64_t id = 0;
  };
  Settled SettleDraw(Draw draw);

  // Takes the next ID into `id`.
  TakeResult TakeOne(std::uint64_t& id) {
    Draw draw;
    if (TakePlain(id, draw)) [[likely]]
      return {Outcome::kTaken};
    const Settled settled = SettleDraw(draw);
    id = settled.id;
    return settled.result;
  }

  // Takes exactly `count` IDs into `out`, oldest range first, or none. Requires: count > 0, `out` empty.
  TakeResult Take(std::uint64_t count, IdSpans& out);
  // The same, of IDs that follow each other without a gap: from one range, or from ranges that continue each
  // other. What the reserve holds below them is skipped, and counted (skipped()). Never kOvershoot. Beside a
  // writer it may be kDrained though the IDs are there: then take again as a writer.
  TakeResult TakeContiguous(std::uint64_t count, IdSpans& out);

  // Writer. Takes up to `count` IDs, whatever is in reserve; 0 is fine. Returns whether a refill point was
  // crossed.
  bool TakeUpTo(std::uint64_t count, IdSpans& out);

  // Writer. Settles a kOvershoot: true, and the ID in `id`, if a range was installed over `position`
  // meanwhile; false if the position is void and the caller must take again.
  bool Resolve(std::uint64_t position, std::uint64_t& id);

  enum class Installed {
    kNo,   // no slot is free
    kYes,  // one taker will be told to refill: the one that leaves `low_water` IDs in reserve or fewer
    kLow,  // so few are in reserve already, and a slot is free: refill now
  };
  // Writer. Appends `range` to the reserve. If there is no slot for a further range by then, the taker that
  // frees one is told to refill. Requires: a valid range that begins at or above the end of every range
  // installed before.
  Installed Install(IdRange range, std::uint64_t low_water);

  // Writer. Whether Install() would find a slot.
  bool CanInstall() const;

  // Writer. Drops the reserve; returns how many IDs it held. A take that began before may still succeed.
  std::uint64_t Clear();

  // Writer. What is in reserve, range by range, as of about now, oldest first.
  struct Held {
    std::uint64_t number = 0;  // of its Install(), from 0
    std::uint64_t next = 0;    // the next ID of it that is taken
    std::uint64_t end = 0;     // exclusive
    std::uint64_t size = 0;    // as it was installed
  };
  std::vector<Held> Ranges() const;

  // IDs in reserve, as of about now.
  std::uint64_t remaining() const;
  // IDs skipped because their taker slept too long (see above). One whose taker overshot first is not
  // counted: it cannot be told from a void position any more.
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  // IDs that were passed over because contiguous ones were asked for, and the next ones were not.
  std::uint64_t skipped() const { return skipped_.load(std::memory_order_relaxed); }
  // Both: IDs that were taken out of the reserve for no taker.
  std::uint64_t wasted() const { return lost() + skipped(); }
  // Writer. The highest ID that was taken since the last Clear(), as of about now; nothing if none was.
  std::optional<std::uint64_t> LastTaken() const;

 private:
  struct Slot {
    Atomic<std::uint32_t> version{0};  // odd while being rewritten
    Atomic<std::uint64_t> begin{0};    // positions [begin, end)
    Atomic<std::uint64_t> end{0};      // 0: none
    Atomic<std::uint64_t> delta{0};    // id = position + delta, modulo 2^64
    // A position of [begin, plain_end) is neither the refill point nor the last of its span: to take it
    // changes nothing else. 0 while the slot is being rewritten.
    Atomic<std::uint64_t> plain_end{0};
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  TakeResult TakeMany(std::uint64_t count, bool contiguous, IdSpans& out);
  // The lowest position from `position` on at which `count` contiguous IDs below `limit` begin. kNever if
  // there is none, or, beside a writer, if a slot was rewritten meanwhile.
  std::uint64_t FindRun(std::uint64_t position, std::uint64_t limit, std::uint64_t count) const;
  bool CrossesRefillPoint(std::uint64_t position, std::uint64_t count) const;
  // What a slot says, if it says one thing: false while it is being rewritten.
  static bool Read(const Slot& slot, std::uint64_t& begin, std::uint64_t& end, std::uint64_t& delta) {
    const std::uint32_t version = slot.version.load(std::memory_order_acquire);
    LEAF_FAILPOINT("take: reading a slot");
    begin = slot.begin.load(std::memory_order_acquire);
    end = slot.end.load(std::memory_order_acquire);
    delta = slot.delta.load(std::memory_order_acquire);
    return version % 2 == 0 && slot.version.load(std::memory_order_relaxed) == version;
  }
  // The last position below `limit` is drawn. A range that was installed meanwhile has moved the limit, and
  // stays open.
  void CloseAt(std::uint64_t limit) {
    limit_.compare_exchange_strong(limit, 0, std::memory_order_acq_rel, std::memory_order_relaxed);
  }
  bool LookUpOne(std::uint64_t position, std::uint64_t& id);
  // Appends the IDs of `count` positions from `position` on, up to the end of the slot that holds the first;
  // returns how many, 0 if no slot holds it.
  std::uint64_t LookUp(std::uint64_t position, std::uint64_t count, IdSpans& out);
  static void WriteSlot(Slot& slot, std::uint64_t begin, std::uint64_t end, std::uint64_t delta);
  // Of all slots, by the refill point as it is to be.
  void MarkPlain(std::uint64_t refill_at);

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::size_t kCacheLine = 64;

  // Written by every taker.
  alignas(kCacheLine) Atomic<std::uint64_t> cursor_{0};
  // Read by every taker, written once a range.
  // Positions below may be drawn; 0 when there is none.
  alignas(kCacheLine) Atomic<std::uint64_t> limit_{0};
  Atomic<std::uint64_t> refill_at_{kNever};
  Atomic<std::uint32_t> hint_{0};  // the slot that served last
  alignas(kCacheLine) std::array<Slot, kSegmentSlots> slots_;
  // Writer's own.
  alignas(kCacheLine) std::uint64_t installs_ = 0;
  std::uint64_t positions_end_ = 0;  // end of the last span ever placed
  std::uint64_t ids_end_ = 0;        // end of the last range ever installed
  Atomic<std::uint64_t> lost_{0};
  Atomic<std::uint64_t> skipped_{0};
};

}  // namespace leaf::core
