// Durations as people write them: "3s", "250ms", "10m", "24h".
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf {

// A whole number and one of the units ms, s, m, h, d. Errors: kInvalidArgument for anything else, for a
// missing unit, and for more than about 290 years.
Result<std::chrono::milliseconds> ParseDuration(std::string_view text);

// In the largest unit up to hours that is exact; ParseDuration reads it back to the same value.
std::string FormatDuration(std::chrono::milliseconds duration);

}  // namespace leaf
