#include "leaf/core/segment_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/scale.h"

namespace leaf::core {
namespace {

using Outcome = SegmentBuffer::Outcome;
using Installed = SegmentBuffer::Installed;

std::vector<std::uint64_t> Ids(const IdSpans& spans) {
  std::vector<std::uint64_t> ids;
  for (const IdRange& range : spans.ranges()) {
    for (std::uint64_t id = range.begin; id < range.end; ++id) ids.push_back(id);
  }
  return ids;
}

TEST(SegmentBuffer, HandsOutARangeInOrderAndIsThenDrained) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({10, 13}, 0), Installed::kNo);
  for (const std::uint64_t expected : {10U, 11U, 12U}) {
    IdSpans spans;
    ASSERT_EQ(buffer.Take(1, spans).outcome, Outcome::kTaken);
    EXPECT_EQ(Ids(spans), std::vector<std::uint64_t>{expected});
  }
  IdSpans spans;
  EXPECT_EQ(buffer.Take(1, spans).outcome, Outcome::kDrained);
  EXPECT_EQ(buffer.Take(2, spans).outcome, Outcome::kDrained);
  EXPECT_TRUE(spans.empty());
  ASSERT_NE(buffer.Install({20, 21}, 0), Installed::kNo);
  ASSERT_EQ(buffer.Take(1, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(spans), std::vector<std::uint64_t>{20});
}

TEST(SegmentBuffer, ABatchTakesTheRestFirstAndGoesOnInTheNextRange) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({100, 110}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.Take(5, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(spans), (std::vector<std::uint64_t>{1, 2, 3, 100, 101}));
  EXPECT_EQ(buffer.remaining(), 8U);
}

TEST(SegmentBuffer, ABatchThatDoesNotFitConsumesNothing) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  IdSpans spans;
  EXPECT_EQ(buffer.Take(4, spans).outcome, Outcome::kDrained);
  EXPECT_TRUE(spans.empty());
  EXPECT_EQ(buffer.remaining(), 3U);
}

TEST(SegmentBuffer, ContiguousIdsComeFromOneRangeAndWhatIsBelowThemIsSkipped) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({100, 110}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.TakeContiguous(2, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(spans), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(buffer.skipped(), 0U);
  IdSpans from_second;
  ASSERT_EQ(buffer.TakeContiguous(2, from_second).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(from_second), (std::vector<std::uint64_t>{100, 101}));
  EXPECT_EQ(buffer.skipped(), 1U);
  EXPECT_EQ(buffer.remaining(), 8U);
  EXPECT_EQ(buffer.LastTaken(), 101U);
}

TEST(SegmentBuffer, RangesThatContinueEachOtherHoldContiguousIds) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({4, 8}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({8, 10}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.TakeContiguous(8, spans).outcome, Outcome::kTaken);
  ASSERT_EQ(spans.ranges().size(), 1U);
  EXPECT_EQ(spans.ranges().front(), (IdRange{1, 9}));
}

TEST(SegmentBuffer, ContiguousIdsThatAreNotThereCostNothing) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({100, 103}, 0), Installed::kNo);
  IdSpans spans;
  EXPECT_EQ(buffer.TakeContiguous(4, spans).outcome, Outcome::kDrained);
  EXPECT_TRUE(spans.empty());
  EXPECT_EQ(buffer.remaining(), 6U);
  EXPECT_EQ(buffer.skipped(), 0U);
  EXPECT_FALSE(buffer.LastTaken().has_value());
}

