#include "leaf/server/net/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::server {
namespace {

constexpr int kBacklog = 4096;

Error SocketError(const std::string& address, int error_number) {
  if (error_number == EADDRINUSE) {
    return {ErrorCode::kRefused, fmt::format("cannot listen on {}: the address is in use", address),
            "another server runs there; stop it or choose another address"};
  }
  const bool permission = error_number == EACCES || error_number == EPERM;
  return {permission ? ErrorCode::kPermission : ErrorCode::kConfig,
          fmt::format("cannot listen on {}: {}", address, std::strerror(error_number)), ""};
}

Endpoint BoundEndpoint(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, ParseWhole<std::uint16_t>(port).value_or(0)};
}

std::string_view TcpScheme(Speech speech) { return speech == Speech::kRedis ? "redis://" : "http://"; }
std::string_view TlsScheme(Speech speech) { return speech == Speech::kRedis ? "rediss://" : "https://"; }
std::string_view UnixScheme(Speech speech) { return speech == Speech::kRedis ? "redis+unix:" : "unix:"; }

}  // namespace

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
  if (unix_path_.empty()) return;
  // Another server may have taken the path over; then it is not ours to remove.
  struct stat status {};
  if (stat(unix_path_.c_str(), &status) == 0 && status.st_ino == unix_inode_) unlink(unix_path_.c_str());
}

void Listener::UseTls() {
  LEAF_CHECK(!is_unix_ && !is_tls_);
  is_tls_ = true;
  name_.replace(0, TcpScheme(speech_).size(), TlsScheme(speech_));
}

bool Listener::is_reachable_from_elsewhere() const {
  if (is_unix_) return false;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return true;
  constexpr std::uint32_t kLoopbackNet = 127;
  const auto is_loopback_v4 = [](const void* address) {
    return static_cast<const unsigned char*>(address)[0] == kLoopbackNet;
  };
  if (bound.ss_family == AF_INET) return !is_loopback_v4(&reinterpret_cast<sockaddr_in&>(bound).sin_addr);
  const in6_addr& address = reinterpret_cast<sockaddr_in6&>(bound).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return !is_loopback_v4(&address.s6_addr[12]);
  return !IN6_IS_ADDR_LOOPBACK(&address);
}

Result<Listener> Listener::OnTcp(const Endpoint& endpoint, Speech speech) {
  const std::string address = EndpointText(endpoint);
  const std::string port = std::to_string(endpoint.port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found); failed != 0) {
    return Error{ErrorCode::kConfig, fmt::format("cannot listen on {}: {}", address, gai_strerror(failed)),
                 ""};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);

  Listener listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), false, speech);
  if (listener.fd_ < 0) return SocketError(address, errno);
  // Old connections in TIME_WAIT do not keep a restart away; a live listener still does.
  const int on = 1;
  setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener.fd_, found->ai_addr, found->ai_addrlen) != 0) return SocketError(address, errno);
  if (listen(listener.fd_, kBacklog) != 0) return SocketError(address, errno);
  listener.name_ =
      fmt::format("{}{}", TcpScheme(speech), EndpointText({endpoint.host, BoundEndpoint(listener.fd_).port}));
  return listener;
}

Result<Listener> Listener::OnUnix(const std::string& path, Speech speech, Door door) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorCode::kConfig,
                 fmt::format("cannot listen on {}: a socket path has at most {} bytes", path,
                             sizeof address.sun_path - 1),
                 speech == Speech::kRedis ? "set server.redis_listen to a shorter path"
                 : door == Door::kPublic  ? "set server.socket_public to a shorter path"
                                          : "set server.socket to a shorter path, or to \"\" for none"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);

  Listener listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), true, speech);
  if (listener.fd_ < 0) return SocketError(path, errno);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error{ErrorCode::kConfig,
                   fmt::format("cannot listen on {}: a file that is not a socket is in the way", path), ""};
    }
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return SocketError(path, errno);
    const bool answered = connect(probe, generic, sizeof address) == 0;
    const int why_not = errno;
    close(probe);
    if (answered) return SocketError(path, EADDRINUSE);
    if (why_not != ECONNREFUSED) return SocketError(path, why_not);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return SocketError(path, errno);
  }
  if (bind(listener.fd_, generic, sizeof address) != 0) return SocketError(path, errno);
  listener.door_ = door;
  constexpr mode_t kEveryone = 0666;
  if (door == Door::kPublic && chmod(path.c_str(), kEveryone) != 0) return SocketError(path, errno);
  if (listen(listener.fd_, kBacklog) != 0) return SocketError(path, errno);
  if (stat(path.c_str(), &status) != 0) return SocketError(path, errno);
  listener.unix_path_ = path;
  listener.unix_inode_ = status.st_ino;
  listener.name_ = fmt::format("{}{}", UnixScheme(speech), path);
  return listener;
}

Listener Listener::OnPassed(int fd, Speech speech) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  Listener listener(fd, bound.ss_family == AF_UNIX, speech);
  listener.is_passed_ = true;
  if (listener.is_unix_) {
    const auto& unix_address = reinterpret_cast<const sockaddr_un&>(bound);
    const std::size_t path_size = size - offsetof(sockaddr_un, sun_path);
    const bool abstract = path_size > 0 && unix_address.sun_path[0] == '\0';
    listener.name_ = UnixScheme(speech);
    listener.name_ += abstract
                          ? fmt::format("@{}", std::string_view(&unix_address.sun_path[1], path_size - 1))
                          : std::string(unix_address.sun_path);
    return listener;
  }
  listener.name_ = fmt::format("{}{}", TcpScheme(speech), EndpointText(BoundEndpoint(fd)));
  return listener;
}

}  // namespace leaf::server
