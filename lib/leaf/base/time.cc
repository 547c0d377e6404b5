#include "leaf/base/time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace leaf {
namespace {

std::tm Split(WallTime time, int* millis) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  *millis = static_cast<int>((time - seconds).count());
  return fmt::gmtime(static_cast<std::time_t>(seconds.time_since_epoch().count()));
}

}  // namespace

std::string FormatRfc3339(WallTime time) {
  int millis = 0;
  const std::tm parts = Split(time, &millis);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, millis);
}

std::string FormatHttpDate(WallTime time) {
  int millis = 0;
  const std::tm parts = Split(time, &millis);
  // fmt formats names in the C locale unless told otherwise, as HTTP wants them.
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", parts);
}

}  // namespace leaf
