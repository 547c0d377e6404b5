#include "leaf/service/standing.h"

#include <gtest/gtest.h>

#include <iterator>

namespace leaf::service {
namespace {

constexpr Standing kAll[] = {Standing::kNone, Standing::kUnconfirmed, Standing::kConfirmed, Standing::kLost,
                             Standing::kLostForGood};
constexpr StandingEvent kEveryStandingEvent[] = {StandingEvent::kClaimed,   StandingEvent::kStartedAlone,
                                                 StandingEvent::kConfirmed, StandingEvent::kDisplaced,
                                                 StandingEvent::kTaken,     StandingEvent::kExchanged};

// Goes through the events; an event without a say is an error of the test.
Standing After(std::initializer_list<StandingEvent> events) {
  Standing standing = Standing::kNone;
  for (const StandingEvent event : events) {
    const auto after = StandingAfter(standing, event);
    EXPECT_TRUE(after.has_value()) << "from " << static_cast<int>(standing) << " by "
                                   << static_cast<int>(event);
    standing = after.value_or(standing);
  }
  return standing;
}

TEST(Standing, WhatIsLostForGoodEndsWithTheProcess) {
  static_assert(std::size(kAll) == kStandings && std::size(kEveryStandingEvent) == kStandingEvents);
  for (const StandingEvent event : kEveryStandingEvent)
    EXPECT_FALSE(StandingAfter(Standing::kLostForGood, event).has_value());
}

// P1: the state file is good for the first term only. Once the number was lost, the registry has to give it.
TEST(Standing, ANumberThatWasLostIsHeldAgainOnlyIfTheRegistryGivesIt) {
  for (const Standing standing : kAll) {
    if (standing == Standing::kNone) continue;
    EXPECT_FALSE(StandingAfter(standing, StandingEvent::kStartedAlone).has_value());
  }
  for (const StandingEvent event : kEveryStandingEvent) {
    const auto after = StandingAfter(Standing::kLost, event);
    EXPECT_EQ(after && !IsLost(*after), event == StandingEvent::kClaimed);
  }
}

TEST(Standing, TheWaysOfATerm) {
  using Event = StandingEvent;
  EXPECT_EQ(After({Event::kStartedAlone, Event::kConfirmed}), Standing::kConfirmed);
  EXPECT_EQ(After({Event::kStartedAlone, Event::kTaken}), Standing::kLostForGood);
  EXPECT_EQ(After({Event::kClaimed, Event::kDisplaced, Event::kClaimed, Event::kDisplaced}), Standing::kLost);
  EXPECT_EQ(After({Event::kClaimed, Event::kDisplaced, Event::kExchanged}), Standing::kLostForGood);
}

// A term that goes on cannot begin again.
TEST(Standing, NothingIsClaimedOverATermThatGoesOn) {
  for (const Standing standing : {Standing::kUnconfirmed, Standing::kConfirmed})
    EXPECT_FALSE(StandingAfter(standing, StandingEvent::kClaimed).has_value());
}

}  // namespace
}  // namespace leaf::service