TEST(SegmentBuffer, ContiguousIdsThatAreSkippedToCrossTheRefillPoint) {
  SegmentBuffer buffer;
  ASSERT_EQ(buffer.Install({1, 11}, 3), Installed::kYes);
  ASSERT_EQ(buffer.Install({100, 110}, 15), Installed::kYes);
  IdSpans spans;
  ASSERT_EQ(buffer.TakeContiguous(10, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(spans.ranges().front(), (IdRange{1, 11}));
}

TEST(SegmentBuffer, TheLastTakenIdIsToldAcrossRanges) {
  SegmentBuffer buffer;
  EXPECT_FALSE(buffer.LastTaken().has_value());
  ASSERT_NE(buffer.Install({10, 12}, 0), Installed::kNo);
  EXPECT_FALSE(buffer.LastTaken().has_value());
  IdSpans spans;
  ASSERT_EQ(buffer.Take(2, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(buffer.LastTaken(), 11U);
  ASSERT_NE(buffer.Install({50, 60}, 0), Installed::kNo);
  EXPECT_EQ(buffer.LastTaken(), 11U);
  IdSpans next;
  ASSERT_EQ(buffer.Take(1, next).outcome, Outcome::kTaken);
  EXPECT_EQ(buffer.LastTaken(), 50U);
  buffer.Clear();
  EXPECT_FALSE(buffer.LastTaken().has_value());
}

TEST(SegmentBuffer, TellsExactlyOneTakerToRefillAtLeafsPoint) {
  SegmentBuffer buffer;
  // Leaf with step 2000 asks on the 202nd get: the ID number 201, counted from 0.
  ASSERT_EQ(buffer.Install({1, 2001}, 2000 - 202), Installed::kYes);
  int told = 0;
  for (int i = 0; i < 2000; ++i) {
    IdSpans spans;
    const auto result = buffer.Take(1, spans);
    ASSERT_EQ(result.outcome, Outcome::kTaken);
    if (result.refill_wanted) {
      ++told;
      EXPECT_EQ(i, 201);
    }
  }
  EXPECT_EQ(told, 1);
}

TEST(SegmentBuffer, ABatchAcrossTheRefillPointIsToldToo) {
  SegmentBuffer buffer;
  ASSERT_EQ(buffer.Install({1, 101}, 100 - 12), Installed::kYes);
  IdSpans first;
  EXPECT_FALSE(buffer.Take(11, first).refill_wanted);
  IdSpans second;
  EXPECT_TRUE(buffer.Take(5, second).refill_wanted);
}

TEST(SegmentBuffer, TheRefillPointOfATinyRangeIsItsLastId) {
  SegmentBuffer buffer;
  ASSERT_EQ(buffer.Install({1, 2}, 0), Installed::kYes);
  IdSpans spans;
  EXPECT_TRUE(buffer.Take(1, spans).refill_wanted);
}

TEST(SegmentBuffer, ClearDropsTheReserveAndInstallGoesOnAboveIt) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 101}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.Take(10, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(buffer.Clear(), 90U);
  IdSpans none;
  EXPECT_EQ(buffer.Take(1, none).outcome, Outcome::kDrained);
  ASSERT_NE(buffer.Install({500, 510}, 0), Installed::kNo);
  IdSpans after;
  ASSERT_EQ(buffer.Take(1, after).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(after), std::vector<std::uint64_t>{500});
  EXPECT_EQ(buffer.remaining(), 9U);
}

// Each slot can be used again, and what it held cannot be read any more.
TEST(SegmentBuffer, ClearFreesEverySlot) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  const auto fill = [&] {
    for (std::size_t i = 0; i < kSegmentSlots; ++i, begin += 10)
      ASSERT_NE(buffer.Install({begin, begin + 10}, 0), Installed::kNo) << i;
    EXPECT_FALSE(buffer.CanInstall());
  };
  fill();
  EXPECT_EQ(buffer.Clear(), 10 * kSegmentSlots);
  std::uint64_t id = 0;
  for (std::uint64_t position = 0; position < 10 * kSegmentSlots; ++position)
    EXPECT_FALSE(buffer.Resolve(position, id)) << position;
  const std::uint64_t first = begin;
  fill();
  ASSERT_EQ(buffer.TakeOne(id).outcome, Outcome::kTaken);
  EXPECT_EQ(id, first);
}

TEST(SegmentBuffer, RefusesMoreRangesThanItHasSlots) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  for (std::size_t i = 0; i < kSegmentSlots; ++i, begin += 2)
    ASSERT_NE(buffer.Install({begin, begin + 1}, 0), Installed::kNo);
  EXPECT_FALSE(buffer.CanInstall());
  EXPECT_EQ(buffer.Install({begin, begin + 1}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.Take(1, spans).outcome, Outcome::kTaken);
  EXPECT_NE(buffer.Install({begin, begin + 1}, 0), Installed::kNo);
}

TEST(SegmentBuffer, ABatchOverAllSlotsIsWhole) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  for (std::size_t i = 0; i < kSegmentSlots; ++i, begin += 2)
    ASSERT_NE(buffer.Install({begin, begin + 1}, 0), Installed::kNo);
  IdSpans spans;
  ASSERT_EQ(buffer.Take(kSegmentSlots, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(spans.ranges().size(), kSegmentSlots);
}

TEST(SegmentBuffer, SaysSoIfTheReserveIsLowAlready) {
  SegmentBuffer buffer;
  EXPECT_EQ(buffer.Install({1, 101}, 100), Installed::kLow);
  EXPECT_EQ(buffer.Install({101, 201}, 200), Installed::kLow);
  EXPECT_EQ(buffer.Install({201, 301}, 299), Installed::kYes);  // the next taker is told
  IdSpans spans;
  EXPECT_TRUE(buffer.Take(1, spans).refill_wanted);
}

TEST(SegmentBuffer, TheLowWaterIsOfTheWholeReserve) {
  SegmentBuffer buffer;
  ASSERT_EQ(buffer.Install({1, 101}, 0), Installed::kYes);
  ASSERT_EQ(buffer.Install({101, 201}, 150), Installed::kYes);
  for (int i = 1; i <= 200; ++i) {
    IdSpans spans;
    EXPECT_EQ(buffer.Take(1, spans).refill_wanted, i == 50) << i;
  }
}

TEST(SegmentBuffer, WithoutAFreeSlotTheTakerThatFreesOneIsTold) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  for (std::size_t i = 0; i + 1 < kSegmentSlots; ++i, begin += 10)
    EXPECT_EQ(buffer.Install({begin, begin + 10}, 1'000'000), Installed::kLow);
  // However low the reserve is: nothing more fits.
  EXPECT_EQ(buffer.Install({begin, begin + 10}, 1'000'000), Installed::kYes);
  for (int i = 1; i <= 30; ++i) {
    IdSpans spans;
    const bool told = buffer.Take(1, spans).refill_wanted;
    EXPECT_EQ(told, i == 10) << i;
    EXPECT_EQ(buffer.CanInstall(), i >= 10) << i;
  }
}

// Takers race with the writer that moves the refill point back: one of them is told, or the writer is.
TEST(SegmentBuffer, ATakerOrTheWriterIsAlwaysToldToRefill) {
  for (int round = 0; round < 300; ++round) {
    SegmentBuffer buffer;
    ASSERT_EQ(buffer.Install({1, 1001}, 0), Installed::kYes);
    std::atomic<int> told{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> takers;
    for (int i = 0; i < 2; ++i) {
      takers.emplace_back([&] {
        while (!go.load()) {
        }
        while (true) {
          IdSpans spans;
          const auto result = buffer.Take(1, spans);
          if (result.outcome != Outcome::kTaken) return;
          if (result.refill_wanted) told.fetch_add(1);
        }
      });
    }
    go.store(true);
    // It is left to chance when this meets the takers: the refill point may be behind or before them.
    const auto installed = buffer.Install({1001, 1011}, 700);
    for (std::thread& taker : takers) taker.join();
    EXPECT_GE(told.load() + (installed == Installed::kLow ? 1 : 0), 1) << round;
  }
}

TEST(SegmentBuffer, AVoidPositionStaysVoid) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 2}, 0), Installed::kNo);
  std::uint64_t id = 0;
  // Nothing was drawn at or past the limit, so no position resolves to an ID.
  for (std::uint64_t position = 1; position < 20; ++position) EXPECT_FALSE(buffer.Resolve(position, id));
}

