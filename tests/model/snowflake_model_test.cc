// One worker's snowflake IDs through every interleaving of three threads: takers, and the ceiling or the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leaf/core/snowflake.h"
#include "model/memory_model.h"

namespace leaf::core {
namespace {

using namespace std::chrono_literals;
using Outcome = Snowflake::Outcome;

constexpr std::int64_t kStart = 100;  // milliseconds since the epoch
constexpr auto kWindow = 3ms;
constexpr int kSequenceBits = 2;
constexpr std::uint64_t kSeed = 1;

// Four IDs a millisecond.
const IdLayout& Layout() {
  static const IdLayout layout = *IdLayout::Make(63 - kSequenceBits - 1, 1, kSequenceBits, 0);
  return layout;
}

WallTime At(std::int64_t time) { return WallTimeOf(time); }

struct World {
  Snowflake snowflake{Layout(), 0, At(kStart), kWindow, kSeed};
  std::array<std::uint64_t, 64> taken{};  // positions, from the first millisecond on
  std::array<std::uint64_t, model::kThreadsMax> last{};
  std::int64_t raised = kStart;  // the durable ceiling; raised before RaiseCeiling()
  std::int64_t ended = 0;        // what End() said once it was closed; 0 before
};

void Record(World& world, std::size_t thread, const SnowflakeRun& run, bool began_after_the_end) {
  if (began_after_the_end) model::Fail("an ID after the end");
  for (const IdRange& range : world.snowflake.RangesOf(run))
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      const IdFields fields = Layout().Decompose(id);
      const auto time = UnixMillis(fields.time);
      if (time >= world.raised) model::Fail("an ID at the ceiling");
      if (world.ended != 0 && time >= world.ended) model::Fail("an ID behind the end");
      if (id <= world.last[thread]) model::Fail("an ID that is not above the one before");
      world.last[thread] = id;
      const auto place = static_cast<std::size_t>((time - kStart) << kSequenceBits) + fields.sequence;
      if (world.taken.at(place)++ != 0) model::Fail("an ID twice");
    }
}

void Take(World& world, std::size_t thread, std::uint64_t count, std::int64_t now) {
  const bool began_after_the_end = world.ended != 0;
  SnowflakeRun run;
  if (world.snowflake.Take(count, At(now), run).outcome == Outcome::kTaken)
    Record(world, thread, run, began_after_the_end);
  model::Forget();
}

void Raise(World& world, std::int64_t ceiling) {
  if (ceiling > world.raised) world.raised = ceiling;
  world.snowflake.RaiseCeiling(At(ceiling));
  model::Forget();
}

void Close(World& world) {
  world.snowflake.Close();
  world.ended = UnixMillis(world.snowflake.End());
  model::Forget();
}

void ExpectNoViolation(const model::Scenario<World>& scenario) {
  const model::Report report = model::Explore(scenario);
  EXPECT_EQ(report.violation, "") << report.trace;
  EXPECT_GT(report.ends, 1U);
  fmt::print("model: {} states, {} steps, {} ends\n", report.states, report.steps, report.ends);
}

model::Scenario<World> CeilingThatIsRaised() {
  return {[](World& world) { Raise(world, kStart + 1); },
          {[](World& world) {
             Take(world, 0, 1, kStart);
             Take(world, 0, 2, kStart);
             Take(world, 0, 1, kStart + 1);
           },
           [](World& world) {
             Take(world, 1, 3, kStart + 1);
             Take(world, 1, 1, kStart);  // the clock went back
           },
           [](World& world) {
             Raise(world, kStart + 2);
             Raise(world, kStart + 4);
           }},
          [](World&) {}};
}

model::Scenario<World> TheEnd() {
  return {[](World& world) { Raise(world, kStart + 4); },
          {[](World& world) {
             Take(world, 0, 2, kStart);
             Take(world, 0, 2, kStart + 2);
           },
           [](World& world) {
             Take(world, 1, 3, kStart + 1);
             Take(world, 1, 1, kStart + 1);
           },
           Close},
          [](World&) {}};
}

TEST(SnowflakeModel, TakersBesideACeilingThatIsRaised) { ExpectNoViolation(CeilingThatIsRaised()); }

TEST(SnowflakeModel, TakersBesideTheEnd) { ExpectNoViolation(TheEnd()); }

// The promises here need none of the orders: they hold without all of them. Each ID is unique, because
// threads take positions by read-modify-writes of one word, and these have one order in any case. A thread
// that reads the ceiling late reads a lower one. Neither word announces other data: the system call that
// makes a ceiling durable is over before the word changes. Acquire and release order what a caller has
// written before, such as the status of this worker, and cost nothing on x86.
TEST(SnowflakeModel, NoOrderIsNeeded) {
  for (const auto& scenario : {CeilingThatIsRaised(), TheEnd()}) {
    const std::vector<model::Weakening> all = model::Explore(scenario).orders;
    EXPECT_GT(all.size(), 10U);
    EXPECT_EQ(model::Explore(scenario, all).violation, "");
  }
}

}  // namespace
}  // namespace leaf::core
