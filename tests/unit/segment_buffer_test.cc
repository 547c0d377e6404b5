#include "leaf/core/segment_buffer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace leaf::core {
namespace {

using Outcome = SegmentBuffer::Outcome;

std::vector<std::uint64_t> Ids(const IdSpans& spans) {
  std::vector<std::uint64_t> ids;
  for (const IdRange& range : spans.ranges()) {
    for (std::uint64_t id = range.begin; id < range.end; ++id) ids.push_back(id);
  }
  return ids;
}

TEST(SegmentBuffer, HandsOutARangeInOrderAndIsThenDrained) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({10, 13}, 0));
  for (const std::uint64_t expected : {10U, 11U, 12U}) {
    IdSpans spans;
    ASSERT_EQ(buffer.Take(1, spans).outcome, Outcome::kTaken);
    EXPECT_EQ(Ids(spans), std::vector<std::uint64_t>{expected});
  }
  IdSpans spans;
  EXPECT_EQ(buffer.Take(1, spans).outcome, Outcome::kDrained);
  EXPECT_TRUE(spans.empty());
}

TEST(SegmentBuffer, ABatchTakesTheRestFirstAndGoesOnInTheNextRange) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({1, 4}, 0));
  ASSERT_TRUE(buffer.Install({100, 110}, 0));
  IdSpans spans;
  ASSERT_EQ(buffer.Take(5, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(spans), (std::vector<std::uint64_t>{1, 2, 3, 100, 101}));
  EXPECT_EQ(buffer.remaining(), 8U);
}

TEST(SegmentBuffer, ABatchThatDoesNotFitConsumesNothing) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({1, 4}, 0));
  IdSpans spans;
  EXPECT_EQ(buffer.Take(4, spans).outcome, Outcome::kDrained);
  EXPECT_TRUE(spans.empty());
  EXPECT_EQ(buffer.remaining(), 3U);
}

TEST(SegmentBuffer, TellsExactlyOneTakerToRefillAtLeafsPoint) {
  SegmentBuffer buffer;
  // Leaf with step 2000 asks on the 202nd get: the ID number 201, counted from 0.
  ASSERT_TRUE(buffer.Install({1, 2001}, 201));
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
  ASSERT_TRUE(buffer.Install({1, 101}, 11));
  IdSpans first;
  EXPECT_FALSE(buffer.Take(11, first).refill_wanted);
  IdSpans second;
  EXPECT_TRUE(buffer.Take(5, second).refill_wanted);
}

TEST(SegmentBuffer, TheRefillPointOfATinyRangeIsItsLastId) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({1, 2}, 1));
  IdSpans spans;
  EXPECT_TRUE(buffer.Take(1, spans).refill_wanted);
}

TEST(SegmentBuffer, ClearDropsTheReserveAndInstallGoesOnAboveIt) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({1, 101}, 0));
  IdSpans spans;
  ASSERT_EQ(buffer.Take(10, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(buffer.Clear(), 90U);
  IdSpans none;
  EXPECT_EQ(buffer.Take(1, none).outcome, Outcome::kDrained);
  ASSERT_TRUE(buffer.Install({500, 510}, 0));
  IdSpans after;
  ASSERT_EQ(buffer.Take(1, after).outcome, Outcome::kTaken);
  EXPECT_EQ(Ids(after), std::vector<std::uint64_t>{500});
  EXPECT_EQ(buffer.remaining(), 9U);
}

TEST(SegmentBuffer, RefusesMoreRangesThanItHasSlots) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  for (std::size_t i = 0; i < kSegmentSlots; ++i, begin += 2)
    ASSERT_TRUE(buffer.Install({begin, begin + 1}, 0));
  EXPECT_FALSE(buffer.CanInstall());
  EXPECT_FALSE(buffer.Install({begin, begin + 1}, 0));
  IdSpans spans;
  ASSERT_EQ(buffer.Take(1, spans).outcome, Outcome::kTaken);
  EXPECT_TRUE(buffer.Install({begin, begin + 1}, 0));
}

TEST(SegmentBuffer, ABatchOverAllSlotsIsWhole) {
  SegmentBuffer buffer;
  std::uint64_t begin = 1;
  for (std::size_t i = 0; i < kSegmentSlots; ++i, begin += 2)
    ASSERT_TRUE(buffer.Install({begin, begin + 1}, 0));
  IdSpans spans;
  ASSERT_EQ(buffer.Take(kSegmentSlots, spans).outcome, Outcome::kTaken);
  EXPECT_EQ(spans.ranges().size(), kSegmentSlots);
}

