// Snowflake mode as the configuration describes it, put together: for the daemon and for `next --direct`.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "context.h"
#include "leaf/base/logger.h"
#include "leaf/core/id_layout.h"
#include "leaf/service/snowflake_service.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/static_registry.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::cmd {

// snowflake.layout and snowflake.epoch_ms. Errors: kConfig.
Result<core::IdLayout> LayoutOf(const config::Config& config);

// The worker of one state directory, with its own threads: a database that is slow must not keep the ceiling
// from being raised. Whoever holds one has to hold the state directory's lock.
class SnowflakeNode {
 public:
  // Locks the state directory. A lock that is held is waited for, since another one-shot process gives it
  // back soon, but for a second at most. Errors: kRefused (a daemon holds it), kDisabled, kConfig,
  // kPermission.
  static Result<std::unique_ptr<SnowflakeNode>> Open(CommandContext& context,
                                                     std::chrono::milliseconds timeout);
  // For who holds the lock already.
  static Result<std::unique_ptr<SnowflakeNode>> OpenLocked(CommandContext& context);
  // Stops the service.
  ~SnowflakeNode();

  // Errors: those of SnowflakeService::Start. `log` outlives this.
  Result<void> Start(Logger& log);
  // Requires: Start() succeeded.
  service::SnowflakeService& service() { return *service_; }

 private:
  SnowflakeNode(CommandContext& context, const config::Config& config, const core::IdLayout& layout,
                std::optional<sys::StateDirLock> lock);

  const Clock& clock_;
  std::optional<sys::StateDirLock> lock_;
  service::SnowflakeOptions options_;
  sys::FileOps file_ops_;
  sys::WorkerStateFile state_file_;
  sys::StaticRegistry registry_;
  sys::SystemRandom random_;
  // Before the pools: their threads end before what they work on.
  std::optional<service::SnowflakeService> service_;
  std::optional<sys::ForkGuard> fork_guard_;
  sys::ThreadPool timers_;
  sys::ThreadPool workers_;
};

}  // namespace leaf::cmd
