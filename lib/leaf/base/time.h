// Points in time, one type per clock so that they cannot be mixed, and their text forms.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf {

// Wall clock (UTC), milliseconds: may step either way.
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

struct MonotonicClockTag {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
};
struct BootClockTag {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
};
// Never steps, stands still in suspend.
using MonotonicTime = std::chrono::time_point<MonotonicClockTag, std::chrono::nanoseconds>;
// Never steps, goes on in suspend.
using BootTime = std::chrono::time_point<BootClockTag, std::chrono::nanoseconds>;

inline std::int64_t UnixMillis(WallTime time) { return time.time_since_epoch().count(); }
inline WallTime WallTimeOf(std::int64_t unix_millis) {
  return WallTime{std::chrono::milliseconds{unix_millis}};
}

// "2026-11-20T11:29:38.000Z".
std::string FormatRfc3339(WallTime time);
// "2026-11-20 19:29:38.000" in the process's time zone, as Java's SimpleDateFormat writes it.
std::string FormatLocal(WallTime time);
// Reads RFC 3339 ("2026-11-20T11:29:38.5Z", "…+08:00"; up to milliseconds; a blank may stand for the T,
// seconds may be left out, and so may the zone, which is then UTC), a bare date (its 00:00:00.000Z), Unix
// milliseconds, "now", or a distance from it ("-1h", "+30m"). `now`: what the last two are counted from.
// Errors: kInvalidArgument that names the text. A number that can only be meant as Unix seconds is one, and
// the hint has it in milliseconds.
Result<WallTime> ParseTime(std::string_view text, WallTime now);
// "Fri, 20 Nov 2026 11:29:38 GMT", the form of an HTTP Date header.
std::string FormatHttpDate(WallTime time);

}  // namespace leaf
