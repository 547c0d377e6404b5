// The real clocks. The only place in the project that reads time or sleeps.
#pragma once

#include "leaf/base/clock.h"

namespace leaf::sys {

class SystemClock final : public Clock {
 public:
  WallTime Wall() const override;
  WallTime RecentWall() const override;
  MonotonicTime Monotonic() const override;
  BootTime Boot() const override;
  void WaitUntil(MonotonicTime time) const override;
};

}  // namespace leaf::sys
