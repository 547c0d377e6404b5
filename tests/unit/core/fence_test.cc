#include "leaf/core/fence.h"

#include <gtest/gtest.h>

#include <string>

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

// A database that is behind the cluster is refused by a node that was granted nothing itself, too.
TEST(Fence, TheHigherOfMarkAndWitnessCountsAndIsNamed) {
  EXPECT_TRUE(JudgeGrant("pay", {5001, 6001}, {2001, 5001}).ok());
  const auto others = JudgeGrant("pay", {2001, 4001}, {2001, 5001});
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().code, ErrorCode::kFrozen);
  EXPECT_NE(
      others.error().message.find("another node of the cluster was already granted everything up to 5001"),
      std::string::npos)
      << others.error().message;
  const auto own = JudgeRow("pay", 4000, {5001, 2001});
  ASSERT_FALSE(own.ok());
  EXPECT_NE(own.error().message.find("this node was already granted everything up to 5001"),
            std::string::npos)
      << own.error().message;
}

TEST(Fence, RefusesWhatIsNoRangeOfIds) {
  EXPECT_EQ(JudgeGrant("pay", {5, 5}, {0, 0}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(JudgeGrant("pay", {6, 5}, {0, 0}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(JudgeGrant("pay", {6, 5}, {0, 0}).error().message,
            "tag 'pay' was granted [6, 5), which is not a range of IDs");
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
