// What the adapters are put together by: the configuration, the clock, and what they share.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"

namespace leaf::sql {
class MysqlConnector;
}

namespace leaf::embed {

// Outlives everything that is put together by it.
class Setting {
 public:
  virtual ~Setting() = default;

  // Resolved at the first use, and the same from then on. Errors: kConfig, kInvalidArgument.
  virtual Result<const config::Resolved*> Config() = 0;
  virtual const Clock& ClockInUse() const = 0;
  // Stands for every time-out of the configuration, if there is one.
  virtual std::optional<std::chrono::milliseconds> Timeout() const = 0;

  // One configuration has one server in use, for every caller: tags and worker numbers must not come from
  // two. Gone with the last database that was opened.
  struct MysqlInUse {
    std::mutex mutex;
    std::weak_ptr<sql::MysqlConnector> connector;  // guarded by mutex
  };
  MysqlInUse mysql_in_use;
};

}  // namespace leaf::embed
