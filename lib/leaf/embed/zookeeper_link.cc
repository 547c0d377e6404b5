#include "leaf/embed/zookeeper_link.h"

#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/sys/secret_file.h"
#include "leaf/zookeeper/connect_string.h"

namespace leaf::embed {

Result<std::shared_ptr<zookeeper::Session>> OpenZookeeper(Environment& environment, Logger& log,
                                                          std::chrono::milliseconds operation_timeout) {
  Environment::ZookeeperInUse& in_use = environment.zookeeper_in_use;
  const MutexLock lock(in_use.mutex);
  if (auto session = in_use.session.lock();
      session && in_use.log == &log && in_use.operation_timeout == operation_timeout)
    return session;
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config::Zookeeper& settings = resolved->config.zookeeper;
  zookeeper::SessionOptions options;
  LEAF_ASSIGN_OR_RETURN(options.connect, zookeeper::ParseConnectString(settings.connect));
  options.session_timeout = settings.session_timeout;
  options.operation_timeout = operation_timeout;
  if (!settings.auth_file.empty()) {
    LEAF_ASSIGN_OR_RETURN(options.digest_auth, sys::ReadSecretFile(settings.auth_file));
  }
  LEAF_ASSIGN_OR_RETURN(std::shared_ptr<zookeeper::Session> session,
                        zookeeper::Session::Open(std::move(options), environment.ClockInUse(), log));
  in_use.session = session;
  in_use.log = &log;
  in_use.operation_timeout = operation_timeout;
  return session;
}

}  // namespace leaf::embed
