// What the daemon's main thread does while the others serve: waits for signals, tells the service manager how
// things are, and looks after the threads.
#pragma once

#include <functional>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/service/id_service.h"
#include "leaf/sys/heartbeat.h"
#include "leaf/sys/service_manager.h"
#include "leaf/sys/signals.h"

namespace leaf::cmd {

struct DaemonLoop {
  const sys::SignalWaiter& signals;
  const sys::ServiceManager& manager;
  sys::Heartbeat& heartbeat;
  const service::IdService& ids;
  const Clock& clock;
  Logger& log;
  std::function<std::string()> serving;  // "segment mode on sqlite", for the manager
  std::function<void()> each_second;     // quick
  std::function<std::string()> reload;   // on SIGHUP; what went wrong, or ""

  // Until SIGTERM or SIGINT, which it returns. Tells READY once the node is ready, or has been waiting for
  // kReadyPatience: a daemon whose database is away is up all the same, and says so in its status. Tells
  // WATCHDOG as long as the heartbeat finds no thread stuck.
  int Run();
};

// How often the main thread looks around, if the manager does not want to hear more often.
inline constexpr std::chrono::milliseconds kLookInterval{1000};
inline constexpr std::chrono::milliseconds kReadyPatience{10'000};
// How long a thread may be stuck where no watchdog interval sets the limit.
inline constexpr std::chrono::milliseconds kThreadPatience{15'000};

// How long a thread that never blocks may not come round.
std::chrono::milliseconds ThreadPatience(const sys::ServiceManager& manager);

}  // namespace leaf::cmd
