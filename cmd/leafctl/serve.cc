// leafctl serve: what has to be right before there is a daemon (daemon.h), and its run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commands.h"
#include "daemon.h"
#include "leaf/embed/registries.h"
#include "leaf/embed/tls_files.h"
#include "leaf/server/net/listener.h"
#include "leaf/server/net/places.h"
#include "leaf/sys/resources.h"
#include "leaf/sys/service_manager.h"
#include "leaf/sys/signals.h"
#include "leaf/sys/spdlog_logger.h"
#include "leaf/sys/state_dir.h"

namespace leaf::cmd {
namespace {

struct ServeOptions {
  std::vector<std::string> listen;
  std::vector<std::string> redis_listen;
  std::optional<std::string> socket;
};

sys::SpdlogLogger::Format FormatOf(const CommandContext& context, const config::Config& config) {
  if (config.log.format == "json") return sys::SpdlogLogger::Format::kJson;
  return sys::StderrIsJournal(context.Variable("JOURNAL_STREAM")) ? sys::SpdlogLogger::Format::kJournal
                                                                  : sys::SpdlogLogger::Format::kText;
}

// The names of passed sockets (FileDescriptorName=): on which Redis' protocol is spoken, which is for
// operators, and which is for a proxy.
constexpr std::string_view kRedisSocketName = "redis";
constexpr std::string_view kAdminSocketName = "admin";
constexpr std::string_view kPublicSocketName = "public";

// Returns the keys of the configuration that have no effect: what the service manager passes takes the place
// of all of its kind.
Result<std::set<std::string>> TakePassed(sys::ServiceManager& manager,
                                         std::vector<server::Listener>& listeners) {
  std::set<std::string> keys;
  LEAF_ASSIGN_OR_RETURN(const std::vector<sys::PassedSocket> passed, manager.TakeSockets());
  for (const sys::PassedSocket& socket : passed) {
    const bool redis = socket.name == kRedisSocketName;
    const bool admin = socket.name == kAdminSocketName && !socket.is_unix;
    const bool for_proxy = socket.name == kPublicSocketName && socket.is_unix;
    listeners.push_back(
        server::Listener::OnPassed(socket.fd, redis ? server::Speech::kRedis : server::Speech::kHttp));
    if (admin) listeners.back().set_door(server::Door::kOperator);
    if (for_proxy) listeners.back().set_door(server::Door::kPublic);
    keys.insert(KeyOf(listeners.back()));
  }
  return keys;
}

Result<server::Listener> ListenForRedis(const config::ListenAddress& address) {
  return address.unix_path.empty() ? server::Listener::OnTcp(address.tcp, server::Speech::kRedis)
                                   : server::Listener::OnUnix(address.unix_path, server::Speech::kRedis);
}

// Sockets that the service manager passes come in any order; those without the name for Redis are for HTTP.
Result<std::vector<server::Listener>> Listen(const config::Resolved& resolved, sys::ServiceManager& manager,
                                             Logger& log) {
  const config::Config& config = resolved.config;
  std::vector<server::Listener> listeners;
  LEAF_ASSIGN_OR_RETURN(const std::set<std::string> passed, TakePassed(manager, listeners));
  for (const std::string& key : passed) {
    if (resolved.IsSet(key)) log.Warning("{}", NotUsed(key));
  }
  for (const Endpoint& address : config.server.listen) {
    if (passed.contains("server.listen")) break;
    LEAF_ASSIGN_OR_RETURN(server::Listener listener, server::Listener::OnTcp(address));
    listeners.push_back(std::move(listener));
  }
  for (const Endpoint& address : config.server.admin_listen) {
    if (passed.contains("server.admin_listen")) break;
    LEAF_ASSIGN_OR_RETURN(server::Listener listener, server::Listener::OnTcp(address));
    listener.set_door(server::Door::kOperator);
    listeners.push_back(std::move(listener));
  }
  if (!passed.contains("server.socket_public") && !config.server.socket_public.empty()) {
    LEAF_ASSIGN_OR_RETURN(
        server::Listener listener,
        server::Listener::OnUnix(config.server.socket_public, server::Speech::kHttp, server::Door::kPublic));
    listeners.push_back(std::move(listener));
  }
  for (const config::ListenAddress& address : config.server.redis_listen) {
    if (passed.contains("server.redis_listen")) break;
    LEAF_ASSIGN_OR_RETURN(server::Listener listener, ListenForRedis(address));
    listeners.push_back(std::move(listener));
  }
  if (!passed.contains("server.socket") && !config.server.socket.empty()) {
    auto listener = server::Listener::OnUnix(config.server.socket);
    if (listener.ok()) {
      listeners.push_back(std::move(*listener));
    } else if (listener.error().code == ErrorCode::kConfig && !resolved.IsSet("server.socket") &&
               !listeners.empty()) {
      // The configuration does not ask for this socket (its path can be too long, say): no reason not to
      // serve.
      log.Warning("{}; continuing without it", listener.error().message);
    } else {
      return std::move(listener).error();
    }
  }
  if (listeners.empty())
    return Error{ErrorCode::kConfig, "nothing to listen on: server.listen and server.socket are empty", ""};
  for (server::Listener& listener : listeners) {
    if (!config.server.tls_cert.empty() && !listener.is_unix()) listener.UseTls();
    log.Info("listening on {}", listener.name());
  }
  return listeners;
}

// The state directory's lock. A command that issues IDs by itself keeps it for a moment and is waited for,
// since a service manager does not try again after a refusal. Nothing if a signal ends the wait. Errors:
// kRefused if it is held by what keeps it, kPermission, kConfig.
Result<std::optional<sys::StateDirLock>> LockStateDir(const std::string& state_dir,
                                                      const sys::SignalWaiter& signals,
                                                      const sys::ServiceManager& manager, const Clock& clock,
                                                      Logger& log) {
  constexpr std::chrono::milliseconds kPoll{50};
  // A holder writes into the file what it is a moment after it has locked it.
  constexpr std::chrono::seconds kUnnamed{2};
  constexpr std::chrono::seconds kStartExtension{10};
  MonotonicTime named = clock.Monotonic();
  std::optional<MonotonicTime> told;
  bool reloads = false;
  while (true) {
    auto lock = sys::StateDirLock::Take(state_dir, sys::StateDirUse::kDaemon);
    // The settings were read before the wait: the daemon reads them again once it runs.
    if (lock.ok() && reloads) kill(getpid(), SIGHUP);
    if (lock.ok()) return std::optional(std::move(*lock));
    if (lock.error().code != ErrorCode::kRefused) return std::move(lock).error();
    const auto holder = sys::StateDirLock::HolderOf(state_dir);
    const MonotonicTime now = clock.Monotonic();
    if (holder && holder->is_seen) named = now;
    // By now the file says what its holder wrote. The holder may run in another container.
    const bool is_named = holder && (holder->is_seen || now - named >= kUnnamed);
    if (is_named) {
      if (holder->use != sys::StateDirUse::kCommand) return std::move(lock).error();
      if (!told)
        log.Warning("waiting for the state directory {}: a leafctl command (pid {}) is using it", state_dir,
                    holder->pid);
      if (!told || now - *told >= kStartExtension / 2) {
        told = now;
        manager.Status(fmt::format("waiting for a leafctl command (pid {}) to end", holder->pid));
        manager.ExtendStart(kStartExtension);
      }
    } else if (now - named >= kUnnamed) {
      return std::move(lock).error();
    }
    const int signal = signals.WaitFor(kPoll);
    reloads = reloads || signal == SIGHUP;
    if (signal == SIGTERM || signal == SIGINT) {
      log.Info("stopped while waiting for the state directory {}", state_dir);
      return std::optional<sys::StateDirLock>();
    }
  }
}

// What cannot be served together. Nothing, or why snowflake mode is off although the configuration does not
// say so. Errors: kConfig where the configuration asks for it.
Result<std::string> WhyNoSnowflakes(const config::Resolved& resolved,
                                    const std::vector<server::Listener>& listeners) {
  const auto elsewhere =
      std::find_if(listeners.begin(), listeners.end(),
                   [](const server::Listener& listener) { return listener.is_reachable_from_elsewhere(); });
  if (!resolved.config.snowflake.enabled || !embed::IsPrivateCluster(resolved.config) ||
      elsewhere == listeners.end())
    return std::string();
  const std::string remedy = "set snowflake.cluster, and snowflake.registry or a worker number for each node";
  const std::string why = fmt::format(
      "a private cluster's IDs are unique in its state directory only, and {} can be reached from "
      "other machines",
      elsewhere->name());
  if (resolved.IsSet("snowflake.enabled"))
    return Error{ErrorCode::kConfig, fmt::format("cannot serve snowflake mode: {}", why), remedy};
  return fmt::format("{}: {}", why, remedy);
}

Result<void> RunServe(CommandContext& context, const ServeOptions&) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config& config = resolved->config;
  // Before the first thread, so that all inherit the mask.
  const sys::SignalWaiter signals({SIGTERM, SIGINT, SIGHUP});
  sys::SpdlogLogger log(LevelOf(config, context.flags.verbose), FormatOf(context, config));
  sys::ServiceManager manager([&](const std::string& name) { return context.Variable(name); });
  manager.Status("starting");
  WarnOfConnections(*resolved, log);

