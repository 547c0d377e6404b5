// leafctl serve: the composition root of the daemon.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "commands.h"
#include "daemon_loop.h"
#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/config/reload.h"
#include "leaf/embed/node.h"
#include "leaf/server/http/http_protocol.h"
#include "leaf/server/http/metrics_page.h"
#include "leaf/server/http/router.h"
#include "leaf/server/net/listener.h"
#include "leaf/server/net/places.h"
#include "leaf/server/net/server.h"
#include "leaf/server/request_metrics.h"
#include "leaf/service/id_service.h"
#include "leaf/service/request_limit.h"
#include "leaf/sys/heartbeat.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/process_stats.h"
#include "leaf/sys/resources.h"
#include "leaf/sys/service_manager.h"
#include "leaf/sys/signals.h"
#include "leaf/sys/spdlog_logger.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/thread_pool.h"
#include "registries.h"
#include "stores.h"

namespace leaf::cmd {
namespace {

struct ServeOptions {
  std::vector<std::string> listen;
  std::optional<std::string> socket;
};

LogLevel LevelOf(const config::Config& config, bool verbose) {
  if (verbose || config.log.level == "debug") return LogLevel::kDebug;
  if (config.log.level == "warning") return LogLevel::kWarning;
  if (config.log.level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

sys::SpdlogLogger::Format FormatOf(const CommandContext& context, const config::Config& config) {
  if (config.log.format == "json") return sys::SpdlogLogger::Format::kJson;
  return sys::StderrIsJournal(context.Variable("JOURNAL_STREAM")) ? sys::SpdlogLogger::Format::kJournal
                                                                  : sys::SpdlogLogger::Format::kText;
}

server::ConnectionLimits ConnectionLimitsOf(const config::Config& config) {
  return {.max_connections = static_cast<std::size_t>(config.server.max_connections),
          .max_connections_per_address = static_cast<std::size_t>(config.server.max_connections_per_address),
          .header_timeout = config.server.header_timeout,
          .idle_timeout = config.server.idle_timeout};
}

void SetRequestLimit(service::RequestLimit& limit, const config::Config& config) {
  limit.Set(static_cast<std::uint64_t>(config.server.max_requests_per_second),
            static_cast<std::uint64_t>(config.server.max_tag_requests_per_second));
}

// Sockets that the service manager passes stand for those of their kind in the configuration, whatever their
// names and order.
Result<std::vector<server::Listener>> Listen(const config::Resolved& resolved, sys::ServiceManager& manager,
                                             Logger& log) {
  const config::Config& config = resolved.config;
  std::vector<server::Listener> listeners;
  bool has_tcp = false;
  bool has_unix = false;
  LEAF_ASSIGN_OR_RETURN(const std::vector<sys::PassedSocket> passed, manager.TakeSockets());
  for (const sys::PassedSocket& socket : passed) {
    listeners.push_back(server::Listener::OnPassed(socket.fd));
    (socket.is_unix ? has_unix : has_tcp) = true;
  }
  for (const auto& [key, stands_back] : {std::pair{"server.listen", has_tcp}, {"server.socket", has_unix}}) {
    if (stands_back && resolved.IsSet(key))
      log.Info("{} is not used: the service manager passed sockets", key);
  }
  for (const std::string& address : config.server.listen) {
    if (has_tcp) break;
    LEAF_ASSIGN_OR_RETURN(server::Listener listener, server::Listener::OnTcp(address));
    listeners.push_back(std::move(listener));
  }
  if (!has_unix && !config.server.socket.empty()) {
    auto listener = server::Listener::OnUnix(config.server.socket);
    if (listener.ok()) {
      listeners.push_back(std::move(*listener));
    } else if (listener.error().code == ErrorCode::kConfig && !resolved.IsSet("server.socket") &&
               !listeners.empty()) {
      // Nobody asked for this socket (its path can be too long, say): no reason not to serve.
      log.Warning("{}; going on without it", listener.error().message);
    } else {
      return std::move(listener).error();
    }
  }
  if (listeners.empty())
    return Error{ErrorCode::kConfig, "nothing to listen on: server.listen and server.socket are empty", ""};
  for (const server::Listener& listener : listeners) log.Info("listening on {}", listener.name());
  return listeners;
}

// Where other nodes reach this one, best first; the last may do on this machine only.
std::vector<std::string> AnswersAt(const config::Resolved& resolved, const std::vector<std::string>& names) {
  std::vector<std::string> urls;
  const auto add = [&](const std::string& url) {
    if (std::find(urls.begin(), urls.end(), url) == urls.end()) urls.push_back(url);
  };
  if (const std::string& url = resolved.config.snowflake.advertise; !url.empty()) add(url);
  // Who listens on all addresses is reached by this machine's name, if by any.
  for (const std::string any : {"http://0.0.0.0:", "http://[::]:"}) {
    for (const std::string& name : names) {
      if (name.starts_with(any)) add(fmt::format("http://{}:{}", sys::HostName(), name.substr(any.size())));
    }
  }
  for (const std::string& name : names) add(name);
  return urls;
}

// Besides server.allowed_hosts: what this machine is called, and what its peers call it.
std::vector<std::string> NamesOfThisServer(const config::Config& config) {
  std::vector<std::string> names = sys::MachineNames();
  constexpr std::string_view kScheme = "http://";
  if (std::string_view url = config.snowflake.advertise; url.starts_with(kScheme)) {
    url.remove_prefix(kScheme.size());
    names.emplace_back(url.substr(0, url.rfind(':')));
  }
  return names;
}

std::string ModesText(const config::Config& config, const service::SnowflakeService* snowflake) {
  std::string text = config.segment.enabled ? fmt::format("segment mode on {}", config.segment.store) : "";
  if (snowflake != nullptr) {
    const service::SnowflakeStatus status = snowflake->Status();
    text += fmt::format("{}snowflake mode {} of {}", text.empty() ? "" : " and ",
                        status.has_worker ? fmt::format("as worker {}", status.worker)
                                          : std::string("without a worker number yet"),
                        status.cluster.name);
  }
  return text.empty() ? "no mode" : text;
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
  while (true) {
    auto lock = sys::StateDirLock::Take(state_dir, sys::StateDirUse::kDaemon);
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
    if (const int signal = signals.WaitFor(kPoll); signal == SIGTERM || signal == SIGINT) {
      log.Info("stopped while it waited for the state directory {}", state_dir);
      return std::optional<sys::StateDirLock>();
    }
  }
}

Result<void> RunServe(CommandContext& context, const ServeOptions&) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config& config = resolved->config;
  // Before the first thread, so that all inherit the mask.
  const sys::SignalWaiter signals({SIGTERM, SIGINT, SIGHUP});
  sys::SpdlogLogger log(LevelOf(config, context.flags.verbose), FormatOf(context, config));
  sys::ServiceManager manager([&](const std::string& name) { return context.Variable(name); });
  manager.Status("starting");

  // A connection is a file, beyond the limit, too, and so are the listeners, the databases and their logs.
  constexpr std::uint64_t kOwnFiles = 128 + 2 * server::kReservedConnections + 64;
  if (const std::uint64_t files = sys::RaiseOpenFileLimit();
      resolved->IsSet("server.max_connections") &&
      files < static_cast<std::uint64_t>(config.server.max_connections) + kOwnFiles) {
    log.Warning("only {} files may be open: server.max_connections = {} cannot be reached", files,
                config.server.max_connections);
  }

  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  LEAF_ASSIGN_OR_RETURN(const std::optional<sys::StateDirLock> lock,
                        LockStateDir(config.state_dir, signals, manager, context.clock, log));
  if (!lock) return {};
  LEAF_ASSIGN_OR_RETURN(std::vector<server::Listener> listeners, Listen(*resolved, manager, log));
  std::vector<std::string> names;
  names.reserve(listeners.size());
  for (const server::Listener& listener : listeners) names.push_back(listener.name());

  bool serves_snowflakes = config.snowflake.enabled;
  std::string why_no_snowflakes;
  const auto elsewhere =
      std::find_if(listeners.begin(), listeners.end(),
                   [](const server::Listener& listener) { return listener.is_reachable_from_elsewhere(); });
  if (serves_snowflakes && IsPrivateCluster(config) && elsewhere != listeners.end()) {
    const std::string remedy = "set snowflake.cluster, and what gives each node its number";
    const std::string why = fmt::format(
        "a private cluster's IDs are unique in its state directory only, and {} can be reached from "
        "other machines",
        elsewhere->name());
    if (resolved->IsSet("snowflake.enabled"))
      return Error{ErrorCode::kConfig, fmt::format("cannot serve snowflake mode: {}", why), remedy};
    serves_snowflakes = false;
    why_no_snowflakes = fmt::format("{}: {}", why, remedy);
    log.Warning("snowflake mode is off: {}", why_no_snowflakes);
  }

  LEAF_ASSIGN_OR_RETURN(
      const auto node,
      embed::Node::Open(
          context, {.segment = config.segment.enabled, .snowflake = serves_snowflakes, .process = "serve"},
          log));
  service::SegmentService* const segment = node->segment();
  sys::ThreadPool reports("leaf-reports", 1, context.clock);
  // Metrics, and what is observed each second: other reports, of which any number may be asked for, do not
  // delay them.
  sys::ThreadPool watching("leaf-watching", 1, context.clock);
  sys::ThreadPool control("leaf-control", 1, context.clock);
  service::RequestLimit request_limit(context.clock);
  SetRequestLimit(request_limit, config);
  service::IdService ids(segment, node->snowflake());
  node->WatchDependencies(ids);
  // A second daemon may have the path by now: this one's IDs and its worker number are no longer its own.
  const sys::StateDirWatch state_dir(*lock, context.clock, [&ids, &log](const Error& lost) {
    log.Error("no more IDs: {}", lost.message);
    ids.StateDirLost(lost);
  });
  server::RequestMetrics requests;
  const server::MetricsPage metrics(
      {.version = LEAFCTL_VERSION, .top_tags = static_cast<std::size_t>(config.metrics.top_tags)}, ids,
      requests, context.clock, [] { return sys::ReadProcessStats(); });
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(config));
  server::Issuer issuer({.max_count = static_cast<std::uint64_t>(config.server.max_count),
                         .why_no_snowflakes = why_no_snowflakes,
                         .limit = &request_limit},
                        ids);
  server::UnreadAnswers unread;
  server::Router router({.request_timeout = config.server.request_timeout,
                         .leaf_wait = config.server.leaf_wait,
                         .version = LEAFCTL_VERSION,
                         .store = config.segment.store,
                         .state_dir = std::filesystem::absolute(config.state_dir).string(),
                         .listen = names,
                         .layout = layout,
                         .control = &control,
                         .metrics = &metrics,
                         .metrics_lane = &watching},
                        issuer, unread, context.clock, reports);
  const std::size_t threads = config.server.threads > 0
                                  ? static_cast<std::size_t>(config.server.threads)
                                  : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  const server::HttpProtocolFactory http(router, {config.server.allowed_hosts, NamesOfThisServer(config)},
                                         context.clock);
  server::Server server({.threads = threads, .limits = ConnectionLimitsOf(config)}, unread, context.clock,
                        log, requests);
  server.Listen(std::move(listeners), http);
  // Idempotent, and in this order: what asks the services ends before they do.
  const auto stop = [&] {
    for (sys::ThreadPool* const pool : {&control, &reports, &watching}) pool->Stop();
    // Parked requests hold connections: they are let go of before the server is.
    node->Stop();
  };
  const auto start = [&]() -> Result<void> {
    // Where there are peers the server goes first: those that start at the same time ask for this node's
    // clock.
    const bool server_first = node->has_peers();
    if (serves_snowflakes && !server_first) LEAF_RETURN_IF_ERROR(node->StartSnowflakes());
    if (segment != nullptr) node->StartSegments();
    server.Start();
    node->Announce(AnswersAt(*resolved, names));
    return serves_snowflakes && server_first ? node->StartSnowflakes() : Result<void>();
  };
  if (auto started = start(); !started.ok()) {
    ids.BeginDrain();
    server.Drain(std::chrono::milliseconds{0});
    stop();
    return started;
  }
  log.Info("leafctl {} serves {} with {} threads, state in {}", LEAFCTL_VERSION,
           ModesText(config, node->snowflake()), threads, config.state_dir);

  sys::Heartbeat heartbeat(context.clock);
  // What never blocks comes round soon. Refills may wait for the database and for the witness as long as
  // their time-outs allow; that they are slow is no reason to be ended. The refresh, which may take longer
  // still, and the snowflake worker, which stops by itself when its ceiling is not raised, are not waited
  // for.
  const std::chrono::milliseconds patience = ThreadPatience(manager);
  // Two reserves, if the reply to the first is lost.
  const std::chrono::milliseconds refill_patience =
      patience + 2 * ReplyTimeout(context, config) +
      (node->cluster() != nullptr ? node->cluster()->longest_claim() : patience.zero());
  const auto probe_of = [](sys::ThreadPool& pool) {
    return [&pool](Executor::Task done) { pool.Probe(std::move(done)); };
  };
  heartbeat.Watch(
      "leaf-http", [&server](Executor::Task done) { server.Probe(std::move(done)); }, patience);
  if (segment != nullptr) {
    embed::SegmentAdapters& adapters = node->segment_adapters();
    heartbeat.Watch("leaf-timers", probe_of(adapters.timers()), patience);
    heartbeat.Watch("leaf-workers", probe_of(adapters.workers()), refill_patience);
    heartbeat.Watch("leaf-slow", probe_of(adapters.slow_workers()), refill_patience);
  }

  ids.ConfigRead(context.clock.Wall());
  config::Config in_force = config;
  const auto reload = [&]() -> std::string {
    const auto loaded = context.LoadConfig();
    if (!loaded.ok()) {
      log.Error("reload failed, the old settings stay in force: {}", loaded.error().message);
      ids.ConfigRead(context.clock.Wall(), loaded.error());
      router.Changed();
      return loaded.error().message;
    }
    const config::Reload plan = config::PlanReload(in_force, loaded->config);
    in_force = plan.config;
    log.SetLevel(LevelOf(in_force, context.flags.verbose));
    SetRequestLimit(request_limit, in_force);
    server.SetLimits(ConnectionLimitsOf(in_force));
    issuer.SetMaxCount(static_cast<std::uint64_t>(in_force.server.max_count));
    if (segment != nullptr)
      segment->Reconfigure(in_force.segment.refresh_interval, in_force.segment.reserve_time);
    ids.ConfigRead(context.clock.Wall());
    router.Changed();
    for (const std::string& warning : loaded->warnings) log.Warning("{}", warning);
    if (!plan.restart_for.empty())
      log.Warning("reload: {} changed, which needs a restart", fmt::join(plan.restart_for, ", "));
    log.Info("reloaded: {}",
             plan.changed.empty() ? "nothing has changed" : fmt::format("{}", fmt::join(plan.changed, ", ")));
    return "";
  };
  DaemonLoop loop{.signals = signals,
                  .manager = manager,
                  .heartbeat = heartbeat,
                  .ids = ids,
                  .clock = context.clock,
                  .log = log,
                  .serving = ModesText(config, node->snowflake()),
                  .each_second =
                      [&] {
                        if (segment != nullptr) {
                          watching.Post([&] { segment->ObservePeaks(); });
                          watching.Post([&] { node->segment_adapters().store().database().CloseIdle(); });
                        }
                        watching.Post([&] { ids.ObserveProblems(context.clock.Wall()); });
                        node->RefreshEntry();
                      },
                  .reload = reload};
  const int signal = loop.Run();
  log.Info("{}: draining, at most {}", signal == SIGTERM ? "SIGTERM" : "SIGINT",
           FormatDuration(in_force.server.drain_timeout));
  manager.Stopping(fmt::format("draining, at most {}", FormatDuration(in_force.server.drain_timeout)));
  // Who asks twice does not want to wait: the second signal ends the process at once.
  signals.RestoreDefaults();
  ids.BeginDrain();
  if (const std::size_t cut_off = server.Drain(in_force.server.drain_timeout); cut_off > 0) {
    log.Warning("{} connections were cut off", cut_off);
  }
  stop();
  log.Info("stopped");
  return {};
}

}  // namespace

Run AddServe(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<ServeOptions>();
  app.add_option("--listen", options->listen, "Address to serve HTTP on (server.listen)")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  app.add_option("--socket", options->socket, "Unix socket to serve HTTP on, '' for none (server.socket)")
      ->type_name("PATH");
  app.footer(
      "SIGTERM and SIGINT drain and exit with 0, a second one ends it at once. SIGHUP reloads limits, "
      "refresh,\n"
      "reserve and the log level. Example: leafctl serve --listen 0.0.0.0:8080");
  app.callback([options, &context] {
    if (!options->listen.empty()) {
      std::string list;
      for (const std::string& address : options->listen) list += (list.empty() ? "" : ",") + address;
      context.command_values.push_back({"server.listen", list, "--listen"});
    }
    if (options->socket) context.command_values.push_back({"server.socket", *options->socket, "--socket"});
  });
  return [options](CommandContext& run_context) { return RunServe(run_context, *options); };
}

}  // namespace leaf::cmd
