// Lock-freedom, shown: a taker that is stopped for good anywhere inside Take() stops no other taker. Built on
// its own, with failpoints compiled in.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/core/segment_buffer.h"

#ifndef LEAF_FAILPOINTS
#error "this test needs failpoints"
#endif

namespace leaf::core {
namespace {

using Outcome = SegmentBuffer::Outcome;

// Stops the one thread that called Arm() at the failpoint of that name, until Release().
class Stopper {
 public:
  explicit Stopper(const char* where) : where_(where) {
    current = this;
    failpoint_hit.store([](const char* name) {
      if (armed && std::strcmp(name, current->where_) == 0) current->Stop();
    });
  }
  ~Stopper() {
    Release();
    failpoint_hit.store(nullptr);
  }
  static void Arm() { armed = true; }
  void WaitUntilStopped() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  void Stop() {
    armed = false;
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }
  static thread_local bool armed;
  static Stopper* current;
  const char* const where_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool released_ = false;
};
thread_local bool Stopper::armed = false;
Stopper* Stopper::current = nullptr;

// A taker draws past a limit that is old by then, and a range is installed above the position it drew: the
// position is void, and no ID is lost. Seen as a lost ID too many in a race under the thread sanitizer.
TEST(SegmentBufferFailpoint, AVoidPositionIsNoLostId) {
  static SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 2}, 0), SegmentBuffer::Installed::kNo);
  failpoint_hit.store([](const char* name) {
    if (std::strcmp(name, "take: before the draw") == 0) {
      failpoint_hit.store([](const char* later) {
        if (std::strcmp(later, "take: drawn") != 0) return;
        failpoint_hit.store(nullptr);
        EXPECT_NE(buffer.Install({2, 3}, 0), SegmentBuffer::Installed::kNo);
      });
      // Another taker gets the last ID; it meets the first of the failpoints only.
      IdSpans last;
      EXPECT_TRUE(buffer.TakeUpTo(1, last) || last.total() == 1);
    }
  });
  std::uint64_t id = 0;
  const auto take = buffer.TakeOne(id);
  EXPECT_EQ(failpoint_hit.load(), nullptr);
  ASSERT_EQ(take.outcome, Outcome::kOvershoot);
  EXPECT_FALSE(buffer.Resolve(take.position, id));
  EXPECT_EQ(buffer.lost(), 0U);
  EXPECT_EQ(buffer.TakeOne(id).outcome, Outcome::kTaken);
  EXPECT_EQ(id, 2U);
}

// What happens while a taker is between two of its steps, by a plain call in the middle of its own: `action`
// runs once, when the failpoint of that name is met for the `visit`-th time (from 1).
class Meanwhile {
 public:
  Meanwhile(const char* where, int visit, std::function<void()> action)
      : where_(where), visits_left_(visit), action_(std::move(action)) {
    current = this;
    failpoint_hit.store([](const char* name) {
      if (std::strcmp(name, current->where_) != 0 || --current->visits_left_ > 0) return;
      failpoint_hit.store(nullptr);
      current->action_();
    });
  }
  ~Meanwhile() {
    EXPECT_EQ(failpoint_hit.load(), nullptr) << "no thread came by '" << where_ << "'";
    failpoint_hit.store(nullptr);
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  static Meanwhile* current;
  const char* const where_;
  int visits_left_;
  const std::function<void()> action_;
};
Meanwhile* Meanwhile::current = nullptr;

// Uses up the reserve, and then so many ranges of ten IDs, from 1001 on: all but the last, which is left.
void UseUp(SegmentBuffer& buffer, std::size_t ranges) {
  std::uint64_t begin = 1001;
  for (std::size_t i = 0; i < ranges; ++i, begin += 10) {
    IdSpans rest;
    (void)buffer.TakeUpTo(buffer.remaining(), rest);
    ASSERT_NE(buffer.Install({begin, begin + 10}, 0), SegmentBuffer::Installed::kNo);
  }
}

// All slots are used for later ranges between a look at the limit and the search for a run: the position is
// in none of them, and the search has to end.
TEST(SegmentBufferFailpoint, ASearchForARunEndsWhereItsRangesAreGone) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 101}, 0), SegmentBuffer::Installed::kNo);
  IdSpans ids;
  {
    Meanwhile asleep("take: before the draw", 1, [&] { UseUp(buffer, kSegmentSlots); });
    EXPECT_EQ(buffer.TakeContiguous(5, ids).outcome, Outcome::kDrained);
  }
  EXPECT_TRUE(ids.empty());
  EXPECT_EQ(buffer.lost(), 0U);
  EXPECT_EQ(buffer.TakeContiguous(5, ids).outcome, Outcome::kTaken);
}

