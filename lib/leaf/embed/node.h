// A node as the configuration describes it: service::Node on the adapters that it needs. For the daemon, the
// library and `next` that issues snowflake IDs by itself.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/embed/environment.h"
#include "leaf/embed/segment_adapters.h"
#include "leaf/embed/snowflake_adapters.h"
#include "leaf/service/id_service.h"
#include "leaf/service/node.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/state_dir.h"

namespace leaf::embed {

// The state directory's lock, for a command that issues by itself. Waits for another command that holds it,
// for `timeout` at most, and for a daemon or a library for a second at most. Errors: kRefused (it is held
// still), kConfig, kPermission.
Result<sys::StateDirLock> LockStateDirForCommand(Environment& environment, std::chrono::milliseconds timeout);

// The services are thread-safe, the rest is for one thread.
class Node {
 public:
  struct Plan {
    bool segment = false;
    bool snowflake = false;
    // For a command that issues and ends: it says that its cluster is private only when the state is made.
    bool one_shot = false;
    // What raises marks and claims, for people.
    std::string process;
  };

  // Makes the services, which say why they have no IDs yet. Connects nothing that is waited for. The
  // environment and `log` outlive it. Requires: the caller holds the state directory's lock. Errors: kConfig,
  // kPermission.
  static Result<std::unique_ptr<Node>> Open(Environment& environment, const Plan& plan, Logger& log);
  // Stops it.
  ~Node();

  // Null where the mode is not served.
  service::SegmentService* segment() { return node_.segment(); }
  service::SnowflakeService* snowflake() { return node_.snowflake(); }
  // Requires: segment() is not null.
  SegmentAdapters& segment_adapters() { return *segment_; }
  SnowflakeAdapters& snowflake_adapters() { return *snowflake_; }
  // Null for the node fence, or without segment mode.
  ClusterLink* cluster() { return segment_ ? segment_->cluster() : nullptr; }
  // Whether this node's clock is compared with those of others.
  bool has_peers() { return node_.peer_clocks() != nullptr; }

  // What the modes stand on, for metrics and status. The service ends before this does.
  void WatchDependencies(service::IdService& ids);

  // Requires: segment() is not null.
  void StartSegments() { node_.StartSegments(); }
  // Begins to claim a number. Waits a few seconds for it; if it takes longer, or what is in its way may pass,
  // it goes on in the background. Errors: those of SnowflakeService::Start that do not pass. Requires:
  // snowflake() is not null.
  Result<void> StartSnowflakes();

  // Other nodes, and commands, are told through ZooKeeper that this daemon answers at `urls`; there is no
  // effect without a cluster. Returns at once.
  void Announce(std::vector<std::string> urls);
  // Announces again what a new session has lost. Once a second or so; returns at once.
  void RefreshEntry();

  // As service::Node.
  void Halt(const Error& why) { node_.Halt(why); }
  // As service::Node; what Announce told is withdrawn.
  void Stop();

 private:
  Node(const Clock& clock, std::chrono::milliseconds lease_time, Logger& log)
      : clock_(clock), lease_time_(lease_time), node_(clock, log) {}
  service::Dependency Registry();

  const Clock& clock_;
  const std::chrono::milliseconds lease_time_;
  std::unique_ptr<SegmentAdapters> segment_;
  std::unique_ptr<SnowflakeAdapters> snowflake_;
  service::Node node_;
  std::optional<sys::ForkGuard> fork_guard_;
  bool announced_ = false;
  std::atomic<bool> entry_refreshing_{false};
};

}  // namespace leaf::embed
