#include "leaf/core/token_bucket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace leaf::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Rate = TokenBucket::Rate;

MonotonicTime At(nanoseconds time) { return MonotonicTime{std::chrono::hours{1}} + time; }

int TakeAll(TokenBucket& bucket, MonotonicTime now, const Rate& rate, int most = 1'000'000) {
  int taken = 0;
  while (taken < most && bucket.TryTake(now, rate)) ++taken;
  return taken;
}

TEST(TokenBucket, GivesASecondsWorthAtOnceAndThenAsTimePasses) {
  TokenBucket bucket;
  const Rate rate = Rate::PerSecond(10);
  EXPECT_EQ(TakeAll(bucket, At(seconds{0}), rate), 10);
  EXPECT_EQ(TakeAll(bucket, At(milliseconds{99}), rate), 0);
  EXPECT_EQ(TakeAll(bucket, At(milliseconds{100}), rate), 1);
  EXPECT_EQ(TakeAll(bucket, At(milliseconds{350}), rate), 2);
  EXPECT_EQ(TakeAll(bucket, At(seconds{100}), rate), 10);
}

TEST(TokenBucket, WithoutALimitItNeverRefuses) {
  TokenBucket bucket;
  EXPECT_EQ(TakeAll(bucket, At(seconds{0}), Rate{}, 1000), 1000);
  EXPECT_FALSE(Rate::PerSecond(0).is_limit());
  EXPECT_FALSE(Rate::PerSecond(~std::uint64_t{0}).is_limit());
  EXPECT_TRUE(Rate::PerSecond(1'000'000'000).is_limit());
}

TEST(TokenBucket, TakersThatReadTheClockInAnotherOrderGetNoMore) {
  TokenBucket bucket;
  const Rate rate = Rate::PerSecond(5);
  EXPECT_EQ(TakeAll(bucket, At(seconds{10}), rate), 5);
  EXPECT_EQ(TakeAll(bucket, At(seconds{9}), rate), 0);
  EXPECT_EQ(TakeAll(bucket, At(seconds{11}), rate), 5);
}

TEST(TokenBucket, AChangedRateHoldsAtOnceForWhatWasUsed) {
  TokenBucket bucket;
  EXPECT_EQ(TakeAll(bucket, At(seconds{0}), Rate::PerSecond(1000)), 1000);
  EXPECT_EQ(TakeAll(bucket, At(milliseconds{500}), Rate::PerSecond(4)), 2);
  EXPECT_EQ(TakeAll(bucket, At(milliseconds{600}), Rate{}, 7), 7);
}

// At most rate * (t + 1) + 1 of any t seconds, whatever the schedule; and all of it for a caller that asks
// often.
TEST(TokenBucket, NoWindowOfARandomScheduleHoldsMoreThanItMay) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t per_second = 1 + random() % (round % 2 == 0 ? 20 : 50'000);
    const Rate rate = Rate::PerSecond(per_second);
    TokenBucket bucket;
    std::vector<double> taken;
    nanoseconds now{0};
    for (int i = 0; i < 4000; ++i) {
      now += nanoseconds{random() % (2'000'000'000 / per_second)};
      if (bucket.TryTake(At(now), rate)) taken.push_back(std::chrono::duration<double>(now).count());
    }
    for (std::size_t first = 0; first < taken.size(); first += 1 + taken.size() / 50) {
      for (std::size_t last = first; last < taken.size(); last += 1 + taken.size() / 50) {
        const double allowed =
            static_cast<double>(per_second) * (taken[last] - taken[first] + 1) * 1.0001 + 1;
        ASSERT_LE(static_cast<double>(last - first + 1), allowed) << "round " << round;
      }
    }
    // Asked for about the rate itself: even where only one may come at once, most is granted.
    ASSERT_GT(taken.size(), 2000U) << "round " << round;
  }
}

TEST(TokenBucket, ThreadsTogetherGetWhatOneWouldGet) {
  TokenBucket bucket;
  const Rate rate = Rate::PerSecond(5000);
  std::vector<int> taken(4);
  std::vector<std::thread> threads;
  for (int& mine : taken) threads.emplace_back([&] { mine = TakeAll(bucket, At(seconds{1}), rate); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken[0] + taken[1] + taken[2] + taken[3], 5000);
}

}  // namespace
}  // namespace leaf::core
