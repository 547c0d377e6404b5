// leafctl serve: the composition root of the daemon.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "commands.h"
#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/server/listener.h"
#include "leaf/server/router.h"
#include "leaf/server/server.h"
#include "leaf/service/id_service.h"
#include "leaf/sys/resources.h"
#include "leaf/sys/signals.h"
#include "leaf/sys/spdlog_logger.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"
#include "snowflake_node.h"
#include "stores.h"

namespace leaf::cmd {
namespace {

struct Options {
  std::vector<std::string> listen;
  std::optional<std::string> socket;
};

LogLevel LevelOf(const config::Config& config, bool verbose) {
  if (verbose || config.log.level == "debug") return LogLevel::kDebug;
  if (config.log.level == "warning") return LogLevel::kWarning;
  if (config.log.level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

service::SegmentOptions SegmentOptionsOf(const CommandContext& context, const config::Config& config) {
  return {.refresh_interval = config.segment.refresh_interval,
          .reply_timeout = ReplyTimeout(context, config),
          .tags_max = static_cast<std::size_t>(config.segment.max_tags),
          .step_policy = config.segment.step_policy == "fixed" ? core::StepPolicy::Kind::kFixed
                                                               : core::StepPolicy::Kind::kLeaf,
          .step_max = config.segment.step_max,
          .reserve_time = config.segment.reserve_time};
}

Result<std::vector<server::Listener>> Listen(const config::Resolved& resolved, Logger& log) {
  const config::Config& config = resolved.config;
  std::vector<server::Listener> listeners;
  for (const std::string& address : config.server.listen) {
    LEAF_ASSIGN_OR_RETURN(server::Listener listener, server::Listener::OnTcp(address));
    listeners.push_back(std::move(listener));
  }
  if (!config.server.socket.empty()) {
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

std::string ModesText(const config::Config& config, SnowflakeNode* snowflake) {
  std::string text = config.segment.enabled ? fmt::format("segment mode on {}", config.segment.store) : "";
  if (snowflake != nullptr) {
    const service::SnowflakeStatus status = snowflake->service().Status();
    text += fmt::format("{}snowflake mode as worker {} of {}", text.empty() ? "" : " and ", status.worker,
                        status.cluster.name);
  }
  return text.empty() ? "no mode" : text;
}

Result<void> RunServe(CommandContext& context, const Options&) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config& config = resolved->config;
  // Before the first thread, so that all inherit the mask.
  const sys::SignalWaiter signals({SIGTERM, SIGINT, SIGHUP});
  sys::SpdlogLogger log(LevelOf(config, context.flags.verbose), config.log.format == "json"
                                                                    ? sys::SpdlogLogger::Format::kJson
                                                                    : sys::SpdlogLogger::Format::kText);

  // A connection is a file, and so are the listeners, the databases and their logs.
  constexpr std::uint64_t kOwnFiles = 128;
  if (const std::uint64_t files = sys::RaiseOpenFileLimit();
      resolved->IsSet("server.max_connections") &&
      files < static_cast<std::uint64_t>(config.server.max_connections) + kOwnFiles) {
    log.Warning("only {} files may be open: server.max_connections = {} cannot be reached", files,
                config.server.max_connections);
  }

  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  LEAF_ASSIGN_OR_RETURN(const sys::StateDirLock lock, sys::StateDirLock::Take(config.state_dir));
  LEAF_ASSIGN_OR_RETURN(std::vector<server::Listener> listeners, Listen(*resolved, log));
  std::vector<std::string> names;
  names.reserve(listeners.size());
  for (const server::Listener& listener : listeners) names.push_back(listener.name());

  std::unique_ptr<Store> store;
  std::unique_ptr<sql::SqliteMarkStore> marks;
  sys::SystemRandom random;
  // Before the pools: however this function ends, their threads end before what they work on.
  std::optional<service::SegmentService> segment;
  sys::ThreadPool timers("leaf-timers", 1, context.clock);
  const bool sqlite = config.segment.store == "sqlite";
  sys::ThreadPool workers("leaf-workers", sqlite ? kSqliteRefillWorkers : kRefillWorkers, context.clock);
  sys::ThreadPool slow_workers("leaf-slow", sqlite ? kSqliteSlowRefillWorkers : kSlowRefillWorkers,
                               context.clock);
  sys::ThreadPool refresher("leaf-refresh", 1, context.clock);
  if (config.segment.enabled) {
    LEAF_ASSIGN_OR_RETURN(store, Store::Open(context, Store::Access::kWrite));
    LEAF_ASSIGN_OR_RETURN(marks, OpenMarks(context, "serve"));
    segment.emplace(SegmentOptionsOf(context, config), store->segments(), *marks, context.clock, random,
                    service::SegmentExecutors{timers, workers, slow_workers, refresher}, log);
  }
  sys::ThreadPool reports("leaf-reports", 1, context.clock);
  std::unique_ptr<SnowflakeNode> snowflake;
  if (config.snowflake.enabled) {
    LEAF_ASSIGN_OR_RETURN(snowflake, SnowflakeNode::OpenLocked(context));
    LEAF_RETURN_IF_ERROR(snowflake->Start(log));
  }
  service::IdService ids(segment ? &*segment : nullptr, snowflake ? &snowflake->service() : nullptr);
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(config));
  const server::Router router({.request_timeout = config.server.request_timeout,
                               .leaf_wait = config.server.leaf_wait,
                               .max_count = static_cast<std::uint64_t>(config.server.max_count),
                               .version = LEAFCTL_VERSION,
                               .store = config.segment.store,
                               .listen = names,
                               .layout = layout},
                              ids, context.clock, reports);
  const std::size_t threads = config.server.threads > 0
                                  ? static_cast<std::size_t>(config.server.threads)
                                  : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  server::Server server({.threads = threads,
                         .max_connections = static_cast<std::size_t>(config.server.max_connections),
                         .header_timeout = config.server.header_timeout,
                         .idle_timeout = config.server.idle_timeout},
                        router, std::move(listeners), context.clock, log);
  if (segment) segment->Start();
  server.Start();
  log.Info("leafctl {} serves {} with {} threads, state in {}", LEAFCTL_VERSION,
           ModesText(config, snowflake.get()), threads, config.state_dir);

  int signal = signals.Wait();
  while (signal == SIGHUP) {
    log.Warning("SIGHUP: this version reloads nothing; restart to change the configuration");
    signal = signals.Wait();
  }
  log.Info("{}: draining, at most {}", signal == SIGTERM ? "SIGTERM" : "SIGINT",
           FormatDuration(config.server.drain_timeout));
  // Who asks twice does not want to wait: the second signal ends the process at once.
  signals.RestoreDefaults();
  ids.BeginDrain();
  if (const std::size_t cut_off = server.Drain(config.server.drain_timeout); cut_off > 0) {
    log.Warning("{} connections were cut off", cut_off);
  }
  // Parked requests hold connections: they are let go of before the server is.
  if (segment) segment->Stop();
  if (snowflake) snowflake->service().Stop();
  reports.Stop();
  timers.Stop();
  workers.Stop();
  slow_workers.Stop();
  refresher.Stop();
  if (segment) {
    if (const auto recorded = segment->RecordUnissued(); !recorded.ok()) {
      log.Warning("cannot record what was left in reserve: {}", recorded.error().message);
    }
  }
  log.Info("stopped");
  return {};
}

}  // namespace

Run AddServe(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<Options>();
  app.add_option("--listen", options->listen, "Address to serve HTTP on (server.listen)")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  app.add_option("--socket", options->socket, "Unix socket to serve HTTP on, '' for none (server.socket)")
      ->type_name("PATH");
  app.footer("SIGTERM and SIGINT drain and exit with 0. Example: leafctl serve --listen 0.0.0.0:8080");
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
