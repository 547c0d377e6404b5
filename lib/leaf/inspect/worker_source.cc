#include "leaf/inspect/worker_source.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/java_leaf.h"
#include "leaf/embed/registries.h"
#include "leaf/embed/zookeeper_link.h"
#include "leaf/inspect/sql_workers.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/worker_state_file.h"
#include "leaf/zookeeper/connect_string.h"
#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::inspect {
namespace {

Result<InspectionOptions> InspectionOptionsOf(Environment& environment) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config::Snowflake& snowflake = resolved->config.snowflake;
  InspectionOptions options;
  options.worker_begin = snowflake.worker_range.begin;
  options.worker_end = snowflake.worker_range.end;
  options.layout = snowflake.layout;
  options.ahead_max = snowflake.peer_clock_threshold;
  options.window = snowflake.window;
  return options;
}

void Watch(Environment& environment, std::size_t count) {
  environment.Note(
      fmt::format("watching {} record{} for {} s: no node may be writing what is about to be rewritten",
                  count, count == 1 ? "" : "s", core::kJavaWatch.count() / 1000));
  const MonotonicTime end = environment.ClockInUse().Monotonic() + core::kJavaWatch;
  while (environment.ClockInUse().Monotonic() < end) environment.ClockInUse().WaitUntil(end);
}

// Keeps what the session's threads say, for the thread that may write it.
class SessionLog final : public Logger {
 public:
  void Write(LogLevel level, std::string_view message) override {
    if (level < LogLevel::kWarning) return;
    const MutexLock lock(mutex_);
    lines_.emplace_back(message);
  }
  void PrintTo(Environment& environment) {
    const MutexLock lock(mutex_);
    for (const std::string& line : lines_) environment.Detail(fmt::format("leafctl: {}", line));
    lines_.clear();
  }

 private:
  Mutex mutex_;
  std::vector<std::string> lines_ LEAF_GUARDED_BY(mutex_);
};

class ZookeeperSource final : public WorkerSource {
 public:
  ZookeeperSource(Environment& environment, zookeeper::Tree tree, InspectionOptions options,
                  zookeeper::PropertiesRecord properties)
      : WorkerSource(environment, tree.cluster(), std::move(options)),
        tree_(std::move(tree)),
        properties_(std::move(properties)) {}
  ~ZookeeperSource() override {
    session_.reset();
    log_.PrintTo(environment_);
  }

  Result<void> Connect() {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment_.Config());
    const auto connect = zookeeper::ParseConnectString(resolved->config.zookeeper.connect);
    has_chroot_ = connect.ok() && !connect->chroot.empty();
    LEAF_ASSIGN_OR_RETURN(
        session_,
        embed::OpenZookeeper(environment_, log_, environment_.Timeout().value_or(embed::kZookeeperTimeout)));
    return {};
  }

  std::string_view registry() const override { return "zookeeper"; }

  Result<WorkerInspection> Inspect() override {
    LEAF_ASSIGN_OR_RETURN(const Snapshot snapshot, ReadAll());
    return inspect::Inspect(snapshot, options_, properties_);
  }

  Result<WorkerInspection> InspectForRepair(bool java_retired) override {
    options_.java_retired = java_retired;
    LEAF_ASSIGN_OR_RETURN(const Snapshot snapshot, ReadAll());
    WorkerInspection inspection = inspect::Inspect(snapshot, options_, properties_);
    const auto watched = RewrittenByLeaf(snapshot, inspection);
    if (watched.empty()) return inspection;
    Watch(environment_, watched.size());
    LEAF_ASSIGN_OR_RETURN(const Snapshot later, ReadAll());
    for (const std::string& path : watched) {
      const zookeeper::NodeData* const before = snapshot.Find(path);
      const zookeeper::NodeData* const now = later.Find(path);
      if (now != nullptr && now->stat.modified_zxid != before->stat.modified_zxid)
        options_.moving.insert(path);
    }
    return inspect::Inspect(later, options_, properties_);
  }

  Result<std::vector<RawRecord>> Records() override {
    LEAF_ASSIGN_OR_RETURN(const Snapshot snapshot, Read());
    std::vector<RawRecord> records;
    for (const auto& [path, node] : snapshot.nodes) {
      // Of the parents, other clusters' comings and goings are none of this one's state.
      if (path.starts_with(tree_.Base())) records.push_back(ToRecord(path, node));
    }
    return records;
  }

  Result<std::optional<RepairStep>> PlanRelease(std::uint64_t worker) override {
    LEAF_ASSIGN_OR_RETURN(const Snapshot snapshot, Read());
    return inspect::PlanRelease(snapshot, worker, properties_.recycle);
  }

  Result<bool> Apply(const RepairStep& step) override { return ApplyStep(*session_, tree_, step); }

 private:
  Result<Snapshot> Read() {
    options_.now = environment_.ClockInUse().Wall();
    LEAF_ASSIGN_OR_RETURN(Snapshot snapshot, ReadSnapshot(*session_, tree_));
    // Everything is missing below a mistyped chroot, too, and that is no new cluster.
    if (has_chroot_ && snapshot.nodes.empty()) {
      LEAF_ASSIGN_OR_RETURN(const auto chroot, session_->Exists(""));
      if (!chroot) return zookeeper::NoChroot();
    }
    return snapshot;
  }

  // With those of our nodes that everyone may change.
  Result<Snapshot> ReadAll() {
    LEAF_ASSIGN_OR_RETURN(Snapshot snapshot, Read());
    if (session_->has_credentials()) {
      LEAF_ASSIGN_OR_RETURN(snapshot.open, ReadOpenNodes(*session_, tree_));
    }
    return snapshot;
  }

  const zookeeper::Tree tree_;
  const zookeeper::PropertiesRecord properties_;
  bool has_chroot_ = false;
  SessionLog log_;
  std::shared_ptr<zookeeper::Session> session_;
};

