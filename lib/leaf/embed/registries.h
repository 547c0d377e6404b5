// The worker registry that the configuration names, put together with what it stands on.
#pragma once

#include <chrono>
#include <memory>

#include "leaf/base/logger.h"
#include "leaf/core/peer_directory.h"
#include "leaf/core/worker_ports.h"
#include "leaf/embed/environment.h"
#include "leaf/service/tallies.h"

namespace leaf::embed {

// What of snowflake.worker_range fits snowflake.layout.
config::WorkerRange WorkerNumbersOf(const config::Config& config);

class RegistryLink {
 public:
  virtual ~RegistryLink() = default;
  virtual core::WorkerRegistry& registry() = 0;
  // Null if the registry knows no other nodes.
  virtual core::PeerDirectory* peers() = 0;
  // What it stands on, for metrics and status; named "registry". Does not block. Requires:
  // registry().remote().
  virtual service::Dependency Dependency() const = 0;
};

// Whether nothing is configured that keeps this node's snowflake IDs from being those of another node:
// neither a cluster's name nor a number. Its number is drawn by the state directory's uuid.
bool IsPrivateCluster(const config::Config& config);

// What a node refuses about the number that snowflake.worker_id or snowflake.workers gives it. Nothing is
// asked. Errors: kConfig (the number is another node's, too, or none), kRefused (it is out of range).
Result<void> CheckStaticNumber(const config::Config& config);

// Connects nothing yet, or does not wait for it. `log` outlives the link. Errors: kConfig (no address, a
// connect string), kPermission (a secret file).
Result<std::unique_ptr<RegistryLink>> OpenRegistry(Environment& environment, const config::Config& config,
                                                   Logger& log);

}  // namespace leaf::embed
