#include "examination.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster_link.h"
#include "daemons.h"
#include "database_report.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/client/clock_probe.h"
#include "leaf/client/daemon_client.h"
#include "leaf/core/diagnosis.h"
#include "leaf/core/java_leaf.h"
#include "leaf/core/tag_inspection.h"
#include "leaf/java/worker_file.h"
#include "leaf/sql/server_clock.h"
#include "leaf/sql/worker_inspection.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/host_inspection.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/worker_state_file.h"
#include "leaf/zookeeper/snapshot.h"
#include "registries.h"
#include "stores.h"
#include "tag_output.h"
#include "worker_output.h"
#include "worker_source.h"
#include "zookeeper_link.h"

namespace leaf::cmd {
namespace {

using core::Diagnosis;
using Level = core::Diagnosis::Level;
using std::chrono::milliseconds;

constexpr milliseconds kPeerClockTimeout{2000};

class Doctor {
 public:
  Doctor(CommandContext& context, const config::Resolved& resolved)
      : context_(context), resolved_(resolved), config_(resolved.config) {}

  std::vector<Diagnosis> Run() {
    CheckConfig();
    CheckStateDir();
    CheckDatabase();
    CheckWorkers();
    CheckFence();
    CheckDaemon();
    Add(sys::InspectOpenFileLimit(config_.server.max_connections));
    Add(sys::InspectClockSync());
    Add(sys::InspectUnit({config_.state_dir, resolved_.file, config_.server.max_connections}));
    return std::move(found_);
  }

 private:
  void Add(Diagnosis diagnosis) { found_.push_back(std::move(diagnosis)); }
  void Add(std::vector<Diagnosis> several) {
    for (Diagnosis& one : several) found_.push_back(std::move(one));
  }
  void Ok(std::string check, std::string found) { Add(Diagnosis::Ok(std::move(check), std::move(found))); }
  void Warn(std::string check, std::string found, std::string cause, std::string remedy) {
    Add({std::move(check), Level::kWarning, std::move(found), std::move(cause), std::move(remedy)});
  }
  void Problem(std::string check, std::string found, std::string cause, std::string remedy) {
    Add({std::move(check), Level::kProblem, std::move(found), std::move(cause), std::move(remedy)});
  }
  void Failed(std::string check, const Error& error, std::string cause) {
    Problem(std::move(check), error.message, std::move(cause), error.hint);
  }

  bool UsesRegistry() const { return config_.snowflake.enabled; }
  bool IsShared() const { return config_.snowflake.registry != "static"; }
  bool UsesDatabase() const {
    return config_.segment.enabled || (UsesRegistry() && config_.snowflake.registry == "sql");
  }

  // ---- what is configured

  void CheckConfig() {
    if (resolved_.file.empty()) {
      Ok("config",
         resolved_.AnythingSet() ? "no file; variables and flags only" : "none: the embedded default");
    } else {
      Add(sys::InspectConfigFile(resolved_.file));
    }
    for (const std::string& warning : resolved_.warnings)
      Warn("config", warning, "what it was meant to set is not set", "correct the name");
    if (UsesDatabase() && config_.segment.store == "mysql") {
      if (config_.mysql.password_file.empty()) {
        Warn("mysql-password", "none is configured", "the server lets the user in without, or not at all",
             "put it into a file and name that in mysql.password_file");
      } else {
        Add(sys::InspectSecretFile("mysql-password", config_.mysql.password_file));
      }
    }
    if (!config_.zookeeper.auth_file.empty())
      Add(sys::InspectSecretFile("zookeeper-auth", config_.zookeeper.auth_file));
    if (!config_.segment.enabled && !config_.snowflake.enabled)
      Problem("modes", "both modes are switched off", "the daemon would issue nothing",
              "segment.enabled or snowflake.enabled");
    if (UsesRegistry()) CheckSnowflakeConfig();
  }

