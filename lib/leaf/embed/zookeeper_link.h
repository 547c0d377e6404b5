// A session with the ZooKeeper of the configuration.
#pragma once

#include <chrono>
#include <memory>

#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/embed/environment.h"
#include "leaf/zookeeper/session.h"

namespace leaf::embed {

// How long a call waits for ZooKeeper unless --timeout says otherwise.
inline constexpr std::chrono::milliseconds kZookeeperTimeout{5000};

// zookeeper.connect, session_timeout and auth_file. Begins to connect and does not wait for it: the first
// call does, up to `operation_timeout`. The environment and `log`, which is written to by other threads,
// outlive it. All that ask with one environment, one log and one time-out get the same session. Calls of
// several threads are on their way at once, so a report of a worker number waits for no refresh of all
// witnesses, which asks for a thousand at a time. Errors: kConfig (connect string, or a secret file that
// cannot be read or that others can).
Result<std::shared_ptr<zookeeper::Session>> OpenZookeeper(Environment& environment, Logger& log,
                                                          std::chrono::milliseconds operation_timeout);

}  // namespace leaf::embed
