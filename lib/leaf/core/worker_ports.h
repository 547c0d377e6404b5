// The outside world of snowflake mode: what a node remembers about its worker number, and where such numbers
// come from. As in ports.h, all calls block, are made from worker threads, and are thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/id_layout.h"

namespace leaf::core {

// What all nodes of a cluster agree on. IDs of clusters that differ in any of it can be equal, so it is
// stored at the first claim and compared at every start.
struct ClusterProperties {
  std::string name;
  std::string registry;  // WorkerRegistry::kind
  IdLayout layout;
};

// Errors: kRefused that names what differs, with both values. `where` names what remembers, for the message.
Result<void> CheckSameCluster(const ClusterProperties& stored, const ClusterProperties& configured,
                              std::string_view where);

// Errors: kRefused that names the number, if `layout` cannot hold it or it is not in [`begin`, `end`), which
// is snowflake.worker_range.
Result<void> CheckWorkerNumber(std::uint64_t worker, std::uint64_t begin, std::uint64_t end,
                               const IdLayout& layout);

// Whether a `machine` that was written is the one of now. One may tell more than the other, after an '@':
// what is written grew, and a kernel can tell more of a file system than the one before it.
bool IsSamePlace(std::string_view written, std::string_view now);

// What a state directory remembers of its worker number. A `machine` that is another place means that the
// directory was copied or moved: then the registry has to be asked.
struct WorkerState {
  ClusterProperties cluster;
  // Of the state directory. Durable before the first claim: a claim whose reply is lost must find itself
  // again.
  std::string node_uuid;
  std::optional<std::uint64_t> worker;  // nothing before the first claim
  bool leased = false;                  // it was a lease, which is free once it has run out
  WallTime ceiling;                     // exclusive: no ID of this node has this time or a later one
  WallTime highest;     // the highest ceiling there ever was: an orderly stop lowers the other
  std::string boot_id;  // of the boot in which this was written; "" if not known
  std::chrono::milliseconds clock_offset{};  // ClockGuard's reference in that boot
  std::string machine;                       // on which it was written; "" if not known
  // When the registry last answered; the Unix epoch if it never did, or has refused the number to this node
  // since.
  WallTime last_contact;
};

// Port: the one file in which a node remembers its worker number and ceiling.
class StateFile {
 public:
  virtual ~StateFile() = default;
  // Nothing if there never was one. Errors, each naming the file: kRefused if it is truncated, corrupt, or
  // not of this program (a guess could repeat IDs); kPermission, kConfig if it cannot be read.
  virtual Result<std::optional<WorkerState>> Load() = 0;
  // Durable when it returns. After a crash at any moment, or an error, Load finds the old or the new state,
  // whole. Errors: kPermission, kConfig, kUnavailable (no space).
  virtual Result<void> Store(const WorkerState& state) = 0;
};

struct WorkerClaim;

struct NodeIdentity {
  std::string address;  // "ip:port", "" if it has none
  std::string uuid;     // of the state directory
  // Set where the directory is not where it was written, so that another process may be alive with the
  // original or a copy: the uuid it had there; `uuid` is a new one. A fixed number of the former uuid is
  // given after it was seen that no process reports under it, and is the new one's from then on: a process
  // that comes back with the original is refused.
  std::string former_uuid{};
  // Set where this process had a fixed number and lost it: it gets that number or none.
  std::optional<std::uint64_t> again{};
  // The number that this state directory held last, and the ceiling it remembers for it. A registry that has
  // forgotten that number (it was restored from a backup, or wiped) gives it back; any other number is new to
  // this node, and watched (see WorkerRegistry::Claim).
  std::optional<std::uint64_t> held{};
  WallTime held_ceiling{};
  // When the registry last confirmed `held`, by this machine's clock.
  WallTime last_contact{};
  // Makes it durable that a fixed number `held` is not this node's (any more). Claim calls it on its own
  // thread as soon as the registry has said so: before it waits, and before it takes another number, since
  // the process may be killed meanwhile. May be called more than once, and any result may follow.
  std::function<void()> on_denied{};
  // Of a directory with a `former_uuid`: makes durable what it is called from now on, as soon as the registry
  // knows it by that name, since what follows may fail. Errors: the claim fails with them.
  std::function<Result<void>(const WorkerClaim&)> on_claimed{};

