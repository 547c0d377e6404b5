// What a tag is made of beside its requests: the table of its states, when it is refilled, where its IDs
// went.
#include "leaf/service/tag_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "leaf/base/limits.h"
#include "leaf/service/refill_schedule.h"
#include "leaf/service/tag_ledger.h"
#include "support/fakes.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;

constexpr TagState kEveryTagState[] = {TagState::kUnconfirmed, TagState::kServing, TagState::kFrozen,
                                       TagState::kGone,        TagState::kRetired, TagState::kStopped};
constexpr TagEvent kEveryTagEvent[] = {TagEvent::kGranted, TagEvent::kGrantBehind, TagEvent::kRowBehind,
                                       TagEvent::kRowFits, TagEvent::kAbsent,      TagEvent::kUnwanted,
                                       TagEvent::kStop};

TEST(TagState, NothingLeadsOutOfStopAndEverythingIntoIt) {
  static_assert(std::size(kEveryTagState) == kTagStates && std::size(kEveryTagEvent) == kTagEvents);
  for (const TagEvent event : kEveryTagEvent) EXPECT_FALSE(StateAfter(TagState::kStopped, event).has_value());
  for (const TagState state : kEveryTagState) {
    if (state == TagState::kStopped) continue;
    EXPECT_EQ(StateAfter(state, TagEvent::kStop), TagState::kStopped);
  }
}

// P4: only the table's row ends a freeze; a grant that was asked for before is dropped.
TEST(TagState, AFrozenTagServesAgainOnlyOnceItsRowFits) {
  for (const TagEvent event : kEveryTagEvent) {
    const auto after = StateAfter(TagState::kFrozen, event);
    EXPECT_EQ(after == TagState::kServing, event == TagEvent::kRowFits);
  }
  EXPECT_FALSE(StateAfter(TagState::kFrozen, TagEvent::kGranted).has_value());
}

TEST(TagState, WhatIsGoneOrRetiredIsNeverServedAgain) {
  for (const TagState state : {TagState::kGone, TagState::kRetired}) {
    EXPECT_FALSE(MayRefill(state));
    for (const TagEvent event : kEveryTagEvent) {
      const auto after = StateAfter(state, event);
      EXPECT_TRUE(!after || *after == TagState::kGone || *after == TagState::kStopped);
    }
  }
}

TEST(TagState, ANameIsRetiredOnlyWhileTheTableHasNotConfirmedIt) {
  for (const TagState state : kEveryTagState)
    EXPECT_EQ(StateAfter(state, TagEvent::kUnwanted).has_value(), state == TagState::kUnconfirmed);
}

TEST(RefillSchedule, OneGrantAtATime) {
  RefillSchedule refill;
  EXPECT_TRUE(refill.Begin());
  EXPECT_FALSE(refill.Begin());
  refill.End();
  EXPECT_TRUE(refill.Begin());
}

TEST(RefillSchedule, AfterAFailureTheNextOneWaitsAndTheNewestTimerAloneHasASay) {
  testing::FakeRandom random;
  RefillSchedule refill;
  refill.CountFailure();
  const auto first = refill.ScheduleRetry(random);
  EXPECT_FALSE(refill.Begin());
  refill.SkipRetry();
  ASSERT_TRUE(refill.Begin());
  refill.End();
  refill.CountFailure();
  const auto second = refill.ScheduleRetry(random);
  EXPECT_FALSE(refill.TakeRetry(first.id));
  EXPECT_FALSE(refill.Begin());
  EXPECT_TRUE(refill.TakeRetry(second.id));
  EXPECT_FALSE(refill.TakeRetry(second.id)) << "once";
  EXPECT_TRUE(refill.Begin());
}

TEST(RefillSchedule, ThePauseGrowsToItsLimitAndNoFurther) {
  testing::FakeRandom random;
  RefillSchedule refill;
  milliseconds least = kBackoffMax;
  for (int failure = 1; failure <= 40; ++failure) {
    refill.CountFailure();
    const milliseconds after = refill.ScheduleRetry(random).after;
    EXPECT_GT(after, milliseconds{0});
    EXPECT_LE(after, kBackoffMax);
    if (failure == 1) {
      EXPECT_LE(after, kBackoffMin);
    }
    if (failure > 12) least = std::min(least, after);
  }
  EXPECT_GE(least, kBackoffMax / 2 - milliseconds{1});
}

TEST(TagLedger, WhatIsGrantedIsIssuedUnlessItIsHeldOrDropped) {
  SegmentCounters all;
  TagLedger ledger(all);
  EXPECT_EQ(ledger.tallies(), nullptr);
  EXPECT_EQ(ledger.IssuedToTell(nullptr), 0U);
  ledger.AddGrant({100, 200}, milliseconds{3});
  EXPECT_EQ(ledger.Issued(nullptr), 100U);
  core::SegmentBuffer buffer;
  buffer.Install({140, 200}, 1);
  EXPECT_EQ(ledger.Issued(&buffer), 40U);
  ledger.Drop(15);
  EXPECT_EQ(ledger.IssuedToTell(&buffer), 25U);
  ledger.LeaveUnissued(buffer.Clear());
  EXPECT_EQ(ledger.account().unissued, 60U);
  EXPECT_EQ(ledger.Issued(nullptr), 25U);
  ledger.DropUnseen(7);
  EXPECT_EQ(ledger.Issued(nullptr), 25U);
  EXPECT_EQ(all.granted(), 107U);
  EXPECT_EQ(all.dropped(), 82U);
}

TEST(TagLedger, WhatWasToldNeverGoesBack) {
  SegmentCounters all;
  TagLedger ledger(all);
  ledger.AddGrant({0, 50}, milliseconds{1});
  EXPECT_EQ(ledger.IssuedToTell(nullptr), 50U);
  ledger.Drop(10);
  EXPECT_EQ(ledger.Issued(nullptr), 40U);
  EXPECT_EQ(ledger.IssuedToTell(nullptr), 50U);
}

}  // namespace
}  // namespace leaf::service
