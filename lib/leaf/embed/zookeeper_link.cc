#include "leaf/embed/zookeeper_link.h"

#include <utility>

#include "leaf/sys/secret_file.h"
#include "leaf/zookeeper/connect_string.h"

namespace leaf::embed {

Result<std::unique_ptr<zookeeper::Session>> OpenZookeeper(Setting& setting, Logger& log,
                                                          std::chrono::milliseconds operation_timeout) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, setting.Config());
  const config::Config::Zookeeper& settings = resolved->config.zookeeper;
  zookeeper::SessionOptions options;
  LEAF_ASSIGN_OR_RETURN(options.connect, zookeeper::ParseConnectString(settings.connect));
  options.session_timeout = settings.session_timeout;
  options.operation_timeout = operation_timeout;
  if (!settings.auth_file.empty()) {
    LEAF_ASSIGN_OR_RETURN(options.digest_auth, sys::ReadSecretFile(settings.auth_file));
  }
  return zookeeper::Session::Open(std::move(options), setting.ClockInUse(), log);
}

}  // namespace leaf::embed
