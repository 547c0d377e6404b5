// Taking part in the segment mode of a cluster, by a record beside the witnesses (core/membership.h).
//
// Schedules that it stands against; T is the moment that the servers go back to.
// M1. The servers go back, and a node that was in touch after T claims: its record is gone, or has an older
//     version, and the transaction fails.
// M2. A node that was down, or cut off, since before T meets an older tree that says of it what it remembers.
//     It claims before a node of M1 has found out. So it waits until nodes that may claim have moved, which
//     look before they move, or for the watch (kAwayMax). What it did before makes no difference, nor whether
//     the others are covered. The heartbeats of nodes that wait themselves do not count. A node that is new
//     knows no others, and waits for the watch, also where its state directory has marks of another cluster,
//     or version.
// M3. A read is answered by a server that is behind. What looks like M1 is confirmed by the transaction that
//     raises the incarnation: it names the version that was seen. What a new node reads of its own record it
//     believes only once it has written it.
// M4. A node knows of another one that the servers have forgotten, or have an older record of. It puts that
//     record back, with the last beat that it has seen, before its own says that it has contributed. The node
//     that settles the incarnation looks at the list and the records again after the last of them. Nodes that
//     are there, and that no other node knows of, have the watch to show up, from when the servers last came
//     back.
// M4b. A node that was covered goes on, ends, and its old record comes back. What is covered counts up to the
//     highest beat that was seen, not up to the one that stands there.
// M5. The reply to any of these writes is lost, or it lands later: each names the version that it was made
//     for, and each step begins with a look.
// M6. A process claims, and its mark is under way while another process of the same directory makes the marks
//     known again. The range is dropped (Holds in service/cluster_fence.h; LookAgain for a command), and a
//     command beside a daemon leaves all this to the daemon (is_passive).
// M7. A command claims, and the servers go back: its heartbeat before the claim tells the next process of its
//     state directory.
// What it does not stand against: a node that was down while others were granted IDs, and is started after
// the servers went back, while all that know more are down for longer than the watch, or that has never known
// another node; and the last seconds that the servers and the database lose at once, claimed by a node that
// has not found out yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/random.h"
#include "leaf/core/membership.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// How far apart a node's heartbeats are, and how often one that cannot claim yet looks again.
inline constexpr std::chrono::milliseconds kNodeHeartbeat{5000};
inline constexpr std::chrono::milliseconds kNodeLook{500};
// A node that was not in touch for so long waits for the others to move before it claims.
inline constexpr std::chrono::seconds kAwayMax{15};
// A node that waits for others, and sees nothing for so long, begins again.
inline constexpr std::chrono::seconds kLostTouch{8};
// A node whose record has not moved for so long is no longer counted on: what it was granted is remembered by
// the others. One that has left, sooner; and no more often than that all witnesses are read for it.
inline constexpr std::chrono::minutes kNodeGone{10};
inline constexpr std::chrono::seconds kNodeLeft{30};
inline constexpr std::chrono::seconds kCoverInterval{60};
// The record of one that left is removed after so long. One that comes back later is as good as new.
inline constexpr std::chrono::hours kNodeForgotten{24 * 14};
// So many of those that are covered are remembered.
inline constexpr std::size_t kCoveredMax = 1000;

struct MembershipOptions {
  std::string host;  // these are for people
  std::string process;
  // How long a node that is new watches before its first claim, and the longest that one that was away waits
  // for the others.
  std::chrono::milliseconds watch{0};
  // For a command, which leaves the record of a daemon of its state directory alone.
  bool one_shot = false;
  // For a command beside a daemon that runs: what has to be put right is that one's business.
  bool is_passive = false;
};

class Membership final : public core::Membership {
 public:
  // All of them outlive it.
  Membership(Tree tree, MembershipOptions options, Client& client, core::ClusterMemoryStore& store,
             const Clock& clock, Random& random, Logger& log);

  Result<void> Ready() const override;
  void Step(const Contribute& contribute) override;
  void Leave() override;
  Error WitnessWentBack(std::string_view tag, const core::WitnessState& seen, std::uint64_t end) override;
  core::MembershipStatus Status() const override;
  std::uint64_t Era() const override;
  Result<void> LookAgain() override;

  // What every claim's transaction begins with. Errors: as Ready.
  Result<std::vector<Operation>> Checks() const;
  // This process's entry among the daemons, from now on.
  void SetDaemon(std::string id);