TEST(SegmentBuffer, AVoidPositionStaysVoid) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({1, 2}, 0));
  IdSpans spans;
  // Nothing was drawn at or past the limit, so no position resolves to an ID.
  for (std::uint64_t position = 1; position < 20; ++position) EXPECT_FALSE(buffer.Resolve(position, spans));
}

TEST(SegmentBufferDeathTest, RefusesARangeBelowWhatItHeld) {
  SegmentBuffer buffer;
  ASSERT_TRUE(buffer.Install({100, 200}, 0));
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
          ASSERT_TRUE(buffer.Install({next, end}, random() % 9)) << seed;
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
        default: {
          const std::uint64_t count = 1 + random() % 12;
          IdSpans spans;
          const bool taken = buffer.Take(count, spans).outcome == Outcome::kTaken;
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

// Four takers, one writer, tiny ranges: every ID at most once, none outside a granted range, order per taker.
class SegmentBufferRace : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SegmentBufferRace, NeverRepeatsAnId) {
  constexpr std::uint64_t kIds = 60'000;
  constexpr int kTakers = 4;
  const std::uint64_t size = GetParam();
  SegmentBuffer buffer;
  std::mutex writer;
  std::vector<std::atomic<std::uint8_t>> seen(2 * kIds + 2 * size + 64);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> taken_total{0};
  std::atomic<std::uint64_t> dropped{0};
  std::uint64_t granted = 0;
  std::uint64_t clears = 0;

  const auto record = [&](const IdSpans& spans, std::uint64_t& last) {
    for (const std::uint64_t id : Ids(spans)) {
      ASSERT_GT(id, last);
      last = id;
      ASSERT_LT(id, seen.size());
      ASSERT_EQ(seen[id].fetch_add(1), 0) << "ID " << id << " twice";
    }
    taken_total.fetch_add(spans.total());
  };
  std::vector<std::thread> takers;
  for (int taker = 0; taker < kTakers; ++taker) {
    takers.emplace_back([&, taker] {
      std::mt19937 random(static_cast<std::uint32_t>(taker));
      std::uint64_t last = 0;
      while (true) {
        const bool finish = done.load();
        IdSpans spans;
        const std::uint64_t count = taker == 0 ? 1 + random() % 5 : 1;
        const auto result = buffer.Take(count, spans);
        if (result.outcome == Outcome::kOvershoot) {
          const std::lock_guard lock(writer);
          if (!buffer.Resolve(result.position, spans)) continue;
        } else if (result.outcome == Outcome::kDrained) {
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
  while (granted < kIds) {
    {
      const std::lock_guard lock(writer);
      if (buffer.CanInstall()) {
        next += random() % 2;  // another node's range lies between now and then
        ASSERT_TRUE(buffer.Install({next, next + size}, size / 10 + 1));
        next += size;
        granted += size;
      }
      if (random() % 5000 == 0) {
        dropped.fetch_add(buffer.Clear());
        ++clears;
      }
    }
    if (granted % 16 == 0) std::this_thread::yield();
  }
  done.store(true);
  for (std::thread& thread : takers) thread.join();
  // A Clear() makes void what each taker (three of single IDs, one of up to five) has drawn and not yet
  // looked up.
  EXPECT_LE(taken_total.load(), granted);
  EXPECT_GE(taken_total.load() + dropped.load() + buffer.lost() + clears * 8, granted);
}

INSTANTIATE_TEST_SUITE_P(RangeSizes, SegmentBufferRace, ::testing::Values(1, 2, 3, 7, 100));

// Without Clear nothing may be lost as long as no taker sleeps through a whole ring: all IDs come out, once.
TEST(SegmentBuffer, LosesNothingWhileTakersKeepUp) {
  constexpr std::uint64_t kIds = 200'000;
  constexpr std::uint64_t kSize = 1000;
  SegmentBuffer buffer;
  std::mutex writer;
  std::atomic<std::uint64_t> taken{0};
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
          if (buffer.Resolve(result.position, spans)) taken.fetch_add(1);
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
      ASSERT_TRUE(buffer.Install({next, next + kSize}, 101));
      next += kSize;
    } else {
      std::this_thread::yield();
    }
  }
  done.store(true);
  for (std::thread& thread : takers) thread.join();
  EXPECT_EQ(taken.load() + buffer.lost(), kIds);
}

}  // namespace
}  // namespace leaf::core
