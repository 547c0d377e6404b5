#include "leaf/core/peer_clocks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "leaf/service/peer_clock_watch.h"
#include "support/fakes.h"

namespace leaf::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<PeerClock> Answers(const std::vector<int>& ahead_s, int uncertainty_ms = 0) {
  std::vector<PeerClock> answers;
  for (const int each : ahead_s) {
    answers.push_back(
        {"127.0.0." + std::to_string(answers.size()) + ":80", seconds{each}, milliseconds{uncertainty_ms}});
  }
  return answers;
}

TEST(PeerClocks, TheMedianIsNotMovedByOneWildClock) {
  EXPECT_EQ(MedianAhead({}), milliseconds{0});
  EXPECT_EQ(MedianAhead(Answers({7})), seconds{7});
  EXPECT_EQ(MedianAhead(Answers({0, 1, 1'000'000})), seconds{1});
  EXPECT_EQ(MedianAhead(Answers({-1'000'000, 0, 1})), seconds{0});
  // Of two middle ones the one nearer to zero.
  EXPECT_EQ(MedianAhead(Answers({0, 60})), seconds{0});
  EXPECT_EQ(MedianAhead(Answers({-60, -50})), -seconds{50});
}

TEST(PeerClocks, WhatASlowAnswerLeavesOpenIsNoDifference) {
  EXPECT_EQ(MedianAhead(Answers({7}, 3000)), seconds{4});
  EXPECT_EQ(MedianAhead(Answers({-7}, 3000)), -seconds{4});
  EXPECT_EQ(MedianAhead(Answers({2}, 3000)), seconds{0});
}

TEST(PeerClocks, AStartIsRefusedByTheMedian) {
  EXPECT_TRUE(JudgeAtStart({}, seconds{5}).ok());
  EXPECT_TRUE(JudgeAtStart(Answers({5}), seconds{5}).ok());
  EXPECT_TRUE(JudgeAtStart(Answers({0, 0, 60}), seconds{5}).ok());
  const auto behind = JudgeAtStart(Answers({60, 61, 0}), seconds{5});
  ASSERT_FALSE(behind.ok());
  EXPECT_EQ(behind.error().code, ErrorCode::kClock);
  EXPECT_NE(behind.error().message.find("behind"), std::string::npos);
  EXPECT_NE(behind.error().message.find("127.0.0.1:80 +61s"), std::string::npos) << behind.error().message;
  const auto ahead = JudgeAtStart(Answers({-60}), seconds{5});
  ASSERT_FALSE(ahead.ok());
  EXPECT_NE(ahead.error().message.find("1m ahead of"), std::string::npos) << ahead.error().message;
  const auto many = JudgeAtStart(Answers({60, 60, 60, 60, 60, 60, 60}), seconds{5});
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("127.0.0.4:80 +1m and 2 more)"), std::string::npos)
      << many.error().message;
}

TEST(PeerClocks, ARunningNodeIsOutvotedByTwoAtLeast) {
  EXPECT_TRUE(JudgeRunning(Answers({60}), seconds{5}).ok()) << "one against one";
  EXPECT_FALSE(JudgeRunning(Answers({60, 61}), seconds{5}).ok());
  EXPECT_TRUE(JudgeRunning(Answers({60, -60}), seconds{5}).ok()) << "they disagree";
  EXPECT_TRUE(JudgeRunning(Answers({60, 60, 0}), seconds{5}).ok()) << "two of four";
  EXPECT_FALSE(JudgeRunning(Answers({60, 60, 0, 60}), seconds{5}).ok());
  EXPECT_FALSE(JudgeRunning(Answers({-60, -60, 0, -60}), seconds{5}).ok());
}

class FakePeers final : public PeerDirectory, public PeerClocks {
 public:
  Result<std::vector<Peer>> LivePeers() override {
    if (away) return Error{ErrorCode::kUnavailable, "away", ""};
    std::vector<Peer> peers;
    for (const PeerClock& answer : answers) peers.push_back({answer.address, "http://" + answer.address, 1});
    return peers;
  }
  std::vector<PeerClock> Ask(std::span<const Peer> peers) override {
    return silent || peers.empty() ? std::vector<PeerClock>{} : answers;
  }
  std::vector<PeerClock> answers;
  bool away = false;
  bool silent = false;
};

class PeerClockWatchTest : public ::testing::Test {
 protected:
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      clock_.Advance(seconds{5});
      while (timers_.RunOne() || worker_.RunOne()) {
      }
    }
  }
  testing::FakeClock clock_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor worker_{clock_};
  testing::RecordingLogger log_;
  FakePeers peers_;
  service::PeerClockWatch watch_{{}, peers_, peers_, clock_, timers_, worker_, log_};
};

TEST_F(PeerClockWatchTest, AStartWithoutPeersIsNotRefused) {
  EXPECT_TRUE(watch_.CheckAtStart().ok());
  peers_.answers = Answers({60, 60});
  EXPECT_FALSE(watch_.CheckAtStart().ok());
  peers_.silent = true;
  EXPECT_TRUE(watch_.CheckAtStart().ok());
  peers_.away = true;
  EXPECT_TRUE(watch_.CheckAtStart().ok());
}

TEST_F(PeerClockWatchTest, AVerdictHoldsUntilTheClocksAgreeAgain) {
  watch_.Start();
  peers_.answers = Answers({0, 1});
  Rounds(2);
  EXPECT_TRUE(watch_.Verdict().ok());
  peers_.answers = Answers({60, 61});
  Rounds(1);
  EXPECT_EQ(watch_.Verdict().error().code, ErrorCode::kClock);
  EXPECT_EQ(watch_.Status().answered, 2U);
  EXPECT_EQ(watch_.Status().median_ahead, seconds{60});
  peers_.away = true;
  Rounds(3);
  EXPECT_FALSE(watch_.Verdict().ok());
  peers_.away = false;
  peers_.answers = Answers({0, 61});
  Rounds(1);
  EXPECT_TRUE(watch_.Verdict().ok());
}

}  // namespace
}  // namespace leaf::core