// The refill trap: while a taker sleeps between draw and look-up, its slot is used for a later range.
TEST(SegmentBufferFailpoint, WhatATakerSleptOverIsLostAndCountedAndNoOtherTakers) {
  for (const std::uint64_t count : {1U, 5U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 101}, 0), SegmentBuffer::Installed::kNo);
    Meanwhile asleep("take: drawn", 1, [&] { UseUp(buffer, kSegmentSlots); });
    IdSpans ids;
    ASSERT_EQ(buffer.Take(count, ids).outcome, Outcome::kTaken);
    const std::uint64_t last_range = 1001 + 10 * (kSegmentSlots - 1);
    EXPECT_EQ(ids.ranges().front(), (IdRange{last_range, last_range + count}));
    EXPECT_EQ(ids.total(), count);
    EXPECT_EQ(buffer.lost(), count);
    EXPECT_EQ(buffer.remaining(), 10 - count);
  }
}

// One refill earlier its slot is still what it was.
TEST(SegmentBufferFailpoint, ATakerWhoseSlotIsStillThereGetsWhatItDrew) {
  for (const std::uint64_t count : {1U, 5U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 101}, 0), SegmentBuffer::Installed::kNo);
    Meanwhile asleep("take: drawn", 1, [&] { UseUp(buffer, kSegmentSlots - 1); });
    IdSpans ids;
    ASSERT_EQ(buffer.Take(count, ids).outcome, Outcome::kTaken);
    EXPECT_EQ(ids.ranges().front(), (IdRange{1, 1 + count}));
    EXPECT_EQ(ids.total(), count);
    EXPECT_EQ(buffer.lost(), 0U);
  }
}

// The reserve is dropped, as when the database went back. A taker that has drawn, and not looked up, gets no
// ID of it.
TEST(SegmentBufferFailpoint, WhatWasClearedIsNotReadByATakerThatHadDrawn) {
  for (const std::uint64_t count : {1U, 5U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 11}, 0), SegmentBuffer::Installed::kNo);
    ASSERT_NE(buffer.Install({101, 111}, 0), SegmentBuffer::Installed::kNo);
    Meanwhile asleep("take: drawn", 1, [&] { EXPECT_EQ(buffer.Clear(), 20 - count); });
    IdSpans ids;
    EXPECT_EQ(buffer.Take(count, ids).outcome, Outcome::kDrained);
    EXPECT_TRUE(ids.empty());
    EXPECT_EQ(buffer.lost(), count);
  }
}

// A batch over two ranges that has looked up the first when the second is gone: it drops both parts.
TEST(SegmentBufferFailpoint, ABatchThatLosesItsSecondPartKeepsNothingOfTheFirst) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 4}, 0), SegmentBuffer::Installed::kNo);
  ASSERT_NE(buffer.Install({101, 111}, 0), SegmentBuffer::Installed::kNo);
  Meanwhile asleep("take: reading a slot", 2, [&] { UseUp(buffer, kSegmentSlots); });
  IdSpans ids;
  ASSERT_EQ(buffer.Take(5, ids).outcome, Outcome::kTaken);
  const std::uint64_t last_range = 1001 + 10 * (kSegmentSlots - 1);
  EXPECT_EQ(ids.ranges().front(), (IdRange{last_range, last_range + 5}));
  EXPECT_EQ(ids.total(), 5U);
  EXPECT_EQ(buffer.lost(), 5U);
}

TEST(SegmentBufferFailpoint, ABatchThatIsForestalledTakesTheNextIdsOrNone) {
  for (const std::uint64_t others : {3U, 8U, 10U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 11}, 0), SegmentBuffer::Installed::kNo);
    Meanwhile forestalled("take: before the draw", 1, [&] {
      IdSpans theirs;
      (void)buffer.TakeUpTo(others, theirs);
      EXPECT_EQ(theirs.total(), others);
    });
    IdSpans ids;
    const auto outcome = buffer.Take(5, ids).outcome;
    if (others == 3) {
      EXPECT_EQ(outcome, Outcome::kTaken);
      EXPECT_EQ(ids.ranges().front(), (IdRange{4, 9}));
      EXPECT_EQ(buffer.remaining(), 2U);
    } else {
      EXPECT_EQ(outcome, Outcome::kDrained);
      EXPECT_TRUE(ids.empty());
      EXPECT_EQ(buffer.remaining(), 10 - others);
    }
    EXPECT_EQ(buffer.lost(), 0U);
  }
}

