#include "leaf/core/exhaustion.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "leaf/base/limits.h"

namespace leaf::core {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WallTime kThen{milliseconds{1'795'000'000'000}};

TEST(Exhaustion, IsReckonedFromTheMeanRate) {
  // Half of what was left is used in ten days: ten more.
  const Baseline base{kMaxIdLimit - 2'000'000, kThen};
  const auto days =
      DaysToExhaustion(static_cast<std::int64_t>(kMaxIdLimit - 1'000'000), base, kThen + hours{240});
  ASSERT_TRUE(days.has_value());
  EXPECT_DOUBLE_EQ(*days, 10);
}

TEST(Exhaustion, IsUnknownWithoutUseOrTime) {
  const Baseline base{1000, kThen};
  EXPECT_EQ(DaysToExhaustion(1000, base, kThen + hours{24}), std::nullopt);
  EXPECT_EQ(DaysToExhaustion(900, base, kThen + hours{24}), std::nullopt);
  EXPECT_EQ(DaysToExhaustion(-1, base, kThen + hours{24}), std::nullopt);
  EXPECT_EQ(DaysToExhaustion(2000, base, kThen + seconds{59}), std::nullopt);
  EXPECT_EQ(DaysToExhaustion(2000, base, kThen - hours{1}), std::nullopt);  // the clock was set back
  EXPECT_TRUE(DaysToExhaustion(2000, base, kThen + seconds{60}).has_value());
}

TEST(Exhaustion, IsZeroAtTheEnd) {
  // Also where nothing was watched, or moves any more.
  EXPECT_EQ(DaysUntil(1'000'000, 1'000'000, {1'000'000, kThen}, kThen), 0.0);
  EXPECT_EQ(DaysUntil(1'000'000, 1'000'075, {}, kThen), 0.0);
  EXPECT_EQ(DaysUntil(1'000'000, 999'999, {999'999, kThen}, kThen), std::nullopt);
  EXPECT_EQ(DaysToExhaustion(static_cast<std::int64_t>(kMaxIdLimit), {1, kThen}, kThen + hours{1}), 0.0);
  EXPECT_EQ(IdsLeft(static_cast<std::int64_t>(kMaxIdLimit)), 0U);
  EXPECT_EQ(IdsLeft(std::numeric_limits<std::int64_t>::min()), 0U);
}

TEST(Exhaustion, CodesEndByNumberOrByTime) {
  EXPECT_FALSE(IsNearCodesEnd(899'999, {1'000'000, std::nullopt}));
  EXPECT_TRUE(IsNearCodesEnd(900'000, {1'000'000, std::nullopt}));
  EXPECT_TRUE(IsNearCodesEnd(2'000'000, {1'000'000, std::nullopt}));
  EXPECT_FALSE(IsNearCodesEnd(1, {1'000'000, kFewDaysLeft}));
  EXPECT_TRUE(IsNearCodesEnd(1, {1'000'000, kFewDaysLeft - 1}));
  EXPECT_FALSE(IsNearCodesEnd(-5, {1'000'000, 1}));
  EXPECT_FALSE(IsNearCodesEnd(static_cast<std::int64_t>(kMaxIdLimit), {kIdEnd, 0}))
      << "IsNearExhaustion reports this end";
}

TEST(Exhaustion, IsNearByNumberOrByTime) {
  const auto at = [](std::uint64_t left) { return static_cast<std::int64_t>(kMaxIdLimit - left); };
  EXPECT_FALSE(IsNearExhaustion(1, std::nullopt));
  EXPECT_FALSE(IsNearExhaustion(1, kFewDaysLeft));
  EXPECT_TRUE(IsNearExhaustion(1, kFewDaysLeft - 1));
  EXPECT_FALSE(IsNearExhaustion(at(kFewIdsLeft), std::nullopt));
  EXPECT_TRUE(IsNearExhaustion(at(kFewIdsLeft - 1), std::nullopt));
  EXPECT_FALSE(IsNearExhaustion(-5, std::nullopt));  // a bad row, which is its own problem
}

}  // namespace
}  // namespace leaf::core
