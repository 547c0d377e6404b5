// Worker numbers that belong to an address for ever, in the tree of Java Leaf and beside its nodes.
//
// Invariants
//  I1  A number is used by at most one state directory: every acknowledged claim has written its uuid to
//      owners/<n>, in one transaction with everything else, and none is made over another uuid.
//  I2  One claim makes at most one node under `forever`: making it is conditional on the version of the
//      hold of the address, which each attempt raises first. What an earlier attempt left in flight fails
//      from then on.
//  I3  A write of a former life changes nothing: every write is conditional on the version of
//      ceilings/<n>, which each claim raises. (owners/<n> alone is not enough: deleted and made again it
//      has version 0 again.)
//  I4  Whatever was issued under a number is below the ceiling its next claim returns: the ceiling covers
//      what we issued; what Java issued is covered by its last report plus core::kJavaMargin, once it has not
//      moved for core::kJavaWatch. The ceiling says which version of the node it covers; another version was
//      not ours.
//  I5  A number that is new to a state directory is claimed after a watch that is longer than its owner, if
//      ZooKeeper has forgotten it, needs to put its records back (WatchForOwners), and only if there is still
//      no owner then. Owners put back, on the first write that meets less than they were acknowledged for,
//      all that Leaf's and our records said, without taking anything from an owner that stands there.
//
// Schedules that would break it (each is played in tests/unit/zookeeper/registry_test.cc, or
// goes_back_test.cc)
//  S1  The reply to the node's creation is lost, we create again: two numbers. → I2, and the next attempt
//      looks for the node in the session in which its own raise of the hold was acknowledged, so that it
//      sees it.
//  S2  The creation itself is late and lands after the second claim has looked. → the raise of the hold
//      came before the look: the creation fails.
//  S3  Two state directories with one address claim between each other's calls. → the hold: one of them
//      meets the other's uuid, or a version that is not the one it read.
//  S4  Java makes a node for the same address between our look and our creation. → we look again after
//      our creation; with two nodes, none that moves may be shared, so all are watched.
//  S5  Java starts with our address while we run, takes our number and reports. → our next write finds
//      another version of the node: kRefused, and the number is claimed again once Java stops.
//  S6  The owner is deleted (`worker release`), another state directory claims, the number is the same,
//      all new nodes have version 0; then a renewal of ours lands. → I3.
//  S7  The session expires in the middle of a claim, and the next server is behind. → what was read in
//      another session than the one in which the hold was raised does not count; the claim begins again.
//  S8  A state directory is copied, and both are started with one address (a container image that holds
//      it): the uuid is the same, so all of the above lets the second one in. → its directory is not
//      where it was written: it comes with a new uuid, watches that no node reports under the number, and
//      takes the owner over. A live original is seen as long as it reaches ZooKeeper; one that comes back
//      later is not the owner any more; what it issued after its last report is covered by
//      what the claim adds to its ceiling (core::UntoldMax).
//  S9  ZooKeeper is restored from a backup that is older than a claim, or wiped, while the node lives; then a
//      new node comes, and Leaf's counter gives it the same number. → I5: the new node watches; the owner
//      comes back, finds its owner node missing and its ceiling older than what was acknowledged, and puts
//      all of it back; the new node meets that owner, gives its own node up and makes the next number.
//  S10 The owner was released on purpose meanwhile. → its ceiling is as it was acknowledged, or another
//      node claimed since: nothing is put back, the number is lost.
//  S11 The owner is cut off for longer than the watch. → it meets another owner, and stops (kNotOwner). What
//      it issued meanwhile may be issued twice: that much cannot be prevented.
//  S12 The owner was down. → its start finds neither owner nor ceiling of the number that its state directory
//      held, and makes the node of that number again, by name, before anything else.
//  S13 The memory of the process exists twice: a virtual machine was cloned, or set back to a snapshot, while
//      it ran. Both have the uuid, the generation and the version. → the one that finds a ceiling above its
//      own that it has not sent (SentRecords) stops (kNotOwner). What both issue up to then, a report at
//      most, may be the same.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/core/java_leaf.h"
#include "leaf/core/peer_directory.h"
#include "leaf/core/worker_ports.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/presence.h"
#include "leaf/zookeeper/registry_options.h"
#include "leaf/zookeeper/sent_records.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// Thread-safe; one call at a time goes on. Client, clock and log outlive it.
class FixedRegistry final : public core::WorkerRegistry, public core::PeerDirectory {
 public:
  FixedRegistry(RegistryOptions options, Client& client, const Clock& clock, Logger& log);

