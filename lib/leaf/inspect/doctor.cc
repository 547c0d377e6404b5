#include "leaf/inspect/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "leaf/base/endpoint.h"
#include "leaf/base/foreign_json.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/id_layout.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/registries.h"
#include "leaf/embed/stores.h"
#include "leaf/embed/tls_files.h"
#include "leaf/inspect/doctor_checks.h"
#include "leaf/inspect/host.h"
#include "leaf/inspect/sql_database.h"
#include "leaf/inspect/sql_workers.h"
#include "leaf/inspect/tags.h"
#include "leaf/sql/code_records.h"
#include "leaf/sql/server_clock.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::inspect {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

class NodeChecks : DoctorChecks {
 public:
  NodeChecks(Shared& shared, const OwnDaemon& own) : DoctorChecks(shared), own_(own) {}

  void Run() {
    CheckConfig();
    CheckStateDir();
    CheckDatabase();
    CheckCluster(shared_);
    CheckDaemon();
    Add(InspectOpenFileLimit(config_.server.max_connections, OwnFilesOf(config_)));
    Add(InspectClockSync());
    Add(InspectUnit(
        {config_.state_dir, resolved_.file, config_.server.max_connections, OwnFilesOf(config_)}));
  }

 private:
  void CheckConfig() {
    if (resolved_.file.empty()) {
      Ok("config",
         resolved_.AnythingSet() ? "no file; variables and flags only" : "none: the embedded default");
    } else {
      Add(InspectConfigFile(resolved_.file));
    }
    for (const std::string& warning : resolved_.warnings)
      Warn("config", warning, "it sets nothing", "correct the name");
    if (UsesDatabase() && config_.segment.store == "mysql") {
      if (config_.mysql.password_file.empty()) {
        Warn("mysql-password", "none is configured",
             "the login fails, unless the server accepts the user without a password",
             "put the password into a file and name it in mysql.password_file");
      } else {
        Add(InspectSecretFile("mysql-password", config_.mysql.password_file));
      }
    }
    if (!config_.zookeeper.auth_file.empty())
      Add(InspectSecretFile("zookeeper-auth", config_.zookeeper.auth_file));
    if (!config_.codes.key_file.empty()) Add(InspectSecretFile("codes-key", config_.codes.key_file));
    if (!config_.client.token_file.empty()) Add(InspectSecretFile("client-token", config_.client.token_file));
    CheckAccess();
    CheckTls();
    if (!config_.segment.enabled && !config_.snowflake.enabled)
      Problem("modes", "both modes are switched off", "the daemon would issue nothing",
              "segment.enabled or snowflake.enabled");
    if (UsesRegistry()) CheckSnowflakeConfig();
  }

  // Where a daemon of this configuration listens on TCP, and the key that says so.
  std::vector<std::pair<std::string_view, Endpoint>> ListenPlaces() const {
    std::vector<std::pair<std::string_view, Endpoint>> places;
    for (const Endpoint& listen : config_.server.listen) places.emplace_back("server.listen", listen);
    for (const config::ListenAddress& listen : config_.server.redis_listen) {
      if (listen.unix_path.empty()) places.emplace_back("server.redis_listen", listen.tcp);
    }
    for (const Endpoint& listen : config_.server.admin_listen)
      places.emplace_back("server.admin_listen", listen);
    return places;
  }

  void CheckTls() {
    constexpr std::chrono::days kRenewTime{14};
    const std::string& path = config_.server.tls_cert;
    const auto server = embed::LoadServerTls(config_.server);
    if (!server.ok()) {
      Failed("server-tls", server.error(), "the daemon does not start, and a running one keeps what it has");
    } else if (*server != nullptr) {
      const WallTime end = (*server)->expires_at();
      const WallTime now = environment_.ClockInUse().Wall();
      const std::string text = fmt::format("{}: the certificate is good up to {}", path, FormatRfc3339(end));
      if (end <= now) {
        Problem("server-tls", fmt::format("{}: the certificate has ended on {}", path, FormatRfc3339(end)),
                "clients refuse it", "renew it, then send SIGHUP to the daemon");
      } else if (end - now < kRenewTime) {
        Warn("server-tls", text, "clients refuse it from then on",
             "renew it, then send SIGHUP to the daemon");
      } else {
        Ok("server-tls", text);
      }
    }
    if (config_.client.ca.empty() && config_.client.cert.empty()) return;
    if (const auto client = embed::LoadClientTls(config_.client); !client.ok())
      Failed("client-tls", client.error(), "no server is asked over TLS, and no clock of a peer is");
  }

