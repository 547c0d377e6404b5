#include "daemon_loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

namespace leaf::cmd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartInterval{50};

std::string StatusText(const service::Readiness& readiness, const std::string& serving) {
  if (readiness.ready) return fmt::format("ready: {}", serving);
  std::vector<std::string> reasons;
  for (const service::Reason& reason : readiness.reasons) reasons.push_back(reason.message);
  return fmt::format("not ready: {}", fmt::join(reasons, "; "));
}

// Several looks in the time that the manager allows.
milliseconds LookInterval(const sys::ServiceManager& manager) {
  if (!manager.watchdog_time()) return kLookInterval;
  return std::clamp(std::chrono::duration_cast<milliseconds>(*manager.watchdog_time() / 8), milliseconds{1},
                    kLookInterval);
}

}  // namespace

milliseconds ThreadPatience(const sys::ServiceManager& manager) {
  if (!manager.watchdog_time()) return kThreadPatience;
  return std::chrono::duration_cast<milliseconds>(*manager.watchdog_time() / 2);
}

int DaemonLoop::Run() {
  const milliseconds look_interval = LookInterval(manager);
  const MonotonicTime started_at = clock.Monotonic();
  MonotonicTime second_at = started_at;
  bool told_ready = false;  // READY was sent, though the node may not be ready
  bool logged_ready = false;
  std::string told_status;
  std::vector<std::string> told_stuck;
  while (true) {
    const int signal = signals.WaitFor(told_ready ? look_interval : std::min(look_interval, kStartInterval));
    const std::string status = StatusText(ids.GetReadiness(), serving());
    if (signal == SIGHUP) {
      // Before READY there is no reload for a manager, and READY would say that the start is over.
      if (told_ready) manager.Reloading(clock.Monotonic());
      const std::string wrong = reload();
      if (!told_ready) continue;
      // READY ends the reload, whatever came of it.
      manager.Ready(wrong.empty() ? status : fmt::format("the last reload failed: {}; {}", wrong, status));
      told_status = status;
      continue;
    }
    if (signal != 0) return signal;
    const MonotonicTime now = clock.Monotonic();
    const bool is_ready = status.starts_with("ready");
    if (!told_ready && (is_ready || now - started_at >= kReadyPatience)) {
      manager.Ready(status);
      log.Info("{}", status);
      told_ready = true;
      logged_ready = is_ready;
    } else if (status != told_status) {
      manager.Status(status);
    }
    if (told_ready && is_ready && !std::exchange(logged_ready, true)) log.Info("{}", status);
    told_status = status;
    const std::vector<std::string> stuck = heartbeat.Check();
    if (stuck.empty() && told_ready && manager.watchdog_time()) manager.Watchdog();
    if (!stuck.empty() && stuck != told_stuck)
      log.Error("no progress in the threads {}{}", fmt::join(stuck, ", "),
                manager.watchdog_time() ? "; the watchdog of the service manager is not notified" : "");
    told_stuck = stuck;
    if (now - second_at >= std::chrono::seconds{1}) {
      second_at = now;
      each_second();
    }
  }
}

}  // namespace leaf::cmd