  std::string_view kind() const override { return kRegistryKind; }
  bool leased() const override { return false; }

  // Blocks for options.claim_watch where the number is new to this node; else for core::kJavaWatch where
  // another program wrote the node last, and for core::kCopyWatch where the state directory may be a copy.
  // Errors, beside the port's: kConfig (address or chroot), kRefused (another state directory owns the
  // number, with its host; Java is alive with this address; its number is outside worker_range), kExhausted
  // (no number of the range or of the layout is left).
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  // Also reports the true time, every core::kJavaReport. kUnavailable if this object has claimed nothing yet.
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  // Leaves `end` as the ceiling, and removes the temporary node. The number stays ours.
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override;

  std::uint64_t times_put_back() const override { return times_put_back_.load(); }
  void Interrupt() override { interrupted_.store(true); }

  Result<std::vector<core::Peer>> LivePeers() override { return presence_.Peers(); }

 private:
  // A claim as last acknowledged.
  struct Held {
    Tree tree;
    PropertiesRecord properties;
    std::string address;
    std::string uuid;
    std::uint64_t worker = 0;
    std::string leaf_path;  // own node under `forever`
    std::int32_t owner_version = 0;
    std::int32_t ceiling_version = 0;
    CeilingRecord ceiling;  // with the version of the node at leaf_path
    BootTime next_report;
    SentRecords sent{};  // of the ceiling
  };
  // A node under `forever` with our address.
  struct LeafNode {
    std::string name;
    std::uint64_t worker = 0;
    NodeData node;
    ForeverData data;
  };
  // What is under `forever`.
  struct Numbers {
    std::vector<LeafNode> own;
    std::map<std::uint64_t, std::string> others;  // of other addresses: a node of each number
  };
  // The hold of the address, raised in this session.
  struct Hold {
    std::int32_t version = 0;
    AddressRecord record;
    std::int64_t session = 0;
  };

  struct Attempt {
    std::optional<core::WorkerClaim> claim;
    bool watch_first = false;  // the number is new to this node
  };

  // What a claim is made over, as it was read.
  struct Found {
    Hold hold;
    Numbers numbers;
    std::size_t own_index = 0;          // of numbers.own: the one whose number is claimed
    std::string created;                // path of the node that this claim has made; "" for none
    std::optional<std::uint64_t> held;  // the number that this node may claim without a watch
    std::optional<NodeData> owner_node;
    std::optional<NodeData> ceiling_node;
    CeilingRecord ceiling;       // of ceiling_node
    bool formerly_ours = false;  // its owner is what this copy was made of
    bool covered = false;        // the ceiling tells of all that the node under `forever` does

    LeafNode& own() { return numbers.own[own_index]; }
    const LeafNode& own() const { return numbers.own[own_index]; }
    bool is_new(const Tree& tree) const { return tree.ForeverNode(own().name) == created; }
  };
  enum class Step { kGoOn, kAgain, kWatchFirst };

  // Of all that follow, an empty optional: another node came in between, or the session changed; begin
  // again.

  // ---- the claim (fixed_claim.cc)