class SqlSource final : public WorkerSource {
 public:
  SqlSource(Environment& environment, std::unique_ptr<embed::Store> store, InspectionOptions options,
            core::ClusterProperties properties)
      : WorkerSource(environment, properties.name, std::move(options)),
        store_(std::move(store)),
        properties_(std::move(properties)) {}

  std::string_view registry() const override { return "sql"; }

  Result<WorkerInspection> Inspect() override {
    LEAF_ASSIGN_OR_RETURN(const WorkerTables tables, Read());
    return inspect::Inspect(tables, options_, properties_);
  }

  Result<WorkerInspection> InspectForRepair(bool java_retired) override {
    options_.java_retired = java_retired;
    LEAF_ASSIGN_OR_RETURN(const WorkerTables tables, Read());
    WorkerInspection inspection = inspect::Inspect(tables, options_, properties_);
    // Rows of the fork's own table.
    std::map<std::string, std::string> watched;
    for (const RepairStep& step : inspection.steps) {
      for (const RepairChange& change : step.changes) {
        if (change.before.name.starts_with("leaf_workerid_alloc/"))
          watched.emplace(change.before.name, change.before.data);
      }
    }
    if (watched.empty()) return inspection;
    Watch(environment_, watched.size());
    LEAF_ASSIGN_OR_RETURN(const WorkerTables later, Read());
    for (const RawRecord& record : ToRecords(later)) {
      const auto before = watched.find(record.name);
      if (before != watched.end() && before->second != record.data) options_.moving.insert(record.name);
    }
    return inspect::Inspect(later, options_, properties_);
  }

  Result<std::vector<RawRecord>> Records() override {
    LEAF_ASSIGN_OR_RETURN(const WorkerTables tables, Read());
    return ToRecords(tables);
  }

  Result<std::optional<RepairStep>> PlanRelease(std::uint64_t worker) override {
    LEAF_ASSIGN_OR_RETURN(const WorkerTables tables, Read());
    return inspect::PlanRelease(tables, worker, options_.now);
  }

  Result<bool> Apply(const RepairStep& step) override { return ApplyStep(store_->database(), step); }

 private:
  Result<WorkerTables> Read() {
    options_.now = environment_.ClockInUse().Wall();
    return ReadWorkerTables(store_->database());
  }

  const std::unique_ptr<embed::Store> store_;
  const core::ClusterProperties properties_;
};

// Static numbers stand in the configuration alone; of this node's there is also a state directory.
class StaticSource final : public WorkerSource {
 public:
  StaticSource(Environment& environment, const config::Config& config, InspectionOptions options,
               std::optional<core::WorkerState> state)
      : WorkerSource(environment, state ? state->cluster.name : config.snowflake.cluster, std::move(options)),
        config_(config),
        state_(std::move(state)) {}

  std::string_view registry() const override { return "static"; }

  Result<WorkerInspection> Inspect() override {
    options_.now = environment_.ClockInUse().Wall();
    WorkerInspection inspection;
    const std::string configured = "the configuration says so";
    std::map<std::int64_t, std::set<std::string>> addresses;
    for (const auto& [address, worker] : config_.snowflake.workers) {
      addresses[worker].insert(address);
      WorkerEntry entry;
      entry.worker = static_cast<std::uint64_t>(worker);
      entry.address = address;
      if (!state_ || state_->worker != entry.worker || address != config_.snowflake.address)
        inspection.entries.push_back(std::move(entry));
    }
    for (const auto& [worker, same] : addresses) {
      if (same.size() > 1) {
        inspection.Leave("duplicate-number", std::to_string(worker),
                         {fmt::format("snowflake.workers gives one number to {}", fmt::join(same, ", ")),
                          "those nodes refuse to start", "give each address a number of its own"},
                         configured);
      }
      if (worker < 0 || static_cast<std::uint64_t>(worker) >= options_.worker_end ||
          static_cast<std::uint64_t>(worker) < options_.worker_begin) {
        inspection.Leave("number-outside-range", std::to_string(worker),
                         {fmt::format("snowflake.workers names a number outside snowflake.worker_range {}-{}",
                                      options_.worker_begin, options_.worker_end - 1),
                          "its node refuses to start", "correct one of them"},
                         configured);
      }
    }
    if (state_ && state_->worker) {
      WorkerEntry entry;
      entry.worker = *state_->worker;
      entry.address = config_.snowflake.address;
      entry.owner = state_->node_uuid;
      // The state may be of before: then where that number came from is not known.
      if (config_.snowflake.worker_id >= 0 &&
          static_cast<std::uint64_t>(config_.snowflake.worker_id) == entry.worker)
        entry.source = config::WorkerSourceOf(config_);
      if (state_->ceiling > WallTime{}) entry.ceiling = state_->ceiling;
      entry.records.push_back(StateRecord());
      inspection.entries.insert(inspection.entries.begin(), std::move(entry));
      if (state_->ceiling > options_.now + options_.window + options_.ahead_max) {
        inspection.Leave("future-ceiling", StatePath(),
                         {fmt::format("IDs of worker {} may have been issued up to {}", *state_->worker,
                                      FormatRfc3339(state_->ceiling)),
                          "it issues nothing until then", "correct the clock, or wait"},
                         configured);
      }
    }
    return inspection;
  }

