// What keeps the witness of a cluster (witness.h) honest when the service that holds it goes back, too: each
// node takes part in the cluster by a record there, and remembers in its state directory how far that record
// had got. A claim is made in one transaction with a check of that record. A node that meets less than it
// remembers has found out that the service went back, and says so to all: the incarnation of the cluster is
// raised, no node claims anything, each node makes known again what it was granted, and only then they go on.
//
// Invariant, whatever the witness service forgets: a range is claimed only where the witness of its
// tag is at or above every end that was ever claimed by a node that is still remembered, by the service or by
// any node that takes part.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/witness.h"

namespace leaf::core {

// What a state directory remembers of a cluster.
struct ClusterMemory {
  std::string id;                   // of this state directory; made at first use, and the same for ever
  std::uint64_t incarnation = 0;    // the last one that this node took part in; 0 if it never did
  std::uint64_t beat = 0;           // the last heartbeat that its record had, at least
  std::vector<std::string> others;  // nodes whose grants this one may not know of; sorted
  // Nodes whose grants up to some heartbeat of theirs are among this one's marks; sorted.
  std::vector<std::pair<std::string, std::uint64_t>> covered;
  WallTime at;  // when it was last in touch
  // The last heartbeats that were seen of `others`, where one was; sorted.
  std::vector<std::pair<std::string, std::uint64_t>> beats{};
  friend bool operator==(const ClusterMemory&, const ClusterMemory&) = default;
};

// Adds the others of `from` that `to` does not know, and their beats. One that `to` has as covered is added
// if `from` has seen it go on.
void AddOthers(ClusterMemory& to, const ClusterMemory& from);

// Port: where it is remembered. Thread-safe; blocks on the disk.
class ClusterMemoryStore {
 public:
  virtual ~ClusterMemoryStore() = default;
  // All zero for a cluster that is not known. `cluster`: where its records stand.
  virtual Result<ClusterMemory> LoadMemory(std::string_view cluster) = 0;
  // Durable when it returns. Where more is remembered already, as another process of this directory may have
  // done, it only adds nodes to the others.
  virtual Result<void> SaveMemory(std::string_view cluster, const ClusterMemory& memory) = 0;
  // Remembers that these ends were granted to the cluster, in one transaction. Never lowers one.
  virtual Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) = 0;
};

struct MembershipStatus {
  enum class State {
    kJoining,    // not in touch yet, or no longer
    kWatching,   // in touch; claims wait until nodes that know more would have said so
    kGathering,  // the service went back; claims wait until all nodes have made known what they were granted
    kOpen,
  };
  State state = State::kJoining;
  std::uint64_t incarnation = 0;
  std::int32_t version = 0;     // of the record of the incarnation; the tags' rows may have changed with it
  std::uint64_t went_back = 0;  // since start: how often this node found that the service went back
  std::string why;              // while it is not open, for people
  std::vector<std::string> waiting_for;  // while gathering: the nodes that have not contributed, for people
  std::size_t nodes = 0;                 // that take part, with this one
  std::size_t older_daemons = 0;  // that issue segments and take no part: they are of a version before 0.2
  std::uint64_t heartbeats = 0;   // since start
};
std::string_view NameOf(MembershipStatus::State state);

inline constexpr std::chrono::milliseconds kMembershipPoll{500};

// Port. Thread-safe, but Step and Leave are for one thread at a time; these two block up to the adapter's own
// time-outs.
class Membership {
 public:
  virtual ~Membership() = default;

  // Whether ranges may be claimed, as far as is known. Errors: kUnavailable that says why not. Never blocks.
  virtual Result<void> Ready() const = 0;

  // Makes known all that this node was granted, or saw that others were: raises the witnesses to it.
  using Contribute = std::function<Result<void>()>;
  // One step of taking part: joins, keeps in touch, and does what is this node's share after the service went
  // back. To be called every kMembershipPoll; most calls do nothing.
  virtual void Step(const Contribute& contribute) = 0;
  // Claims nothing any more until the next Step.
  virtual void Leave() = 0;

  // The witness of `tag` was seen as `seen`, and this node knows of `end` above that. If the next Step finds
  // that it really is so, the incarnation is raised. Returns why nothing can be claimed until then. Never
  // blocks.
  virtual Error WitnessWentBack(std::string_view tag, const WitnessState& seen, std::uint64_t end) = 0;

  // Changes whenever it turns out that claims have to wait. What was claimed in one era, and is not among the
  // marks of this node when the next one begins, must not be issued. Never blocks.
  virtual std::uint64_t Era() const = 0;
  // Looks now whether claims have to wait, for a command that has no other step. Blocks. Errors: kUnavailable
  // if they do, and those of Witness.
  virtual Result<void> LookAgain() = 0;

  virtual MembershipStatus Status() const = 0;
};

}  // namespace leaf::core
