// Watches the wall clock for forward jumps. Time that IDs were issued with cannot be taken back: a clock that
// jumps ahead by a year and is then set right leaves a worker that may not issue for a year. So a node that
// is about to raise a ceiling asks here first.
//
// The yardstick is boot time: it goes on in suspend, it cannot be set, and whatever slews the wall clock
// slews it as well. What wall time gains on it are steps.
#pragma once

#include <chrono>
#include <optional>

#include "leaf/base/time.h"

namespace leaf::core {

// Not thread-safe.
class ClockGuard {
 public:
  // Wall time minus boot time: constant within one boot but for steps of the wall clock.
  using Offset = std::chrono::milliseconds;
  static Offset OffsetOf(WallTime wall, BootTime boot);

  // `known`: the reference of an earlier process of the same boot, or nothing to begin with this reading.
  ClockGuard(std::chrono::milliseconds jump_max, WallTime wall, BootTime boot, std::optional<Offset> known);

  // By how much the wall clock is ahead of what is known, if that is more than jump_max; else nothing, and
  // the reference follows, by at most jump_max an hour: small steps over the weeks are no jump, many in a row
  // are. A clock that goes back changes nothing.
  std::optional<std::chrono::milliseconds> Jump(WallTime wall, BootTime boot);

  // An operator says that the wall clock was right at `offset`.
  void Accept(Offset offset);

  Offset reference() const { return reference_; }

 private:
  const std::chrono::milliseconds jump_max_;
  Offset reference_;
  BootTime followed_at_;
};

}  // namespace leaf::core
