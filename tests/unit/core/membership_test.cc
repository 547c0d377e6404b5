#include "leaf/core/membership.h"

#include <gtest/gtest.h>

namespace leaf::core {
namespace {

// Status, metrics and the manual use these names.
TEST(Membership, NamesItsStates) {
  EXPECT_EQ(NameOf(MembershipStatus::State::kJoining), "joining");
  EXPECT_EQ(NameOf(MembershipStatus::State::kWatching), "watching");
  EXPECT_EQ(NameOf(MembershipStatus::State::kGathering), "gathering");
  EXPECT_EQ(NameOf(MembershipStatus::State::kOpen), "open");
}

}  // namespace
}  // namespace leaf::core
