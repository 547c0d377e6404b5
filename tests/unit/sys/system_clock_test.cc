#include "leaf/sys/system_clock.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace leaf::sys {
namespace {

using std::chrono::milliseconds;

// For `span`, reads the recent time between two readings of the clock. Returns what was wrong, if anything. A
// delay between the three readings does no harm: the recent time was read before the later reading, and was
// less than 0.1 ms old when RecentWall() checked it, which was after the earlier reading. In whole
// milliseconds it is at most one less than that.
std::optional<std::string> Watch(const SystemClock& clock, milliseconds span) {
  const MonotonicTime end = clock.Monotonic() + span;
  WallTime last{};
  while (clock.Monotonic() < end) {
    const WallTime before = clock.Wall();
    const WallTime recent = clock.RecentWall();
    const WallTime after = clock.Wall();
    if (recent < before - milliseconds{1}) return "older than a moment";
    if (recent > after) return "of the future";
    if (recent < last) return "older than the one before";
    last = recent;
  }
  return std::nullopt;
}

TEST(SystemClock, ARecentTimeIsAMomentOldAtMost) {
  const SystemClock clock;
  EXPECT_EQ(Watch(clock, milliseconds{50}), std::nullopt);
}

TEST(SystemClock, ATimeThatTheSystemCannotWaitForIsNotWaitedForForEver) {
  const SystemClock clock;
  clock.WaitUntil(MonotonicTime{-std::chrono::seconds{1}});
  clock.WaitUntil(clock.Monotonic() + milliseconds{1});
}

TEST(SystemClock, ARecentTimeIsReadAgainAfterAPause) {
  const SystemClock clock;
  const WallTime old = clock.RecentWall();
  while (clock.Wall() < old + milliseconds{3}) {
  }
  EXPECT_GE(clock.RecentWall(), old + milliseconds{2});
}

TEST(SystemClock, EachThreadHasItsOwnRecentTime) {
  const SystemClock clock;
  std::vector<std::optional<std::string>> wrong(4, "did not run");
  std::vector<std::jthread> threads;
  for (auto& each : wrong) threads.emplace_back([&] { each = Watch(clock, milliseconds{50}); });
  threads.clear();
  for (const auto& each : wrong) EXPECT_EQ(each, std::nullopt);
}

}  // namespace
}  // namespace leaf::sys
