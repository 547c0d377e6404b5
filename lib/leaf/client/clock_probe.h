// Asks daemons for their wall clocks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/client/trust.h"

namespace leaf::client {

struct ClockReading {
  std::chrono::milliseconds ahead{};        // of that clock over ours
  std::chrono::milliseconds uncertainty{};  // half of what the answer took
  std::string version;                      // "" before 0.2
};

// One reading for each of `urls` ("http://HOST:PORT", "https://HOST:PORT"), in their order; nothing where
// none came within `timeout`, or not with a clock. All are asked at once, on threads of their own, which end
// before this returns: after the time-out, and what the resolver takes for a name, at the latest.
std::vector<std::optional<ClockReading>> ReadClocks(const std::vector<std::string>& urls,
                                                    std::chrono::milliseconds timeout, const Clock& clock,
                                                    const TlsSource& tls);

}  // namespace leaf::client
