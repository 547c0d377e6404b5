// Port: where work runs. Every thread and every timer of the service goes through it, so that a simulation
// can replace both.
#pragma once

#include <functional>

#include "leaf/base/time.h"

namespace leaf {

// Thread-safe. Tasks may run concurrently with each other unless the implementation says it has one thread.
class Executor {
 public:
  using Task = std::function<void()>;
  virtual ~Executor() = default;
  // Runs `task` soon, never inside this call. Dropped without running once Stop() was called.
  virtual void Post(Task task) = 0;
  // Runs `task` once the monotonic clock has reached `time`, never inside this call.
  virtual void PostAt(MonotonicTime time, Task task) = 0;
  // Drops what has not begun and waits for what has. Idempotent. Not from inside a task.
  virtual void Stop() = 0;
};

}  // namespace leaf