  // For registries of fixed numbers. A copy has no number that could be denied.
  void TellDenied() const {
    if (held && former_uuid.empty() && on_denied) on_denied();
  }
};

// How long the number of a copied state directory is watched (NodeIdentity::former_uuid): more than two
// reports (Leaf's pace, 3 s).
inline constexpr std::chrono::milliseconds kCopyWatch{8000};

// How often the registry hears of the holder of a number, and of its ceiling, at least. Leaf's heartbeat has
// the same pace (SnowflakeZookeeperHolder).
inline constexpr std::chrono::milliseconds kTellInterval{3000};

// How far the former owner of a fixed number may have gone on beyond the ceiling that it last told, before it
// stopped. `window`: how far its IDs may be ahead of the clock.
constexpr std::chrono::milliseconds UntoldMax(std::chrono::milliseconds window) {
  return kTellInterval + window;
}

// A worker number and the right to it.
struct WorkerClaim {
  std::uint64_t worker = 0;
  std::uint64_t generation = 0;  // of a lease: raised by each claim
  // Exclusive end of what former owners may have issued, where known. Where another state directory, or the
  // original of this copy, had a fixed number, UntoldMax is added to what it told: the process that knows how
  // far it went is gone. The claim makes that durable in the registry, since the next claim of the same node
  // no longer sees that other directory: its reply may be lost, or the node may end before its first ID.
  std::optional<WallTime> ceiling;
};

// Port: where worker numbers come from. Two claims that are valid at the same time, of one cluster, never
// have the same number. A *fixed* number belongs to one node for ever; the registry is told of ceilings, but
// a node may go on without it. A *leased* one belongs to the node that holds the current generation: no ID
// may be issued at or above a ceiling that the registry has not acknowledged.
class WorkerRegistry {
 public:
  virtual ~WorkerRegistry() = default;
  // Stable name: "static", "zookeeper", "sql".
  virtual std::string_view kind() const = 0;
  virtual bool leased() const = 0;
  // Whether there is an outside that can be away, and is not this node's own configuration.
  virtual bool remote() const { return true; }

  // Obtains a number. A node that had a fixed one gets it again. A registry whose memory may go back watches
  // before it gives out a number that this node did not hold before: for longer than the number's owner, if
  // the registry has forgotten it, needs to come back and put its records there again. Errors: kConfig (no
  // number for this node),
  // kRefused (another node's, used by a copy of this directory, or properties differ), kExhausted (all
  // numbers taken), kUnavailable, kOutcomeUnknown (the reply was lost: claim again, which finds the claim if
  // it was made).
  virtual Result<WorkerClaim> Claim(const NodeIdentity& node, const ClusterProperties& cluster) = 0;

  // Tells the registry that the node lives, and that IDs below `ceiling` may be issued from now on; never
  // lowers what it knows. What the registry was told before and has forgotten is put back, unless another
  // node has the number meanwhile. Called every few seconds, with the same ceiling, too. Errors: kNotOwner
  // (the number is lost: a fixed one until a restart; a lease for good, and the next Claim gets another one),
  // kRefused (of a fixed number: it is this node's, but another program
  // uses it; a later Claim succeeds once that is over), kUnavailable, kOutcomeUnknown. After either of the
  // first two nothing may be issued with this claim.
  virtual Result<void> Renew(const WorkerClaim& claim, WallTime ceiling) = 0;

  // The node has stopped, and everything it issued is below `end`. A lease becomes free at once. Errors: as
  // of Renew.
  virtual Result<void> Release(const WorkerClaim& claim, WallTime end) = 0;

  // How often the registry had forgotten what it acknowledged, and was told again, by this object: at a
  // claim, too.
  virtual std::uint64_t times_put_back() const { return 0; }

  // Of a lease that was lost: another process holds it with this node's uuid, so that the next claim needs
  // another one, and has no `held`. False again once Claim is called.
  virtual bool met_a_copy() const { return false; }

  // A claim that waits (for a lease to run out, say) returns kUnavailable soon, and so does every later one.
  // Any thread.
  virtual void Interrupt() {}
};

}  // namespace leaf::core
