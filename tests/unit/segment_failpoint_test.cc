// Lock-freedom, shown: a taker that is stopped for good anywhere inside Take() stops nobody else. Built on
// its own, with failpoints compiled in.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
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

class StoppedTaker : public ::testing::TestWithParam<const char*> {};

TEST_P(StoppedTaker, StopsNobodyElse) {
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

    // Everybody else goes on, through enough refills to rewrite every slot several times.
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

    // And the late one gets IDs that nobody has, or none.
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