  Result<WorkerInspection> InspectForRepair(bool /*java_retired*/) override { return Inspect(); }

  Result<std::vector<RawRecord>> Records() override {
    std::vector<RawRecord> records;
    for (const auto& [address, worker] : config_.snowflake.workers)
      records.push_back({"snowflake.workers/" + address, std::to_string(worker), {}});
    if (state_) records.push_back(StateRecord());
    return records;
  }

  Result<std::optional<RepairStep>> PlanRelease(std::uint64_t worker) override {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot release worker {}: a static number belongs to the node that the "
                             "configuration gives it to",
                             worker),
                 "change snowflake.worker_id or snowflake.workers"};
  }

  Result<bool> Apply(const RepairStep& step) override {
    return Error{ErrorCode::kInternal, fmt::format("the static registry cannot {}", step.what), ""};
  }

 private:
  std::string StatePath() const {
    return fmt::format("{}/{}", config_.state_dir, sys::WorkerStateFile::kName);
  }
  RawRecord StateRecord() const {
    return {StatePath(),
            state_->worker ? std::to_string(*state_->worker) : "",
            {{"uuid", state_->node_uuid},
             {"cluster", state_->cluster.name},
             {"layout", state_->cluster.layout.Bits()},
             {"epoch_ms", std::to_string(state_->cluster.layout.epoch_ms())},
             {"ceiling", FormatRfc3339(state_->ceiling)},
             {"ceiling_ms", std::to_string(UnixMillis(state_->ceiling))}}};
  }

  const config::Config& config_;
  const std::optional<core::WorkerState> state_;
};

}  // namespace

Result<std::unique_ptr<WorkerSource>> WorkerSource::Open(Environment& environment,
                                                         embed::Store::Access access) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config& config = resolved->config;
  const config::Config::Snowflake& snowflake = config.snowflake;
  LEAF_ASSIGN_OR_RETURN(InspectionOptions options, InspectionOptionsOf(environment));
  if (snowflake.registry == "static") {
    sys::FileOps file_ops;
    sys::WorkerStateFile state_file(config.state_dir, file_ops);
    LEAF_ASSIGN_OR_RETURN(auto state, state_file.Load());
    return std::unique_ptr<WorkerSource>(
        std::make_unique<StaticSource>(environment, config, std::move(options), std::move(state)));
  }
  if (snowflake.cluster.empty()) {
    return Error{
        ErrorCode::kConfig,
        fmt::format("snowflake.cluster is not set: it names the cluster whose numbers registry {} holds",
                    snowflake.registry),
        "set snowflake.cluster, in Java Leaf's terms leaf.name"};
  }
  core::ClusterProperties properties{snowflake.cluster, snowflake.registry, options.layout};
  if (snowflake.registry == "sql") {
    LEAF_ASSIGN_OR_RETURN(auto store, embed::Store::Open(environment, access));
    return std::unique_ptr<WorkerSource>(std::make_unique<SqlSource>(
        environment, std::move(store), std::move(options), std::move(properties)));
  }
  LEAF_ASSIGN_OR_RETURN(auto tree, zookeeper::Tree::Make(snowflake.cluster));
  auto source = std::make_unique<ZookeeperSource>(
      environment, std::move(tree), std::move(options),
      zookeeper::PropertiesRecord{std::move(properties), snowflake.recycle});
  LEAF_RETURN_IF_ERROR(source->Connect());
  return std::unique_ptr<WorkerSource>(std::move(source));
}

void GradeFindings(std::vector<WorkerFinding>& findings, const config::Config& config) {
  for (WorkerFinding& finding : findings) {
    const bool fork_is_meant = finding.code == kForkRunning && config.snowflake.recycle;
    if (fork_is_meant || finding.code == kOpenToEveryone || finding.code == kDashedCluster)
      finding.severity = core::Finding::Severity::kWarning;
  }
}

}  // namespace leaf::inspect
