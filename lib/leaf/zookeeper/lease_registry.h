// Worker numbers that come back: leases, from the top of the range downward, away from the numbers that Java
// Leaf's own tree gives out from below.
//
// The fence is the ceiling, not a clock. A lease is one record: (generation, holder, ceiling).
//
// Invariants
//  I1  A claim raises the generation and begins at or above the ceiling of the record it replaced, in one
//      compare-and-set of that record's version.
//  I2  A ceiling is acknowledged only by a compare-and-set that raised it in the record of the holder's own
//      generation. A holder that was replaced gets no further acknowledgement, and issues below its last one,
//      which is at most where its successor begins. No timing is assumed: time only decides when to try.
//  I3  Java looks at no lease: its next number is the count of nodes ever made under `forever`. No lease is
//      claimed less than kClaimMargin above that, and none is renewed less than kRenewMargin above it.
//  I4  The fork's recycling nodes look at no lease either. What they have is not leased, and they may not
//      take what is leased (fork_numbers.h). Each renewal looks whether it still is so.
//
// Schedules that would break it (each is played in tests/unit/zookeeper/registry_test.cc, or
// goes_back_test.cc)
//  S1  The reply to a claim is lost. → the next one looks for its own uuid first, and takes that lease again.
//  S2  That claim is late, and lands after the second one took the same or another number. → it fails on the
//      version; or it makes us the holder of a second lease, which no node uses and which runs out.
//  S3  A holder is frozen past its lease, another claims, the first wakes up: it goes on below its last
//      acknowledged ceiling, where no other node issues; its renewal fails on the version: kNotOwner.
//  S4  The reply to a renewal is lost, and the next one finds another version: it is our generation and uuid
//      still, and what we have sent, so the version is adopted.
//  S5  Two claimants see the same record run out. → one compare-and-set succeeds.
//  S6  Java makes nodes until it comes near. → the margins; the count is read after the write that it judges,
//      in the same session, so that it cannot be older than that.
//  S7  A node of the fork takes the number while it is being leased. → the lease removes the record that it
//      saw in the fork's tree, in one transaction: one of the two fails.
//  S8  The fork's tree is made after the lease, with all numbers in it. → a renewal removes its own from
//      notuse; if a node of the fork was first, the lease is lost.
//  S9  ZooKeeper is restored from a backup, or wiped, while a node holds a lease; a new node finds the number
//      free, or held by a node that is gone, with a ceiling of long ago. → it watches first (WatchForOwners):
//      the holder issues below its last acknowledged ceiling, which has passed by then, and puts its record
//      back where no other node holds the number, or stops. What is found to be further than what the holder
//      was acknowledged for was issued by another node: then it stops, too.
//  S10 The holder restarts instead. → its own record is taken at once only if it says what the state
//      directory remembers: the same ceiling once it is free, and one not much lower while it is held; and
//      only within the time that a restart takes (S12).
//  S11 The state directory is copied, or the whole machine with its memory, and both processes hold the
//      lease. → the one that was replaced, or that finds a ceiling above its own that it has not sent, loses
//      the lease and comes back with an identity of its own (met_a_copy): two that took it from each other in
//      turn would issue nothing for most of the time. Two with one memory may issue the same IDs up to a
//      renewal.
//  S12 A node stops, and ZooKeeper is backed up; another node leases the number; ZooKeeper is restored, and
//      the first node starts: the record is what its state directory remembers. → it watches like a node
//      that is new, unless ZooKeeper confirmed its lease a moment ago.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/core/peer_directory.h"
#include "leaf/core/worker_ports.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/fork_numbers.h"
#include "leaf/zookeeper/presence.h"
#include "leaf/zookeeper/registry_options.h"
#include "leaf/zookeeper/sent_records.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// Numbers between Leaf's next one and the lowest that may be claimed, or kept.
inline constexpr std::uint64_t kClaimMargin = 8;
inline constexpr std::uint64_t kRenewMargin = 4;
// How much longer than its lease a record has to be seen unchanged: for a holder whose renewal is on its way.
inline constexpr std::chrono::milliseconds kLeaseMargin{2000};

// Thread-safe; one call at a time goes on. Client, clock and log outlive it.
class LeaseRegistry final : public core::WorkerRegistry, public core::PeerDirectory {
 public:
  LeaseRegistry(RegistryOptions options, Client& client, const Clock& clock, Logger& log);

