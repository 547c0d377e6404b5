// What snowflake mode stands on, as the configuration describes it.
#pragma once

#include <memory>

#include "leaf/base/logger.h"
#include "leaf/embed/environment.h"
#include "leaf/embed/registries.h"
#include "leaf/service/node.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::embed {

// The registry, the state file, and threads of its own: a database that is slow must not keep the ceiling
// from being raised.
class SnowflakeAdapters {
 public:
  // Connects nothing that is waited for. `one_shot`: for a command that issues and ends. The environment and
  // `log` outlive it. The caller has locked the state directory, and looks after the lock from then on: files
  // are those of the directory that lies there now. Errors: kConfig, kPermission.
  static Result<std::unique_ptr<SnowflakeAdapters>> Open(Environment& environment, bool one_shot,
                                                         Logger& log);

  // For one service, which ends before this does.
  service::SnowflakePorts Ports();

  RegistryLink& registry() { return *registry_; }
  sys::ThreadPool& timers() { return timers_; }

 private:
  SnowflakeAdapters(const Environment& environment, const config::Config& config, bool one_shot,
                    sys::FilesIn files);

  const config::Config& config_;
  const service::SnowflakeOptions options_;
  sys::FilesIn files_;
  sys::WorkerStateFile state_file_;
  sys::SystemRandom random_;
  std::unique_ptr<RegistryLink> registry_;
  std::unique_ptr<core::PeerClocks> peer_clocks_;
  sys::ThreadPool timers_;
  sys::ThreadPool workers_;
  sys::ThreadPool registry_worker_;
  sys::ThreadPool peer_worker_;
};

}  // namespace leaf::embed
