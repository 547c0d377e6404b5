#include "leaf/service/gathering.h"

#include <gtest/gtest.h>

#include <chrono>

namespace leaf::service {
namespace {

using std::chrono::milliseconds;

constexpr int kRounds = 4;  // until callers are believed to come back

class GatheringTest : public ::testing::Test {
 protected:
  // A grant of 8 ms has answered so many requests, and as many come back, the last one after `back`.
  void Round(std::size_t requests, milliseconds back) {
    gathering_.OnAnswered(requests, milliseconds{8}, now_);
    for (std::size_t i = 1; i < requests; ++i) gathering_.OnRequest(now_);
    if (requests > 0) gathering_.OnRequest(now_ + back);
    now_ += milliseconds{8};
  }
  bool Waits() const { return gathering_.WaitsUntil(now_).has_value(); }

  Gathering gathering_;
  MonotonicTime now_{std::chrono::hours{1}};
};

TEST_F(GatheringTest, NothingIsWaitedForAtFirst) {
  EXPECT_FALSE(Waits());
  gathering_.OnRequest(now_);
  EXPECT_FALSE(Waits());
  gathering_.OnAnswered(3, milliseconds{8}, now_);
  EXPECT_FALSE(Waits());
}

TEST_F(GatheringTest, CallersThatCameBackEachTimeAreWaitedFor) {
  for (int i = 1; i < kRounds; ++i) Round(3, milliseconds{1});
  gathering_.OnAnswered(3, milliseconds{8}, now_);
  EXPECT_FALSE(Waits()) << "so often may be chance";
  for (int i = 0; i < 3; ++i) gathering_.OnRequest(now_ + milliseconds{1});
  now_ += milliseconds{8};
  gathering_.OnAnswered(3, milliseconds{8}, now_);
  EXPECT_EQ(gathering_.WaitsUntil(now_), now_ + milliseconds{6}) << "three quarters of a grant at most";
  gathering_.OnRequest(now_);
  gathering_.OnRequest(now_);
  EXPECT_TRUE(Waits()) << "one of three is missing";
  gathering_.OnRequest(now_);
  EXPECT_FALSE(Waits()) << "all are back";
}

TEST_F(GatheringTest, TheWaitEnds) {
  for (int i = 0; i < kRounds; ++i) Round(2, milliseconds{1});
  gathering_.OnAnswered(2, milliseconds{8}, now_);
  EXPECT_TRUE(gathering_.WaitsUntil(now_ + milliseconds{5}).has_value());
  EXPECT_FALSE(gathering_.WaitsUntil(now_ + milliseconds{6}).has_value());
}

TEST_F(GatheringTest, CallersThatDoNotComeBackAreNotWaitedForAgain) {
  for (int i = 0; i < kRounds; ++i) Round(2, milliseconds{1});
  gathering_.OnAnswered(2, milliseconds{8}, now_);
  gathering_.OnRequest(now_);
  EXPECT_TRUE(Waits());
  now_ += milliseconds{20};
  gathering_.OnAnswered(1, milliseconds{8}, now_);
  EXPECT_FALSE(Waits());
  Round(1, milliseconds{1});
  gathering_.OnAnswered(1, milliseconds{8}, now_);
  EXPECT_FALSE(Waits());
}

// Requests at random come at the pace of the grants: to wait for as many as were answered takes a grant's
// time.
TEST_F(GatheringTest, CallersThatComeBackLateAreNotWaitedFor) {
  for (int i = 0; i < 2 * kRounds; ++i) Round(4, milliseconds{7});
  gathering_.OnAnswered(4, milliseconds{8}, now_);
  EXPECT_FALSE(Waits());
}

TEST_F(GatheringTest, AGrantForNobodyEndsNothing) {
  for (int i = 0; i < kRounds; ++i) Round(2, milliseconds{1});
  Round(0, milliseconds{0});
  EXPECT_FALSE(Waits());
}

TEST_F(GatheringTest, ASlowGrantIsNotAReasonToWaitForLong) {
  for (int i = 0; i <= kRounds; ++i) {
    gathering_.OnAnswered(1, std::chrono::seconds{2}, now_);
    if (i < kRounds) gathering_.OnRequest(now_ + milliseconds{1});
  }
  EXPECT_EQ(gathering_.WaitsUntil(now_), now_ + milliseconds{20});
}

}  // namespace
}  // namespace leaf::service
