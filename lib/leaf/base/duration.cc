#include "leaf/base/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "leaf/base/text.h"

namespace leaf {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t millis;
};
// Largest first, so that formatting finds the shortest form.
constexpr std::array<Unit, 5> kUnits{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

}  // namespace

Result<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  const Error error{
      ErrorCode::kInvalidArgument,
      fmt::format("{} is not a duration such as \"250ms\", \"3s\", \"10m\", \"24h\"", Quoted(text)), ""};
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || number < 0) return error;
  const std::string_view unit_name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& unit : kUnits) {
    if (unit_name != unit.name) continue;
    // Nanoseconds are what clocks count in; the value must survive that conversion as well.
    if (number > std::numeric_limits<std::int64_t>::max() / 1'000'000 / unit.millis) return error;
    return std::chrono::milliseconds{number * unit.millis};
  }
  return error;
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  const std::int64_t millis = duration.count();
  if (millis == 0) return "0s";
  for (const Unit& unit : kUnits) {
    if (unit.name != "d" && millis % unit.millis == 0)
      return fmt::format("{}{}", millis / unit.millis, unit.name);
  }
  return fmt::format("{}ms", millis);
}

}  // namespace leaf
