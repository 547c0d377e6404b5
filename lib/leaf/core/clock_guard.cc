#include "leaf/core/clock_guard.h"

#include <algorithm>

#include "leaf/base/check.h"

namespace leaf::core {

using std::chrono::milliseconds;

ClockGuard::Offset ClockGuard::OffsetOf(WallTime wall, BootTime boot) {
  return wall.time_since_epoch() - std::chrono::floor<milliseconds>(boot.time_since_epoch());
}

ClockGuard::ClockGuard(milliseconds jump_max, WallTime wall, BootTime boot, std::optional<Offset> known)
    : jump_max_(jump_max), reference_(known.value_or(OffsetOf(wall, boot))), followed_at_(boot) {
  LEAF_CHECK(jump_max.count() > 0);
}

std::optional<milliseconds> ClockGuard::Jump(WallTime wall, BootTime boot) {
  const milliseconds gain = OffsetOf(wall, boot) - reference_;
  if (gain > jump_max_) return gain;
  // The time in which the reference may follow by one millisecond.
  const std::chrono::nanoseconds pace = std::chrono::nanoseconds{std::chrono::hours{1}} / jump_max_.count();
  const milliseconds allowed{(boot - followed_at_) / std::max(pace, std::chrono::nanoseconds{1})};
  if (gain <= allowed) {
    reference_ += std::max(gain, milliseconds{0});
    followed_at_ = boot;
  } else {
    reference_ += allowed;
    followed_at_ += pace * allowed.count();
  }
  return std::nullopt;
}

void ClockGuard::Accept(Offset offset) { reference_ = std::max(reference_, offset); }

}  // namespace leaf::core
