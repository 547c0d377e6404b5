#include "leaf/service/cluster_fence.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::service {
namespace {

// How often others may come in between before the grant is given up.
constexpr int kClaimAttempts = 16;

Error KeepsChanging(std::string_view tag) {
  return {ErrorCode::kUnavailable, fmt::format("the witness of tag {} keeps changing", Quoted(tag)),
          "retry later"};
}

bool IsAway(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown;
}

}  // namespace

ClusterFence::ClusterFence(core::Witness& witness, bool fallback, const Clock& clock, Random& random,
                           Logger& log, core::Membership* membership)
    : witness_(witness),
      fallback_(fallback),
      clock_(clock),
      random_(random),
      log_(log),
      membership_(membership) {
  status_.fallback_allowed = fallback;
}

std::string ClusterFence::NewClaim() { return fmt::format("{:016x}{:016x}", random_.Next(), random_.Next()); }

Error ClusterFence::Noted(Error error) {
  // Of one tag: a record that cannot be read, or has access rules of its own.
  if (error.code == ErrorCode::kRefused || error.code == ErrorCode::kPermission) return error;
  return NotedOfAll(std::move(error));
}

Error ClusterFence::NotedOfClaim(Error error) {
  if (error.code != ErrorCode::kPermission) return Noted(std::move(error));
  {
    const MutexLock lock(mutex_);
    if (status_.claims > 0) return error;  // of one tag
    claims_denied_ = true;
  }
  return NotedOfAll(std::move(error));
}

Error ClusterFence::NotedOfAll(Error error) {
  bool told = true;
  {
    const MutexLock lock(mutex_);
    told = status_.away_since.has_value();
    if (!told) status_.away_since = clock_.Wall();
    status_.problem = error;
  }
  if (!told) {
    log_.Warning("the witness of the cluster cannot be used: {}; {}", error.message,
                 fallback_ && IsAway(error)
                     ? "grants are fenced by this node's own marks until it can be (segment.witness_fallback)"
                     : "grants wait until it can be");
  }
  return error;
}

void ClusterFence::NoteAnswer() {
  {
    const MutexLock lock(mutex_);
    // Where nothing may be written, that something can be read is no help.
    if (!status_.away_since || claims_denied_) return;
    status_.away_since.reset();
    status_.problem.reset();
  }
  log_.Info("the witness of the cluster can be used again");
}

Result<ClusterFence::Look> ClusterFence::See(std::string_view tag) {
  // Before the look: what is seen in an older era may be of an older witness.
  const std::uint64_t era = membership_ != nullptr ? membership_->Era() : 0;
  auto state = witness_.Load(tag);
  if (state.ok()) {
    NoteAnswer();
    if (membership_ != nullptr) LEAF_RETURN_IF_ERROR(membership_->Ready());
    return Look{std::move(*state), false, era};
  }
  Error error = Noted(std::move(state).error());
  if (fallback_ && IsAway(error) && !IsSuspended()) return Look{{}, true, era};
  if (!IsAway(error)) return error;
  return Error{ErrorCode::kUnavailable,
               fmt::format("cannot look up the witness of tag {}: {}", Quoted(tag), error.message),
               error.hint};
}

Result<ClusterFence::Verdict> ClusterFence::Claim(std::string_view tag, Look& look, const IdRange& range) {
  LEAF_CHECK(!range.empty());
  // With fallback the range is issued all the same, but not where another node is known to have been faster:
  // how far it got is what could not be seen.
  const auto give_up = [&](Error error, bool refused) -> Result<Verdict> {
    error = NotedOfClaim(std::move(error));
    if (!fallback_ || !IsAway(error) || refused || (membership_ != nullptr && !membership_->Ready().ok())) {
      error.message = fmt::format("cannot claim [{}, {}) of tag {}: {}", range.begin, range.end, Quoted(tag),
                                  error.message);
      if (error.code == ErrorCode::kOutcomeUnknown) error.code = ErrorCode::kUnavailable;
      return error;
    }
    look.away = true;
    const MutexLock lock(mutex_);
    ++status_.unfenced;
    return Verdict::kClaimed;
  };
  if (look.away) {
    const MutexLock lock(mutex_);
    ++status_.unfenced;
    return Verdict::kClaimed;
  }
  const std::string claim = NewClaim();
  const MonotonicTime deadline = clock_.Monotonic() + kClaimPatience;
  bool refused = false;  // at least once: another node claimed something since the look
  for (int attempt = 0; attempt < kClaimAttempts; ++attempt) {
    if (range.begin < look.state.end) {
      const MutexLock lock(mutex_);
      ++status_.outbid;
      return Verdict::kOutbid;
    }
    const auto raised = witness_.Claim(tag, look.state, range.end, claim);
    if (!raised.ok() && raised.error().code != ErrorCode::kOutcomeUnknown)
      return give_up(raised.error(), refused);
    if (!raised.ok() || !*raised) {
      refused = refused || raised.ok();
      auto now = witness_.Load(tag);
      if (!now.ok()) return give_up(std::move(now).error(), refused);
      look.state = std::move(*now);
      // Another node's, or ours has yet to happen: then it meets a version that is gone.
      if (look.state.claim != claim) {
        if (raised.ok() || range.begin < look.state.end || clock_.Monotonic() < deadline) continue;
        return give_up(raised.error(), refused);
      }
    }
    {
      const MutexLock lock(mutex_);
      ++status_.claims;
      claims_denied_ = false;
    }
    NoteAnswer();
    look.state.end = range.end;
    return Verdict::kClaimed;
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("the witness of tag {} keeps changing: gave up claiming [{}, {})", Quoted(tag),
                           range.begin, range.end),
               "retry later"};
}

