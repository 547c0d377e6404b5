#include "leaf/sys/service_manager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/sys/file.h"

namespace leaf::sys {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr int kPassedMax = 1000;

// What is said has one line for each assignment.
std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line;
}

int IntOption(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

ServiceManager::ServiceManager(const Variables& variables) {
  const std::string socket = variables("NOTIFY_SOCKET");
  // A path, or a name of the abstract namespace, which is written with '@'.
  if (socket.starts_with('/') || socket.starts_with('@')) notify_socket_ = socket;
  const auto is_for_us = [&](const std::string& pid) { return ParseWhole<pid_t>(pid) == getpid(); };
  const auto watchdog = ParseWhole<std::int64_t>(variables("WATCHDOG_USEC"));
  const std::string watchdog_pid = variables("WATCHDOG_PID");
  if (watchdog && *watchdog > 0 && (watchdog_pid.empty() || is_for_us(watchdog_pid)))
    watchdog_time_ = std::chrono::microseconds{*watchdog};
  if (is_for_us(variables("LISTEN_PID"))) sockets_ = ParseWhole<int>(variables("LISTEN_FDS")).value_or(0);
  const std::string names = variables("LISTEN_FDNAMES");
  for (std::string_view rest = names; !names.empty();) {
    const std::size_t colon = rest.find(':');
    socket_names_.emplace_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
}

void ServiceManager::Ready(std::string_view status) const {
  Send(fmt::format("READY=1\nSTATUS={}\n", OneLine(status)));
}

void ServiceManager::Status(std::string_view status) const {
  Send(fmt::format("STATUS={}\n", OneLine(status)));
}

void ServiceManager::ExtendStart(std::chrono::microseconds time) const {
  Send(fmt::format("EXTEND_TIMEOUT_USEC={}\n", time.count()));
}

void ServiceManager::Reloading(MonotonicTime now) const {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch());
  Send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\n", micros.count()));
}

void ServiceManager::Stopping(std::string_view status, std::chrono::microseconds time) const {
  Send(fmt::format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}\n", OneLine(status), time.count()));
}

void ServiceManager::Watchdog() const { Send("WATCHDOG=1\n"); }

void ServiceManager::Send(const std::string& message) const {
  if (notify_socket_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (notify_socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, notify_socket_.data(), notify_socket_.size());
  if (notify_socket_.front() == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket_.size() +
                                           (notify_socket_.front() == '@' ? 0 : 1));
  const FileHandle socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  // A manager that is busy is waited for, but one that hangs must not hang us.
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  while (sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address), size) < 0 &&
         errno == EINTR) {
  }
}

Result<std::vector<PassedSocket>> ServiceManager::TakeSockets() {
  std::vector<PassedSocket> passed;
  const int count = std::exchange(sockets_, 0);
  // Not for children, should there ever be any: the numbers would mean other files there.
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  if (count < 0 || count > kPassedMax)
    return Error{ErrorCode::kConfig, fmt::format("$LISTEN_FDS is {}, which is not valid", count), ""};
  for (int i = 0; i < count; ++i) {
    PassedSocket socket;
    socket.fd = kFirstPassed + i;
    if (static_cast<std::size_t>(i) < socket_names_.size())
      socket.name = socket_names_[static_cast<std::size_t>(i)];
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const bool bound = getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    const bool known_family =
        address.ss_family == AF_INET || address.ss_family == AF_INET6 || address.ss_family == AF_UNIX;
    if (!bound || !known_family || IntOption(socket.fd, SO_TYPE) != SOCK_STREAM ||
        IntOption(socket.fd, SO_ACCEPTCONN) != 1) {
      return Error{ErrorCode::kConfig,
                   fmt::format("passed descriptor {}{} is not a listening stream socket", socket.fd,
                               socket.name.empty() ? "" : fmt::format(" ({})", socket.name)),
                   "in the socket unit: ListenStream= and Accept=no"};
    }
    socket.is_unix = address.ss_family == AF_UNIX;
    fcntl(socket.fd, F_SETFD, FD_CLOEXEC);
    fcntl(socket.fd, F_SETFL, fcntl(socket.fd, F_GETFL) | O_NONBLOCK);
    passed.push_back(std::move(socket));
  }
  return passed;
}

bool StderrIsJournal(std::string_view journal_stream) {
  struct stat status {};
  return !journal_stream.empty() && fstat(STDERR_FILENO, &status) == 0 &&
         journal_stream == fmt::format("{}:{}", status.st_dev, status.st_ino);
}

}  // namespace leaf::sys
