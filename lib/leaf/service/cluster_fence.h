// The fence of a whole cluster: no range is issued before the witness of its tag (core/witness.h) says that
// it is ours.
//
// Invariant: two ranges of a tag that nodes of one cluster may issue never overlap, whatever the database
// says. Why: a claim raises the witness from what it saw, an end at or below its own begin, to its own end,
// in one conditional write. So the claims of a tag are in one order, and each begins at or above the end of
// the one before. Schedules: two databases grant the same range to two nodes (both claim, the second finds
// the witness moved, is outbid, and its next look freezes the tag); the reply to a claim is lost (the
// record's claim says whose it is; until it does, nothing is issued); that write lands later than the next
// one (it asks for a version that is gone).
//
// That what keeps the witness has not gone back itself is the membership's business (core/membership.h):
// while it is not certain, nothing is claimed, also with `fallback`. A claim that was made before that
// turned out, and whose mark came after this node had made its marks known again, is dropped (Holds).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/id_range.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/random.h"
#include "leaf/base/result.h"
#include "leaf/core/membership.h"
#include "leaf/core/witness.h"

namespace leaf::service {

struct ClusterFenceStatus {
  bool fallback_allowed = false;
  // While the witness cannot be used: since when, and why. Then grants wait, or (`fallback_allowed`) are
  // fenced by this node's own marks only.
  std::optional<WallTime> away_since;
  std::optional<Error> problem;
  std::uint64_t claims = 0;     // since start
  std::uint64_t outbid = 0;     // grants dropped because another node claimed above them first
  std::uint64_t unfenced = 0;   // grants that went without a claim while it was away
  std::uint64_t raised_to = 0;  // marks of this node that the witness did not know of
  std::optional<core::MembershipStatus> membership;  // nothing where there is none

  // Whether every grant is claimed at present, rather than some fenced by this node's own marks only.
  bool guards() const { return !away_since || !fallback_allowed; }
};

// Thread-safe; blocks; for worker threads only. Witness, clock, random and log outlive it.
class ClusterFence {
 public:
  // No further attempt to claim is begun so long after the first: threads are not held by a witness that
  // answers no write. What is under way ends with the adapter's own time-outs.
  static constexpr std::chrono::milliseconds kClaimPatience{3000};

  // `fallback`: go on without it while it is not available, and only then.
  // `membership`: null to trust the witness. Outlives it.
  ClusterFence(core::Witness& witness, bool fallback, const Clock& clock, Random& random, Logger& log,
               core::Membership* membership = nullptr);

  // What was seen of a tag's witness.
  struct Look {
    core::WitnessState state;
    bool away = false;      // it could not be seen, and this node may go on without
    std::uint64_t era = 0;  // of the membership
  };
  // What the witness says, also while nothing may be claimed. Errors: those of Witness.
  Result<core::WitnessState> StateOf(std::string_view tag) { return witness_.Load(tag); }
  // Before a grant is reserved: nothing leaves the table while the witness is away. Errors: those of Witness;
  // with fallback, not kUnavailable.
  Result<Look> See(std::string_view tag);

  enum class Verdict {
    kClaimed,
    kOutbid,  // another node was granted something above: the range must be dropped
  };
  // After the COMMIT of `range`, before its first ID. `look` is moved on to what was seen last. On an error
  // the range must be dropped, too.
  Result<Verdict> Claim(std::string_view tag, Look& look, const IdRange& range);

  // What this node knows to have been granted is above what was seen: the witness went back. Why nothing can
  // be granted now.
  Error WentBack(std::string_view tag, const Look& look, std::uint64_t known);
  // After the mark of a claimed range is durable, before its first ID: whether it may still be issued.
  // Errors: kUnavailable.
  Result<void> Holds(const Look& look) const;

  // Whether there is a membership, to be stepped.
  bool has_membership() const { return membership_ != nullptr; }
  // One step (core::Membership::Step). Returns whether tags and their rows are to be looked at again: ranges
  // can be claimed from now on, and could not before, or an operator has recovered the cluster.
  struct KnownEnds {
    // Exclusive ends of what this node knows to have been granted to any node, by tag.
    std::vector<std::pair<std::string, std::uint64_t>> ends;
    std::vector<core::OrderRow> orders{};  // of tags, as far as they are known
  };
  using Known = std::function<Result<KnownEnds>()>;
  bool StepMembership(const Known& known);
  // Nothing more is claimed.
  void LeaveMembership();

  // The witness of each, in order; nothing at all if it cannot be used.
  std::optional<core::WitnessStates> SeeAll(const std::vector<std::string>& tags);
  // This node was granted everything up to `end` without a claim (while the witness was away, or before there
  // was one): makes it known.
  Result<void> CatchUp(std::string_view tag, core::WitnessState seen, std::uint64_t end);
  // Lets the witness remember the order of a tag, unless it knows a newer one. `seen`: its state, as known.
  Result<void> NoteOrder(const core::OrderRow& row, core::WitnessState seen);

  // Why no grant can be had at present; nothing if one can, as far as is known.
  std::optional<Error> Blocking() const;
  ClusterFenceStatus Status() const;

 private:
  Error Noted(Error error);
  // The same of what a claim met: denied before any has succeeded, it is no trouble of one tag.
  Error NotedOfClaim(Error error);
  Error NotedOfAll(Error error);
  void NoteAnswer();
  bool IsSuspended() const;
  Result<void> MakeKnown(const Known& known);
  std::string NewClaim();

  core::Witness& witness_;
  const bool fallback_;
  const Clock& clock_;
  Random& random_;
  Logger& log_;
  core::Membership* const membership_;

  mutable Mutex mutex_;
  ClusterFenceStatus status_ LEAF_GUARDED_BY(mutex_);
  bool claims_denied_ LEAF_GUARDED_BY(mutex_) = false;  // as long as none has succeeded
};

}  // namespace leaf::service
