// The wall clock of the database's server.
#pragma once

#include <chrono>
#include <optional>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

struct ServerClock {
  std::chrono::milliseconds ahead{};        // of the server's clock over ours
  std::chrono::milliseconds uncertainty{};  // half of what the answer took
};

// Nothing for SQLite, which has no clock of its own. Errors: kUnavailable, kPermission.
Result<std::optional<ServerClock>> ReadServerClock(Database& database, const Clock& clock);

}  // namespace leaf::sql