  void CheckSnowflakeConfig() {
    const config::Config::Snowflake& snowflake = config_.snowflake;
    if (embed::IsPrivateCluster(config_)) CheckPrivateCluster();
    if (const std::string ordinal = config::OrdinalText(config_); !ordinal.empty())
      Ok("worker-number", ordinal);
    const config::WorkerRange numbers = embed::WorkerNumbersOf(config_);
    if (snowflake.worker_id >= 0 && !IsShared() &&
        (static_cast<std::uint64_t>(snowflake.worker_id) < numbers.begin ||
         static_cast<std::uint64_t>(snowflake.worker_id) >= numbers.end)) {
      Problem("worker-number", fmt::format("snowflake.worker_id is {}", snowflake.worker_id),
              fmt::format("numbers from {} to {} fit snowflake.layout and worker_range", numbers.begin,
                          numbers.end - 1),
              "give the node one of them");
    }
    if (!snowflake.cluster.empty() && snowflake.layout.epoch_ms() != kLeafEpochMillis) {
      Warn("epoch",
           fmt::format("snowflake.epoch_ms is {}, not Leaf's {}", snowflake.layout.epoch_ms(),
                       kLeafEpochMillis),
           "with a worker number that Java Leaf had before, another epoch repeats IDs, now or years from now",
           "keep Leaf's, unless every node of the cluster always had this one");
    }
    if (!IsShared()) return;
    if (snowflake.address.empty()) {
      Problem("address", "snowflake.address is not set, and no listen address can replace it",
              "the daemon does not start without one",
              "set it to the ip:port that the registry knows this node by");
      return;
    }
    const std::string host = snowflake.address.substr(0, snowflake.address.rfind(':'));
    if (IsSharedHost(host)) {
      Warn("address", fmt::format("{} is an address that many machines have", snowflake.address),
           "Java Leaf takes a second machine with it for the same node, with the same worker number",
           "set snowflake.address to an address that only this machine has");
    } else if (host.find('-') != std::string::npos) {
      Problem("address", fmt::format("{} has a dash", snowflake.address),
              "under forever it would keep every node of Java Leaf from starting", "use an IP address");
    }
  }

  // `serve` decides by the sockets that it has.
  void CheckPrivateCluster() {
    const auto places = ListenPlaces();
    const auto elsewhere = std::find_if(places.begin(), places.end(),
                                        [](const auto& place) { return !IsLoopbackHost(place.second.host); });
    if (elsewhere == places.end()) {
      Ok("cluster",
         "private: snowflake IDs are unique in this state directory only; snowflake.cluster names one that "
         "nodes share");
      return;
    }
    const bool is_asked_for = resolved_.IsSet("snowflake.enabled");
    Add({"cluster", is_asked_for ? Level::kProblem : Level::kWarning,
         fmt::format("snowflake.cluster is not set, and other machines reach {}",
                     EndpointText(elsewhere->second)),
         fmt::format(
             "{}: without a cluster, IDs are unique in this state directory only",
             is_asked_for ? "the daemon does not start (exit 6)" : "the daemon serves no snowflake IDs"),
         "set snowflake.cluster, and snowflake.registry or a worker number for each node"});
  }

  void CheckStateDir() {
    Add(InspectStateDir(config_.state_dir));
    holder_ = FindLockHolder(config_.state_dir);
    if (auto marks = embed::ExamineMarks(environment_); marks.ok()) {
      marks_ = std::move(*marks);
      Ok("marks", fmt::format("{} readable", marks_.size()));
    } else {
      Failed("marks", marks.error(), "no ID of segment mode is issued without them");
    }
    // Without snowflakes the daemon does not read it.
    if (!UsesRegistry()) return;
    sys::FileOps ops;
    auto state = sys::WorkerStateFile(config_.state_dir, ops).Load();
    if (!state.ok()) {
      Failed("worker-state", state.error(), "no snowflake ID is issued without it: a guess could repeat IDs");
      return;
    }
    if (!*state) return;
    shared_.state = std::move(**state);
    const WallTime now = environment_.ClockInUse().Wall();
    const auto ahead = shared_.state->ceiling - now;
    if (ahead > config_.snowflake.window + config_.snowflake.start_wait) {
      Problem("ceiling",
              fmt::format("IDs may have been issued up to {}, {} ms from now",
                          FormatRfc3339(shared_.state->ceiling), ahead.count()),
              "nothing is issued until then: a start is refused while it is further away than "
              "snowflake.start_wait",
              "the clock is behind, or was far ahead before: correct it, or wait");
    } else {
      Ok("ceiling", fmt::format("everything issued here is below {}", FormatRfc3339(shared_.state->ceiling)));
    }
  }