  Result<Attempt> TryClaim(const Tree& tree, const core::NodeIdentity& node,
                           const PropertiesRecord& properties, bool has_watched) LEAF_REQUIRES(mutex_);
  // The parts of TryClaim, in this order. Until WriteClaim only this node's own hold and node are written.
  Result<Step> FindNumber(const Tree& tree, const core::NodeIdentity& node,
                          const core::ClusterProperties& cluster, bool has_watched, Found& found)
      LEAF_REQUIRES(mutex_);
  // Gives the number up where another node has it (kAgain).
  Result<Step> ReadRecords(const Tree& tree, const core::NodeIdentity& node, Found& found)
      LEAF_REQUIRES(mutex_);
  // Errors: kRefused where another program writes to what is claimed.
  Result<void> WatchForOthers(const Tree& tree, const core::NodeIdentity& node, const Found& found)
      LEAF_REQUIRES(mutex_);
  Result<Attempt> WriteClaim(const Tree& tree, const core::NodeIdentity& node,
                             const PropertiesRecord& properties, Found found) LEAF_REQUIRES(mutex_);
  Result<bool> WatchUnmoved(const std::vector<std::pair<std::string, NodeStat>>& nodes,
                            std::chrono::milliseconds time) LEAF_REQUIRES(mutex_);

  // ---- the numbers of an address (fixed_numbers.cc)

  Result<std::optional<Hold>> TakeHold(const Tree& tree, const core::NodeIdentity& node)
      LEAF_REQUIRES(mutex_);
  Result<std::optional<Numbers>> FindOwn(const Tree& tree, const std::string& address, const Hold& hold)
      LEAF_REQUIRES(mutex_);
  Result<std::optional<std::string>> CreateOwn(const Tree& tree, const std::string& address, const Hold& hold,
                                               const core::ClusterProperties& cluster) LEAF_REQUIRES(mutex_);
  // Makes the node of the number that the state directory held once more, if nothing is known of that number.
  // The path; "" if the number cannot be had again.
  Result<std::optional<std::string>> Recreate(const Tree& tree, const core::NodeIdentity& node,
                                              const Hold& hold, std::uint64_t worker, const Numbers& numbers,
                                              const core::ClusterProperties& cluster) LEAF_REQUIRES(mutex_);
  // The number of our node belongs to another address: the node has to go.
  Result<void> GiveUp(const Tree& tree, const std::string& address, const Hold& hold, const LeafNode& leaf)
      LEAF_REQUIRES(mutex_);
  // A node under `forever` of another address has the number `worker`, and is Java's.
  Result<bool> IsJavas(const Tree& tree, std::uint64_t worker, const Numbers& numbers) LEAF_REQUIRES(mutex_);
  // `fresh`: it is, or would be, made for this claim.
  Result<void> CheckNumber(std::uint64_t worker, const core::ClusterProperties& cluster, bool fresh) const
      LEAF_REQUIRES(mutex_);
  static Error OwnedByOther(std::string_view address, std::uint64_t worker, const OwnerRecord& owner);

  // ---- reports (fixed_registry.cc)

  Result<void> WriteCeiling(const core::WorkerClaim& claim, WallTime ceiling, bool exactly)
      LEAF_REQUIRES(mutex_);
  // What a conflict means: adopts what a lost write of ours has left, puts back what ZooKeeper has forgotten,
  // or finds that the number is lost.
  Result<void> Reconcile(std::int64_t session) LEAF_REQUIRES(mutex_);
  // What was found of our records: `ceiling` is nothing if there is none.
  Result<void> PutBack(const std::optional<NodeData>& owner, const std::optional<NodeData>& ceiling,
                       const std::optional<NodeData>& leaf) LEAF_REQUIRES(mutex_);
  Error Lost(std::string why) LEAF_REQUIRES(mutex_);
  // The same, where the other node will not have the number for ever.
  Error Displaced(std::string why) LEAF_REQUIRES(mutex_);
  static Error KeepsChanging();

  const RegistryOptions options_;
  Client& client_;
  const Clock& clock_;
  Logger& log_;
  Presence presence_;
  std::atomic<bool> interrupted_{false};
  std::atomic<std::uint64_t> times_put_back_{0};

  Mutex mutex_;  // held across calls to the outside
  std::optional<Held> held_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> lost_ LEAF_GUARDED_BY(mutex_);
  // Nodes that were read before the watch of this claim: path and zxid of the last write.
  std::map<std::string, std::int64_t> seen_before_watch_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::zookeeper
