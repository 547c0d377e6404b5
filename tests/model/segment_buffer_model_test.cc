// The reserve of a tag through every interleaving of its atomic operations, and every value that a load may
// read: with two slots, three threads and a few IDs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "leaf/core/segment_buffer.h"

namespace leaf::core {
namespace {

using Outcome = SegmentBuffer::Outcome;
using Installed = SegmentBuffer::Installed;

constexpr std::uint64_t kFirstId = 8;

// What the threads share. The order in which they record something makes no difference.
struct World {
  SegmentBuffer buffer;
  std::uint64_t next_id = kFirstId;  // that is installed
  std::uint64_t taken = 0;           // a bit for each ID
  std::array<std::uint64_t, model::kThreadsMax> last{};
  std::uint64_t told = 0;       // takers that were told to refill
  std::uint64_t unsettled = 0;  // takers that overshot, and whose position is in no range
  std::uint64_t low_water = 0;  // of the last Install()
  bool will_tell = false;       // the last Install() promised that a taker will be told
  bool cleared = false;
};

void Record(World& world, std::size_t thread, std::uint64_t id) {
  if (id < kFirstId || id >= world.next_id) model::Fail("an ID that is in no range");
  if ((world.taken >> id & 1) != 0) model::Fail("an ID twice");
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
    const std::uint64_t begin = world.next_id;
    world.next_id += count;  // before: a taker may have an ID while it is being installed
    const Installed installed = world.buffer.Install({begin, begin + count}, low_water);
    if (installed == Installed::kNo) world.next_id = begin;
    if (installed != Installed::kNo) world.low_water = low_water;
    world.will_tell = installed == Installed::kYes;
  }
  model::Forget();
}

void Clear(World& world) {
  {
    const model::WriterLock lock;
    world.cleared = true;
    world.buffer.Clear();
  }
  model::Forget();
}

// After all threads: what was taken, is in reserve, or was counted as lost, is all there was.
void Finish(World& world) {
  const std::uint64_t left = world.buffer.remaining();
  IdSpans rest;
  world.buffer.TakeUpTo(left, rest);
  if (rest.total() != left) model::Fail("less in reserve than it says");
  for (const IdRange& range : rest.ranges())
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      if ((world.taken >> id & 1) != 0) model::Fail("an ID in reserve that was taken");
    }
  if (world.cleared) return;
  const std::uint64_t all = world.next_id - kFirstId;
  const auto known = static_cast<std::uint64_t>(std::popcount(world.taken)) + left + world.buffer.lost();
  if (known > all) model::Fail("an ID is counted twice");
  if (all - known > world.unsettled) model::Fail("an ID is lost and not counted");
  if (world.will_tell && left <= world.low_water && world.told == 0)
    model::Fail("no taker was told to refill");
}

struct Named {
  const char* name;
  model::Scenario<World> scenario;
};

using Thread = std::function<void(World&)>;

Thread Takes(std::size_t thread, int count) {
  return [=](World& world) {
    for (int i = 0; i < count; ++i) TakeOne(world, thread);
  };
}
Thread TakesBatch(std::size_t thread, std::uint64_t count) {
  return [=](World& world) { TakeMany(world, thread, count); };
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

TEST(SegmentBufferModel, AWriterTakesBesideTakers) { ExpectNoViolation(AWriterBesideTakers()); }

TEST(SegmentBufferModel, BothSlotsAreUsedAgainWhileATakerSleeps) { ExpectNoViolation(BothSlotsUsedAgain()); }

TEST(SegmentBufferModel, AReserveIsDroppedBesideABatch) { ExpectNoViolation(DropBesideABatch()); }

// Minutes each.
TEST(LongSegmentBufferModel, ASlotIsUsedAgainBesideTakers) {
  ExpectNoViolation({TwoSlots, {Takes(0, 1), Takes(1, 1), Installs(1, 0)}, Finish});
}

TEST(LongSegmentBufferModel, AReserveIsDroppedBesideATaker) {
  ExpectNoViolation({Installs(2, 0), {Takes(0, 1), DropsAndInstalls}, Finish});
}

// The line of the source at which an order stands.
std::string SourceOf(const model::Weakening& order) {
  std::ifstream file(LEAF_SOURCE_DIR "/lib/leaf/core/" + order.file);
  std::string line;
  for (unsigned number = 0; number < order.line; ++number) std::getline(file, line);
  return line;
}

// Each of these orders is needed: without it the same scenario has a run that breaks a promise, which no x86
// processor would show.
TEST(SegmentBufferModel, AWeakerOrderIsSeen) {
  const model::Scenario<World> scenario = RefillBesideTakers();
  const model::Report report = model::Explore(scenario);
  const struct {
    std::string_view source;
    model::Part part;
    std::string_view violation;
  } needed[] = {
      {"position = cursor_.fetch_add(1,", model::Part::kAcquire, "no taker was told to refill"},
      {"return cursor_.fetch_add(0,", model::Part::kRelease, "no taker was told to refill"},
      {"version = slot.version.load(", model::Part::kAcquire, "an ID that is in no range"},
      {"end = slot.end.load(", model::Part::kAcquire, "an ID that is in no range"},
      {"slot.end.store(", model::Part::kRelease, "an ID that is in no range"},
      {"slot.version.store(version + 2", model::Part::kRelease, "an ID that is in no range"},
  };
  for (const auto& [source, part, violation] : needed) {
    int found = 0;
    for (const model::Weakening& order : report.orders) {
      if (order.part != part || SourceOf(order).find(source) == std::string::npos) continue;
      ++found;
      EXPECT_EQ(model::Explore(scenario, {order}).violation, violation) << source;
    }
    EXPECT_EQ(found, 1) << source;
  }
}

}  // namespace
}  // namespace leaf::core
