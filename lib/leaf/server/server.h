// The HTTP server: threads, connections, time-outs. What requests mean is the router's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/server/listener.h"
#include "leaf/server/router.h"

namespace leaf::server {

struct ServerOptions {
  std::size_t threads = 1;
  std::size_t max_connections = 20'000;
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds idle_timeout{600'000};
};

class Server {
 public:
  // Serves on `listeners` from Start() on. The router, the clock and the log outlive it.
  Server(const ServerOptions& options, const Router& router, std::vector<Listener> listeners,
         const Clock& clock, Logger& log);
  ~Server();

  void Start();
  // Stops accepting, closes idle connections, lets requests in flight finish, up to `timeout`; then closes
  // the rest and joins the threads. Blocks. Returns how many connections were cut off.
  std::size_t Drain(std::chrono::milliseconds timeout);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace leaf::server
