// The reserve of a tag through every interleaving of its atomic operations, and every value that a load may
// read: with two slots, three threads and a few IDs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "leaf/core/segment_buffer.h"
#include "model/orders.h"

namespace leaf::core {
namespace {

using Outcome = SegmentBuffer::Outcome;
using Installed = SegmentBuffer::Installed;

constexpr std::uint64_t kFirstId = 8;

// What the threads share. The order in which they record something makes no difference.
struct World {
  SegmentBuffer buffer;
  std::uint64_t next_id = kFirstId;  // that is installed
  std::uint64_t installed = 0;       // a bit for each ID
  std::uint64_t taken = 0;           // a bit for each ID
  std::array<std::uint64_t, model::kThreadsMax> last{};
  std::uint64_t told = 0;       // takers that were told to refill
  std::uint64_t unsettled = 0;  // takers that overshot, and whose position is in no range
  std::uint64_t low_water = 0;  // of the last Install()
  bool will_tell = false;       // the last Install() promised that a taker will be told
  std::uint64_t installs = 0;
  std::array<std::uint64_t, kSegmentSlots> in_slot{};  // IDs of the range that is there
  std::uint64_t overwritten = 0;  // IDs of ranges whose slot was rewritten: a taker that sleeps may lose one
  std::uint64_t dropped = 0;      // IDs that Clear() counted
};

bool Has(std::uint64_t ids, std::uint64_t id) { return id < 64 && (ids >> id & 1) != 0; }

void Record(World& world, std::size_t thread, std::uint64_t id) {
  if (!Has(world.installed, id)) model::Fail("an ID that is in no range");
  if (Has(world.taken, id)) model::Fail("an ID twice");
  if (id < world.last[thread]) model::Fail("an ID below the one before");
  world.taken |= std::uint64_t{1} << id;
  world.last[thread] = id;
}

void Record(World& world, std::size_t thread, const IdSpans& spans) {
  for (const IdRange& range : spans.ranges())
    for (std::uint64_t id = range.begin; id < range.end; ++id) Record(world, thread, id);
}

void TakeOne(World& world, std::size_t thread) {
  std::uint64_t id = 0;
  const auto result = world.buffer.TakeOne(id);
  if (result.refill_wanted) ++world.told;
  if (result.outcome == Outcome::kTaken) Record(world, thread, id);
  if (result.outcome == Outcome::kOvershoot) {
    const model::WriterLock lock;
    if (world.buffer.Resolve(result.position, id)) {
      Record(world, thread, id);
    } else {
      ++world.unsettled;
    }
  }
  model::Forget();
}

void TakeMany(World& world, std::size_t thread, std::uint64_t count) {
  IdSpans spans;
  const auto result = world.buffer.Take(count, spans);
  if (result.refill_wanted) ++world.told;
  if (result.outcome == Outcome::kOvershoot) model::Fail("a batch that overshoots");
  if (spans.total() != (result.outcome == Outcome::kTaken ? count : 0)) model::Fail("half a batch");
  Record(world, thread, spans);
  model::Forget();
}

void TakeContiguous(World& world, std::size_t thread, std::uint64_t count) {
  IdSpans spans;
  const auto result = world.buffer.TakeContiguous(count, spans);
  if (result.refill_wanted) ++world.told;
  if (result.outcome == Outcome::kOvershoot) model::Fail("a batch that overshoots");
  if (spans.total() != (result.outcome == Outcome::kTaken ? count : 0)) model::Fail("half a batch");
  if (spans.ranges().size() > 1) model::Fail("contiguous IDs with a gap");
  Record(world, thread, spans);
  model::Forget();
}

void TakeUpTo(World& world, std::size_t thread, std::uint64_t count) {
  {
    const model::WriterLock lock;
    IdSpans spans;
    if (world.buffer.TakeUpTo(count, spans)) ++world.told;
    Record(world, thread, spans);
  }
  model::Forget();
}

void Install(World& world, std::uint64_t count, std::uint64_t low_water) {
  {
    const model::WriterLock lock;
    const IdRange range{world.next_id, world.next_id + count};
    const std::uint64_t ids = ((std::uint64_t{1} << count) - 1) << range.begin;
    world.installed |= ids;  // before: a taker may have an ID while it is being installed
    const Installed installed = world.buffer.Install(range, low_water);
    if (installed == Installed::kNo) {
      world.installed &= ~ids;
    } else {
      // With an ID between two ranges that is in neither: a range has its own distance from its positions.
      world.next_id = range.end + 1;
      world.low_water = low_water;
      std::uint64_t& in_slot = world.in_slot[world.installs++ % kSegmentSlots];
      world.overwritten += in_slot;
      in_slot = count;
    }
    world.will_tell = installed == Installed::kYes;
  }
  model::Forget();
}

void Clear(World& world) {
  {
    const model::WriterLock lock;
    for (std::uint64_t& in_slot : world.in_slot) {
      world.overwritten += in_slot;
      in_slot = 0;
    }
    world.will_tell = false;
    world.dropped += world.buffer.Clear();
  }
  model::Forget();
}

// Any thread, while no more than `most` IDs are ever in reserve.
void LookAtReserve(World& world, std::uint64_t most) {
  if (world.buffer.remaining() > most) model::Fail("more in reserve than there ever was");
  model::Forget();
}

// With one range at most: a second one would keep memory of the heap while other threads run.
void LookAtRanges(World& world) {
  {
    const model::WriterLock lock;
    for (const SegmentBuffer::Held& held : world.buffer.Ranges())
      for (std::uint64_t id = held.next; id < held.end; ++id)
        if (!Has(world.installed, id)) model::Fail("an ID in a range that is in no range");
  }
  model::Forget();
}

// After all threads: what was taken, is in reserve, or was counted as dropped or lost, is all there was.
void Finish(World& world) {
  const std::uint64_t left = world.buffer.remaining();
  const std::uint64_t lost = world.buffer.lost();
  const std::uint64_t skipped = world.buffer.skipped();
  IdSpans rest;
  world.buffer.TakeUpTo(left, rest);
  if (rest.total() != left) model::Fail("less in reserve than it says");
  for (const IdRange& range : rest.ranges())
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      if (!Has(world.installed, id)) model::Fail("an ID in reserve that is in no range");
      if (Has(world.taken, id)) model::Fail("an ID in reserve that was taken");
    }
  const auto all = static_cast<std::uint64_t>(std::popcount(world.installed));
  const auto known = static_cast<std::uint64_t>(std::popcount(world.taken)) + left + lost + skipped;
  if (known > all) model::Fail("an ID is counted twice");
  if (all > known + world.dropped + world.unsettled) model::Fail("an ID is lost and not counted");
  if (lost > world.overwritten) model::Fail("an ID is lost though its slot was not rewritten");
  if (world.will_tell && left <= world.low_water && world.told == 0)
    model::Fail("no taker was told to refill");
}

using Thread = std::function<void(World&)>;

Thread Takes(std::size_t thread, int count) {
  return [=](World& world) {
    for (int i = 0; i < count; ++i) TakeOne(world, thread);
  };
}
Thread TakesBatch(std::size_t thread, std::uint64_t count) {
  return [=](World& world) { TakeMany(world, thread, count); };
}
Thread TakesContiguous(std::size_t thread, std::uint64_t count) {
  return [=](World& world) { TakeContiguous(world, thread, count); };
}
Thread Installs(std::uint64_t count, std::uint64_t low_water) {
  return [=](World& world) { Install(world, count, low_water); };
}
// The reserve is dropped, and another range comes.
void DropsAndInstalls(World& world) {
  Clear(world);
  Install(world, 2, 0);
}
// Two ranges of one ID each: both slots.
void TwoSlots(World& world) {
  Install(world, 1, 2);
  Install(world, 1, 2);
}

model::Scenario<World> RefillBesideTakers() {
  return {Installs(2, 2), {Takes(0, 2), Takes(1, 1), Installs(2, 1)}, Finish};
}

void ExpectNoViolation(const model::Scenario<World>& scenario) {
  const model::Report report = model::Explore(scenario);
  EXPECT_EQ(report.violation, "") << report.trace;
  EXPECT_GT(report.ends, 1U);
  fmt::print("model: {} states, {} steps, {} ends\n", report.states, report.steps, report.ends);
}

model::Scenario<World> BatchBesideARefill() {
  return {Installs(2, 2), {TakesBatch(0, 2), Takes(1, 1), Installs(2, 1)}, Finish};
}

// The two IDs are in the second range: the one before them is passed over, or another taker has it.
model::Scenario<World> ContiguousBesideTakers() {
  const auto one_and_two = [](World& world) {
    Install(world, 1, 2);
    Install(world, 2, 2);
  };
  return {one_and_two, {TakesContiguous(0, 2), Takes(1, 2)}, Finish};
}

model::Scenario<World> ContiguousBesideARefill() {
  return {Installs(1, 2), {TakesContiguous(0, 2), Takes(1, 1), Installs(2, 1)}, Finish};
}

model::Scenario<World> AWriterBesideTakers() {
  const auto writer = [](World& world) {
    TakeUpTo(world, 2, 2);
    Install(world, 2, 0);
  };
  return {Installs(2, 2), {Takes(0, 1), Takes(1, 1), writer}, Finish};
}

// The refill trap: a taker that has drawn sleeps until its slot is another range's.
model::Scenario<World> BothSlotsUsedAgain() {
  const auto writer = [](World& world) {
    TakeUpTo(world, 1, 2);
    Install(world, 1, 0);
    Install(world, 1, 0);
  };
  return {TwoSlots, {Takes(0, 1), writer}, Finish};
}

model::Scenario<World> DropBesideABatch() {
  return {Installs(2, 0), {TakesBatch(0, 2), DropsAndInstalls}, Finish};
}

TEST(SegmentBufferModel, ARefillBesideTakers) { ExpectNoViolation(RefillBesideTakers()); }

TEST(SegmentBufferModel, ABatchBesideARefill) { ExpectNoViolation(BatchBesideARefill()); }

TEST(SegmentBufferModel, ContiguousIdsBesideTakers) { ExpectNoViolation(ContiguousBesideTakers()); }

TEST(SegmentBufferModel, ContiguousIdsBesideARefill) { ExpectNoViolation(ContiguousBesideARefill()); }

TEST(SegmentBufferModel, AWriterTakesBesideTakers) { ExpectNoViolation(AWriterBesideTakers()); }

TEST(SegmentBufferModel, BothSlotsAreUsedAgainWhileATakerSleeps) { ExpectNoViolation(BothSlotsUsedAgain()); }

TEST(SegmentBufferModel, AReserveIsDroppedBesideABatch) { ExpectNoViolation(DropBesideABatch()); }

// The same with less: two threads, and what it takes for an order to be needed. A second's worth in all.

// The refill point is a position of the older range.
model::Scenario<World> RefillBesideATaker() {
  return {Installs(1, 1), {Takes(0, 2), Installs(2, 2)}, Finish};
}

// The second batch does not reach the limit, which would look at it once more.
model::Scenario<World> RefillBesideBatches() {
  const auto batches = [](World& world) {
    TakeMany(world, 0, 2);
    TakeMany(world, 0, 2);
  };
  return {Installs(2, 2), {batches, Installs(3, 3)}, Finish};
}

// The taker looks first at the slot that is rewritten: it served last.
model::Scenario<World> SlotUsedAgainBesideATaker() {
  const auto third_range = [](World& world) {
    TwoSlots(world);
    TakeUpTo(world, 0, 2);
    Install(world, 1, 0);
  };
  return {third_range, {Takes(0, 1), Installs(1, 0)}, Finish};
}

model::Scenario<World> DropBesideATaker() { return {TwoSlots, {Takes(0, 1), Clear}, Finish}; }

// The second ID may be taken with nothing but a look at its slot.
model::Scenario<World> DropBesideAPlainTake() { return {Installs(2, 0), {Takes(0, 1), Clear}, Finish}; }

model::Scenario<World> DropBesideALook() {
  return {Installs(2, 0), {[](World& world) { LookAtReserve(world, 2); }, DropsAndInstalls}, Finish};
}

// The taker draws past the limit, maybe.
model::Scenario<World> WriterBesideATaker() {
  const auto writer = [](World& world) {
    TakeUpTo(world, 1, 2);
    Install(world, 2, 0);
  };
  return {Installs(2, 2), {Takes(0, 1), writer}, Finish};
}

model::Scenario<World> LookAtRangesBesideATaker() {
  return {Installs(2, 0), {Takes(0, 2), LookAtRanges}, Finish};
}

std::vector<model::Scenario<World>> SmallScenarios() {
  return {RefillBesideATaker(), RefillBesideBatches(),     SlotUsedAgainBesideATaker(),
          DropBesideATaker(),   DropBesideAPlainTake(),    DropBesideALook(),
          WriterBesideATaker(), LookAtRangesBesideATaker()};
}

// Minutes each.
model::Scenario<World> SlotUsedAgainBesideTakers() {
  return {TwoSlots, {Takes(0, 1), Takes(1, 1), Installs(1, 0)}, Finish};
}

model::Scenario<World> DropAndInstallBesideATaker() {
  return {Installs(2, 0), {Takes(0, 1), DropsAndInstalls}, Finish};
}

TEST(LongSegmentBufferModel, ASlotIsUsedAgainBesideTakers) { ExpectNoViolation(SlotUsedAgainBesideTakers()); }

TEST(LongSegmentBufferModel, AReserveIsDroppedBesideATaker) {
  ExpectNoViolation(DropAndInstallBesideATaker());
}

// Orders that no promise of the reserve needs, and why. The scenarios hold without all of them at once. They
// stay: on x86 each is the same instruction without it, and code that acquires and releases throughout is
// easier to trust than a list of reasons. No test on x86 could see that an order is missing, one of these or
// one that is needed: a load there acquires, a store releases, a read-modify-write does both in any case.
//
// What the reasons build on:
// - All that takers read was written by writers, but for the cursor, the hint, which may be old, and a limit
//   of 0. Draws are read-modify-writes: they hand on what a writer released before them, whatever their own
//   order is (a release sequence).
// - A limit of 0 announces nothing. A taker that reads it turns away, or settles its position under the lock;
//   Install() and Clear() read nothing behind it but the cursor and what writers wrote.
// - The lock of their owner brings writers all that writers before them wrote, and the positions that
//   Resolve() declared void.
// - The model has no load that runs behind a later store, which C++ allows where nothing forbids it. The
//   release of a draw forbids it, and so does the acquire of a writer that finds all of a slot drawn: a
//   taker's last look at a slot, for an earlier take, comes before the slot is rewritten. Otherwise an ID
//   might be counted as lost for no reason; never would it be given out twice.
model::Reasons ReasonsOfOrders() {
  return {
      // ---- takers
      {"TakePlain: release of cursor_.fetch_add",
       "A taker announces nothing by its draw. It keeps earlier looks at slots before it (see above)."},
      {"TakeMany: release of cursor_.compare_exchange_weak",
       "A taker announces nothing by its draw. It keeps earlier looks at slots before it (see above)."},
      {"TakePlain: acquire of slot.begin.load",
       "Where a slot begins only grows: one that is too new turns the taker away, to a look that finds out."},
      {"Read: acquire of slot.begin.load",
       "Where a slot begins only grows: one that is too new turns the taker away, whose slot was rewritten."},
      {"SettleDraw: acquire of limit_.load",
       "Without it the look-up may miss a range that is there. Resolve() finds it, under the lock."},
      {"CloseAt: acquire of limit_.compare_exchange_strong",
       "No two limits above 0 are the same: the one that is swapped was acquired when it was read."},
      {"CloseAt: release of limit_.compare_exchange_strong", "A limit of 0 announces nothing."},
      // ---- writers
      {"WriteSlot: release of slot.begin.store",
       "Where a slot begins only grows: one that is read early turns a taker away, whose slot is rewritten."},
      {"TakeUpTo: acquire of limit_.load",
       "The lock brings what was written before a limit: writers alone store one above 0."},
      {"TakeUpTo: acquire of cursor_.compare_exchange_weak",
       "The lock brings the refill point and the slots, and nothing else is read after it."},
      {"TakeUpTo: release of cursor_.compare_exchange_weak",
       "Install() announces a range by the limit, and a refill point in an older one by its fetch_add."},
      {"CanInstall: acquire of cursor_.load",
       "Only its value counts: a version tells takers that still read the slot. It keeps their earlier looks "
       "before the rewriting (see above)."},
      {"Install: acquire of cursor_.load",
       "It would bring a limit of 0. Where that is read late, the cursor decides; where the cursor is old, "
       "too, the span continues the one before, and positions drawn past that become part of it."},
      {"Install: acquire of cursor_.compare_exchange_weak",
       "Nothing is read after it but the cursor and what writers wrote."},
      {"Install: acquire on failure of cursor_.compare_exchange_weak",
       "Nothing is read after it but the cursor and what writers wrote."},
      {"Install: release of cursor_.compare_exchange_weak",
       "Positions from there on are above every limit so far: a taker that draws one reads the new limit, "
       "which announces the range, or goes to Resolve(), which has the lock."},
      {"Install: acquire of cursor_.fetch_add",
       "Only its value counts, and its place among the draws, which every read-modify-write has."},
      {"Clear: acquire of limit_.exchange",
       "The lock brings what was written before a limit: writers alone store one above 0."},
      {"Clear: release of limit_.exchange",
       "A limit of 0 announces nothing. Emptied slots announce it by the releases of their own."},
      {"Clear: acquire of cursor_.load",
       "Only its value counts, and it may be old: a take that began before may succeed anyway."},
      {"Ranges: acquire of limit_.load",
       "The lock brings what was written before a limit: writers alone store one above 0."},
  };
}

model::Sources CodeUnderTest() {
  return {LEAF_SOURCE_DIR "/lib/leaf/core", {"segment_buffer.h", "segment_buffer.cc"}};
}

TEST(SegmentBufferModel, EachOrderIsNeededOrHasAReason) {
  const auto findings = model::CheckOrders(SmallScenarios(), CodeUnderTest(), ReasonsOfOrders());
  for (const std::string& wrong : findings.wrong) ADD_FAILURE() << wrong;
  for (const auto& [name, violation] : findings.needed) fmt::print("model: {}: {}\n", name, violation);
  fmt::print("model: {} orders are needed, {} have a reason\n", findings.needed.size(),
             findings.explained.size());
}

void ExpectThatReasonsHold(const std::vector<model::Scenario<World>>& scenarios) {
  const auto findings = model::CheckOrders(SmallScenarios(), CodeUnderTest(), ReasonsOfOrders());
  for (const model::Scenario<World>& scenario : scenarios)
    for (const std::string& stale : model::StaleReasons(scenario, findings.explained)) ADD_FAILURE() << stale;
}

TEST(SegmentBufferModel, NoReasonIsStale) {
  ExpectThatReasonsHold({RefillBesideTakers(), BatchBesideARefill(), AWriterBesideTakers()});
}

TEST(LongSegmentBufferModel, NoReasonIsStale) {
  ExpectThatReasonsHold(
      {BothSlotsUsedAgain(), DropBesideABatch(), SlotUsedAgainBesideTakers(), DropAndInstallBesideATaker()});
}

}  // namespace
}  // namespace leaf::core
