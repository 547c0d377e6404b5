// Snowflake requests that wait, on a source that says what the test wants.
#include "leaf/service/snowflake_line.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "leaf/service/tallies.h"
#include "support/fakes.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using Outcome = core::Snowflake::Outcome;

// Has an ID, or says that it has none.
class Source final : public SnowflakeLine::Source {
 public:
  core::Snowflake::TakeResult TakeNow(std::uint64_t count, core::SnowflakeRun& /*out*/) override {
    ++looks;
    return count <= left ? core::Snowflake::TakeResult{Outcome::kTaken, false, milliseconds{0}} : result;
  }
  core::Snowflake::TakeResult Probe(std::uint64_t /*count*/, WallTime /*now*/) const override {
    return result;
  }
  bool MayComeWithin(const core::Snowflake::TakeResult& /*result*/, WallTime /*now*/,
                     milliseconds /*wait*/) const override {
    return may_come;
  }
  Error ErrorOf(const core::Snowflake::TakeResult& /*result*/, WallTime /*now*/) const override {
    return {ErrorCode::kExhausted, "none came in time", ""};
  }
  void CountError(std::size_t slot) override { ++errors[slot]; }

  core::Snowflake::TakeResult result{};
  std::uint64_t left = 0;  // so many are there at any time
  bool may_come = true;
  int looks = 0;
  ErrorTally errors{};
};

class SnowflakeLineTest : public ::testing::Test {
 protected:
  static constexpr milliseconds kLookMax{250};
  using Answer = std::optional<Result<core::SnowflakeRun>>;

  std::uint64_t Ask(Answer& answer, milliseconds wait, std::uint64_t count = 1) {
    const std::uint64_t ticket = line_.Enter(
        count, wait, [&answer](Result<core::SnowflakeRun> result) { answer = std::move(result); });
    EXPECT_NE(ticket, 0U);
    return ticket;
  }
  void Says(Outcome outcome, milliseconds wait) {
    source_.result.outcome = outcome;
    source_.result.wait = wait;
  }
  // Returns how often the line has looked meanwhile.
  int Pass(milliseconds time) {
    const int before = source_.looks;
    for (; time > milliseconds{0}; time -= milliseconds{1}) {
      clock_.Advance(milliseconds{1});
      while (timers_.RunOne()) {
      }
    }
    return source_.looks - before;
  }

  testing::FakeClock clock_;
  testing::ManualExecutor timers_{clock_};
  Source source_;
  SnowflakeLine line_{source_, clock_, timers_, kLookMax};
};

