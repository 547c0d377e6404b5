#include "leaf/core/membership.h"

namespace leaf::core {

std::string_view NameOf(MembershipStatus::State state) {
  switch (state) {
    case MembershipStatus::State::kJoining:
      return "joining";
    case MembershipStatus::State::kWatching:
      return "watching";
    case MembershipStatus::State::kGathering:
      return "gathering";
    case MembershipStatus::State::kOpen:
      break;
  }
  return "open";
}

}  // namespace leaf::core
