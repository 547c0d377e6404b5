// What is counted: of tags that come and go, of threads, of durations.
#include "leaf/service/tallies.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "leaf/base/thread_counter.h"
#include "leaf/java/pages.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Tallies, EveryCodeHasItsCause) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kDisabled); ++code)
    names.insert(CauseName(SlotOf(static_cast<ErrorCode>(code))));
  names.insert(CauseName(kWithdrawnSlot));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kDisabled) + 2);
  EXPECT_EQ(CauseName(SlotOf(ErrorCode::kFrozen)), "frozen");
  EXPECT_EQ(CauseName(kWithdrawnSlot), "withdrawn");
}

TEST(Tallies, ADurationCountsUpToItsBound) {
  LatencyTally tally;
  tally.Add(nanoseconds{0});
  tally.Add(milliseconds{1});
  tally.Add(milliseconds{1} + nanoseconds{1});
  tally.Add(seconds{10});
  tally.Add(seconds{11});
  EXPECT_EQ(tally.counts[0], 2U);
  EXPECT_EQ(tally.counts[1], 1U);
  EXPECT_EQ(tally.counts[tally.counts.size() - 2], 1U);
  EXPECT_EQ(tally.counts.back(), 1U);
  EXPECT_EQ(tally.sum_ns, 21'002'000'001U);
}

TEST(ThreadCounter, MoreThreadsThanSlotsLoseNothing) {
  constexpr int kThreads = 40;
  constexpr int kEach = 1000;
  ThreadCounter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kEach; ++j) counter.Add(3);
    });
  }
  std::uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t sum = counter.Sum();
    EXPECT_GE(sum, last);
    last = sum;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Sum(), 3U * kThreads * kEach);
}

class SegmentTallies : public SegmentServiceTest {
 protected:
  SegmentTotals Totals() const { return service_->Visit(nullptr); }
  std::uint64_t Errors(ErrorCode code) const { return Totals().tallies.errors[SlotOf(code)]; }
};

TEST_F(SegmentTallies, CountWhatHappened) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  EXPECT_EQ(StatusOf("pay").tallies, nullptr) << "an idle tag has nothing to count";
  EXPECT_EQ(Get("pay", 10)->ids().size(), 10U);
  const TagStatus status = StatusOf("pay");
  ASSERT_NE(status.tallies, nullptr);
  EXPECT_EQ(status.tallies->waits, 1U);
  EXPECT_EQ(status.issued, 10U);
  EXPECT_EQ(Get("nope")->code(), ErrorCode::kNotFound);
  EXPECT_EQ(Get("nope")->code(), ErrorCode::kNotFound);  // remembered
  const SegmentTotals totals = Totals();
  EXPECT_EQ(totals.issued, 10U);
  EXPECT_EQ(totals.granted, 100U);
  EXPECT_EQ(totals.wasted, 0U);
  EXPECT_EQ(totals.tallies.errors[SlotOf(ErrorCode::kNotFound)], 2U);
  EXPECT_EQ(totals.tallies.refills_failed, 0U) << "that there is no such tag is an answer";
  std::uint64_t refills = 0;
  for (const std::uint64_t count : totals.tallies.refills.counts) refills += count;
  EXPECT_EQ(refills, 1U);
}

TEST_F(SegmentTallies, ATagThatLeavesTakesNothingFromTheTotals) {
  table_.Put("pay", 1, 100);
  table_.Put("order", 1, 100);
  StartService();
  Run();
  EXPECT_EQ(Get("pay", 30)->ids().size(), 30U);
  EXPECT_EQ(Get("order", 5)->ids().size(), 5U);
  const SegmentTotals before = Totals();
  EXPECT_EQ(before.issued, 35U);
  table_.Erase("pay");
  Pass(options_.refresh_interval + seconds{1});
  EXPECT_EQ(service_->TagStatuses().size(), 1U);
  const SegmentTotals after = Totals();
  EXPECT_EQ(after.issued, 35U);
  EXPECT_EQ(after.granted, before.granted);
  EXPECT_EQ(before.granted, 300U);
  EXPECT_EQ(after.wasted, 170U) << "its reserve was dropped";
  EXPECT_EQ(after.tallies.waits, before.tallies.waits);
  // A new one of the same name begins anew, and the totals go on.
  table_.Put("pay", 1000, 100);
  EXPECT_EQ(Get("pay", 2)->ids().size(), 2U);
  EXPECT_EQ(StatusOf("pay").issued, 2U);
  EXPECT_EQ(Totals().issued, 37U);
}

TEST_F(SegmentTallies, AHangUpIsNotAnError) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  const auto answer = Ask("pay", 5);
  ASSERT_FALSE(answer->done());
  answer->parked.Withdraw();
  ASSERT_TRUE(answer->done());
  EXPECT_EQ(Totals().tallies.errors[kWithdrawnSlot], 1U);
  EXPECT_EQ(Errors(ErrorCode::kExhausted), 0U);
}

TEST_F(SegmentTallies, LeafsPageSeesTheSegments) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  const auto view = [&] {
    const TagRanges ranges = service_->Ranges().at(0);
    return java::LeafViewOf(ranges.tag, ranges.granted, ranges.held, ranges.recent);
  };
  EXPECT_FALSE(view().initialised);
  EXPECT_EQ(Get("pay", 4)->ids().size(), 4U);
  EXPECT_TRUE(view().initialised);
  EXPECT_FALSE(view().next_ready);
  EXPECT_EQ(view().position, 0U);
  EXPECT_EQ(view().segments[0].value, 5U);
  EXPECT_EQ(view().segments[0].max, 101U);
  EXPECT_EQ(view().segments[0].step, 100U);
  EXPECT_EQ(Get("pay", 20)->ids().size(), 20U);
  Run();
  EXPECT_TRUE(view().next_ready);
  EXPECT_EQ(view().segments[0].value, 25U);
  EXPECT_EQ(view().segments[1].value, 101U);
  EXPECT_EQ(Get("pay", 90)->ids().size(), 90U);
  EXPECT_EQ(view().position, 1U);
  EXPECT_EQ(view().segments[1].value, 115U);
}

// Takers, refills and tags that go away at random, against what the callers got.
TEST_F(SegmentTallies, RandomUseAddsUp) {
  options_.refresh_interval = milliseconds{200};
  options_.step_policy = core::StepPolicy::Kind::kFixed;
  const std::vector<std::string> tags{"a", "b", "c"};
  std::set<std::string> there(tags.begin(), tags.end());
  for (const std::string& tag : tags) table_.Put(tag, 1, 20);
  StartService();
  Run();
  std::uint64_t received = 0;
  std::uint64_t last = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string& tag = tags[random_.Below(tags.size())];
    switch (random_.Below(8)) {
      case 0:
        table_.Erase(tag);
        there.erase(tag);
        break;
      case 1:
        // Above everything that was granted under this name.
        if (there.insert(tag).second) table_.Put(tag, 1'000'000 * (i + 1), 20);
        break;
      case 2:
        Pass(milliseconds{50});
        break;
      default:
        if (const auto answer = Get(tag, 1 + random_.Below(40)); answer->result->ok())
          received += answer->ids().size();
    }
    const SegmentTotals totals = Totals();
    ASSERT_GE(totals.issued, last);
    last = totals.issued;
    ASSERT_EQ(totals.issued, received) << "step " << i;
  }
  EXPECT_GT(received, 100U);
}

}  // namespace
}  // namespace leaf::service
