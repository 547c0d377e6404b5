// The daemon of `leafctl serve`, put together: a node, what asks it for IDs and tells of it, and the server
// in front.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "code_desk.h"
#include "context.h"
#include "daemon_loop.h"
#include "leaf/access/gate.h"
#include "leaf/base/logger.h"
#include "leaf/config/loader.h"
#include "leaf/embed/node.h"
#include "leaf/server/http/http_protocol.h"
#include "leaf/server/http/metrics_page.h"
#include "leaf/server/http/router.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/listener.h"
#include "leaf/server/net/server.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/request_metrics.h"
#include "leaf/server/resp/redis_protocol.h"
#include "leaf/service/id_service.h"
#include "leaf/service/request_limit.h"
#include "leaf/sys/heartbeat.h"
#include "leaf/sys/service_manager.h"
#include "leaf/sys/signals.h"
#include "leaf/sys/spdlog_logger.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/thread_pool.h"
#include "leaf/tls/context.h"
#include "registry_reader.h"
#include "tag_desk.h"

namespace leaf::cmd {

// Tells the log if the server's certificate is of no use any more.
void WarnOfCertificate(const tls::ServerContext& tls, const std::string& path, const Clock& clock,
                       Logger& log);

// Tells the log if there are fewer places for connections than are configured.
void WarnOfConnections(const config::Resolved& resolved, Logger& log);

// server.max_connections, or fewer where so many files cannot be open: without one left no state is written
// and no range is reserved. Raises the limit of open files as far as it goes.
std::size_t ConnectionsFor(const config::Config& config);

// The key of the configuration for listeners of this kind: "server.redis_listen".
std::string KeyOf(const server::Listener& listener);

// Why the value of `key` has no effect, where the service manager has passed such sockets.
std::string NotUsed(const std::string& key);

// log.level, unless --verbose.
LogLevel LevelOf(const config::Config& config, bool verbose);

// Made, started, run and ended once, on one thread.
class Daemon {
 public:
  // All of it outlives the daemon.
  struct Ground {
    CommandContext& context;
    const config::Resolved& resolved;
    const sys::StateDirLock& lock;
    sys::ServiceManager& manager;
    sys::SpdlogLogger& log;
    std::shared_ptr<const tls::ServerContext> tls{};  // null without TLS
  };

  // Makes everything; nothing runs yet, and no connection is accepted. `why_no_snowflakes`: the
  // reason why snowflake mode is off although it is configured; "" for none. Errors: kConfig, kPermission.
  static Result<std::unique_ptr<Daemon>> Make(const Ground& ground, std::vector<server::Listener> listeners,
                                              std::string why_no_snowflakes);
  // Stops the node, if nothing else has.
  ~Daemon();

  // Starts both modes and the server. After an error everything has ended in order. Errors: those of
  // embed::Node::StartSnowflakes.
  Result<void> Start();
  // Until a signal says to end; then drains. What was issued is written down when it returns.
  void Run(const sys::SignalWaiter& signals);

 private:
  Daemon(const Ground& ground, std::unique_ptr<embed::Node> node, std::unique_ptr<NodeCodeDesk> codes,
         std::vector<server::Listener> listeners, const std::string& why_no_snowflakes);

  // Says if anyone on the network may use this daemon.
  void WarnIfOpen() const;
  void WatchThreads();
  // On SIGHUP: what went wrong, or "".
  std::string Reload();
  void AdoptCodes(std::optional<NodeCodeDesk::Options> options);
  void EachSecond();
  // Idempotent.
  void Stop();

  const Ground ground_;
  const config::Config& config_;
  const std::vector<std::string> names_;     // of the listeners
  const std::set<std::string> passed_keys_;  // KeyOf those that the service manager passed
  const bool is_reachable_;                  // one of them, from other machines
  const std::size_t threads_;
  config::Config in_force_;  // changed by Reload

  const std::unique_ptr<embed::Node> node_;
  sys::ThreadPool reports_;
  sys::ThreadPool local_reports_;  // for callers on the Unix socket
  // Metrics, and what is observed each second: other reports, of which any number may be asked for, do not
  // delay them.
  sys::ThreadPool watching_;
  sys::ThreadPool control_;
  RegistryReader registry_;
  // Waits for ZooKeeper or the database, and nothing waits for it.
  sys::ThreadPool looking_;
  NodeTagDesk tag_desk_;
  const std::unique_ptr<NodeCodeDesk> codes_;
  // What is read of the table of tags, and what is changed in it: a change does not wait for readers.
  sys::ThreadPool tag_reads_;
  sys::ThreadPool local_reads_;  // the same for callers on the Unix socket
  sys::ThreadPool tag_changes_;
  service::RequestLimit request_limit_;
  service::IdService ids_;
  std::optional<sys::StateDirWatch> state_dir_;
  server::RequestMetrics requests_;
  access::Gate gate_;
  // Other machines reach this server, and nothing says that none of them needs a token.
  std::atomic<bool> warns_if_open_;
  const server::MetricsPage metrics_;
  server::Issuer issuer_;
  server::UnreadAnswers unread_;
  server::Router router_;
  const server::HttpProtocolFactory http_;
  const server::RedisProtocolFactory redis_;
  server::Server server_;
  sys::Heartbeat heartbeat_;
};

}  // namespace leaf::cmd