  std::string_view kind() const override { return kRegistryKind; }
  bool leased() const override { return true; }

  // At once if the number that the state directory held is its own still, and ZooKeeper confirmed that less
  // than half a minute (or a lease, if that is shorter) ago. Else blocks for
  // options.claim_watch, and then, if no number is free, until one of the others has been seen unchanged for
  // a lease and a margin, all of them being watched together, from the beginning on. Errors, beside the
  // port's: kExhausted (every number of the range is in use by a live node, of the fork's, too, or too near
  // to Leaf's own).
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  // Leaves `end` as the ceiling; the number is free.
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override;

  std::uint64_t times_put_back() const override { return times_put_back_.load(); }
  bool met_a_copy() const override { return met_a_copy_.load(); }
  void Interrupt() override { interrupted_.store(true); }

  Result<std::vector<core::Peer>> LivePeers() override { return presence_.Peers(); }

 private:
  // A lease as last acknowledged.
  struct Held {
    Tree tree;
    PropertiesRecord properties;
    std::uint64_t worker = 0;
    LeaseRecord record;
    std::int32_t version = 0;
    std::optional<std::int64_t> created_zxid;  // another one: it was deleted, and made anew
    SentRecords sent{};
  };
  // A number of the range as it is now.
  struct Candidate {
    std::uint64_t worker = 0;
    std::optional<NodeData> node;  // nothing if it was never used
    LeaseRecord record;
    std::optional<ForkNumber> fork;  // the number in the fork's tree
  };
  // A candidate and its place: the lowest is taken first.
  struct Ranked {
    std::pair<int, std::chrono::milliseconds> order;
    const Candidate* candidate = nullptr;
  };
  // Since when a record has been what it is, as far as we have seen.
  struct Observation {
    std::int64_t modified_zxid = 0;
    BootTime since;
  };

  // Highest number first; what cannot be read is left out.
  Result<std::vector<Candidate>> Look(const Tree& tree, std::uint64_t begin, std::uint64_t end,
                                      const ForkNumbers& fork) LEAF_REQUIRES(mutex_);
  // Nothing if another node was first.
  Result<std::optional<core::WorkerClaim>> Take(const Tree& tree, const PropertiesRecord& properties,
                                                const core::NodeIdentity& node, const Candidate& candidate)
      LEAF_REQUIRES(mutex_);
  // Whether the state directory of `node` held this number last, and no other since, as far as the record
  // and the state directory tell.
  static bool IsOwn(const Candidate& candidate, const core::NodeIdentity& node);
  std::vector<Ranked> InOrder(const std::vector<Candidate>& candidates, const core::NodeIdentity& node,
                              const ForkNumbers& fork) LEAF_REQUIRES(mutex_);
  // True if `candidate` has been seen unchanged for long enough; remembers what is seen.
  bool HasRunOut(const Candidate& candidate, BootTime now) LEAF_REQUIRES(mutex_);
  Result<std::uint64_t> NextOfLeaf(const Tree& tree) LEAF_REQUIRES(mutex_);

  Result<void> Write(const core::WorkerClaim& claim, WallTime ceiling, bool release) LEAF_REQUIRES(mutex_);
  // What a conflict means: adopts what a lost write of ours has left, or finds that the lease is lost. True
  // if it is free by now.
  Result<bool> Reconcile(std::int64_t session) LEAF_REQUIRES(mutex_);
  // ZooKeeper has forgotten the lease: `node` is what it has, an older record that no other node holds, or
  // nothing.
  Result<void> PutBack(const std::optional<NodeData>& node) LEAF_REQUIRES(mutex_);
  // Requires that a lease is held: sees to it that no node of the fork has its number, or can take it.
  Result<void> KeepFromFork() LEAF_REQUIRES(mutex_);
  Error Lost(std::string why) LEAF_REQUIRES(mutex_);

  const RegistryOptions options_;
  Client& client_;
  const Clock& clock_;
  Logger& log_;
  Presence presence_;
  std::atomic<bool> interrupted_{false};
  std::atomic<std::uint64_t> times_put_back_{0};
  std::atomic<bool> met_a_copy_{false};

  Mutex mutex_;  // held across calls to the outside
  std::optional<Held> held_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> lost_ LEAF_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Observation> observed_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::zookeeper
