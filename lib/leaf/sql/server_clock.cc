#include "leaf/sql/server_clock.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include "leaf/base/time.h"

namespace leaf::sql {

Result<std::optional<ServerClock>> ReadServerClock(Database& database, const Clock& clock) {
  if (database.dialect().name != kMysql.name) return std::optional<ServerClock>{};
  ServerClock reading;
  LEAF_RETURN_IF_ERROR(
      database.Run("ask the server for its time", [&](soci::session& session) -> Result<void> {
        const MonotonicTime before = clock.Monotonic();
        long long millis = 0;
        session << fmt::format("SELECT {}", kMysql.now_ms), soci::into(millis);
        const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock.Monotonic() - before);
        reading.uncertainty = took / 2;
        reading.ahead = WallTimeOf(millis) - (clock.Wall() - took / 2);
        return {};
      }));
  return std::optional(reading);
}

}  // namespace leaf::sql