  void CheckOrders(sql::Database& database) {
    sql::SqlTagOrders orders(database);
    const auto table = orders.Read();
    if (!table.ok()) return Failed("tag-order", table.error(), "a node that has not read it serves no tag");
    if (!*table) return;
    for (const core::OrderRow& row : (*table)->rows)
      shared_.strict_tags += row.order == core::TagOrder::kStrict ? 1 : 0;
    const auto nodes = orders.Nodes();
    if (nodes.ok())
      Add(InspectOrders(**table, *nodes,
                        config_.segment.witness_fallback && embed::ClusterLink::IsConfigured(resolved_)));
  }

  void CheckDatabase() {
    if (!UsesDatabase()) return;
    auto store = embed::Store::Open(environment_, embed::Store::Access::kExamine);
    if (!store.ok()) return Failed("database", store.error(), "no range can be granted");
    const auto report = ExamineDatabase(**store, UsesOf(config_));
    if (!report.ok()) return Failed("database", report.error(), "no range can be granted");
    for (const EndpointReport& endpoint : report->endpoints)
      AddFindings(endpoint.findings, endpoint.endpoint);
    AddFindings(report->findings, "");
    if (report->problems == 0) {
      Ok("database", report->in_use.empty() ? config_.sqlite.path
                                            : fmt::format("{}: tables and servers sound", report->in_use));
    }
    const auto rows = (*store)->segments().List();
    if (rows.ok()) {
      const auto codes = sql::SqlCodeRecords((*store)->database()).LoadAll();
      if (!codes.ok()) Failed("tag-codes", codes.error(), "codes cannot be made");
      Add(InspectTags(*rows, marks_, environment_.ClockInUse().Wall(), !config_.server.redis_listen.empty(),
                      codes.ok() ? *codes : std::vector<core::CodeRecord>()));
    } else if (report->problems == 0) {
      Failed("tags", rows.error(), "no range can be granted");
    }
    CheckOrders((*store)->database());
    if (const auto clock = sql::ReadServerClock((*store)->database(), environment_.ClockInUse());
        clock.ok() && *clock)
      CompareClock("database-clock", "the database server's clock", (*clock)->ahead, (*clock)->uncertainty);
    if (UsesRegistry() && config_.snowflake.registry == "zookeeper") {
      // Nothing but such a table has any rows of that name.
      if (const auto tables = ReadWorkerTables((*store)->database());
          tables.ok() && !tables->numbers.empty()) {
        Warn("number-spaces",
             fmt::format("leaf_workerid_alloc has {} numbers, and this node takes its own from ZooKeeper",
                         tables->numbers.size()),
             "the two registries are independent: nodes of one cluster that use both repeat IDs",
             "use one registry for each cluster name; stop the nodes that use the other");
      }
    }
  }

  void AddFindings(const std::vector<SchemaFinding>& findings, const std::string& where) {
    for (const SchemaFinding& finding : findings) {
      Add({"database", finding.is_problem ? Level::kProblem : Level::kWarning,
           where.empty() ? finding.message : fmt::format("{}: {}", where, finding.message),
           finding.is_problem ? "a range could be granted twice, or none at all" : "", finding.hint});
    }
  }

