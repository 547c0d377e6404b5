// Snowflake mode as the configuration describes it, put together: for the daemon and for `next --direct`.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "leaf/base/logger.h"
#include "leaf/core/id_layout.h"
#include "leaf/embed/registries.h"
#include "leaf/embed/setting.h"
#include "leaf/service/peer_clock_watch.h"
#include "leaf/service/snowflake_service.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::embed {

// snowflake.layout and snowflake.epoch_ms. Errors: kConfig.
Result<core::IdLayout> LayoutOf(const config::Config& config);

// The worker of one state directory, with its own threads: a database that is slow must not keep the ceiling
// from being raised. Whoever holds one has to hold the state directory's lock.
class SnowflakeNode {
 public:
  // Locks the state directory. A lock that is held is waited for, since another one-shot process gives it
  // back soon, but for a second at most. Errors: kRefused (a daemon holds it), kDisabled, kConfig,
  // kPermission.
  static Result<std::unique_ptr<SnowflakeNode>> Open(Setting& setting, std::chrono::milliseconds timeout);
  // For who holds the lock already.
  static Result<std::unique_ptr<SnowflakeNode>> OpenLocked(Setting& setting);
  // Stops the service.
  ~SnowflakeNode();

  // For a one-shot command: Prepare, and SnowflakeService::Start. `log` outlives this.
  Result<void> Start(Logger& log);
  // For a daemon: makes the service, which answers from then on, but has no worker number yet. Errors:
  // kConfig, kPermission.
  Result<void> Prepare(Logger& log);
  // Begins to claim a number. Waits a few seconds for it; if it takes longer, or what is in its way may pass,
  // it goes on in the background. Errors: those of SnowflakeService::Start that do not pass. Requires:
  // Prepare() succeeded.
  Result<void> StartInBackground();
  // Stops the service and all threads. Idempotent.
  void Stop();
  // Requires: Start() or Prepare() succeeded.
  service::SnowflakeService& service() { return *service_; }
  // Whether the registry has an outside, and what is known of it: see RegistryLink. Requires: as service().
  bool has_remote_registry() const { return registry_->registry().remote(); }
  service::Dependency Registry() const;
  // Null where the registry knows no peers. Requires: as service().
  service::PeerClockWatch* peer_clocks() { return watch_ ? &*watch_ : nullptr; }

 private:
  SnowflakeNode(Setting& setting, const config::Config& config, const core::IdLayout& layout,
                std::optional<sys::StateDirLock> lock);

  Setting& setting_;
  const config::Config& config_;
  const Clock& clock_;
  std::optional<sys::StateDirLock> lock_;
  service::SnowflakeOptions options_;
  sys::FileOps file_ops_;
  sys::WorkerStateFile state_file_;
  sys::SystemRandom random_;
  // Before the pools: their threads end before what they work on.
  std::unique_ptr<RegistryLink> registry_;
  std::unique_ptr<core::PeerClocks> peer_clocks_;
  std::optional<service::PeerClockWatch> watch_;
  std::optional<service::SnowflakeService> service_;
  std::optional<sys::ForkGuard> fork_guard_;
  sys::ThreadPool timers_;
  sys::ThreadPool workers_;
  sys::ThreadPool registry_worker_;
  sys::ThreadPool peer_worker_;
};

}  // namespace leaf::embed
