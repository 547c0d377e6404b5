// The model checker itself: it finds what it is there for, and nothing that cannot be.
#include "memory_model.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace leaf::model {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

struct Words {
  Atomic<std::uint64_t> a{0};
  Atomic<std::uint64_t> b{0};
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

// One thread writes a word, then a flag; the other reads the flag, then the word.
Scenario<Words> WordAndFlag(std::memory_order store, std::memory_order load) {
  return {[](Words&) {},
          {[=](Words& words) {
             words.a.store(7, kRelaxed);
             words.b.store(1, store);
           },
           [=](Words& words) {
             if (words.b.load(load) == 1 && words.a.load(kRelaxed) != 7)
               Fail("an old word behind a new flag");
           }},
          [](Words&) {}};
}

TEST(MemoryModel, AReleaseThatIsAcquiredBringsAllBeforeIt) {
  const Report report = Explore(WordAndFlag(std::memory_order_release, std::memory_order_acquire));
  EXPECT_EQ(report.violation, "") << report.trace;
  EXPECT_EQ(report.orders.size(), 2U);
  // Either half alone is nothing.
  for (const Weakening& order : report.orders)
    EXPECT_EQ(Explore(WordAndFlag(std::memory_order_release, std::memory_order_acquire), {order}).violation,
              "an old word behind a new flag")
        << ToString(order);
}

TEST(MemoryModel, ARelaxedFlagBringsNothing) {
  const Report report = Explore(WordAndFlag(kRelaxed, kRelaxed));
  EXPECT_EQ(report.violation, "an old word behind a new flag");
  EXPECT_NE(report.trace.find("thread 1: load of location 0"), std::string::npos) << report.trace;
}

// Each thread writes its word and reads the other's: with release and acquire both may miss the other.
TEST(MemoryModel, TwoStoresMayBothBeMissed) {
  const auto thread = [](Atomic<std::uint64_t> Words::*mine, Atomic<std::uint64_t> Words::*other,
                         std::uint64_t Words::*seen) {
    return [=](Words& words) {
      (words.*mine).store(1, std::memory_order_release);
      words.*seen = (words.*other).load(std::memory_order_acquire);
    };
  };
  const Report report = Explore(Scenario<Words>{
      [](Words&) {},
      {thread(&Words::a, &Words::b, &Words::first), thread(&Words::b, &Words::a, &Words::second)},
      [](Words& words) {
        if (words.first + words.second == 0) Fail("both were missed");
      }});
  EXPECT_EQ(report.violation, "both were missed");
}

TEST(MemoryModel, AnIncrementInTwoStepsIsLost) {
  const auto count = [](Words& words) { words.a.store(words.a.load(kRelaxed) + 1, kRelaxed); };
  const auto all = [](Words& words) {
    if (words.a.load(kRelaxed) != 3) Fail("one is lost");
  };
  EXPECT_EQ(Explore(Scenario<Words>{[](Words&) {}, {count, count, count}, all}).violation, "one is lost");
  const auto count_at_once = [](Words& words) { words.a.fetch_add(1, kRelaxed); };
  EXPECT_EQ(
      Explore(Scenario<Words>{[](Words&) {}, {count_at_once, count_at_once, count_at_once}, all}).violation,
      "");
  const auto swap = [](Words& words) {
    std::uint64_t seen = words.a.load(kRelaxed);
    while (!words.a.compare_exchange_weak(seen, seen + 1, kRelaxed, kRelaxed)) {
    }
  };
  EXPECT_EQ(Explore(Scenario<Words>{[](Words&) {}, {swap, swap, swap}, all}).violation, "");
}

TEST(MemoryModel, OnlyAWeakSwapFailsForNoReason) {
  const auto swap = [](bool weak) {
    return [weak](Words& words) {
      std::uint64_t seen = 0;
      const bool swapped = weak ? words.a.compare_exchange_weak(seen, 1, kRelaxed, kRelaxed)
                                : words.a.compare_exchange_strong(seen, 1, kRelaxed, kRelaxed);
      if (!swapped && seen == 0) Fail("it failed for no reason");
    };
  };
  const auto nothing = [](Words&) {};
  EXPECT_EQ(Explore(Scenario<Words>{nothing, {swap(true)}, nothing}).violation, "it failed for no reason");
  EXPECT_EQ(Explore(Scenario<Words>{nothing, {swap(false)}, nothing}).violation, "");
}

TEST(MemoryModel, ALockKeepsOthersOut) {
  const auto count = [](Words& words) {
    const WriterLock lock;
    words.a.store(words.a.load(kRelaxed) + 1, kRelaxed);
  };
  const auto all = [](Words& words) {
    if (words.a.load(kRelaxed) != 3) Fail("one is lost");
  };
  EXPECT_EQ(Explore(Scenario<Words>{[](Words&) {}, {count, count, count}, all}).violation, "");
}

TEST(MemoryModel, AThreadThatNeverEndsIsAViolation) {
  const auto spin = [](Words& words) {
    for (std::uint64_t turn = 0;; ++turn) words.a.store(turn, kRelaxed);
  };
  EXPECT_EQ(Explore(Scenario<Words>{[](Words&) {}, {spin}, [](Words&) {}}).violation,
            "a thread goes on for ever");
}

}  // namespace
}  // namespace leaf::model
