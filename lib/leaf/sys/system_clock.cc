#include "leaf/sys/system_clock.h"

#include <ctime>

#include "leaf/base/check.h"

namespace leaf::sys {
namespace {

std::chrono::nanoseconds Read(clockid_t id) {
  timespec now{};
  LEAF_CHECK(clock_gettime(id, &now) == 0);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

}  // namespace

WallTime SystemClock::Wall() const {
  return WallTime{std::chrono::floor<std::chrono::milliseconds>(Read(CLOCK_REALTIME))};
}

MonotonicTime SystemClock::Monotonic() const { return MonotonicTime{Read(CLOCK_MONOTONIC)}; }

BootTime SystemClock::Boot() const { return BootTime{Read(CLOCK_BOOTTIME)}; }

void SystemClock::WaitUntil(MonotonicTime time) const {
  const auto since_start = time.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_start);
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(whole.count());
  until.tv_nsec = static_cast<long>((since_start - whole).count());
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

}  // namespace leaf::sys
