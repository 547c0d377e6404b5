// Port: time, and waiting for it. Nothing outside lib/leaf/sys reads a clock or sleeps.
#pragma once

#include "leaf/base/time.h"

namespace leaf {

// Thread-safe. No call allocates or fails.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime Wall() const = 0;
  // What Wall() said a moment ago, on this thread: at most 0.1 ms, or now. For a caller that reads it ten
  // million times a second, and is safe with a time that stands still.
  virtual WallTime RecentWall() const { return Wall(); }
  virtual MonotonicTime Monotonic() const = 0;
  virtual BootTime Boot() const = 0;
  // Blocks the calling thread until Monotonic() >= `time`, or returns early where the system cannot wait.
  // Never for a thread that serves requests.
  virtual void WaitUntil(MonotonicTime time) const = 0;
};

}  // namespace leaf
