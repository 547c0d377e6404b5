#include "leaf/core/step_policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "leaf/base/limits.h"

namespace leaf::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

class StepPolicyTest : public ::testing::Test {
 protected:
  std::int64_t Load(StepPolicy& policy, std::int64_t table_step) {
    const std::int64_t step = policy.Propose(table_step, now_);
    policy.Commit(step, table_step, now_);
    return step;
  }
  MonotonicTime now_{minutes{1000}};
};

TEST_F(StepPolicyTest, FollowsLeafsTraceWhenLoadsAreClose) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  std::vector<std::int64_t> steps;
  for (int i = 0; i < 12; ++i) {
    steps.push_back(Load(policy, 2000));
    now_ += minutes{1};
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000,
                                              512000, 512000, 512000}));
}

TEST_F(StepPolicyTest, KeepsFromFifteenMinutesAndHalvesFromThirty) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  for (int i = 0; i < 5; ++i) Load(policy, 2000);
  ASSERT_EQ(policy.step(), 16000);
  now_ += minutes{15} - milliseconds{1};
  EXPECT_EQ(Load(policy, 2000), 32000);
  now_ += minutes{15};
  EXPECT_EQ(Load(policy, 2000), 32000);
  now_ += minutes{30} - milliseconds{1};
  EXPECT_EQ(Load(policy, 2000), 32000);
  now_ += minutes{30};
  EXPECT_EQ(Load(policy, 2000), 16000);
}

TEST_F(StepPolicyTest, NeverHalvesBelowTheTablesStep) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  Load(policy, 2000);
  Load(policy, 2000);
  for (int i = 0; i < 3; ++i) {
    now_ += minutes{60};
    EXPECT_EQ(Load(policy, 2000), 2000);
  }
}

TEST_F(StepPolicyTest, AStepChangedInTheTableStartsOverAtTheNextLoad) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  for (int i = 0; i < 5; ++i) Load(policy, 2000);
  EXPECT_EQ(Load(policy, 500), 500);
  EXPECT_EQ(Load(policy, 500), 1000);
}

TEST_F(StepPolicyTest, ALargeTableStepIsUsedAsItIsAndNeverGrows) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Load(policy, 3'000'000), 3'000'000);
  StepPolicy largest(StepPolicy::Kind::kLeaf, kStepMax);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Load(largest, kStepMax), kStepMax);
}

TEST_F(StepPolicyTest, ALoadThatFailsLeavesNoTrace) {
  StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
  Load(policy, 2000);
  Load(policy, 2000);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(policy.Propose(2000, now_), 4000);
}

TEST_F(StepPolicyTest, FixedIsTheTablesStep) {
  StepPolicy policy(StepPolicy::Kind::kFixed, 1'000'000);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Load(policy, 2000), 2000);
  EXPECT_EQ(Load(policy, 7), 7);
}

// Whatever the times between loads: from the second on every step is the table's times a power of two, and
// capped.
TEST_F(StepPolicyTest, StaysWithinItsBoundsOverRandomHistories) {
  std::uint64_t state = 42;
  for (int round = 0; round < 200; ++round) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto table_step = static_cast<std::int64_t>(1 + (state >> 33) % 700'000);
    StepPolicy policy(StepPolicy::Kind::kLeaf, 1'000'000);
    for (int load = 0; load < 50; ++load) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      now_ += minutes{(state >> 33) % 45};
      const std::int64_t step = Load(policy, table_step);
      ASSERT_GE(step, table_step);
      ASSERT_LE(step, std::max<std::int64_t>(table_step, 1'000'000));
      ASSERT_EQ(step % table_step, 0);
      const std::int64_t factor = step / table_step;
      ASSERT_EQ(factor & (factor - 1), 0);
    }
  }
}

}  // namespace
}  // namespace leaf::core
