#include "leaf/core/membership.h"

#include <algorithm>

namespace leaf::core {

void AddOthers(ClusterMemory& to, const ClusterMemory& from) {
  for (const std::string& id : from.others) {
    const auto is_it = [&](const auto& covered) { return covered.first == id; };
    if (std::find(to.others.begin(), to.others.end(), id) == to.others.end() &&
        std::none_of(to.covered.begin(), to.covered.end(), is_it))
      to.others.push_back(id);
  }
  std::sort(to.others.begin(), to.others.end());
}

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
