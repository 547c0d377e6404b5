#include "leaf/core/membership.h"

#include <algorithm>
#include <map>
#include <set>

namespace leaf::core {

void AddOthers(ClusterMemory& to, const ClusterMemory& from) {
  std::map<std::string, std::uint64_t> beats(to.beats.begin(), to.beats.end());
  for (const auto& [id, beat] : from.beats) beats[id] = std::max(beats[id], beat);
  std::set<std::string> others(to.others.begin(), to.others.end());
  for (const std::string& id : from.others) {
    const auto covered = std::find_if(to.covered.begin(), to.covered.end(),
                                      [&](const auto& each) { return each.first == id; });
    if (covered != to.covered.end()) {
      if (!beats.contains(id) || beats[id] <= covered->second) continue;
      to.covered.erase(covered);
    }
    others.insert(id);
  }
  to.others.assign(others.begin(), others.end());
  std::erase_if(beats, [&](const auto& each) { return !others.contains(each.first); });
  to.beats.assign(beats.begin(), beats.end());
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