using Held = SegmentBuffer::Held;

std::vector<std::vector<std::uint64_t>> Told(const SegmentBuffer& buffer) {
  std::vector<std::vector<std::uint64_t>> told;
  for (const Held& held : buffer.Ranges()) told.push_back({held.number, held.next, held.end, held.size});
  return told;
}

TEST(SegmentBuffer, TellsWhatItHolds) {
  using Expected = std::vector<std::vector<std::uint64_t>>;
  SegmentBuffer buffer;
  EXPECT_EQ(Told(buffer), Expected{});
  ASSERT_NE(buffer.Install({1, 4}, 0), Installed::kNo);
  ASSERT_NE(buffer.Install({100, 110}, 0), Installed::kNo);
  EXPECT_EQ(Told(buffer), (Expected{{0, 1, 4, 3}, {1, 100, 110, 10}}));
  IdSpans spans;
  ASSERT_EQ(buffer.Take(2, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(Told(buffer), (Expected{{0, 3, 4, 3}, {1, 100, 110, 10}}));
  ASSERT_EQ(buffer.Take(5, spans = IdSpans{}).outcome, Outcome::kTaken);
  EXPECT_EQ(Told(buffer), (Expected{{1, 104, 110, 10}}));
  EXPECT_EQ(buffer.Clear(), 6U);
  EXPECT_EQ(Told(buffer), Expected{});
  ASSERT_NE(buffer.Install({200, 203}, 0), Installed::kNo);
  EXPECT_EQ(Told(buffer), (Expected{{2, 200, 203, 3}}));
}

// Slots serve many ranges one after the other; earlier ranges are not told again.
TEST(SegmentBuffer, TellsNoMoreRangesThanThereAreSlots) {
  SegmentBuffer buffer;
  for (std::uint64_t number = 0; number < 3 * kSegmentSlots; ++number) {
    if (!buffer.CanInstall()) {
      IdSpans spans;
      ASSERT_EQ(buffer.Take(2, spans).outcome, Outcome::kTaken);
    }
    ASSERT_NE(buffer.Install({10 * number + 1, 10 * number + 3}, 0), Installed::kNo);
    const auto held = buffer.Ranges();
    ASSERT_EQ(held.size(), std::min<std::size_t>(number + 1, kSegmentSlots));
    for (std::size_t i = 0; i < held.size(); ++i) {
      const std::uint64_t expected = number + 1 - held.size() + i;
      EXPECT_EQ(held[i].number, expected);
      EXPECT_EQ(held[i].next, 10 * expected + 1);
      EXPECT_EQ(held[i].end, 10 * expected + 3);
    }
  }
}

TEST(SegmentBuffer, AWriterThatTakesTheLastIdClosesAndIsToldToRefill) {
  SegmentBuffer buffer;
  ASSERT_EQ(buffer.Install({1, 11}, 3), Installed::kYes);
  IdSpans spans;
  EXPECT_FALSE(buffer.TakeUpTo(6, spans));
  EXPECT_TRUE(buffer.TakeUpTo(1, spans)) << "three are left";
  EXPECT_FALSE(buffer.TakeUpTo(100, spans)) << "told once";
  EXPECT_EQ(Ids(spans), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_FALSE(buffer.TakeUpTo(1, spans));
  EXPECT_EQ(spans.total(), 10U);
  EXPECT_EQ(buffer.Clear(), 0U);
  std::uint64_t id = 0;
  EXPECT_EQ(buffer.TakeOne(id).outcome, Outcome::kDrained);
}

TEST(SegmentBufferDeathTest, RefusesARangeBelowWhatItHeld) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({100, 200}, 0), Installed::kNo);
  EXPECT_DEATH((void)buffer.Install({150, 250}, 0), "broken invariant");
}

// A single-threaded random history against the obvious model: a queue of IDs.
TEST(SegmentBuffer, AgreesWithAQueueOverRandomHistories) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    SegmentBuffer buffer;
    std::vector<std::uint64_t> model;
    std::uint64_t next = 1;
    for (int step = 0; step < 300; ++step) {
      switch (random() % 8) {
        case 0:
        case 1: {
          if (!buffer.CanInstall()) break;
          next += random() % 3;
          const std::uint64_t end = next + 1 + random() % 9;
          ASSERT_NE(buffer.Install({next, end}, random() % 9), Installed::kNo) << seed;
          for (; next < end; ++next) model.push_back(next);
          break;
        }
        case 2: {
          if (random() % 20 != 0) break;
          ASSERT_EQ(buffer.Clear(), model.size()) << seed;
          model.clear();
          break;
        }
        case 3: {
          IdSpans spans;
          buffer.TakeUpTo(1 + random() % 20, spans);
          const auto ids = Ids(spans);
          ASSERT_TRUE(std::equal(ids.begin(), ids.end(), model.begin())) << seed;
          model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(ids.size()));
          break;
        }
        case 4: {
          const std::uint64_t count = 1 + random() % 12;
          // Where the first so many of the model that follow each other begin.
          std::size_t begin = 0;
          while (begin + count <= model.size() && model[begin + count - 1] - model[begin] != count - 1)
            ++begin;
          const bool is_there = begin + count <= model.size();
          const std::uint64_t skipped = buffer.skipped();
          IdSpans spans;
          ASSERT_EQ(buffer.TakeContiguous(count, spans).outcome,
                    is_there ? Outcome::kTaken : Outcome::kDrained)
              << seed;
          ASSERT_EQ(buffer.skipped() - skipped, is_there ? begin : 0) << seed;
          if (!is_there) break;
          ASSERT_EQ(spans.ranges().size(), 1U) << seed;
          ASSERT_EQ(spans.ranges().front(), (IdRange{model[begin], model[begin] + count})) << seed;
          ASSERT_EQ(buffer.LastTaken(), model[begin] + count - 1) << seed;
          model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(begin + count));
          break;
        }
        default: {
          const std::uint64_t count = 1 + random() % 12;
          IdSpans spans;
          const auto result = buffer.Take(count, spans);
          std::uint64_t id = 0;
          if (result.outcome == Outcome::kOvershoot) {
            ASSERT_FALSE(buffer.Resolve(result.position, id)) << seed;
          }
          const bool taken = result.outcome == Outcome::kTaken;
          ASSERT_EQ(taken, model.size() >= count) << seed;
          if (!taken) break;
          const auto ids = Ids(spans);
          ASSERT_EQ(ids, std::vector<std::uint64_t>(model.begin(),
                                                    model.begin() + static_cast<std::ptrdiff_t>(count)))
              << seed;
          model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
        }
      }
      ASSERT_EQ(buffer.remaining(), model.size()) << seed;
    }
  }
}

