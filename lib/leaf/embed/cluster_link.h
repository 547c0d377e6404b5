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
#include "leaf/core/ports.h"
#include "leaf/core/worker_inspection.h"
#include "leaf/embed/setting.h"
#include "leaf/service/cluster_fence.h"
#include "leaf/service/tallies.h"
#include "leaf/sys/system_random.h"
#include "leaf/zookeeper/daemon_roster.h"
#include "leaf/zookeeper/session.h"
#include "leaf/zookeeper/witness.h"

namespace leaf::embed {

// Thread-safe but for Announce.
class ClusterLink {
 public:
  // Whether segment.fence asks for it: "cluster", or "auto" where several nodes share the database (mysql)
  // and ZooKeeper is configured.
  static bool IsConfigured(const config::Resolved& resolved);
  // Null for the node fence. Begins to connect and does not wait for it. The setting and `log` outlive it.
  // `process`: who claims, for people. Errors: kConfig.
  static Result<std::unique_ptr<ClusterLink>> Open(Setting& setting, Logger& log, const std::string& process);

  service::ClusterFence& fence() { return fence_; }
  core::Witness& witness() { return witness_; }
  // Raises the mark of a tag that is to be added to all that the cluster was granted under its name, and
  // returns that end. Errors: kUnavailable while the witness is away, also where daemons may go on without
  // it: those remember the tag, and nothing remembers for a new row.
  Result<std::uint64_t> RaiseMark(core::NewTag& tag);
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
  // Whether everyone may change nodes of leafctl's though this one has credentials.
  Result<std::optional<core::WorkerFinding>> InspectAccess();

  // What is known of it, for metrics and status.
  service::Dependency Dependency() const;

 private:
  ClusterLink(std::unique_ptr<zookeeper::Session> session, zookeeper::Tree tree, const std::string& process,
              bool fallback, std::string servers, std::chrono::milliseconds operation_timeout,
              const Clock& clock, Logger& log);

  const std::string process_;
  const std::string servers_;
  const std::chrono::milliseconds operation_timeout_;
  const zookeeper::Tree tree_;
  sys::SystemRandom random_;
  const std::unique_ptr<zookeeper::Session> session_;
  zookeeper::ZookeeperWitness witness_;
  service::ClusterFence fence_;
  zookeeper::DaemonEntry entry_;
};

}  // namespace leaf::embed