  LEAF_ASSIGN_OR_RETURN(auto tls, embed::LoadServerTls(config.server));
  if (tls != nullptr) WarnOfCertificate(*tls, config.server.tls_cert, context.clock, log);

  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  LEAF_ASSIGN_OR_RETURN(const std::optional<sys::StateDirLock> lock,
                        LockStateDir(config.state_dir, signals, manager, context.clock, log));
  if (!lock) return {};
  LEAF_ASSIGN_OR_RETURN(std::vector<server::Listener> listeners, Listen(*resolved, manager, log));
  LEAF_ASSIGN_OR_RETURN(std::string why_no_snowflakes, WhyNoSnowflakes(*resolved, listeners));
  if (!why_no_snowflakes.empty()) log.Warning("snowflake mode is off: {}", why_no_snowflakes);

  LEAF_ASSIGN_OR_RETURN(const auto daemon, Daemon::Make({.context = context,
                                                         .resolved = *resolved,
                                                         .lock = *lock,
                                                         .manager = manager,
                                                         .log = log,
                                                         .tls = std::move(tls)},
                                                        std::move(listeners), std::move(why_no_snowflakes)));
  LEAF_RETURN_IF_ERROR(daemon->Start());
  daemon->Run(signals);
  return {};
}

}  // namespace