TEST_F(SnowflakeLineTest, LooksWhenTheSourceSaysThatAnIdComes) {
  Says(Outcome::kAhead, milliseconds{40});
  Answer answer;
  Ask(answer, milliseconds{10'000});
  EXPECT_EQ(Pass(milliseconds{39}), 0);
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  // After a look in vain, too.
  EXPECT_EQ(Pass(milliseconds{39}), 0);
  Says(Outcome::kTaken, milliseconds{0});
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok());
  EXPECT_FALSE(line_.busy());
}

TEST_F(SnowflakeLineTest, LooksEachMillisecondAtMostAndNotMuchLaterThanAnyChange) {
  Says(Outcome::kAhead, milliseconds{0});
  Answer answer;
  Ask(answer, milliseconds{10'000});
  EXPECT_EQ(Pass(milliseconds{10}), 10);
  // The clock may be set: how long it takes is not known for that long.
  Says(Outcome::kClockBack, milliseconds{5'000});
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  EXPECT_EQ(Pass(kLookMax - milliseconds{1}), 0);
  EXPECT_EQ(Pass(milliseconds{1}), 1);
}

// The clock is set back for longer than the line waits between two looks, and put right at once. No request
// waits as long as the clock would have taken.
TEST_F(SnowflakeLineTest, AClockThatIsPutRightServesTheLineSoon) {
  Says(Outcome::kClockBack, milliseconds{5'000});
  std::vector<Answer> answers(2);
  Ask(answers[0], milliseconds{10'000});
  Says(Outcome::kTaken, milliseconds{0});
  Ask(answers[1], milliseconds{400});  // behind the first, though the source has an ID
  Pass(kLookMax);
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.has_value());
    EXPECT_TRUE(answer->ok());
  }
}

// A batch that waits for more than there is keeps the others behind it, up to its end and no longer.
TEST_F(SnowflakeLineTest, BehindARequestThatIsGoneTheNextIsServedByWhatThereIs) {
  for (const std::string_view goes : {"withdrawn", "late", "hopeless"}) {
    Says(Outcome::kAtCeiling, milliseconds{0});
    source_.left = 10;
    source_.may_come = true;
    std::vector<Answer> answers(2);
    const std::uint64_t batch = Ask(answers[0], milliseconds{20}, 1000);
    Ask(answers[1], milliseconds{10'000}, 5);
    Pass(milliseconds{10});
    EXPECT_FALSE(answers[0].has_value());
    EXPECT_FALSE(answers[1].has_value());
    if (goes == "withdrawn") line_.Withdraw(batch);
    if (goes == "late") Pass(milliseconds{9});
    if (goes == "hopeless") {
      source_.may_come = false;
      line_.Wake();
    }
    Pass(milliseconds{1});
    ASSERT_TRUE(answers[0].has_value()) << goes;
    EXPECT_FALSE(answers[0]->ok());
    ASSERT_TRUE(answers[1].has_value()) << goes;
    EXPECT_TRUE(answers[1]->ok()) << goes;
    EXPECT_FALSE(line_.busy());
  }
  EXPECT_EQ(source_.errors[kWithdrawnSlot], 1U);
  EXPECT_EQ(source_.errors[SlotOf(ErrorCode::kExhausted)], 2U);
}

TEST_F(SnowflakeLineTest, EachErrorIsCountedOnce) {
  Says(Outcome::kAhead, milliseconds{5});
  std::vector<Answer> answers(3);
  const std::uint64_t ticket = Ask(answers[0], milliseconds{100});
  for (const std::size_t i : {1U, 2U}) Ask(answers[i], milliseconds{100});
  line_.Withdraw(ticket);
  line_.Withdraw(ticket);
  EXPECT_EQ(source_.errors[kWithdrawnSlot], 1U);
  line_.FailAll({ErrorCode::kUnavailable, "the end", ""});
  EXPECT_EQ(source_.errors[SlotOf(ErrorCode::kUnavailable)], 2U);
  source_.may_come = false;
  Answer refused;
  EXPECT_EQ(line_.Enter(1, milliseconds{100},
                        [&](Result<core::SnowflakeRun> result) { refused = std::move(result); }),
            0U);
  EXPECT_EQ(source_.errors[SlotOf(ErrorCode::kExhausted)], 1U);
}

// It is woken when the ceiling is raised.
TEST_F(SnowflakeLineTest, AtTheCeilingItLooksSeldom) {
  Says(Outcome::kAtCeiling, milliseconds{1});
  Answer answer;
  Ask(answer, milliseconds{10'000});
  EXPECT_EQ(Pass(4 * kLookMax), 4);
  EXPECT_EQ(Pass(milliseconds{10}), 0);
  line_.Wake();
  Says(Outcome::kTaken, milliseconds{0});
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  EXPECT_TRUE(answer.has_value());
}

// A request that comes later may have to leave earlier: the look that was scheduled for the first is too late
// then.
TEST_F(SnowflakeLineTest, EachDeadlineIsMet) {
  Says(Outcome::kAhead, milliseconds{200});
  std::vector<Answer> answers(3);
  Ask(answers[0], milliseconds{300});
  Ask(answers[1], milliseconds{30});
  Ask(answers[2], milliseconds{210});
  Pass(milliseconds{29});
  EXPECT_FALSE(answers[1].has_value());
  Pass(milliseconds{1});
  ASSERT_TRUE(answers[1].has_value());
  EXPECT_EQ(answers[1]->error().code, ErrorCode::kExhausted);
  EXPECT_FALSE(answers[0].has_value());
  Pass(milliseconds{170});
  EXPECT_FALSE(answers[0].has_value());
  EXPECT_FALSE(answers[2].has_value());
  EXPECT_EQ(Pass(milliseconds{9}), 0);
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  EXPECT_TRUE(answers[2].has_value());
  EXPECT_EQ(Pass(milliseconds{89}), 0);
  EXPECT_EQ(Pass(milliseconds{1}), 1);
  EXPECT_TRUE(answers[0].has_value());
  EXPECT_FALSE(line_.busy());
  EXPECT_EQ(timers_.timers(), 0U);
}

}  // namespace
}  // namespace leaf::service
