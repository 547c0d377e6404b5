#include "leaf/core/fence.h"

#include <gtest/gtest.h>

#include "leaf/base/limits.h"

namespace leaf::core {
namespace {

TEST(Fence, AcceptsGrantsAtOrAboveTheMark) {
  EXPECT_TRUE(JudgeGrant("pay", {1, 2001}, {0, 0}).ok());
  EXPECT_TRUE(JudgeGrant("pay", {2001, 4001}, {2001, 0}).ok());
  EXPECT_TRUE(JudgeGrant("pay", {9000, 9001}, {2001, 0}).ok());
}

TEST(Fence, FreezesAGrantThatBeginsBelow) {
  const auto verdict = JudgeGrant("pay", {2000, 4000}, {2001, 0});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().code, ErrorCode::kFrozen);
  EXPECT_NE(verdict.error().message.find("2001"), std::string::npos);
  EXPECT_NE(verdict.error().hint.find("tag repair pay"), std::string::npos);
}

TEST(Fence, RefusesWhatIsNoRangeOfIds) {
  EXPECT_EQ(JudgeGrant("pay", {5, 5}, {0, 0}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(JudgeGrant("pay", {6, 5}, {0, 0}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(JudgeGrant("pay", {5, kMaxIdLimit + 1}, {0, 0}).error().code, ErrorCode::kInternal);
  EXPECT_TRUE(JudgeGrant("pay", {kMaxIdLimit - 1, kMaxIdLimit}, {0, 0}).ok());
}

TEST(Fence, JudgesRowsByTheSameMark) {
  EXPECT_TRUE(JudgeRow("pay", 1, {0, 0}).ok());
  EXPECT_TRUE(JudgeRow("pay", -5, {0, 0}).ok());
  EXPECT_TRUE(JudgeRow("pay", 2001, {2001, 0}).ok());
  EXPECT_EQ(JudgeRow("pay", 2000, {2001, 0}).error().code, ErrorCode::kFrozen);
  EXPECT_EQ(JudgeRow("pay", -5, {1, 0}).error().code, ErrorCode::kFrozen);
}

}  // namespace
}  // namespace leaf::core
