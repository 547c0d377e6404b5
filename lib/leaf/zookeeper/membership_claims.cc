// Whether ranges may be claimed: the steps say so, and claims ask, on other threads.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/zookeeper/membership.h"

namespace leaf::zookeeper {
namespace {

std::string OutOfTouch() {
  return "this node has not reached ZooKeeper for " + FormatDuration(std::chrono::milliseconds{kAwayMax});
}

}  // namespace

Result<void> Membership::Ready() const {
  const MutexLock lock(mutex_);
  if (status_.state == State::kOpen) {
    if (clock_.Boot() - beat_at_ <= kAwayMax) return {};
    return Error{ErrorCode::kUnavailable,
                 fmt::format("no range is claimed from {}: {}", tree_.Witnesses(), OutOfTouch()),
                 "it continues by itself"};
  }
  return Error{status_.state == State::kJoining ? why_code_ : ErrorCode::kUnavailable,
               fmt::format("no range is claimed from {}: {}", tree_.Witnesses(), status_.why),
               status_.state == State::kJoining && why_code_ != ErrorCode::kUnavailable ? why_hint_
               : status_.state == State::kGathering && !status_.waiting_for.empty()
                   ? fmt::format("start the nodes that are missing, or, if they are lost: leafctl cluster "
                                 "recover --confirm {} --beyond IDS",
                                 ShellWord(tree_.cluster()))
                   : "it continues by itself"};
}

core::MembershipStatus Membership::Status() const {
  const MutexLock lock(mutex_);
  core::MembershipStatus status = status_;
  if (status.state == State::kOpen && clock_.Boot() - beat_at_ > kAwayMax) {
    status.state = State::kJoining;
    status.why = OutOfTouch();
  }
  return status;
}

bool Membership::is_open() const {
  const MutexLock lock(mutex_);
  return status_.state == State::kOpen;
}

void Membership::SetDaemon(std::string id) {
  const MutexLock lock(mutex_);
  daemon_ = std::move(id);
}

Result<std::vector<Operation>> Membership::Checks() const {
  LEAF_RETURN_IF_ERROR(Ready());
  const MutexLock lock(mutex_);
  return std::vector<Operation>{Operation::Check(tree_.Node(id_), own_version_),
                                Operation::Check(tree_.Incarnation(), incarnation_version_)};
}

Result<void> Membership::LookAgain() {
  LEAF_ASSIGN_OR_RETURN(const Look look, Read());
  {
    const MutexLock lock(mutex_);
    if (status_.state == State::kOpen) {
      if (IsWhole(look)) {
        // A heartbeat of ours, or of another process of this directory.
        own_version_ = std::max(own_version_, look.own_version);
        own_beat_ = std::max(own_beat_, look.own->beat);
        incarnation_version_ = std::max(incarnation_version_, look.incarnation_version);
        return {};
      }
      CloseLocked(State::kJoining, "what ZooKeeper says of this node has changed");
    }
  }
  return Ready();
}

Error Membership::WitnessWentBack(std::string_view tag, const core::WitnessState& seen, std::uint64_t end) {
  {
    const MutexLock lock(mutex_);
    if (status_.state == State::kOpen) {
      suspicion_ = Suspicion{tree_.Witness(tag), seen.version, end};
      CloseLocked(State::kJoining, fmt::format("the witness of tag {} says {}, and this node knows of {}",
                                               Quoted(tag), seen.end, end));
    }
  }
  const auto ready = Ready();
  return ready.ok() ? Error{ErrorCode::kUnavailable, "the records in ZooKeeper have changed", "retry"}
                    : ready.error();
}

bool Membership::IsWhole(const Look& look) const {
  return look.own && look.number() == incarnation_ && look.own->beat >= own_beat_ &&
         look.own->contributed == look.number() && look.incarnation->settled && !look.own->left;
}

void Membership::Close(State state, std::string why, std::vector<std::string> waiting_for) {
  if (std::exchange(told_, why) != why) {
    if (state == State::kJoining) {
      log_.Info("no range is claimed from {}: {}", tree_.Witnesses(), why);
    } else {
      log_.Warning("no range is claimed from {}: {}", tree_.Witnesses(), why);
    }
  }
  const MutexLock lock(mutex_);
  CloseLocked(state, std::move(why));
  status_.waiting_for = std::move(waiting_for);
}

void Membership::Fail(const Error& why) {
  Close(State::kJoining, why.message);
  const MutexLock lock(mutex_);
  if (why.code == ErrorCode::kPermission || why.code == ErrorCode::kConfig ||
      why.code == ErrorCode::kRefused) {
    why_code_ = why.code;
    why_hint_ = why.hint;
  }
}

void Membership::CloseLocked(State state, std::string why) {
  why_code_ = ErrorCode::kUnavailable;
  if (status_.state == State::kOpen) ++era_;
  status_.state = state;
  status_.why = std::move(why);
}

std::uint64_t Membership::Era() const {
  const MutexLock lock(mutex_);
  return era_;
}

void Membership::Open(const Look& look, BootTime in_touch) {
  if (!std::exchange(told_, "").empty())
    log_.Info("ranges are claimed from {}, in incarnation {} of the cluster", tree_.Witnesses(),
              look.number());
  has_opened_ = true;
  wait_until_.reset();
  gathering_since_.reset();
  next_beat_ = clock_.Monotonic() + kNodeHeartbeat;
  const auto here = std::count_if(others_.begin(), others_.end(),
                                  [](const auto& other) { return !other.second.record.left; });
  const MutexLock lock(mutex_);
  if (suspicion_) return;  // for the next step
  incarnation_ = look.number();
  own_beat_ = look.own->beat;
  beat_at_ = in_touch;
  own_version_ = look.own_version;
  incarnation_version_ = look.incarnation_version;
  status_.state = State::kOpen;
  status_.incarnation = look.number();
  status_.version = look.incarnation_version;
  status_.nodes = static_cast<std::size_t>(here) + 1;
  status_.why.clear();
  status_.waiting_for.clear();
}

}  // namespace leaf::zookeeper
