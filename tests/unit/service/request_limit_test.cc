#include "leaf/service/request_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "support/fakes.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = RequestLimit::Verdict;

class RequestLimitTest : public ::testing::Test {
 protected:
  // Asks `times` for `share` and returns how often it was admitted.
  int Ask(RequestShare& share, int times) {
    int admitted = 0;
    for (int i = 0; i < times; ++i) admitted += limit_.Admit(share) == Verdict::kAdmitted ? 1 : 0;
    return admitted;
  }

  testing::FakeClock clock_;
  RequestLimit limit_{clock_};
};

TEST_F(RequestLimitTest, WithoutALimitAllIsAdmitted) {
  RequestShare tag;
  EXPECT_FALSE(limit_.active());
  EXPECT_EQ(Ask(tag, 1000), 1000);
  EXPECT_EQ(limit_.AdmitOther(), Verdict::kAdmitted);
  EXPECT_EQ(limit_.AdmitSnowflake(), Verdict::kAdmitted);
}

TEST_F(RequestLimitTest, ATagsLimitIsItsOwn) {
  RequestShare pay;
  RequestShare order;
  limit_.Set(0, 10);
  EXPECT_TRUE(limit_.active());
  EXPECT_EQ(Ask(pay, 50), 10);
  EXPECT_EQ(limit_.Admit(pay), Verdict::kOfOneTag);
  EXPECT_EQ(Ask(order, 50), 10);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(limit_.AdmitOther(), Verdict::kAdmitted);
  clock_.Advance(milliseconds{500});
  EXPECT_EQ(Ask(pay, 50), 5);
}

TEST_F(RequestLimitTest, OverAllTheLimitHoldsWhateverIsAskedFor) {
  RequestShare pay;
  limit_.Set(100, 0);
  int admitted = 0;
  for (int second = 0; second < 10; ++second) {
    for (int i = 0; i < 1000; ++i) {
      admitted += Ask(pay, 1);
      admitted += limit_.AdmitOther() == Verdict::kAdmitted ? 1 : 0;
      admitted += limit_.AdmitSnowflake() == Verdict::kAdmitted ? 1 : 0;
      clock_.Advance(milliseconds{1});
    }
  }
  EXPECT_LE(admitted, 100 * (10 + 2) + 1);
  EXPECT_GE(admitted, 100 * 10);
}

// The failing schedule of a limit that is merely shared: one tag takes 99 % of it, and so 99 % of the others'
// requests are refused.
TEST_F(RequestLimitTest, ATagThatIsHammeredTakesNothingFromTheOthers) {
  constexpr int kOthers = 9;
  limit_.Set(1000, 0);
  RequestShare hammered;
  std::vector<RequestShare> others(kOthers);
  int by_hammer = 0;
  int by_others = 0;
  int asked_by_others = 0;
  for (int ms = 0; ms < 20'000; ++ms) {
    clock_.Advance(milliseconds{1});
    const int took = Ask(hammered, 20);
    // Each of the others asks 50 times a second, half of its part of 100.
    int others_took = 0;
    int others_asked = 0;
    if (ms % 20 == 0) {
      for (RequestShare& share : others) others_took += Ask(share, 1);
      others_asked = kOthers;
    }
    if (ms < 2000) continue;  // until it is known how many there are
    by_hammer += took;
    by_others += others_took;
    asked_by_others += others_asked;
  }
  EXPECT_EQ(by_others, asked_by_others);
  // What they leave is not lost: 1000 - 450 for the one that takes all it can get.
  EXPECT_NEAR(by_hammer, 18 * 550, 18 * 30);
}

TEST_F(RequestLimitTest, ManyNewTagsDoNotGetBeyondIt) {
  limit_.Set(100, 0);
  std::vector<RequestShare> tags(20'000);
  int admitted = 0;
  for (RequestShare& tag : tags) {
    admitted += Ask(tag, 1);
    clock_.Advance(std::chrono::microseconds{100});
  }
  EXPECT_LE(admitted, 100 * (2 + 2) + 1);
}

TEST_F(RequestLimitTest, ANewLimitHoldsAtOnce) {
  RequestShare pay;
  limit_.Set(1000, 0);
  EXPECT_EQ(Ask(pay, 5000), 1000);
  limit_.Set(0, 0);
  EXPECT_EQ(Ask(pay, 5000), 5000);
  limit_.Set(10, 0);
  clock_.Advance(seconds{5});
  EXPECT_EQ(Ask(pay, 5000), 10);
}

}  // namespace
}  // namespace leaf::service
