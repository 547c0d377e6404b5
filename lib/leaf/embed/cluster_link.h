// The witness of the cluster as the configuration has it: a ZooKeeper session, the fence on it, and the list
// of daemons beside it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"
#include "leaf/core/membership.h"
#include "leaf/core/ports.h"
#include "leaf/embed/environment.h"
#include "leaf/service/cluster_fence.h"
#include "leaf/service/command_part.h"
#include "leaf/service/tallies.h"
#include "leaf/sys/system_random.h"
#include "leaf/zookeeper/cluster_records.h"
#include "leaf/zookeeper/daemon_roster.h"
#include "leaf/zookeeper/membership.h"
#include "leaf/zookeeper/session.h"
#include "leaf/zookeeper/witness.h"

namespace leaf::embed {

// Thread-safe but for Announce.
class ClusterLink {
 public:
  // Whether segment.fence asks for it: "cluster", or "auto" where several nodes share the database (mysql)
  // and ZooKeeper is configured.
  static bool IsConfigured(const config::Resolved& resolved);
  // Null for the node fence. Begins to connect and does not wait for it. The environment and `log` outlive
  // it. `process`: the one that claims, as people read it. Errors: kConfig.
  static Result<std::unique_ptr<ClusterLink>> Open(Environment& environment, Logger& log,
                                                   const std::string& process);
  // The same for what claims ranges, and takes part in the cluster with what its state directory remembers in
  // `memory`, which outlives it.
  enum class JoinAs {
    kDaemon,        // or what has the lock of the state directory
    kCommand,       // without it, while no daemon has it
    kBesideDaemon,  // of the same directory
  };
  static Result<std::unique_ptr<ClusterLink>> Join(Environment& environment, Logger& log,
                                                   const std::string& process,
                                                   core::ClusterMemoryStore& memory, JoinAs as);

  service::ClusterFence& fence() { return fence_; }
  // Of a command that has joined. This and `marks` outlive it.
  service::CommandPart Command(core::MarkStore& marks);
  // For a command that has joined with another node's state directory, whose daemon is down: makes known what
  // that node was granted, as its daemon would at its start. Errors: those of MarkStore.
  Result<void> Contribute(core::MarkStore& marks);
  // Raises the witness of a tag to `end`. Errors: those of Witness.
  Result<void> RaiseWitness(std::string_view tag, std::uint64_t end);
  // What stands in ZooKeeper of the nodes that claim. Errors: those of zookeeper::Client, kRefused for a
  // record that cannot be read.
  Result<zookeeper::ClusterRecords> ReadCluster() { return zookeeper::ReadCluster(*session_, tree_); }
  const zookeeper::Tree& tree() const { return tree_; }
  zookeeper::Session& session() { return *session_; }
  core::Witness& witness() { return witness_; }
  // Raises the mark of a tag that is to be added to all that the cluster was granted under its name, and
  // returns that end. Errors: kUnavailable while the witness is away, also where daemons may go on without
  // it: those remember the tag, and nothing remembers for a new row.
  Result<std::uint64_t> RaiseMark(core::NewTag& tag);
  // How long nodes that no record names have to report after ZooKeeper lost data (segment.claim_watch).
  std::chrono::milliseconds watch() const { return watch_; }
  // How long a grant may wait for the witness: the look before it, and then a claim that meets silence.
  std::chrono::milliseconds longest_claim() const {
    constexpr int kCalls = 3;  // the look; the last write that is begun in time, and the look after it
    return service::ClusterFence::kClaimPatience + kCalls * operation_timeout_;
  }
  const std::string& cluster() const { return tree_.cluster(); }
  // What the witness is called, for people.
  std::string name() const;

  // This daemon answers at `urls`. Blocks; again whenever Refresh is called and the session has changed.
  void Announce(std::vector<std::string> urls);
  void Refresh() { entry_.Refresh(); }
  void Withdraw() { entry_.End(); }
  Result<std::vector<zookeeper::DaemonRecord>> Daemons();

  // What is known of it, for metrics and status.
  service::Dependency Dependency() const;

 private:
  struct Part {
    core::ClusterMemoryStore* memory = nullptr;  // null to take no part
    zookeeper::MembershipOptions options;
  };
  static Result<std::unique_ptr<ClusterLink>> OpenAs(Environment& environment, Logger& log,
                                                     const std::string& process,
                                                     core::ClusterMemoryStore* memory, JoinAs as);
  ClusterLink(std::shared_ptr<zookeeper::Session> session, zookeeper::Tree tree, const std::string& process,
              const Part& part, bool fallback, std::string servers,
              std::chrono::milliseconds operation_timeout, const Clock& clock, Logger& log);

  const std::string process_;
  const std::string servers_;
  const std::chrono::milliseconds operation_timeout_;
  const zookeeper::Tree tree_;
  sys::SystemRandom random_;
  const std::shared_ptr<zookeeper::Session> session_;
  const Clock& clock_;
  const std::chrono::milliseconds watch_;
  std::optional<zookeeper::Membership> membership_;
  zookeeper::ZookeeperWitness witness_;
  service::ClusterFence fence_;
  zookeeper::DaemonEntry entry_;
};

}  // namespace leaf::embed
