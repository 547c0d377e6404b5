// Listening sockets, taken before anything else of the server exists, so that a taken address fails at once.
#pragma once

#include <string>
#include <utility>

#include "leaf/base/result.h"

namespace leaf::server {

// A bound, listening socket. Closes it, and removes the socket file it made, when destroyed.
class Listener {
 public:
  // `address`: HOST:PORT, port 0 for a free one. A second listener on one address fails: SO_REUSEPORT is not
  // used, threads share the socket instead. Errors: kRefused (in use), kPermission, kConfig (no such host).
  static Result<Listener> OnTcp(const std::string& address);
  // Replaces a socket file nobody answers on. Errors: kRefused (somebody answers), kPermission, kConfig.
  static Result<Listener> OnUnix(const std::string& path);

  Listener(Listener&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        unix_path_(std::exchange(other.unix_path_, "")),
        unix_inode_(other.unix_inode_),
        name_(std::move(other.name_)) {}
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return fd_; }
  bool is_unix() const { return !unix_path_.empty(); }
  // "http://127.0.0.1:8080" (the port as bound) or "unix:/path".
  const std::string& name() const { return name_; }

 private:
  Listener(int fd, std::string unix_path) : fd_(fd), unix_path_(std::move(unix_path)) {}

  int fd_;
  std::string unix_path_;
  unsigned long unix_inode_ = 0;
  std::string name_;
};

}  // namespace leaf::server
