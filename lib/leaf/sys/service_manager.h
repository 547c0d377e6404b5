// What the service manager that started this process wants to hear, and hands over: the two small protocols
// of sd_notify(3) and sd_listen_fds(3), and the level prefix of sd-daemon(3). The library for them would cost
// a one-shot command most of its start; the protocols are a datagram and three variables.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::sys {

// A listening socket that was there before this process.
struct PassedSocket {
  int fd = -1;  // close-on-exec; the code that takes it closes it
  bool is_unix = false;
  std::string name;  // as the service manager calls it, "" if it does not
};

// Thread-safe but for TakeSockets.
class ServiceManager {
 public:
  // "" for a variable that is not set.
  using Variables = std::function<std::string(const std::string& name)>;
  explicit ServiceManager(const Variables& variables);

  // Whether there is a manager that wants to be told.
  bool is_listening() const { return !notify_socket_.empty(); }

  // Each is one datagram. One that cannot be sent is dropped: a service does not depend on its manager.
  void Ready(std::string_view status) const;
  void Status(std::string_view status) const;
  // While it starts: that takes so long from now on, whatever the unit's TimeoutStartSec says.
  void ExtendStart(std::chrono::microseconds time) const;
  void Reloading(MonotonicTime now) const;
  // The stop may take so long from now on, also if the unit's TimeoutStopSec is shorter.
  void Stopping(std::string_view status, std::chrono::microseconds time) const;
  void Watchdog() const;

  // The manager ends this process if Watchdog() is not called so often; nothing if it does not care.
  std::optional<std::chrono::microseconds> watchdog_time() const { return watchdog_time_; }

  // The sockets that were passed, once, in the manager's order; they are this process's alone from then on.
  // Errors: kConfig for a descriptor that is no listening stream socket (TCP or Unix).
  Result<std::vector<PassedSocket>> TakeSockets();

 private:
  void Send(const std::string& message) const;

  std::string notify_socket_;
  std::optional<std::chrono::microseconds> watchdog_time_;
  int sockets_ = 0;
  std::vector<std::string> socket_names_;
};

// Whether stderr goes to the journal: `journal_stream` is $JOURNAL_STREAM, "device:inode".
bool StderrIsJournal(std::string_view journal_stream);

}  // namespace leaf::sys
