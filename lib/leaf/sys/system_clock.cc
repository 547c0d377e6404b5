#include "leaf/sys/system_clock.h"

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "leaf/base/check.h"

namespace leaf::sys {
namespace {

std::chrono::nanoseconds Read(clockid_t id) {
  timespec now{};
  LEAF_CHECK(clock_gettime(id, &now) == 0);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

// A counter that goes on all the time, some 1 to 5 ticks a nanosecond; 0 where there is none.
std::uint64_t ReadTicks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

// 0.1 ms at most.
#if defined(__x86_64__)
constexpr std::uint64_t kRecentTicks = 100'000;  // of 1 GHz or more
#else
constexpr std::uint64_t kRecentTicks = 100;  // of 1 MHz or more (Arm's generic timer)
#endif

// The last that RecentWall() has made on this thread.
struct Reading {
  std::uint64_t ticks = std::uint64_t{1} << 63;  // no reading yet: far from every value of the counter
  WallTime wall{};
};
constinit thread_local Reading last_reading;

// Apart: what it needs on the stack would cost each ID.
[[gnu::noinline, gnu::cold]] WallTime ReadWall(std::uint64_t ticks) {
  const WallTime wall{std::chrono::floor<std::chrono::milliseconds>(Read(CLOCK_REALTIME))};
  // Without a counter each reading is a new one.
  if (ticks != 0) last_reading = {ticks, wall};
  return wall;
}

}  // namespace

WallTime SystemClock::Wall() const {
  return WallTime{std::chrono::floor<std::chrono::milliseconds>(Read(CLOCK_REALTIME))};
}

WallTime SystemClock::RecentWall() const {
  // The processor's counter costs less than half of a clock. It only tells whether time has passed: were it
  // wrong (another processor's, or that of before a migration), the reading would be a little older.
  const std::uint64_t ticks = ReadTicks();
  if (ticks - last_reading.ticks < kRecentTicks) [[likely]]
    return last_reading.wall;
  return ReadWall(ticks);
}

MonotonicTime SystemClock::Monotonic() const { return MonotonicTime{Read(CLOCK_MONOTONIC)}; }

BootTime SystemClock::Boot() const { return BootTime{Read(CLOCK_BOOTTIME)}; }

void SystemClock::WaitUntil(MonotonicTime time) const {
  const auto since_start = time.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_start);
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(whole.count());
  until.tv_nsec = static_cast<long>((since_start - whole).count());
  // Only an interruption is tried again: other errors would last for ever. The caller looks at the clock.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace leaf::sys