  void CheckSnowflakeConfig() {
    const config::Config::Snowflake& snowflake = config_.snowflake;
    if (IsPrivateCluster(config_)) {
      Ok("cluster",
         "private: snowflake IDs are unique in this state directory only; snowflake.cluster names one "
         "that nodes share");
    }
    const WorkerNumbers numbers = WorkerNumbersOf(config_);
    if (snowflake.worker_id >= 0 && !IsShared() &&
        (static_cast<std::uint64_t>(snowflake.worker_id) < numbers.begin ||
         static_cast<std::uint64_t>(snowflake.worker_id) >= numbers.end)) {
      Problem("worker-number", fmt::format("snowflake.worker_id is {}", snowflake.worker_id),
              fmt::format("numbers from {} to {} fit snowflake.layout and worker_range", numbers.begin,
                          numbers.end - 1),
              "give the node one of them");
    }
    if (!snowflake.cluster.empty() && snowflake.epoch_ms != kLeafEpochMillis) {
      Warn("epoch",
           fmt::format("snowflake.epoch_ms is {}, not Leaf's {}", snowflake.epoch_ms, kLeafEpochMillis),
           "with a worker number that Java Leaf had before, another epoch repeats IDs, now or years from now",
           "keep Leaf's, unless every node of the cluster always had this one");
    }
    if (!IsShared()) return;
    if (snowflake.address.empty()) {
      Problem("address", "snowflake.address is not set, and no listen address can stand in for it",
              "the daemon does not start without one",
              "set it to the ip:port that the registry knows this node by");
      return;
    }
    const std::string host = snowflake.address.substr(0, snowflake.address.rfind(':'));
    if (core::IsSharedHost(host)) {
      Warn("address", fmt::format("{} is an address that many machines have", snowflake.address),
           "a second machine with it is the same node to Java Leaf, with the same worker number",
           "set snowflake.address to one that is this machine's alone");
    } else if (host.find('-') != std::string::npos) {
      Problem("address", fmt::format("{} has a dash", snowflake.address),
              "under forever it would keep every node of Java Leaf from starting", "use an IP address");
    }
  }

  // ---- this node

  void CheckStateDir() {
    Add(sys::InspectStateDir(config_.state_dir));
    holder_ = sys::FindLockHolder(config_.state_dir);
    if (auto marks = ExamineMarks(context_); marks.ok()) {
      marks_ = std::move(*marks);
      Ok("marks", fmt::format("{} readable", marks_.size()));
    } else {
      Failed("marks", marks.error(), "no ID of segment mode is issued without them");
    }
    sys::FileOps ops;
    auto state = sys::WorkerStateFile(config_.state_dir, ops).Load();
    if (!state.ok()) {
      Failed("worker-state", state.error(), "no snowflake ID is issued without it: a guess could repeat IDs");
      return;
    }
    if (!*state) return;
    state_ = std::move(**state);
    const WallTime now = context_.clock.Wall();
    const auto ahead = state_->ceiling - now;
    if (ahead > config_.snowflake.window + config_.snowflake.start_wait) {
      Problem("ceiling",
              fmt::format("IDs may have been issued up to {}, {} ms from now", FormatRfc3339(state_->ceiling),
                          ahead.count()),
              "nothing is issued before that: a start is refused while it is further away than "
              "snowflake.start_wait",
              "the clock is behind, or once was far ahead: set it right, or wait");
    } else {
      Ok("ceiling", fmt::format("everything issued here is below {}", FormatRfc3339(state_->ceiling)));
    }
  }

  // ---- database

  void CheckDatabase() {
    if (!UsesDatabase()) return;
    auto store = Store::Open(context_, Store::Access::kExamine);
    if (!store.ok()) return Failed("database", store.error(), "no range can be granted");
    const auto report = ExamineDatabase(**store, UsesRegistry() && config_.snowflake.registry == "sql");
    if (!report.ok()) return Failed("database", report.error(), "no range can be granted");
    for (const sql::EndpointReport& endpoint : report->endpoints)
      AddFindings(endpoint.findings, endpoint.endpoint);
    AddFindings(report->findings, "");
    if (report->problems == 0) {
      Ok("database", report->in_use.empty() ? config_.sqlite.path
                                            : fmt::format("{}: tables and servers sound", report->in_use));
    }
    const auto rows = (*store)->segments().List();
    if (rows.ok()) {
      Add(core::InspectTags(*rows, marks_, context_.clock.Wall()));
    } else if (report->problems == 0) {
      Failed("tags", rows.error(), "no range can be granted");
    }
    if (const auto clock = sql::ReadServerClock((*store)->database(), context_.clock); clock.ok() && *clock)
      CompareClock("database-clock", "the database server's clock", (*clock)->ahead, (*clock)->uncertainty);
    if (UsesRegistry() && config_.snowflake.registry == "zookeeper") {
      // Nothing but such a table has any rows of that name.
      if (const auto tables = sql::ReadWorkerTables((*store)->database());
          tables.ok() && !tables->numbers.empty()) {
        Warn("number-spaces",
             fmt::format("leaf_workerid_alloc has {} numbers, and this node takes its own from ZooKeeper",
                         tables->numbers.size()),
             "the two know nothing of each other: nodes of the same cluster that use both repeat IDs",
             "one registry for each cluster name; stop what still uses the other");
      }
    }
  }

