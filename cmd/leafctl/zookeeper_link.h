// A session with the ZooKeeper of the configuration.
#pragma once

#include <chrono>
#include <memory>

#include "context.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/session.h"

namespace leaf::cmd {

// How long a call waits for ZooKeeper unless --timeout says otherwise.
inline constexpr std::chrono::milliseconds kZookeeperTimeout{5000};

// zookeeper.connect, session_timeout and auth_file. Begins to connect and does not wait for it: the first
// call does, up to `operation_timeout`. The context and `log`, which is written to by other threads, outlive
// it. Errors: kConfig (connect string, or a secret file that cannot be read or that others can).
Result<std::unique_ptr<zookeeper::Session>> OpenZookeeper(CommandContext& context, Logger& log,
                                                          std::chrono::milliseconds operation_timeout);

}  // namespace leaf::cmd
