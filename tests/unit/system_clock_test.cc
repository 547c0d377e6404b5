#include "leaf/sys/system_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace leaf::sys {
namespace {

using std::chrono::milliseconds;

TEST(SystemClock, ARecentTimeIsAMomentOldAtMost) {
  const SystemClock clock;
  int equal = 0;
  for (int i = 0; i < 200'000; ++i) {
    const WallTime before = clock.Wall();
    const WallTime recent = clock.RecentWall();
    const WallTime after = clock.Wall();
    ASSERT_GE(recent, before - milliseconds{1});
    ASSERT_LE(recent, after);
    if (recent == after) ++equal;
    if (i % 1000 == 0) std::this_thread::sleep_for(milliseconds{1});
  }
  EXPECT_GT(equal, 100'000);
}

TEST(SystemClock, EachThreadHasItsOwnRecentTime) {
  const SystemClock clock;
  clock.RecentWall();
  std::this_thread::sleep_for(milliseconds{2});
  std::thread([&] {
    const WallTime before = clock.Wall();
    EXPECT_GE(clock.RecentWall(), before - milliseconds{1});
  }).join();
}

}  // namespace
}  // namespace leaf::sys