// Refills its one range in place, as a naive double buffer does: a taker that read the old cursor compares it
// with the new end. Here to show that the race below would catch it.
class RefilledInPlace {
 public:
  SegmentBuffer::TakeResult Take(std::uint64_t count, IdSpans& out) {
    const std::uint64_t id = next_.fetch_add(count);
    std::this_thread::yield();  // the pause in which the range is refilled
    if (id + count > end_.load()) return {Outcome::kDrained, false, 0};
    out.Append({id, id + count});
    return {Outcome::kTaken, false, 0};
  }
  static bool Resolve(std::uint64_t, std::uint64_t&) { return false; }
  bool CanInstall() const { return next_.load() >= end_.load(); }
  Installed Install(IdRange range, std::uint64_t) {
    next_.store(range.begin);
    end_.store(range.end);
    return Installed::kYes;
  }
  SegmentBuffer::TakeResult TakeContiguous(std::uint64_t count, IdSpans& out) { return Take(count, out); }
  static std::uint64_t Clear() { return 0; }
  static std::uint64_t wasted() { return 0; }

 private:
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> end_{0};
};

// What a race over a buffer showed.
struct RaceResult {
  std::uint64_t granted = 0;
  std::uint64_t taken = 0;
  std::uint64_t dropped = 0;  // by Clear()
  std::uint64_t clears = 0;
  std::uint64_t repeated = 0;      // IDs taken twice
  std::uint64_t ungranted = 0;     // IDs that no range held when they were taken
  std::uint64_t out_of_order = 0;  // IDs not above the last one of the same taker
};

