// Listening sockets, taken before anything else of the server exists, so that a taken address fails at once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "leaf/base/endpoint.h"
#include "leaf/base/result.h"

namespace leaf::server {

// What is spoken on a listener's connections.
enum class Speech : std::uint8_t { kHttp, kRedis };

// The callers that a listener is for.
enum class Door : std::uint8_t {
  kPublic,    // TCP, or a Unix socket for proxies: any client
  kOperator,  // of server.admin_listen
  kUsers,     // a Unix socket: users of this machine, told apart by the kernel
};

// A bound, listening socket. Closes it, and removes the socket file it made, when destroyed.
class Listener {
 public:
  // Port 0 for a free one. A second listener on one address fails: SO_REUSEPORT is not
  // used, threads share the socket instead. Errors: kRefused (in use), kPermission, kConfig (no such host).
  static Result<Listener> OnTcp(const Endpoint& endpoint, Speech speech = Speech::kHttp);
  // Replaces a socket file on which no server answers. With Door::kPublic every user may connect, else the
  // umask decides. Errors: kRefused (one answers), kPermission, kConfig.
  static Result<Listener> OnUnix(const std::string& path, Speech speech = Speech::kHttp,
                                 Door door = Door::kUsers);

  // A listening socket that was there before this process and outlives it: its maker looks after its
  // file. Takes `fd` over.
  static Listener OnPassed(int fd, Speech speech = Speech::kHttp);

  Listener(Listener&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        is_unix_(other.is_unix_),
        speech_(other.speech_),
        is_passed_(other.is_passed_),
        door_(other.door_),
        is_tls_(other.is_tls_),
        unix_path_(std::exchange(other.unix_path_, "")),
        unix_inode_(other.unix_inode_),
        name_(std::move(other.name_)) {}
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return fd_; }
  Speech speech() const { return speech_; }
  bool is_unix() const { return is_unix_; }
  bool is_passed() const { return is_passed_; }
  // kUsers for a Unix socket, and kPublic for TCP, unless set.
  Door door() const { return door_; }
  void set_door(Door door) { door_ = door; }
  bool is_tls() const { return is_tls_; }
  // Before it is served, and of TCP only: TLS is spoken on its connections.
  void UseTls();
  // Whether callers on other machines may reach it: TCP, and not on a loopback address.
  bool is_reachable_from_elsewhere() const;
  // "http://127.0.0.1:8080" or "redis://127.0.0.1:6380" (the port as bound), with TLS "https://…" and
  // "rediss://…", "unix:/path" or "redis+unix:/path".
  const std::string& name() const { return name_; }

 private:
  Listener(int fd, bool is_unix, Speech speech)
      : fd_(fd), is_unix_(is_unix), speech_(speech), door_(is_unix ? Door::kUsers : Door::kPublic) {}

  int fd_;
  bool is_unix_;
  Speech speech_;
  bool is_passed_ = false;
  Door door_;
  bool is_tls_ = false;
  std::string unix_path_;  // of the file to remove, "" for none
  unsigned long unix_inode_ = 0;
  std::string name_;
};

}  // namespace leaf::server