  void AddFindings(const std::vector<sql::SchemaFinding>& findings, const std::string& where) {
    for (const sql::SchemaFinding& finding : findings) {
      Add({"database", finding.is_problem ? Level::kProblem : Level::kWarning,
           where.empty() ? finding.message : fmt::format("{}: {}", where, finding.message),
           finding.is_problem ? "a range could be granted twice, or none at all" : "", finding.hint});
    }
  }

  void CompareClock(std::string check, std::string_view whose, milliseconds ahead, milliseconds uncertainty) {
    const auto off = std::max(milliseconds{0}, milliseconds{std::abs(ahead.count())} - uncertainty);
    if (off <= config_.snowflake.peer_clock_threshold) {
      Ok(std::move(check), fmt::format("{} agrees to within {} ms", whose,
                                       milliseconds{std::abs(ahead.count())}.count() + uncertainty.count()));
      return;
    }
    Problem(
        std::move(check),
        fmt::format("{} is {} ms {} this node's", whose, off.count(),
                    ahead.count() > 0 ? "ahead of" : "behind"),
        "one of the two is wrong: IDs of a clock that is ahead are a debt, one that is behind stops issuing",
        "synchronise both");
  }

  // ---- worker numbers

  void CheckWorkers() {
    if (!UsesRegistry()) return;
    auto source = WorkerSource::Open(context_, Store::Access::kExamine);
    if (!source.ok()) return Failed("registry", source.error(), "no worker number can be claimed");
    auto inspection = (*source)->Inspect();
    if (!inspection.ok()) {
      registry_away_ = inspection.error().code == ErrorCode::kUnavailable;
      return Failed("registry", inspection.error(), "no worker number can be claimed");
    }
    GradeFindings(inspection->findings, config_);
    for (const core::WorkerFinding& finding : inspection->findings) {
      const bool warning = finding.severity == core::Finding::Severity::kWarning;
      found_.push_back({finding.code, warning ? Level::kWarning : Level::kProblem,
                        fmt::format("{}: {}", Printable(finding.subject), finding.cause), finding.consequence,
                        finding.remedy, finding.subject});
    }
    if (inspection->findings.empty()) {
      Ok("registry", fmt::format("{}: {} worker numbers, nothing wrong", (*source)->registry(),
                                 inspection->entries.size()));
    }
    const auto recycled = std::count_if(
        inspection->entries.begin(), inspection->entries.end(), [](const core::WorkerEntry& entry) {
          return entry.kind == core::NumberKind::kRecycled && !entry.address.empty();
        });
    if (recycled > 0 && !config_.snowflake.recycle) {
      Warn("number-spaces", fmt::format("{} of the fork's recycled numbers are, or were, in use", recycled),
           "its nodes and leafctl's fixed numbers do not know of each other, and two may have one number",
           "stop every node of the fork in mode zk_recycle before a leafctl of this cluster starts");
    }
    if (IsShared() && !config_.snowflake.address.empty()) CheckOwnNumber(**source, *inspection);
    CheckPeers(*inspection);
    if (config_.snowflake.registry == "sql" && resolved_.IsSet("zookeeper.")) CheckForever();
  }

  static std::map<std::string, WallTime> Reports(const core::WorkerInspection& inspection) {
    std::map<std::string, WallTime> reports;
    for (const core::WorkerEntry& entry : inspection.entries) {
      if ((!entry.live || entry.java) && entry.reported)
        reports[entry.address] = std::max(reports[entry.address], *entry.reported);
    }
    return reports;
  }