// Four takers, one writer that installs ranges of `size` with gaps between them and now and then drops the
// reserve (a tag removed and added again), until `ids` are granted or something is wrong.
template <typename Buffer>
RaceResult Race(std::uint64_t size, std::uint64_t ids) {
  constexpr int kTakers = 4;
  Buffer buffer;
  RaceResult result;
  std::mutex writer;
  std::vector<std::atomic<std::uint8_t>> granted(2 * ids + 2 * size + 64);
  std::vector<std::atomic<std::uint8_t>> seen(granted.size());
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> repeated{0};
  std::atomic<std::uint64_t> ungranted{0};
  std::atomic<std::uint64_t> out_of_order{0};

  const auto record = [&](const IdSpans& spans, std::uint64_t& last) {
    for (const std::uint64_t id : Ids(spans)) {
      if (id <= last) out_of_order.fetch_add(1);
      last = id;
      if (id >= granted.size() || granted[id].load() == 0) {
        ungranted.fetch_add(1);
      } else if (seen[id].fetch_add(1) != 0) {
        repeated.fetch_add(1);
      }
    }
    taken.fetch_add(spans.total());
  };
  std::vector<std::thread> takers;
  for (int taker = 0; taker < kTakers; ++taker) {
    takers.emplace_back([&, taker] {
      std::mt19937 random(static_cast<std::uint32_t>(taker));
      std::uint64_t last = 0;
      while (true) {
        const bool finish = done.load();
        IdSpans spans;
        const std::uint64_t count = taker == 0 ? 1 + random() % 5 : taker == 1 ? 1 + random() % 3 : 1;
        const auto take = taker == 1 ? buffer.TakeContiguous(count, spans) : buffer.Take(count, spans);
        if (take.outcome == Outcome::kOvershoot) {
          const std::lock_guard lock(writer);
          std::uint64_t id = 0;
          if (!buffer.Resolve(take.position, id)) continue;
          spans.Append({id, id + 1});
        } else if (take.outcome == Outcome::kDrained) {
          if (finish) return;
          std::this_thread::yield();
          continue;
        }
        record(spans, last);
      }
    });
  }
  std::mt19937 random(99);
  std::uint64_t next = 1;
  while (result.granted < ids && repeated.load() + ungranted.load() == 0) {
    {
      const std::lock_guard lock(writer);
      if (buffer.CanInstall()) {
        next += random() % 2;  // another node's range lies between now and then
        for (std::uint64_t id = next; id < next + size; ++id) granted[id].store(1);
        EXPECT_NE(buffer.Install({next, next + size}, size / 2), Installed::kNo);
        next += size;
        result.granted += size;
      }
      if (random() % 5000 == 0) {
        result.dropped += buffer.Clear();
        ++result.clears;
      }
    }
    if (result.granted % 16 == 0) std::this_thread::yield();
  }
  done.store(true);
  for (std::thread& thread : takers) thread.join();
  result.dropped += buffer.wasted();
  result.taken = taken.load();
  result.repeated = repeated.load();
  result.ungranted = ungranted.load();
  result.out_of_order = out_of_order.load();
  return result;
}

