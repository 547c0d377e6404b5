#include "leaf/service/command_part.h"

#include <algorithm>

namespace leaf::service {

ClusterFence::Known KnownFrom(core::MarkStore& marks) {
  return [&marks]() -> Result<ClusterFence::KnownEnds> {
    LEAF_ASSIGN_OR_RETURN(const auto all, marks.LoadAll());
    ClusterFence::KnownEnds known;
    for (const core::Mark& mark : all) known.ends.emplace_back(mark.tag, std::max(mark.end, mark.witness));
    LEAF_ASSIGN_OR_RETURN(known.orders, marks.LoadOrders());
    return known;
  };
}

Result<core::Grant> CommandPart::Obtain(std::chrono::milliseconds patience,
                                        const std::function<Result<core::Grant>()>& obtain) {
  LEAF_RETURN_IF_ERROR(Await(patience));
  // With fallback what keeps the witness may be away all the time: then there is nothing to look at. If it
  // was there before the grant, the look is due even if it is not there now: this process may have been
  // stopped, or ZooKeeper away, for so long that everything has changed.
  const bool takes_part = ports_.membership.Ready().ok();
  auto granted = obtain();
  if (granted.ok() && takes_part) {
    if (auto holds = ports_.membership.LookAgain(); !holds.ok()) granted = std::move(holds).error();
  }
  ports_.fence.LeaveMembership();
  return granted;
}

Result<void> CommandPart::Await(std::chrono::milliseconds patience) {
  using State = core::MembershipStatus::State;
  const auto known = KnownFrom(ports_.marks);
  const MonotonicTime begin = ports_.clock.Monotonic();
  while (true) {
    ports_.fence.StepMembership(known);
    const core::MembershipStatus status = ports_.membership.Status();
    if (status.state == State::kOpen) return {};
    const MonotonicTime now = ports_.clock.Monotonic();
    // With fallback, what is not in reach is the fence's business.
    if (status.state == State::kJoining && ports_.fence.Status().fallback_allowed && now >= begin + patience)
      return {};
    if (now >= begin + patience + (status.state == State::kWatching ? watch_ : watch_.zero()))
      return ports_.membership.Ready();
    ports_.clock.WaitUntil(now + core::kMembershipPoll);
  }
}

}  // namespace leaf::service
