// The server's threads and listeners. What is said on a connection is its protocol's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/server/net/listener.h"
#include "leaf/server/net/protocol.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/request_metrics.h"
#include "leaf/tls/context.h"

namespace leaf::server {

// What one client, and all of them together, may take up. Any of it can change while the server runs.
struct ConnectionLimits {
  // Over all listeners. Unix sockets have kReservedConnections places beyond it.
  std::size_t max_connections = 20'000;
  // From one address over TCP (ClientAddress); 0 for no limit.
  std::size_t max_connections_per_address = 0;
  // For sending a request, the first one from the connection on, and for reading an answer.
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds idle_timeout{600'000};
};

struct ServerOptions {
  std::size_t threads = 1;
  ConnectionLimits limits;
};

// A connection over a limit has a second to send a request, and its protocol decides the answer. Of too many
// such connections, the rest is closed without a word.
class Server {
 public:
  // What it is given outlives it.
  Server(const ServerOptions& options, UnreadAnswers& unread, const Clock& clock, Logger& log,
         RequestMetrics& metrics);
  ~Server();

  // Serves on `listener` from Start() on; before that. `protocol` outlives the server. `is_public_door`: as
  // of Origin.
  void Listen(Listener listener, const ProtocolFactory& protocol, bool is_public_door = false);
  void Start();
  // Before a listener with TLS is served, and whenever certificate or key are new ones: for connections that
  // begin from now on. If other authorities of clients are believed than before, open connections are closed
  // whose clients would not be accepted now, one after the other beside the requests.
  void SetTls(std::shared_ptr<const tls::ServerContext> context);
  // Holds for what begins from now on; connections beyond a lower limit are not closed.
  void SetLimits(const ConnectionLimits& limits);
  // Calls `done` once every thread has come round, on one of them: none is stuck. Dropped by Drain.
  void Probe(std::function<void()> done);
  // Stops accepting, lets requests in flight finish, and clients that asked a moment ago ask once more, up to
  // `timeout`; then closes the rest and joins the threads. A client that waits to be accepted is still
  // served, unless the socket was passed to us: then it waits for the next process. Blocks. Returns how many
  // connections were cut off.
  std::size_t Drain(std::chrono::milliseconds timeout);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace leaf::server