  // Who reports without saying that it is live is no leafctl: Java Leaf. Only watching tells.
  void CheckOwnNumber(WorkerSource& source, const core::WorkerInspection& inspection) {
    const std::string& address = config_.snowflake.address;
    const core::WorkerEntry* own = nullptr;
    for (const core::WorkerEntry& entry : inspection.entries) {
      if (entry.address == address && entry.kind != core::NumberKind::kRecycled) own = &entry;
    }
    const std::map<std::string, WallTime> before = Reports(inspection);
    const WallTime recent = context_.clock.Wall() - core::kLiveReport;
    const bool watch =
        std::any_of(before.begin(), before.end(), [&](const auto& report) { return report.second > recent; });
    std::vector<std::string> moved;
    if (watch) {
      context_.Detail("leafctl: watching for 4 s who reports to the registry");
      const MonotonicTime end = context_.clock.Monotonic() + core::kJavaWatch;
      while (context_.clock.Monotonic() < end) context_.clock.WaitUntil(end);
      if (const auto later = source.Inspect(); later.ok()) {
        for (const auto& [name, reported] : Reports(*later)) {
          const auto found = before.find(name);
          if (found != before.end() && found->second != reported) moved.push_back(name);
        }
      }
    }
    if (!moved.empty()) {
      Ok("java-nodes", fmt::format("running, and no leafctl: {}", fmt::join(moved, ", ")));
      if (config_.snowflake.recycle)
        Warn(
            "java-nodes", "this node leases its number while nodes of Java Leaf run",
            "theirs are never given back, and one that is cut off goes on unseen: leases stay above them all",
            "nothing, as long as numbers are left");
    }
    if (own == nullptr) {
      if (!state_ && !inspection.entries.empty() && !config_.snowflake.recycle) {
        std::vector<std::string> known;
        for (const core::WorkerEntry& entry : inspection.entries) known.push_back(entry.address);
        Warn("own-number", fmt::format("{} has no worker number yet", address),
             fmt::format("the first start takes a new one, for ever; known are {}", fmt::join(known, ", ")),
             "if this node is one of them, set snowflake.address to that; else there is nothing to do");
      }
      return;
    }
    if (std::find(moved.begin(), moved.end(), address) != moved.end()) {
      Problem(
          "address-in-use", fmt::format("another process reports as {} (worker {})", address, own->worker),
          "two live processes with one number issue the same IDs; it is no leafctl, so no owner keeps it "
          "away",
          "stop that Java Leaf before leafctl starts, or give this node another port in snowflake.address");
    }
    if (!own->owner.empty() && (!state_ || state_->node_uuid != own->owner)) {
      Problem(
          "own-number",
          fmt::format("worker {} of {} belongs to another state directory{}", own->worker, address,
                      own->host.empty() ? "" : fmt::format(", on {}", own->host)),
          "a start from here is refused: its former owner may go on without the registry",
          fmt::format("start with that directory, or, once it is gone for good, leafctl worker release {}",
                      own->worker));
    } else {
      Ok("own-number", fmt::format("{} has worker {}", address, own->worker));
    }
    CheckJavaFile(*own);
  }

  void CheckJavaFile(const core::WorkerEntry& own) {
    for (const java::JavaWorkerFile& file :
         java::FindJavaWorkerFiles(java::kJavaTmpDir, config_.snowflake.cluster, own.address)) {
      if (file.worker == own.worker) {
        Ok("java-file", fmt::format("{} has number {}, as the registry", file.path, own.worker));
        continue;
      }
      Problem(
          "java-file",
          fmt::format("{} has {}, the registry {}", file.path,
                      file.worker ? fmt::format("number {}", *file.worker) : "no number", own.worker),
          "Java Leaf may have run under either: in a new namespace its first nodes all take 0, whatever "
          "their "
          "node says",
          "decode one of its IDs (leafctl decode) while it runs, and restart it once before it is replaced");
    }
  }

  void CheckPeers(const core::WorkerInspection& inspection) {
    std::vector<std::string> urls;
    for (const core::WorkerEntry& entry : inspection.entries) {
      if (entry.live && !entry.url.empty() && entry.address != config_.snowflake.address)
        urls.push_back(entry.url);
    }
    if (urls.empty()) return;
    std::vector<std::string> older;
    const auto readings =
        client::ReadClocks(urls, context_.flags.timeout.value_or(kPeerClockTimeout), context_.clock);
    for (std::size_t i = 0; i < urls.size(); ++i) {
      if (readings[i]) {
        CompareClock("peer-clock", urls[i], readings[i]->ahead, readings[i]->uncertainty);
        if (readings[i]->version.empty()) older.push_back(urls[i]);
      } else {
        Warn("peer-clock", fmt::format("{} does not tell its time", urls[i]),
             "this node's clock is compared with those of its peers",
             "see that its snowflake.advertise can be reached");
      }
    }
    if (older.empty()) return;
    Warn("older-nodes",
         fmt::format("{} node{} of a version before 0.2 ha{} a worker number: {}", older.size(),
                     older.size() == 1 ? "" : "s", older.size() == 1 ? "s" : "ve", fmt::join(older, ", ")),
         "if the registry goes back, they do not put back what it has forgotten: another node may get their "
         "numbers",
         "upgrade them; this ends with the last one");
  }