Run AddServe(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<ServeOptions>();
  app.add_option("--listen", options->listen,
                 "Address to serve HTTP on; :PORT means every IPv4 address of this machine (server.listen)")
      ->type_name("HOST:PORT")
      ->check(NotEmpty)
      ->allow_extra_args(false);
  app.add_option("--redis-listen", options->redis_listen,
                 "Address to speak Redis' protocol on, or unix:/PATH (server.redis_listen)")
      ->type_name("HOST:PORT")
      ->check(NotEmpty)
      ->allow_extra_args(false);
  app.add_option("--socket", options->socket, "Unix socket to serve HTTP on; '' for none (server.socket)")
      ->type_name("PATH");
  app.footer(
      "SIGTERM and SIGINT drain and exit with 0; a second signal ends at once. SIGHUP reloads tokens, "
      "limits, codes, refresh, reserve, the log level, certificate and key.\n"
      "Examples:\n"
      "  leafctl serve\n"
      "  leafctl serve --listen :8080\n"
      "  leafctl serve --redis-listen 127.0.0.1:6380");
  app.callback([options, &context] {
    const auto set_list = [&](const std::vector<std::string>& addresses, const char* key, const char* flag) {
      if (!addresses.empty())
        context.command_values.push_back({key, fmt::format("{}", fmt::join(addresses, ",")), flag});
    };
    set_list(options->listen, "server.listen", "--listen");
    set_list(options->redis_listen, "server.redis_listen", "--redis-listen");
    if (options->socket) context.command_values.push_back({"server.socket", *options->socket, "--socket"});
  });
  return [options](CommandContext& run_context) { return RunServe(run_context, *options); };
}

}  // namespace leaf::cmd
