// Runs a function in the child of every fork of this process, so that what must not exist twice (a generator)
// is closed there. A child that executes another program never gets as far as to use it, and is harmless.
#pragma once

#include <atomic>
#include <cstdint>

namespace leaf::sys {

// The function runs between fork and the child's own code, when the child has one thread: it may do what is
// async-signal-safe. At most 64 at a time.
class ForkGuard {
 public:
  using InChild = void (*)(void* object);
  ForkGuard(InChild in_child, void* object);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  int slot_;
};

// How often this process and those that it was forked from were forked since WatchForks was first called:
// what was made at another count is a parent's.
inline std::atomic<std::uint64_t> fork_count{0};
inline std::uint64_t ForkCount() { return fork_count.load(std::memory_order_relaxed); }
// Begins to count, and returns ForkCount().
std::uint64_t WatchForks();

}  // namespace leaf::sys
