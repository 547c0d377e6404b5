// What the adapters are put together by: the configuration, the clock, and what they share.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "leaf/base/clock.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"

namespace leaf {
class Logger;
}
namespace leaf::sql {
class MysqlConnector;
}
namespace leaf::zookeeper {
class Session;
}

namespace leaf::embed {

// Outlives everything that is put together by it.
class Environment {
 public:
  virtual ~Environment() = default;

  // Resolved at the first use, and the same from then on. Errors: kConfig, kInvalidArgument.
  virtual Result<const config::Resolved*> Config() = 0;
  virtual const Clock& ClockInUse() const = 0;
  // Stands for every time-out of the configuration, if there is one.
  virtual std::optional<std::chrono::milliseconds> Timeout() const = 0;

  // One configuration has one server in use, for every caller: tags and worker numbers must not come from
  // two. Gone with the last database that was opened.
  struct MysqlInUse {
    Mutex mutex;
    std::weak_ptr<sql::MysqlConnector> connector LEAF_GUARDED_BY(mutex);
  };
  MysqlInUse mysql_in_use;

  // And one session with ZooKeeper: the witness of the cluster and worker numbers live and expire together.
  // Gone with the last part that has it.
  struct ZookeeperInUse {
    Mutex mutex;
    std::weak_ptr<zookeeper::Session> session LEAF_GUARDED_BY(mutex);
    const Logger* log LEAF_GUARDED_BY(mutex) = nullptr;  // that it was opened with
    std::chrono::milliseconds operation_timeout LEAF_GUARDED_BY(mutex){};
  };
  ZookeeperInUse zookeeper_in_use;
};

}  // namespace leaf::embed
