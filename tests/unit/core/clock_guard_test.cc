#include "leaf/core/clock_guard.h"

#include <gtest/gtest.h>

namespace leaf::core {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ClockGuardTest : public ::testing::Test {
 protected:
  void Pass(milliseconds time) {
    wall_ += time;
    boot_ += time;
  }
  std::optional<milliseconds> Jump() { return guard_.Jump(wall_, boot_); }

  WallTime wall_{milliseconds{1'795'000'000'000}};
  BootTime boot_{hours{5}};
  ClockGuard guard_{seconds{10}, wall_, boot_, std::nullopt};
};

TEST_F(ClockGuardTest, TimeThatPassesIsNoJump) {
  for (int i = 0; i < 1000; ++i) {
    Pass(hours{7});
    ASSERT_FALSE(Jump());
  }
}

TEST_F(ClockGuardTest, AJumpStandsUntilItIsAcceptedOrTakenBack) {
  wall_ += seconds{11};
  ASSERT_EQ(Jump(), seconds{11});
  Pass(hours{1000});
  ASSERT_EQ(Jump(), seconds{11});
  wall_ -= seconds{11};
  ASSERT_FALSE(Jump());
  wall_ += hours{24 * 365};
  ASSERT_EQ(Jump(), hours{24 * 365});
  guard_.Accept(ClockGuard::OffsetOf(wall_, boot_));
  ASSERT_FALSE(Jump());
  wall_ += seconds{11};
  ASSERT_TRUE(Jump());
}

TEST_F(ClockGuardTest, UpToTheLimitIsNoJump) {
  wall_ += seconds{10};
  ASSERT_FALSE(Jump());
  wall_ += milliseconds{1};
  ASSERT_EQ(Jump(), milliseconds{10'001});
}

TEST_F(ClockGuardTest, ManySmallStepsInARowAreOne) {
  for (int i = 0; i < 10; ++i) {
    wall_ += seconds{1};
    Pass(seconds{1});
    ASSERT_FALSE(Jump());
  }
  wall_ += seconds{1};
  ASSERT_TRUE(Jump());
}

TEST_F(ClockGuardTest, AStepAWeekIsNone) {
  for (int i = 0; i < 500; ++i) {
    wall_ += seconds{1};
    for (int day = 0; day < 7 * 24; ++day) {
      Pass(hours{1});
      ASSERT_FALSE(Jump());
    }
  }
}

TEST_F(ClockGuardTest, FollowsThoughItIsAskedOften) {
  wall_ += seconds{9};
  for (int i = 0; i < 3600 * 4; ++i) {
    Pass(milliseconds{250});
    ASSERT_FALSE(Jump());
  }
  // An hour later nine seconds are forgotten.
  wall_ += seconds{9};
  ASSERT_FALSE(Jump());
}

TEST_F(ClockGuardTest, BackAndForthIsNoJump) {
  wall_ -= hours{2};
  ASSERT_FALSE(Jump());
  wall_ += hours{2};
  ASSERT_FALSE(Jump());
  wall_ += seconds{11};
  ASSERT_TRUE(Jump());
}

TEST_F(ClockGuardTest, AnEarlierProcessesReferenceCounts) {
  ClockGuard guard(seconds{10}, wall_ + hours{1}, boot_, guard_.reference());
  EXPECT_EQ(guard.Jump(wall_ + hours{1}, boot_), hours{1});
}

}  // namespace
}  // namespace leaf::core