// The taker that draws the last position closes the buffer, unless there is a new range by then.
TEST(SegmentBufferFailpoint, TheTakerOfTheLastIdDoesNotCloseANewRange) {
  for (const std::uint64_t count : {1U, 2U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 1 + count}, 0), SegmentBuffer::Installed::kNo);
    Meanwhile refill("take: drawn", 1, [&] {
      ASSERT_NE(buffer.Install({101, 111}, 0), SegmentBuffer::Installed::kNo);
    });
    IdSpans last;
    ASSERT_EQ(buffer.Take(count, last).outcome, Outcome::kTaken);
    EXPECT_EQ(last.ranges().front(), (IdRange{1, 1 + count}));
    std::uint64_t id = 0;
    ASSERT_EQ(buffer.TakeOne(id).outcome, Outcome::kTaken);
    EXPECT_EQ(id, 101U);
    EXPECT_EQ(buffer.remaining(), 9U);
  }
}

// Past the limit that it saw, and yet in a range: the one that was installed before it drew.
TEST(SegmentBufferFailpoint, AnIdDrawnPastAnOldLimitIsTakenFromTheNewRange) {
  SegmentBuffer buffer;
  ASSERT_NE(buffer.Install({1, 2}, 0), SegmentBuffer::Installed::kNo);
  Meanwhile refill("take: before the draw", 1, [&] { UseUp(buffer, 1); });
  std::uint64_t id = 0;
  ASSERT_EQ(buffer.TakeOne(id).outcome, Outcome::kTaken);
  EXPECT_EQ(id, 1001U);
  EXPECT_EQ(buffer.lost(), 0U);
  EXPECT_EQ(buffer.remaining(), 9U);
}

class StoppedTaker : public ::testing::TestWithParam<const char*> {};

TEST_P(StoppedTaker, StopsNoOtherTaker) {
  for (const std::uint64_t count : {1U, 5U}) {
    SegmentBuffer buffer;
    ASSERT_NE(buffer.Install({1, 101}, 0), SegmentBuffer::Installed::kNo);
    Stopper stopper(GetParam());
    IdSpans late;
    auto late_outcome = Outcome::kDrained;
    std::thread stopped([&] {
      Stopper::Arm();
      late_outcome = buffer.Take(count, late).outcome;
    });
    stopper.WaitUntilStopped();

    // The other takers go on, through enough refills to rewrite every slot several times.
    std::mutex writer;
    std::mutex seen_mutex;
    std::set<std::uint64_t> seen;
    std::atomic<std::uint64_t> next{101};
    std::vector<std::thread> others;
    for (int i = 0; i < 3; ++i) {
      others.emplace_back([&] {
        std::vector<std::uint64_t> ids;
        while (ids.size() < 2000) {
          std::uint64_t id = 0;
          const auto result = buffer.TakeOne(id);
          bool taken = result.outcome == Outcome::kTaken;
          if (!taken || result.refill_wanted) {
            const std::lock_guard lock(writer);
            if (result.outcome == Outcome::kOvershoot) taken = buffer.Resolve(result.position, id);
            if (buffer.CanInstall()) {
              const std::uint64_t begin = next.fetch_add(20);
              (void)buffer.Install({begin, begin + 20}, 10);
            }
          }
          if (taken) ids.push_back(id);
        }
        const std::lock_guard lock(seen_mutex);
        for (const std::uint64_t taken_id : ids) EXPECT_TRUE(seen.insert(taken_id).second) << taken_id;
      });
    }
    for (std::thread& other : others) other.join();
    EXPECT_EQ(seen.size(), 6000U);

    // And the late one gets IDs that no other taker has, or none.
    stopper.Release();
    stopped.join();
    if (late_outcome != Outcome::kTaken) continue;
    EXPECT_EQ(late.total(), count);
    for (const IdRange& range : late.ranges()) {
      for (std::uint64_t id = range.begin; id < range.end; ++id) {
        EXPECT_EQ(seen.count(id), 0U) << id;
        EXPECT_LT(id, next.load());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, StoppedTaker,
                         ::testing::Values("take: before the draw", "take: drawn", "take: reading a slot"),
                         [](const auto& where) {
                           std::string name = where.param;
                           std::erase_if(
                               name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace leaf::core