  // Numbers of the same cluster elsewhere.
  void CheckForever() {
    auto tree = zookeeper::Tree::Make(config_.snowflake.cluster);
    if (!tree.ok()) return;
    ContextLogger log(context_);
    const auto session = OpenZookeeper(context_, log, context_.flags.timeout.value_or(kZookeeperTimeout));
    if (!session.ok()) return;  // said with the fence
    const auto snapshot = zookeeper::ReadSnapshot(**session, *tree);
    if (!snapshot.ok() || snapshot->Children(tree->Forever()).empty()) return;
    Warn("number-spaces",
         fmt::format("{} has {} numbers, and this node takes its own from leaf_workerid_alloc",
                     tree->Forever(), snapshot->Children(tree->Forever()).size()),
         "the two know nothing of each other: nodes of the same cluster that use both repeat IDs",
         "one registry for each cluster name; stop what still uses the other");
  }

  // ---- fence and daemon

  void CheckFence() {
    if (!config_.segment.enabled) return;
    if (!ClusterLink::IsConfigured(resolved_)) {
      if (config_.segment.store != "mysql") return Ok("fence", "node: the database is this machine's alone");
      return Warn(
          "fence", "node",
          "a database that goes back (a restore, a failover that lost commits) grants again what it had "
          "granted to other nodes: this one notices only its own ranges",
          "configure [zookeeper], for segment.fence = \"cluster\"");
    }
    if (registry_away_ && config_.snowflake.registry == "zookeeper") return;  // said once
    ContextLogger log(context_);
    auto link = ClusterLink::Open(context_, log, sys::ProcessName("doctor"));
    const std::string cause = "no grant is used without the witness, unless segment.witness_fallback is set";
    if (!link.ok()) return Failed("fence", link.error(), cause);
    const auto daemons = (*link)->Daemons();
    if (!daemons.ok()) return Failed("fence", daemons.error(), cause);
    Ok("fence", fmt::format("cluster, {}: {} daemons; ranges that Java Leaf was granted are not in it",
                            (*link)->name(), daemons->size()));
    CheckCluster(**link, *daemons);
    CheckAccess(**link);
    if (config_.segment.witness_fallback)
      Warn("fence", "segment.witness_fallback is set",
           "while ZooKeeper is away each node notices only its own ranges", "unset it, if waiting is better");
  }

  // What the nodes have found out about ZooKeeper, and which of them cannot.
  void CheckCluster(ClusterLink& link, const std::vector<zookeeper::DaemonRecord>& daemons) {
    const auto records = link.ReadCluster();
    if (!records.ok()) {
      return Failed("cluster", records.error(), "no range is claimed from a witness that may have gone back");
    }
    std::set<std::string> takes_part;
    for (const auto& node : records->nodes) takes_part.insert(node.record.daemon);
    std::vector<std::string> older;
    for (const zookeeper::DaemonRecord& daemon : daemons) {
      if (!takes_part.contains(daemon.id)) older.push_back(Printable(daemon.process));
    }
    if (!older.empty()) {
      Warn("cluster",
           fmt::format("{} daemon{} of a version before 0.2 claim{} ranges: {}", older.size(),
                       older.size() == 1 ? "" : "s", older.size() == 1 ? "s" : "", fmt::join(older, ", ")),
           "if database and ZooKeeper go back to the same moment, they may repeat IDs, and others theirs",
           "upgrade them; this ends with the last one");
    }
    if (!records->incarnation) return;
    const auto missing = records->Missing();
    if (records->incarnation->settled) {
      return Ok("cluster",
                fmt::format("{} nodes, incarnation {}", records->nodes.size(), records->incarnation->number));
    }
    std::vector<std::string> names;
    names.reserve(missing.size());
    for (const auto& node : missing)
      names.push_back(Printable(fmt::format("{} on {}", node.record.process, node.record.host)));
    Problem("cluster", fmt::format("ZooKeeper went back: {}", Printable(records->incarnation->why)),
            missing.empty() ? "no node claims a range until all have made known what they were granted"
                            : fmt::format("no node claims a range until these have made known what they were "
                                          "granted: {}",
                                          fmt::join(names, ", ")),
            fmt::format("start them, or, if they are lost: leafctl cluster recover --confirm {}",
                        Printable(link.cluster())));
  }