  void CheckDaemon() {
    client::DaemonClient& daemon = own_.client;
    const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
    if (!body.ok()) {
      // What hangs on a Unix socket is a daemon; on a port it may be another program (CheckPorts).
      const bool hangs =
          body.error().code == ErrorCode::kUnavailable && body.error().message.starts_with("unix:");
      if (body.error().code == ErrorCode::kPermission || hangs || own_.is_configured)
        return Failed("daemon", body.error(), "a caller that asks it from here gets no ID");
      if (holder_) {
        return Problem(
            "daemon",
            fmt::format("process {} holds the state directory, but no daemon answers", holder_->pid),
            "it hangs, or it has another configuration with another socket",
            "check the process, and its log");
      }
      Ok("daemon", "none runs here");
      return CheckPorts();
    }
    try {
      CheckStatus(ParseForeignJson<Json>(*body));
    } catch (const Json::exception&) {
      return Problem("daemon",
                     fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), "", "");
    }
    const MonotonicTime asked = environment_.ClockInUse().Monotonic();
    if (const auto clock = daemon.WallClock(); clock.ok()) {
      const auto took =
          std::chrono::duration_cast<milliseconds>(environment_.ClockInUse().Monotonic() - asked);
      CompareClock("daemon-clock", "the daemon's clock",
                   clock->time - (environment_.ClockInUse().Wall() - took / 2), took / 2);
    }
  }

  // Throws Json::exception if it is not what a daemon says.
  void CheckStatus(const Json& json) {
    const client::DaemonClient& daemon = own_.client;
    for (const Json& reason : json.value("reasons", Json::array()))
      Problem("daemon", fmt::format("not ready: {}", reason.value("message", "")), "it issues nothing there",
              "leafctl status");
    for (const Json& problem : json.value("problems", Json::array()))
      Problem("daemon", problem.value("message", ""), "the daemon says so", problem.value("hint", ""));
    if (json.value("ready", false) && json.value("problems", Json::array()).empty())
      Ok("daemon", fmt::format("{} is ready", daemon.answered_by()));
    if (json.value("version", own_.version) != own_.version)
      Warn("daemon", fmt::format("it is version {}, this is {}", json.value("version", "?"), own_.version),
           "a new binary is used from the next start on", "restart it when convenient");
  }

  // Who may use the daemon that this configuration makes.
  void CheckAccess() {
    const std::string& path = config_.auth.tokens_file;
    if (!path.empty()) {
      Add(InspectTokens(path, environment_.ClockInUse().Wall(), config_.auth.anonymous.empty()));
    }
    for (const auto& [key, listen] : ListenPlaces()) {
      if (IsLoopbackHost(listen.host)) continue;
      if (!path.empty() && config_.server.tls_cert.empty()) {
        Warn("access",
             fmt::format("other machines send their tokens to {} without TLS", EndpointText(listen)),
             "a token can be read on its way", "set server.tls_cert and server.tls_key");
      }
      if (!path.empty() || resolved_.IsSet("auth.anonymous")) return;
      Warn(
          "access", fmt::format("other machines reach {}, and no token is asked for", EndpointText(listen)),
          key == "server.admin_listen" ? "any machine that does may read the status"
                                       : "any machine that does may take IDs and read the status",
          "set auth.tokens_file (leafctl token add), or auth.anonymous = [\"ids\", \"read\"] if it is meant");
      return;
    }
  }

  void CheckPorts() {
    for (const auto& [key, listen] : ListenPlaces()) {
      if (listen.port == 0 || !IsPortInUse(listen.port)) continue;
      Warn("listen",
           fmt::format("something listens on port {} already, and no leafctl answered", listen.port),
           "if it has the same address, a start is refused (exit 11)",
           fmt::format("stop it{}, or choose another {}",
                       key == "server.listen" ? " (Java Leaf, in a replacement in place)" : "", key));
    }
  }

  const OwnDaemon& own_;
  std::vector<core::Mark> marks_;
  std::optional<LockHolder> holder_;
};

}  // namespace

void DoctorChecks::CompareClock(std::string check, std::string_view whose, milliseconds ahead,
                                milliseconds uncertainty) {
  const auto off = std::max(milliseconds{0}, milliseconds{std::abs(ahead.count())} - uncertainty);
  if (off <= config_.snowflake.peer_clock_threshold) {
    Ok(std::move(check), fmt::format("{} agrees to within {} ms", whose,
                                     milliseconds{std::abs(ahead.count())}.count() + uncertainty.count()));
    return;
  }
  Problem(std::move(check),
          fmt::format("{} is {} ms {} this node's", whose, off.count(),
                      ahead.count() > 0 ? "ahead of" : "behind"),
          "one of the two is wrong: a clock that is ahead makes IDs with future times, one that is behind "
          "stops issuing",
          "synchronise both");
}

std::vector<Diagnosis> Examine(Environment& environment, Logger& log, const config::Resolved& resolved,
                               const OwnDaemon& own) {
  DoctorChecks::Shared shared{environment, log, resolved};
  NodeChecks(shared, own).Run();
  return std::move(shared.found);
}

}  // namespace leaf::inspect