class SegmentBufferRace : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SegmentBufferRace, NeverRepeatsAnId) {
  const RaceResult result = Race<SegmentBuffer>(GetParam(), testing::Scaled(200'000U));
  EXPECT_EQ(result.repeated, 0U);
  EXPECT_EQ(result.ungranted, 0U);
  EXPECT_EQ(result.out_of_order, 0U);
  // A Clear() makes void what each taker (two of single IDs, one of up to five, one of up to three contiguous
  // ones) has drawn and not yet looked up.
  EXPECT_LE(result.taken, result.granted);
  EXPECT_GE(result.taken + result.dropped + result.clears * 10, result.granted);
}

TEST(SegmentBufferRaceItself, CatchesARefillInPlace) {
  std::uint64_t wrong = 0;
  for (int round = 0; round < 50 && wrong == 0; ++round) {
    const RaceResult result = Race<RefilledInPlace>(3, 20'000);
    wrong = result.repeated + result.ungranted;
  }
  EXPECT_GT(wrong, 0U);
}

INSTANTIATE_TEST_SUITE_P(RangeSizes, SegmentBufferRace, ::testing::Values(1, 2, 3, 7, 100));

// Without Clear nothing may be lost but what takers slept over: between draw and look-up (counted as lost),
// or between an overshoot and its settlement, for as long as it takes to rewrite a whole ring of slots.
TEST(SegmentBuffer, LosesNothingWhileTakersKeepUp) {
  constexpr std::uint64_t kIds = 200'000;
  constexpr std::uint64_t kSize = 1000;
  SegmentBuffer buffer;
  std::mutex writer;
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> unresolved{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> takers;
  for (int i = 0; i < 4; ++i) {
    takers.emplace_back([&] {
      while (true) {
        const bool finish = done.load();
        IdSpans spans;
        const auto result = buffer.Take(1, spans);
        if (result.outcome == Outcome::kOvershoot) {
          const std::lock_guard lock(writer);
          std::uint64_t id = 0;
          (buffer.Resolve(result.position, id) ? taken : unresolved).fetch_add(1);
        } else if (result.outcome == Outcome::kTaken) {
          taken.fetch_add(1);
        } else if (finish) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::uint64_t next = 1; next <= kIds;) {
    const std::lock_guard lock(writer);
    if (buffer.remaining() < 2 * kSize && buffer.CanInstall()) {
      ASSERT_NE(buffer.Install({next, next + kSize}, kSize - 102), Installed::kNo);
      next += kSize;
    } else {
      std::this_thread::yield();
    }
  }
  done.store(true);
  for (std::thread& thread : takers) thread.join();
  EXPECT_LE(taken.load() + buffer.lost(), kIds);
  EXPECT_GE(taken.load() + buffer.lost() + unresolved.load(), kIds);
}

}  // namespace
}  // namespace leaf::core
