#include "leaf/core/reserve_policy.h"

#include <gtest/gtest.h>

#include "leaf/base/limits.h"

namespace leaf::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReservePolicyTest : public ::testing::Test {
 protected:
  // Issues at `rate` IDs a second for `time`, looked at every 100 ms.
  void Issue(ReservePolicy& policy, std::uint64_t rate, milliseconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds{100}) {
      now_ += milliseconds{100};
      issued_ += rate / 10;
      policy.ObserveIssued(issued_, now_);
    }
  }
  std::uint64_t issued_ = 0;
  MonotonicTime now_{seconds{1}};
};

TEST_F(ReservePolicyTest, WantsNothingBeforeARateIsSeen) {
  ReservePolicy policy(seconds{60});
  EXPECT_EQ(policy.Target(), 0U);
  policy.ObserveIssued(1'000'000, now_);
  policy.ObserveGrant(seconds{1});
  EXPECT_EQ(policy.Target(), 0U);
}

TEST_F(ReservePolicyTest, CoversTheGrantLatencyWithItsMargin) {
  ReservePolicy policy(milliseconds{0});
  policy.ObserveIssued(0, now_);
  Issue(policy, 20'000, seconds{2});
  EXPECT_EQ(policy.Target(), 0U);
  policy.ObserveGrant(milliseconds{50});
  EXPECT_EQ(policy.Target(), 20'000U * 50 * kGrantLatencyMargin / 1000);
}

TEST_F(ReservePolicyTest, HoldsTheReserveTimeOnTop) {
  ReservePolicy policy(seconds{600});
  policy.ObserveIssued(0, now_);
  Issue(policy, 1000, seconds{2});
  EXPECT_EQ(policy.Target(), 600'000U);
}

TEST_F(ReservePolicyTest, FollowsARiseAtOnceAndAFallSlowly) {
  ReservePolicy policy(seconds{1});
  policy.ObserveIssued(0, now_);
  Issue(policy, 1000, seconds{1});
  Issue(policy, 50'000, seconds{2});
  EXPECT_NEAR(policy.ids_per_second(), 50'000, 1);
  Issue(policy, 0, seconds{1});
  EXPECT_GT(policy.ids_per_second(), 40'000);
  Issue(policy, 0, seconds{120});
  EXPECT_LT(policy.ids_per_second(), 10);

  policy.ObserveGrant(milliseconds{200});
  policy.ObserveGrant(milliseconds{2});
  EXPECT_GT(policy.grant_latency(), milliseconds{150});
  for (int i = 0; i < 100; ++i) policy.ObserveGrant(milliseconds{2});
  EXPECT_LT(policy.grant_latency(), milliseconds{3});
}

TEST_F(ReservePolicyTest, LooksCloserTogetherThanASampleSayNothing) {
  ReservePolicy policy(seconds{1});
  policy.ObserveIssued(0, now_);
  policy.ObserveGrant(milliseconds{10});
  policy.ObserveIssued(1'000'000, now_ + kBurstSampleMin / 2);
  EXPECT_EQ(policy.Target(), 0U);
  policy.ObserveIssued(1'000'000, now_ + kBurstSampleMin);
  EXPECT_EQ(policy.Target(), 0U) << "one large batch is no rate";
  policy.ObserveIssued(2'000'000, now_ + 2 * kBurstSampleMin);
  EXPECT_GT(policy.Target(), 0U);
  EXPECT_EQ(policy.ids_per_second(), 0);
  policy.ObserveIssued(2'000'000, now_ + kRateSampleMin);
  policy.ObserveIssued(3'000'000, now_ + 2 * kRateSampleMin);
  EXPECT_GT(policy.ids_per_second(), 0);
}

TEST_F(ReservePolicyTest, OneLargeBatchIsNoHourOfTheSame) {
  ReservePolicy policy(std::chrono::hours{1});
  policy.ObserveIssued(0, now_);
  Issue(policy, 1000, seconds{10});
  issued_ += 100'000;  // within 100 ms
  Issue(policy, 1000, seconds{1});
  EXPECT_NEAR(policy.ids_per_second(), 1000, 10);
}

TEST_F(ReservePolicyTest, AnotherReserveTimeHoldsAtOnceForTheRateThatWasSeen) {
  ReservePolicy policy(seconds{600});
  policy.ObserveIssued(0, now_);
  Issue(policy, 1000, seconds{2});
  policy.set_reserve_time(seconds{60});
  EXPECT_EQ(policy.Target(), 60'000U);
  policy.set_reserve_time(seconds{0});
  EXPECT_EQ(policy.Target(), 0U);
}

TEST_F(ReservePolicyTest, OneRiseAfterALullChangesNothingAndTheSecondCounts) {
  RateMeter meter(seconds{1});
  const auto issue = [&](std::uint64_t count) {
    now_ += seconds{1};
    issued_ += count;
    meter.Observe(issued_, now_);
    return meter.ids_per_second();
  };
  meter.Observe(0, now_);
  issue(1000);
  ASSERT_DOUBLE_EQ(issue(1000), 1000);
  const double fallen = issue(0);
  EXPECT_LT(fallen, 1000);
  EXPECT_GT(fallen, 0);
  EXPECT_DOUBLE_EQ(issue(5000), fallen);
  EXPECT_DOUBLE_EQ(issue(4000), 4000);
}

TEST_F(ReservePolicyTest, NothingWrapsAtTheEnds) {
  ReservePolicy policy(std::chrono::hours{24 * 365});
  policy.ObserveIssued(kMaxIdLimit, now_);
  policy.ObserveIssued(0, now_ + seconds{1});  // went back
  EXPECT_EQ(policy.Target(), 0U);
  policy.ObserveIssued(kMaxIdLimit / 2, now_ + seconds{2});
  policy.ObserveIssued(kMaxIdLimit, now_ + seconds{3});
  EXPECT_EQ(policy.Target(), kMaxIdLimit);
}

}  // namespace
}  // namespace leaf::core
