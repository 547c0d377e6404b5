#include "leaf/base/time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf {
namespace {

struct Parts {
  std::time_t seconds = 0;
  int millis = 0;
};

// Any time at all: the first one there is lies in a second that begins before it.
Parts Split(WallTime time) {
  const std::int64_t unix_millis = UnixMillis(time);
  const std::int64_t millis = (unix_millis % 1000 + 1000) % 1000;
  return {unix_millis / 1000 - (unix_millis % 1000 < 0 ? 1 : 0), static_cast<int>(millis)};
}

// Takes digits off the front of a text.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : rest_(text) {}

  bool Literal(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Exactly `width` digits, min..max.
  std::optional<int> Number(std::size_t width, int min, int max) {
    if (rest_.size() < width) return std::nullopt;
    int number = 0;
    for (const char c : rest_.substr(0, width)) {
      if (c < '0' || c > '9') return std::nullopt;
      number = number * 10 + (c - '0');
    }
    rest_.remove_prefix(width);
    if (number < min || number > max) return std::nullopt;
    return number;
  }
  // One to three digits after a point.
  std::optional<int> Millis() {
    int millis = 0;
    int scale = 1000;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      if (scale == 1) return std::nullopt;
      scale /= 10;
      millis += (rest_.front() - '0') * scale;
      rest_.remove_prefix(1);
    }
    if (scale == 1000) return std::nullopt;
    return millis;
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::optional<WallTime> ReadTime(std::string_view text) {
  using std::chrono::day;
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::minutes;
  using std::chrono::month;
  using std::chrono::seconds;
  using std::chrono::year;
  TimeReader in(text);
  const auto y = in.Number(4, 0, 9999);
  if (!y || !in.Literal('-')) return std::nullopt;
  const auto mon = in.Number(2, 1, 12);
  if (!mon || !in.Literal('-')) return std::nullopt;
  const auto d = in.Number(2, 1, 31);
  if (!d) return std::nullopt;
  const std::chrono::year_month_day date{year{*y}, month{static_cast<unsigned>(*mon)},
                                         day{static_cast<unsigned>(*d)}};
  if (!date.ok()) return std::nullopt;
  WallTime time = std::chrono::sys_days{date};
  if (in.AtEnd()) return time;
  if (!in.Literal('T') && !in.Literal('t') && !in.Literal(' ')) return std::nullopt;
  const auto h = in.Number(2, 0, 23);
  if (!h || !in.Literal(':')) return std::nullopt;
  const auto min = in.Number(2, 0, 59);
  if (!min) return std::nullopt;
  time += hours{*h} + minutes{*min};
  if (in.Literal(':')) {
    const auto s = in.Number(2, 0, 59);
    if (!s) return std::nullopt;
    time += seconds{*s};
    if (in.Literal('.')) {
      const auto millis = in.Millis();
      if (!millis) return std::nullopt;
      time += milliseconds{*millis};
    }
  }
  if (in.AtEnd()) return time;
  if (in.Literal('Z') || in.Literal('z')) return in.AtEnd() ? std::optional(time) : std::nullopt;
  const bool east = in.Literal('+');
  if (!east && !in.Literal('-')) return std::nullopt;
  const auto zone_hours = in.Number(2, 0, 23);
  if (!zone_hours || !in.Literal(':')) return std::nullopt;
  const auto zone_minutes = in.Number(2, 0, 59);
  if (!zone_minutes || !in.AtEnd()) return std::nullopt;
  const auto zone = hours{*zone_hours} + minutes{*zone_minutes};
  return east ? time - zone : time + zone;
}

// Of a text that begins like a date: why the calendar has none like it; "" if it has.
std::string MissingDay(std::string_view text) {
  TimeReader in(text);
  const auto y = in.Number(4, 0, 9999);
  if (!y || !in.Literal('-')) return "";
  const auto mon = in.Number(2, 0, 99);
  if (!mon || !in.Literal('-')) return "";
  const auto d = in.Number(2, 0, 99);
  if (!d) return "";
  const std::string date(text.substr(0, std::string_view("2026-11-20").size()));
  if (*mon < 1 || *mon > 12) return fmt::format("there is no day {}: a year has the months 01 to 12", date);
  const std::chrono::year_month_day_last last{
      std::chrono::year{*y}, std::chrono::month_day_last{std::chrono::month{static_cast<unsigned>(*mon)}}};
  const auto days = static_cast<unsigned>(last.day());
  if (*d >= 1 && static_cast<unsigned>(*d) <= days) return "";
  return fmt::format("there is no day {}: that month has the days 01 to {}", date, days);
}

// "-1h" or "+30m".
std::optional<std::chrono::milliseconds> ReadDistance(std::string_view text) {
  if (!text.starts_with('-') && !text.starts_with('+')) return std::nullopt;
  const auto duration = ParseDuration(text.substr(1));
  if (!duration.ok()) return std::nullopt;
  return text.front() == '-' ? -*duration : *duration;
}

// Numbers in [kSecondsFrom, kSecondsEnd) are seconds of 2001 to 5138. As milliseconds they would be the first
// three years of Unix time, in which no ID was made.
constexpr std::int64_t kSecondsFrom = 1'000'000'000;
constexpr std::int64_t kSecondsEnd = 100'000'000'000;

}  // namespace

std::string FormatLocal(WallTime time) {
  const Parts parts = Split(time);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03}", fmt::localtime(parts.seconds), parts.millis);
}

Result<WallTime> ParseTime(std::string_view text, WallTime now) {
  if (text == "now") return now;
  if (const auto time = ReadTime(text)) return *time;
  if (const auto distance = ReadDistance(text)) return now + *distance;
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = status == std::errc{} && end == text.data() + text.size();
  if (is_number && number >= kSecondsFrom && number < kSecondsEnd) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad time {}: that looks like Unix seconds", Quoted(text)),
                 fmt::format("in milliseconds it is {} ({})", number * 1000,
                             FormatRfc3339(WallTimeOf(number * 1000)))};
  }
  // A year alone would be read as milliseconds, which no user means.
  if (is_number && (number < 0 || number > 9999)) return WallTimeOf(number);
  if (const std::string missing = MissingDay(text); !missing.empty())
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad time {}: {}", Quoted(text), missing), ""};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("bad time {}: neither like 2026-11-20, '2026-11-20 11:29:38', "
                           "2026-11-20T11:29:38.500Z, now or -1h, nor Unix milliseconds",
                           Quoted(text)),
               ""};
}

std::string FormatRfc3339(WallTime time) {
  const Parts parts = Split(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(parts.seconds), parts.millis);
}

std::string FormatHttpDate(WallTime time) {
  // fmt formats names in the C locale unless told otherwise, as HTTP wants them.
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(Split(time).seconds));
}

}  // namespace leaf
