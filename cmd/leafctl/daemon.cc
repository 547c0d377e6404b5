#include "daemon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/time.h"
#include "leaf/config/reload.h"
#include "leaf/config/worker_number.h"
#include "leaf/embed/tls_files.h"
#include "leaf/inspect/host.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/process_stats.h"
#include "leaf/sys/resources.h"
#include "stores.h"
#include "token_store.h"

namespace leaf::cmd {
namespace {

server::ConnectionLimits ConnectionLimitsOf(const config::Config& config) {
  return {.max_connections = ConnectionsFor(config),
          .max_connections_per_address = static_cast<std::size_t>(config.server.max_connections_per_address),
          .header_timeout = config.server.header_timeout,
          .idle_timeout = config.server.idle_timeout};
}

void SetRequestLimit(service::RequestLimit& limit, const config::Config& config) {
  limit.Set(static_cast<std::uint64_t>(config.server.max_requests_per_second),
            static_cast<std::uint64_t>(config.server.max_tag_requests_per_second));
}

// Where other nodes reach this one, best first; the last may do on this machine only.
std::vector<std::string> AnswersAt(const config::Resolved& resolved, const std::vector<std::string>& names) {
  std::vector<std::string> urls;
  const auto add = [&](const std::string& url) {
    if (std::find(urls.begin(), urls.end(), url) == urls.end()) urls.push_back(url);
  };
  if (const std::string& url = resolved.config.snowflake.advertise; !url.empty()) add(url);
  // A daemon that listens on all addresses is reached by this machine's name, if by any.
  for (const std::string_view any :
       {"http://0.0.0.0:", "http://[::]:", "https://0.0.0.0:", "https://[::]:"}) {
    const std::string_view scheme = any.substr(0, any.find("//") + 2);
    for (const std::string& name : names) {
      if (name.starts_with(any))
        add(fmt::format("{}{}:{}", scheme, sys::HostName(), name.substr(any.size())));
    }
  }
  for (const std::string& name : names) {
    // Peers speak HTTP.
    if (name.starts_with("http://") || name.starts_with("https://") || name.starts_with("unix:")) add(name);
  }
  return urls;
}

// Besides server.allowed_hosts: what this machine is called, and what its peers call it.
std::vector<std::string> NamesOfThisServer(const config::Config& config) {
  std::vector<std::string> names = sys::MachineNames();
  for (const std::string_view scheme : {"http://", "https://"}) {
    std::string_view url = config.snowflake.advertise;
    if (!url.starts_with(scheme)) continue;
    url.remove_prefix(scheme.size());
    names.emplace_back(url.substr(0, url.rfind(':')));
  }
  return names;
}

// A number that stands nowhere in the configuration is said with its source.
std::string OrdinalNote(const config::Config& config) {
  return config::OrdinalText(config).empty() ? "" : fmt::format(" ({})", config::WorkerSourceOf(config));
}

std::string ModesText(const config::Config& config, const service::SnowflakeService* snowflake) {
  std::string text = config.segment.enabled ? fmt::format("segment mode on {}", config.segment.store) : "";
  if (snowflake != nullptr) {
    const service::SnowflakeStatus status = snowflake->Status();
    text += fmt::format("{}snowflake mode {} of {}", text.empty() ? "" : " and ",
                        status.has_worker ? fmt::format("as worker {}{}", status.worker, OrdinalNote(config))
                                          : std::string("without a worker number yet"),
                        status.cluster.name);
  }
  return text.empty() ? "no mode" : text;
}

std::vector<std::string> NamesOf(const std::vector<server::Listener>& listeners) {
  std::vector<std::string> names;
  names.reserve(listeners.size());
  for (const server::Listener& listener : listeners) names.push_back(listener.name());
  return names;
}

std::set<std::string> PassedKeysOf(const std::vector<server::Listener>& listeners) {
  std::set<std::string> keys;
  for (const server::Listener& listener : listeners) {
    if (listener.is_passed()) keys.insert(KeyOf(listener));
  }
  return keys;
}

std::size_t ThreadsOf(const config::Config& config) {
  return config.server.threads > 0 ? static_cast<std::size_t>(config.server.threads)
                                   : std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

}  // namespace

std::size_t ConnectionsFor(const config::Config& config) {
  constexpr std::uint64_t kLeast = 16;
  const std::uint64_t own = inspect::OwnFilesOf(config);
  const std::uint64_t files = sys::RaiseOpenFileLimit();
  const std::uint64_t room = std::max(files, own + kLeast) - own;
  return static_cast<std::size_t>(std::min(room, static_cast<std::uint64_t>(config.server.max_connections)));
}

void WarnOfConnections(const config::Resolved& resolved, Logger& log) {
  const std::int64_t wanted = resolved.config.server.max_connections;
  const std::size_t places = ConnectionsFor(resolved.config);
  if (places >= static_cast<std::size_t>(wanted)) return;
  log.Write(
      resolved.IsSet("server.max_connections") ? LogLevel::kWarning : LogLevel::kDebug,
      fmt::format("only {} files may be open: at most {} connections instead of server.max_connections = {}",
                  sys::RaiseOpenFileLimit(), places, wanted));
}

void WarnOfCertificate(const tls::ServerContext& tls, const std::string& path, const Clock& clock,
                       Logger& log) {
  if (tls.expires_at() > clock.Wall()) return;
  log.Warning("server.tls_cert: {}: the certificate has ended on {}: clients refuse it", path,
              FormatRfc3339(tls.expires_at()));
}

std::string KeyOf(const server::Listener& listener) {
  if (listener.speech() == server::Speech::kRedis) return "server.redis_listen";
  if (listener.door() == server::Door::kOperator) return "server.admin_listen";
  if (!listener.is_unix()) return "server.listen";
  return listener.door() == server::Door::kPublic ? "server.socket_public" : "server.socket";
}

std::string NotUsed(const std::string& key) {
  return fmt::format(
      "{} is not used: the service manager passed sockets; to change them, edit the socket unit (systemctl "
      "edit "
      "leafctl.socket)",
      key);
}

LogLevel LevelOf(const config::Config& config, bool verbose) {
  if (verbose || config.log.level == "debug") return LogLevel::kDebug;
  if (config.log.level == "warning") return LogLevel::kWarning;
  if (config.log.level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

namespace {

// Nothing where there are none.
Result<std::optional<NodeCodeDesk::Options>> CodeOptionsOf(const config::Config& config) {
  if (config.codes.key_file.empty()) return std::optional<NodeCodeDesk::Options>();
  LEAF_ASSIGN_OR_RETURN(auto options, embed::LoadCodeOptions(config.codes));
  return std::optional(std::move(options));
}

// The start names a key that cannot be used.
Result<std::unique_ptr<NodeCodeDesk>> OpenCodes(const Daemon::Ground& ground, embed::Node& node) {
  const config::Config& config = ground.resolved.config;
  const auto cluster = [&node, configured = ClusterNameOf(config)]() -> Result<std::string> {
    if (node.snowflake() != nullptr) {
      if (std::string name = node.snowflake()->Status().cluster.name; !name.empty()) return name;
      return Error{ErrorCode::kUnavailable, "this node has not read its snowflake state yet", "retry later"};
    }
    return configured();
  };
  auto desk = std::make_unique<NodeCodeDesk>(
      [&context = ground.context, &log = ground.log, cluster](NodeCodeDesk::Options options) {
        return CodeStore::Open(context, std::move(options), Store::Access::kWrite, cluster, &log);
      },
      ground.context.clock, ground.log);
  LEAF_ASSIGN_OR_RETURN(auto options, CodeOptionsOf(config));
  LEAF_RETURN_IF_ERROR(desk->Prepare(options));
  desk->Adopt(std::move(options));
  return desk;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Make(const Ground& ground, std::vector<server::Listener> listeners,
                                             std::string why_no_snowflakes) {
  const config::Config& config = ground.resolved.config;
  LEAF_ASSIGN_OR_RETURN(auto node,
                        embed::Node::Open(ground.context,
                                          {.segment = config.segment.enabled,
                                           .snowflake = config.snowflake.enabled && why_no_snowflakes.empty(),
                                           .process = "serve"},
                                          ground.log));
  // The directory that the node has opened is the one that is locked.
  LEAF_RETURN_IF_ERROR(ground.lock.Check());
  LEAF_ASSIGN_OR_RETURN(auto codes, OpenCodes(ground, *node));
  std::unique_ptr<Daemon> daemon(
      new Daemon(ground, std::move(node), std::move(codes), std::move(listeners), why_no_snowflakes));
  LEAF_RETURN_IF_ERROR(SetGate(daemon->gate_, config));
  return daemon;
}

Daemon::Daemon(const Ground& ground, std::unique_ptr<embed::Node> node, std::unique_ptr<NodeCodeDesk> codes,
               std::vector<server::Listener> listeners, const std::string& why_no_snowflakes)
    : ground_(ground),
      config_(ground.resolved.config),
      names_(NamesOf(listeners)),
      passed_keys_(PassedKeysOf(listeners)),
      is_reachable_(std::any_of(
          listeners.begin(), listeners.end(),
          [](const server::Listener& listener) { return listener.is_reachable_from_elsewhere(); })),
      threads_(ThreadsOf(config_)),
      in_force_(config_),
      node_(std::move(node)),
      reports_("leaf-reports", 1, ground.context.clock),
      local_reports_("leaf-local", 1, ground.context.clock),
      watching_("leaf-watching", 1, ground.context.clock),
      control_("leaf-control", 1, ground.context.clock),
      registry_(ground.resolved, ground.context.clock, ground.log),
      looking_("leaf-looking", 1, ground.context.clock),
      tag_desk_(ground.context, ground.resolved, *node_, ground.log),
      codes_(std::move(codes)),
      tag_reads_("leaf-tag-reads", 1, ground.context.clock),
      local_reads_("leaf-local-tags", 1, ground.context.clock),
      tag_changes_("leaf-tags", 2, ground.context.clock),
      request_limit_(ground.context.clock),
      ids_(node_->segment(), node_->snowflake()),
      gate_(geteuid()),
      warns_if_open_(is_reachable_ && !ground.resolved.IsSet("auth.anonymous")),
      metrics_({.version = LEAFCTL_VERSION, .top_tags = static_cast<std::size_t>(config_.metrics.top_tags)},
               ids_, requests_, ground.context.clock, [] { return sys::ReadProcessStats(); }),
      issuer_({.max_count = static_cast<std::uint64_t>(config_.server.max_count),
               .why_no_snowflakes = why_no_snowflakes,
               .limit = &request_limit_,
               .codes = codes_.get(),
               .timers = &watching_,
               .clock = &ground.context.clock},
              ids_),
      router_(
          {.request_timeout = config_.server.request_timeout,
           .leaf_wait = config_.server.leaf_wait,
           .version = LEAFCTL_VERSION,
           .store = config_.segment.store,
           .store_at = StoreAt(config_),
           .state_dir = std::filesystem::absolute(config_.state_dir).string(),
           .listen = names_,
           .layout = config_.snowflake.layout,
           .control = &control_,
           .metrics = &metrics_,
           .metrics_lane = &watching_,
           .local_reports = &local_reports_,
           .gate = &gate_,
           .warns_if_open = &warns_if_open_,
           .workers = {.read = [this] { return registry_.Read(); }, .lane = &looking_, .timers = &watching_},
           .tags = {.desk = &tag_desk_,
                    .reads = &tag_reads_,
                    .local_reads = &local_reads_,
                    .changes = &tag_changes_,
                    .timers = &watching_}},
          issuer_, unread_, ground.context.clock, reports_),
      http_(router_, {config_.server.allowed_hosts, NamesOfThisServer(config_)}, gate_, ground.context.clock),
      redis_({.request_timeout = config_.server.request_timeout,
              .version = LEAFCTL_VERSION,
              .layout = config_.snowflake.layout},
             issuer_, unread_, requests_, gate_, ground.context.clock),
      server_({.threads = threads_, .limits = ConnectionLimitsOf(config_)}, unread_, ground.context.clock,
              ground.log, requests_),
      heartbeat_(ground.context.clock) {
  SetRequestLimit(request_limit_, config_);
  node_->WatchDependencies(ids_);
  // A second daemon may have the path by now: this one's IDs and its worker number are no longer its own.
  state_dir_.emplace(ground.lock, ground.context.clock, [this](const Error& lost) {
    ground_.log.Error("no more IDs: {}", lost.message);
    ids_.StateDirLost(lost);
  });
  if (ground_.tls != nullptr) server_.SetTls(ground_.tls);
  const bool has_own_door = std::any_of(listeners.begin(), listeners.end(), [](const auto& listener) {
    return listener.door() == server::Door::kOperator;
  });
  for (server::Listener& listener : listeners) {
    const bool is_public_door = has_own_door && listener.door() == server::Door::kPublic;
    if (listener.speech() == server::Speech::kRedis) {
      server_.Listen(std::move(listener), redis_);
    } else {
      server_.Listen(std::move(listener), http_, is_public_door);
    }
  }
}

Daemon::~Daemon() { Stop(); }

Result<void> Daemon::Start() {
  const auto start = [&]() -> Result<void> {
    const bool serves_snowflakes = node_->snowflake() != nullptr;
    // Where there are peers the server goes first: those that start at the same time ask for this node's
    // clock.
    const bool server_first = node_->has_peers();
    if (serves_snowflakes && !server_first) LEAF_RETURN_IF_ERROR(node_->StartSnowflakes());
    if (node_->segment() != nullptr) node_->StartSegments();
    server_.Start();
    node_->Announce(AnswersAt(ground_.resolved, names_));
    return serves_snowflakes && server_first ? node_->StartSnowflakes() : Result<void>();
  };
  if (auto started = start(); !started.ok()) {
    ids_.BeginDrain();
    server_.Drain(std::chrono::milliseconds{0});
    Stop();
    return started;
  }
  ground_.log.Info("leafctl {} serves {} with {} threads, state in {}", LEAFCTL_VERSION,
                   ModesText(config_, node_->snowflake()), threads_, config_.state_dir);
  WarnIfOpen();
  return {};
}

void Daemon::WarnIfOpen() const {
  if (is_reachable_ && gate_.has_tokens() && ground_.tls == nullptr) {
    ground_.log.Warning(
        "tokens from other machines can be read on their way: set server.tls_cert and server.tls_key");
  }
  if (!warns_if_open_.load() || gate_.has_tokens()) return;
  ground_.log.Warning(
      "other machines can take IDs and read the status of this daemon without a token: set auth.tokens_file, "
      "or "
      "auth.anonymous = [\"ids\", \"read\"] if that is meant");
}

void Daemon::WatchThreads() {
  // What never blocks comes round soon. Refills may wait for the database and for the witness as long as
  // their time-outs allow; that they are slow is no reason to be ended. The refresh, which may take longer
  // still, and the snowflake worker, which stops by itself when its ceiling is not raised, are not waited
  // for.
  const std::chrono::milliseconds patience = ThreadPatience(ground_.manager);
  // Two reserves, if the reply to the first is lost.
  const std::chrono::milliseconds refill_patience =
      patience + 2 * ReplyTimeout(ground_.context, config_) +
      (node_->cluster() != nullptr ? node_->cluster()->longest_claim() : patience.zero());
  const auto probe_of = [](sys::ThreadPool& pool) {
    return [&pool](Executor::Task done) { pool.Probe(std::move(done)); };
  };
  heartbeat_.Watch(
      "leaf-http", [this](Executor::Task done) { server_.Probe(std::move(done)); }, patience);
  if (node_->snowflake() != nullptr)
    heartbeat_.Watch("leaf-sf-timers", probe_of(node_->snowflake_adapters().timers()), patience);
  if (node_->segment() == nullptr) return;
  embed::SegmentAdapters& adapters = node_->segment_adapters();
  heartbeat_.Watch("leaf-timers", probe_of(adapters.timers()), patience);
  heartbeat_.Watch("leaf-workers", probe_of(adapters.workers()), refill_patience);
  heartbeat_.Watch("leaf-slow", probe_of(adapters.slow_workers()), refill_patience);
}

void Daemon::AdoptCodes(std::optional<NodeCodeDesk::Options> options) {
  const std::string before = codes_->KeyInUse();
  codes_->Adopt(std::move(options));
  const std::string after = codes_->KeyInUse();
  if (after == before) return;
  if (after.empty()) {
    ground_.log.Info("codes: no key any more, so there are none");
  } else {
    ground_.log.Info("codes: made with key {} from now on, of tags that have no other", after);
  }
}

std::string Daemon::Reload() {
  const Clock& clock = ground_.context.clock;
  sys::SpdlogLogger& log = ground_.log;
  const auto failed = [&](const Error& error) {
    log.Error("reload failed, the old settings stay in force: {}", error.message);
    ids_.ConfigRead(clock.Wall(), error);
    router_.Changed();
    return error.message;
  };
  const auto loaded = ground_.context.LoadConfig();
  if (!loaded.ok()) return failed(loaded.error());
  // The files may be others under the same names. All are read before anything changes.
  const std::string& path = loaded->config.server.tls_cert;
  const bool has_tls = ground_.tls != nullptr && !path.empty();
  std::shared_ptr<const tls::ServerContext> tls;
  if (has_tls) {
    auto read = embed::LoadServerTls(loaded->config.server);
    if (!read.ok()) return failed(read.error());
    tls = *std::move(read);
  }
  auto codes = CodeOptionsOf(loaded->config);
  if (!codes.ok()) return failed(codes.error());
  if (const auto prepared = codes_->Prepare(*codes); !prepared.ok()) return failed(prepared.error());
  if (const auto set = SetGate(gate_, loaded->config); !set.ok()) return failed(set.error());
  warns_if_open_.store(is_reachable_ && !loaded->IsSet("auth.anonymous"));
  WarnIfOpen();
  AdoptCodes(*std::move(codes));
  codes_->CompareRecords();
  if (has_tls) {
    // First: the line in the log says that connections that begin now get it.
    server_.SetTls(tls);
    WarnOfCertificate(*tls, path, clock, log);
    log.Info("TLS with the certificate in {}, good up to {}", path, FormatRfc3339(tls->expires_at()));
  }
  const config::Reload plan = config::PlanReload(in_force_, loaded->config);
  in_force_ = plan.config;
  log.SetLevel(LevelOf(in_force_, ground_.context.flags.verbose));
  SetRequestLimit(request_limit_, in_force_);
  server_.SetLimits(ConnectionLimitsOf(in_force_));
  issuer_.SetMaxCount(static_cast<std::uint64_t>(in_force_.server.max_count));
  if (service::SegmentService* const segment = node_->segment()) {
    node_->segment_adapters().SetCodes(in_force_.codes);
    segment->Reconfigure(in_force_.segment.refresh_interval, in_force_.segment.reserve_time);
    // Status tells where the codes of tags end.
    if (std::any_of(plan.changed.begin(), plan.changed.end(),
                    [](const std::string& change) { return change.starts_with("codes."); }))
      segment->RefreshNow();
  }
  ids_.ConfigRead(clock.Wall());
  router_.Changed();
  for (const std::string& warning : loaded->warnings) log.Warning("{}", warning);
  WarnOfConnections(*loaded, log);
  std::vector<std::string> restart_for;
  for (const std::string& key : plan.restart_for) {
    if (passed_keys_.contains(key)) {
      log.Warning("reload: {}", NotUsed(key));
    } else {
      restart_for.push_back(key);
    }
  }
  if (!restart_for.empty())
    log.Warning("reload: {} changed, which needs a restart", fmt::join(restart_for, ", "));
  log.Info("reloaded: {}{}",
           plan.changed.empty() ? "nothing has changed in the configuration"
                                : fmt::format("{}", fmt::join(plan.changed, ", ")),
           gate_.has_tokens() ? fmt::format("; {} tokens", gate_.token_count()) : "");
  return "";
}

void Daemon::EachSecond() {
  if (node_->segment() != nullptr) {
    watching_.Post([this] { node_->segment()->ObservePeaks(); });
    watching_.Post([this] { node_->segment_adapters().store().database().CloseIdle(); });
  }
  watching_.Post([this] { ids_.ObserveProblems(ground_.context.clock.Wall()); });
  node_->RefreshEntry();
}

void Daemon::Run(const sys::SignalWaiter& signals) {
  sys::SpdlogLogger& log = ground_.log;
  WatchThreads();
  ids_.ConfigRead(ground_.context.clock.Wall());
  DaemonLoop loop{.signals = signals,
                  .manager = ground_.manager,
                  .heartbeat = heartbeat_,
                  .ids = ids_,
                  .clock = ground_.context.clock,
                  .log = log,
                  .serving = [this] { return ModesText(config_, node_->snowflake()); },
                  .each_second = [this] { EachSecond(); },
                  .reload = [this] { return Reload(); }};
  const int signal = loop.Run();
  const std::string patience = FormatDuration(in_force_.server.drain_timeout);
  log.Info("{}: draining, at most {}", signal == SIGTERM ? "SIGTERM" : "SIGINT", patience);
  // Also for what ends after the last connection, and for the clock to pass the last snowflake ID.
  constexpr std::chrono::seconds kEnd{20};
  ground_.manager.Stopping(fmt::format("draining, at most {}", patience),
                           in_force_.server.drain_timeout + in_force_.snowflake.window + kEnd);
  // A second signal ends the process at once.
  signals.RestoreDefaults();
  ids_.BeginDrain();
  tag_desk_.Stop();
  if (const std::size_t cut_off = server_.Drain(in_force_.server.drain_timeout); cut_off > 0) {
    log.Warning("{} connections were cut off", cut_off);
  }
  Stop();
  log.Info("stopped");
}

// In this order: what asks the services ends before they do.
void Daemon::Stop() {
  for (sys::ThreadPool* const pool : {&tag_changes_, &tag_reads_, &looking_, &control_, &reports_,
                                      &local_reports_, &local_reads_, &watching_})
    pool->Stop();
  codes_->Stop();
  // Parked requests hold connections: they are let go of before the server is.
  node_->Stop();
}

}  // namespace leaf::cmd