 private:
  using State = core::MembershipStatus::State;
  // What stands in ZooKeeper.
  struct Look {
    std::optional<NodeRecord> own;
    std::int32_t own_version = 0;
    std::optional<IncarnationRecord> incarnation;
    std::int32_t incarnation_version = 0;
    std::uint64_t number() const { return incarnation ? incarnation->number : 0; }
  };
  struct Other {
    NodeRecord record;
    std::int32_t version = 0;
    MonotonicTime moved_at;   // as far as this process has seen
    bool is_seen = false;     // its record, by this process
    bool is_watched = false;  // seen since this node began to wait, or is up
    bool moved = false;       // while it was watched
    // The highest beat that was ever seen of it. A record that came back with an old tree has a lower one.
    std::uint64_t beat = 0;
    // What it was granted until its beat was this is remembered here.
    std::optional<std::uint64_t> covered;
    bool is_covered() const { return covered && beat <= *covered; }
  };
  // A witness that is below what this node knows.
  struct Suspicion {
    std::string path;
    std::optional<std::int32_t> version;
    std::uint64_t end = 0;
  };
  enum class Next { kLookAgain, kWait };

  Result<void> Load();
  Result<Look> Read() const;
  Result<void> Save(bool opens = false);
  Result<Next> StepOnce(const Contribute& contribute);
  Result<Next> Join(const Look& look);
  Result<Next> Beat(const Look& look, bool waits);
  bool WentBack(const Look& look) const;
  void BeginToWait();
  // Its next one.
  NodeRecord OwnRecord(const Look& look, std::uint64_t contributed, bool left);

  // ---- whether ranges may be claimed (membership_claims.cc)

  bool is_open() const;
  // Whether everything in it is what this node remembers, or newer, and it may claim.
  bool IsWhole(const Look& look) const LEAF_REQUIRES(mutex_);
  // `in_touch`: before it was, at the latest.
  void Open(const Look& look, BootTime in_touch);
  void Close(State state, std::string why, std::vector<std::string> waiting_for = {});
  void CloseLocked(State state, std::string why) LEAF_REQUIRES(mutex_);
  // It cannot take part at present.
  void Fail(const Error& why);

  // ---- after ZooKeeper went back (membership_gather.cc)

  // `evidence`: true only if the servers really went back; part of the same transaction.
  Result<Next> RaiseIncarnation(const Look& look, const std::string& why, std::vector<Operation> evidence);
  Result<Next> GiveBack(const Look& look, const Contribute& contribute);
  Result<Next> PutBackOthers(const Look& look);
  Result<Next> Settle(const Look& look);

  // ---- other nodes (membership_others.cc)

  Result<void> ReadOthers();
  // Notes the record of another node.
  Other& Seen(const std::string& id, const NodeRecord& record, std::int32_t version);
  // Whether this node has to wait before its first claim, and for what.
  std::optional<std::string> Waits();
  Result<void> Cover(const Look& look);
  Result<void> KeepWitnesses();

  const Tree tree_;
  const MembershipOptions options_;
  Client& client_;
  core::ClusterMemoryStore& store_;
  const Clock& clock_;
  Random& random_;
  Logger& log_;

  // Of the thread that steps:
  bool loaded_ = false;
  bool is_new_ = false;         // nothing of it is remembered yet
  bool was_forgotten_ = false;  // it was away for so long that its record may have been removed
  bool has_opened_ = false;
  bool beats_ = false;  // its record is this process's to change
  core::ClusterMemory memory_;
  std::map<std::string, Other> others_;  // by id
  BootTime touched_at_;  // before its last heartbeat, also of an earlier process, or since when it waits
  std::optional<MonotonicTime> wait_until_;
  MonotonicTime in_touch_at_;  // when a look was answered last
  MonotonicTime next_beat_;
  std::optional<MonotonicTime> gathering_since_;
  MonotonicTime gathering_at_;   // when it last looked
  std::uint64_t gathering_ = 0;  // the incarnation
  std::optional<MonotonicTime> covered_at_;
  std::int32_t beat_version_ = 0;  // of its record, by its last beat
  std::string told_;               // why claims wait, as the log has it

  mutable Mutex mutex_;  // never held across a call to the outside
  core::MembershipStatus status_ LEAF_GUARDED_BY(mutex_);
  std::string daemon_ LEAF_GUARDED_BY(mutex_);
  std::optional<Suspicion> suspicion_ LEAF_GUARDED_BY(mutex_);
  // What waiting does not cure has a code of its own.
  ErrorCode why_code_ LEAF_GUARDED_BY(mutex_) = ErrorCode::kUnavailable;
  std::string why_hint_ LEAF_GUARDED_BY(mutex_);
  std::uint64_t era_ LEAF_GUARDED_BY(mutex_) = 0;
  std::string id_ LEAF_GUARDED_BY(mutex_);
  // What claims check, while it is open:
  std::uint64_t incarnation_ LEAF_GUARDED_BY(mutex_) = 0;
  std::uint64_t own_beat_ LEAF_GUARDED_BY(mutex_) = 0;
  BootTime beat_at_ LEAF_GUARDED_BY(mutex_);  // before it was in touch last: for a passive one, its daemon
  std::int32_t own_version_ LEAF_GUARDED_BY(mutex_) = 0;
  std::int32_t incarnation_version_ LEAF_GUARDED_BY(mutex_) = 0;
};

}  // namespace leaf::zookeeper