  // Where the worker numbers are elsewhere, nothing else looks at this folder.
  void CheckAccess(ClusterLink& link) {
    if (UsesRegistry() && config_.snowflake.registry == "zookeeper") return;  // said with the numbers
    const auto finding = link.InspectAccess();
    if (!finding.ok())
      return Failed(std::string(core::kOpenToEveryone), finding.error(), "its access rules are not known");
    if (!*finding) return;
    const core::WorkerFinding& open = **finding;
    Warn(open.code, fmt::format("{}: {}", Printable(open.subject), Printable(open.cause)), open.consequence,
         fmt::format("{} --set snowflake.registry=zookeeper --set snowflake.cluster={}", open.remedy,
                     Printable(link.cluster())));
  }

  void CheckDaemon() {
    client::DaemonClient daemon(FindOwnDaemon(resolved_), context_.flags.timeout.value_or(kAskTimeout));
    const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
    if (!body.ok()) {
      if (body.error().code == ErrorCode::kPermission || FindDaemons(resolved_).configured)
        return Failed("daemon", body.error(), "who asks it from here gets no ID");
      if (holder_) {
        return Problem(
            "daemon", fmt::format("process {} holds the state directory, and answers nowhere", holder_->pid),
            "it hangs, or another configuration names another socket", "look at it, and at its log");
      }
      Ok("daemon", "none runs here");
      return CheckPorts();
    }
    const Json json = Json::parse(*body, nullptr, false);
    if (!json.is_object())
      return Problem("daemon", fmt::format("{} gave an answer that is not leafctl's", daemon.answered_by()),
                     "", "");
    for (const Json& reason : json.value("reasons", Json::array()))
      Problem("daemon", fmt::format("not ready: {}", reason.value("message", "")), "it issues nothing there",
              "leafctl status");
    for (const Json& problem : json.value("problems", Json::array()))
      Problem("daemon", problem.value("message", ""), "the daemon says so", problem.value("hint", ""));
    if (json.value("ready", false) && json.value("problems", Json::array()).empty())
      Ok("daemon", fmt::format("{} is ready", daemon.answered_by()));
    if (json.value("version", LEAFCTL_VERSION) != LEAFCTL_VERSION)
      Warn("daemon", fmt::format("it is version {}, this is {}", json.value("version", "?"), LEAFCTL_VERSION),
           "a new binary is used from the next start on", "restart it when it suits");
    const MonotonicTime asked = context_.clock.Monotonic();
    if (const auto clock = daemon.WallClock(); clock.ok()) {
      const auto took = std::chrono::duration_cast<milliseconds>(context_.clock.Monotonic() - asked);
      CompareClock("daemon-clock", "the daemon's clock", clock->time - (context_.clock.Wall() - took / 2),
                   took / 2);
    }
  }

  void CheckPorts() {
    for (const std::string& listen : config_.server.listen) {
      const auto endpoint = ParseEndpoint(listen, 1);
      if (!endpoint.ok() || !sys::IsPortInUse(endpoint->port)) continue;
      Warn("listen",
           fmt::format("something listens on port {} already, and no leafctl answered", endpoint->port),
           "if it has the same address a start is refused (exit 11)",
           "stop it (Java Leaf, in a replacement in place), or choose another server.listen");
    }
  }

  CommandContext& context_;
  const config::Resolved& resolved_;
  const config::Config& config_;
  std::vector<Diagnosis> found_;
  std::vector<core::Mark> marks_;
  std::optional<core::WorkerState> state_;
  std::optional<sys::LockHolder> holder_;
  bool registry_away_ = false;
};

}  // namespace

std::vector<Diagnosis> Examine(CommandContext& context, const config::Resolved& resolved) {
  return Doctor(context, resolved).Run();
}

}  // namespace leaf::cmd