// Whether the witness is known to have gone back: then there is no fallback either.
bool ClusterFence::IsSuspended() const {
  return membership_ != nullptr && membership_->Status().state == core::MembershipStatus::State::kGathering;
}

Error ClusterFence::WentBack(std::string_view tag, const Look& look, std::uint64_t known) {
  LEAF_CHECK(membership_ != nullptr);
  return membership_->WitnessWentBack(tag, look.state, known);
}

Result<void> ClusterFence::Holds(const Look& look) const {
  if (membership_ == nullptr || membership_->Era() == look.era) return {};
  return Error{ErrorCode::kUnavailable, "the records in ZooKeeper have changed since the range was claimed",
               "retry"};
}

bool ClusterFence::StepMembership(const Known& known) {
  LEAF_CHECK(membership_ != nullptr);
  const bool was_ready = membership_->Ready().ok();
  const std::int32_t version = membership_->Status().version;
  membership_->Step([&] { return MakeKnown(known); });
  return membership_->Ready().ok() && (!was_ready || membership_->Status().version != version);
}

void ClusterFence::LeaveMembership() {
  if (membership_ != nullptr) membership_->Leave();
}

Result<void> ClusterFence::MakeKnown(const Known& known) {
  LEAF_ASSIGN_OR_RETURN(const KnownEnds all, known());
  const auto& ends = all.ends;
  std::vector<std::string> tags;
  tags.reserve(ends.size());
  for (const auto& [tag, end] : ends) tags.push_back(tag);
  LEAF_ASSIGN_OR_RETURN(auto states, witness_.LoadAll(tags));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    // No node can claim from a record that cannot be read.
    if (states[i] && states[i]->end < ends[i].second)
      LEAF_RETURN_IF_ERROR(CatchUp(tags[i], std::move(*states[i]), ends[i].second));
  }
  tags.clear();
  for (const core::OrderRow& row : all.orders) tags.push_back(row.tag);
  LEAF_ASSIGN_OR_RETURN(states, witness_.LoadAll(tags));
  for (std::size_t i = 0; i < all.orders.size(); ++i) {
    if (states[i]) LEAF_RETURN_IF_ERROR(NoteOrder(all.orders[i], std::move(*states[i])));
  }
  return {};
}

std::optional<core::WitnessStates> ClusterFence::SeeAll(const std::vector<std::string>& tags) {
  auto states = witness_.LoadAll(tags);
  if (!states.ok()) {
    (void)Noted(std::move(states).error());
    return std::nullopt;
  }
  NoteAnswer();
  return std::move(*states);
}

Result<void> ClusterFence::CatchUp(std::string_view tag, core::WitnessState seen, std::uint64_t end) {
  const std::string claim = NewClaim();
  for (int attempt = 0; attempt < kClaimAttempts && seen.end < end; ++attempt) {
    const auto raised = witness_.Raise(tag, seen, end, claim);
    if (raised.ok() && *raised) {
      const MutexLock lock(mutex_);
      ++status_.raised_to;
      return {};
    }
    if (!raised.ok() && raised.error().code != ErrorCode::kOutcomeUnknown) return raised.error();
    LEAF_ASSIGN_OR_RETURN(seen, witness_.Load(tag));
  }
  if (seen.end >= end) return {};
  return KeepsChanging(tag);
}

Result<void> ClusterFence::NoteOrder(const core::OrderRow& row, core::WitnessState seen) {
  std::optional<core::StrictMark> mark;
  if (row.order == core::TagOrder::kStrict) mark = core::StrictMark{row.version, row.since};
  for (int attempt = 0; attempt < kClaimAttempts; ++attempt) {
    if (!core::IsNews(row, seen.strict)) return {};
    const auto noted = witness_.NoteStrict(row.tag, seen, mark);
    if (noted.ok() && *noted) return {};
    if (!noted.ok() && noted.error().code != ErrorCode::kOutcomeUnknown) return noted.error();
    LEAF_ASSIGN_OR_RETURN(seen, witness_.Load(row.tag));
  }
  return KeepsChanging(row.tag);
}

std::optional<Error> ClusterFence::Blocking() const {
  std::optional<Error> not_ready;
  if (membership_ != nullptr) {
    // What waiting does not cure holds also with fallback: the witness answers.
    if (auto ready = membership_->Ready();
        !ready.ok() && (!fallback_ || IsSuspended() || !IsAway(ready.error())))
      not_ready = std::move(ready).error();
  }
  const MutexLock lock(mutex_);
  if (!status_.problem || (fallback_ && IsAway(*status_.problem))) return not_ready;
  return Error{status_.problem->code,
               fmt::format("the witness of the cluster cannot be used: {}", status_.problem->message),
               status_.problem->hint};
}

ClusterFenceStatus ClusterFence::Status() const {
  std::optional<core::MembershipStatus> membership;
  if (membership_ != nullptr) membership = membership_->Status();
  const MutexLock lock(mutex_);
  ClusterFenceStatus status = status_;
  status.membership = std::move(membership);
  return status;
}

}  // namespace leaf::service
