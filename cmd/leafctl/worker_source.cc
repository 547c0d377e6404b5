#include "worker_source.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "leaf/core/java_leaf.h"
#include "leaf/sql/worker_inspection.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/worker_state_file.h"
#include "leaf/zookeeper/inspection.h"
#include "leaf/zookeeper/snapshot.h"
#include "leaf/zookeeper/tree.h"
#include "registries.h"
#include "zookeeper_link.h"

namespace leaf::cmd {
namespace {

using core::WorkerInspection;

Result<core::InspectionOptions> InspectionOptionsOf(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config::Snowflake& snowflake = resolved->config.snowflake;
  core::InspectionOptions options;
  // The configuration has checked its form: "0-1023".
  const std::string& range = snowflake.worker_range;
  std::uint64_t last = 0;
  const auto first = std::from_chars(range.data(), range.data() + range.size(), options.worker_begin);
  std::from_chars(first.ptr + 1, range.data() + range.size(), last);
  options.worker_end = last + 1;
  LEAF_ASSIGN_OR_RETURN(options.layout, LayoutOf(resolved->config));
  options.ahead_max = snowflake.peer_clock_threshold;
  options.window = snowflake.window;
  return options;
}

void Watch(CommandContext& context, std::size_t count) {
  context.Note(
      fmt::format("watching {} record{} for {} s: nobody may be writing what is about to be rewritten", count,
                  count == 1 ? "" : "s", core::kJavaWatch.count() / 1000));
  const MonotonicTime end = context.clock.Monotonic() + core::kJavaWatch;
  while (context.clock.Monotonic() < end) context.clock.WaitUntil(end);
}

// Keeps what the session's threads say, for the thread that may write it.
class SessionLog final : public Logger {
 public:
  void Write(LogLevel level, std::string_view message) override {
    if (level < LogLevel::kWarning) return;
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(message);
  }
  void PrintTo(CommandContext& context) {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) context.Detail(fmt::format("leafctl: {}", line));
    lines_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class ZookeeperSource final : public WorkerSource {
 public:
  ZookeeperSource(CommandContext& context, zookeeper::Tree tree, core::InspectionOptions options,
                  zookeeper::PropertiesRecord properties, bool recycle)
      : WorkerSource(tree.cluster()),
        context_(context),
        tree_(std::move(tree)),
        options_(std::move(options)),
        properties_(std::move(properties)),
        recycle_(recycle) {}
  ~ZookeeperSource() override {
    session_.reset();
    log_.PrintTo(context_);
  }

  Result<void> Connect() {
    LEAF_ASSIGN_OR_RETURN(session_,
                          OpenZookeeper(context_, log_, context_.flags.timeout.value_or(kZookeeperTimeout)));
    return {};
  }

  std::string_view registry() const override { return "zookeeper"; }

  Result<WorkerInspection> Inspect() override {
    LEAF_ASSIGN_OR_RETURN(const zookeeper::Snapshot snapshot, ReadAll());
    return zookeeper::Inspect(snapshot, options_, properties_);
  }

  Result<WorkerInspection> InspectForRepair(bool java_retired) override {
    options_.java_retired = java_retired;
    LEAF_ASSIGN_OR_RETURN(const zookeeper::Snapshot snapshot, ReadAll());
    WorkerInspection inspection = zookeeper::Inspect(snapshot, options_, properties_);
    const auto watched = zookeeper::RewrittenByLeaf(snapshot, inspection);
    if (watched.empty()) return inspection;
    Watch(context_, watched.size());
    LEAF_ASSIGN_OR_RETURN(const zookeeper::Snapshot later, ReadAll());
    for (const std::string& path : watched) {
      const zookeeper::NodeData* const before = snapshot.Find(path);
      const zookeeper::NodeData* const now = later.Find(path);
      if (now != nullptr && now->stat.modified_zxid != before->stat.modified_zxid)
        options_.moving.insert(path);
    }
    return zookeeper::Inspect(later, options_, properties_);
  }

  Result<std::vector<core::RawRecord>> Records() override {
    LEAF_ASSIGN_OR_RETURN(const zookeeper::Snapshot snapshot, Read());
    std::vector<core::RawRecord> records;
    for (const auto& [path, node] : snapshot.nodes) {
      // Of the parents, other clusters' comings and goings are none of this one's state.
      if (path.starts_with(tree_.Base())) records.push_back(zookeeper::ToRecord(path, node));
    }
    return records;
  }

  Result<std::optional<core::RepairStep>> PlanRelease(std::uint64_t worker) override {
    LEAF_ASSIGN_OR_RETURN(const zookeeper::Snapshot snapshot, Read());
    return zookeeper::PlanRelease(snapshot, worker, recycle_);
  }

  Result<bool> Apply(const core::RepairStep& step) override {
    return zookeeper::ApplyStep(*session_, tree_, step);
  }

 private:
  Result<zookeeper::Snapshot> Read() {
    options_.now = context_.clock.Wall();
    return zookeeper::ReadSnapshot(*session_, tree_);
  }

  // With who may change our nodes.
  Result<zookeeper::Snapshot> ReadAll() {
    LEAF_ASSIGN_OR_RETURN(zookeeper::Snapshot snapshot, Read());
    if (session_->has_credentials()) {
      LEAF_ASSIGN_OR_RETURN(snapshot.open, zookeeper::ReadOpenNodes(*session_, tree_));
    }
    return snapshot;
  }

  CommandContext& context_;
  const zookeeper::Tree tree_;
  core::InspectionOptions options_;
  const zookeeper::PropertiesRecord properties_;
  const bool recycle_;
  SessionLog log_;
  std::unique_ptr<zookeeper::Session> session_;
};

class SqlSource final : public WorkerSource {
 public:
  SqlSource(CommandContext& context, std::unique_ptr<Store> store, core::InspectionOptions options,
            core::ClusterProperties properties)
      : WorkerSource(properties.name),
        context_(context),
        store_(std::move(store)),
        options_(std::move(options)),
        properties_(std::move(properties)) {}

  std::string_view registry() const override { return "sql"; }

  Result<WorkerInspection> Inspect() override {
    LEAF_ASSIGN_OR_RETURN(const sql::WorkerTables tables, Read());
    return sql::Inspect(tables, options_, properties_);
  }

  Result<WorkerInspection> InspectForRepair(bool java_retired) override {
    options_.java_retired = java_retired;
    LEAF_ASSIGN_OR_RETURN(const sql::WorkerTables tables, Read());
    WorkerInspection inspection = sql::Inspect(tables, options_, properties_);
    // Rows of the fork's own table.
    std::map<std::string, std::string> watched;
    for (const core::RepairStep& step : inspection.steps) {
      for (const core::RepairChange& change : step.changes) {
        if (change.before.name.starts_with("leaf_workerid_alloc/"))
          watched.emplace(change.before.name, change.before.data);
      }
    }
    if (watched.empty()) return inspection;
    Watch(context_, watched.size());
    LEAF_ASSIGN_OR_RETURN(const sql::WorkerTables later, Read());
    for (const core::RawRecord& record : sql::ToRecords(later)) {
      const auto before = watched.find(record.name);
      if (before != watched.end() && before->second != record.data) options_.moving.insert(record.name);
    }
    return sql::Inspect(later, options_, properties_);
  }

  Result<std::vector<core::RawRecord>> Records() override {
    LEAF_ASSIGN_OR_RETURN(const sql::WorkerTables tables, Read());
    return sql::ToRecords(tables);
  }

  Result<std::optional<core::RepairStep>> PlanRelease(std::uint64_t worker) override {
    LEAF_ASSIGN_OR_RETURN(const sql::WorkerTables tables, Read());
    return sql::PlanRelease(tables, worker, options_.now);
  }

  Result<bool> Apply(const core::RepairStep& step) override {
    return sql::ApplyStep(store_->database(), step);
  }

 private:
  Result<sql::WorkerTables> Read() {
    options_.now = context_.clock.Wall();
    return sql::ReadWorkerTables(store_->database());
  }

  CommandContext& context_;
  const std::unique_ptr<Store> store_;
  core::InspectionOptions options_;
  const core::ClusterProperties properties_;
};

// Nobody stores static numbers but the configuration; of this node's there is a state directory.
class StaticSource final : public WorkerSource {
 public:
  StaticSource(CommandContext& context, const config::Config& config, core::InspectionOptions options,
               std::optional<core::WorkerState> state)
      : WorkerSource(state ? state->cluster.name : config.snowflake.cluster),
        context_(context),
        config_(config),
        options_(std::move(options)),
        state_(std::move(state)) {}

  std::string_view registry() const override { return "static"; }

  Result<WorkerInspection> Inspect() override {
    options_.now = context_.clock.Wall();
    WorkerInspection inspection;
    std::map<std::int64_t, std::set<std::string>> addresses;
    for (const auto& [address, worker] : config_.snowflake.workers) {
      addresses[worker].insert(address);
      core::WorkerEntry entry;
      entry.worker = static_cast<std::uint64_t>(worker);
      entry.address = address;
      if (!state_ || state_->worker != entry.worker || address != config_.snowflake.address)
        inspection.entries.push_back(std::move(entry));
    }
    for (const auto& [worker, same] : addresses) {
      if (same.size() > 1) {
        Leave(inspection, "duplicate-number", std::to_string(worker),
              fmt::format("snowflake.workers gives one number to {}", fmt::join(same, ", ")),
              "those nodes refuse to start", "give each address a number of its own");
      }
      if (worker < 0 || static_cast<std::uint64_t>(worker) >= options_.worker_end ||
          static_cast<std::uint64_t>(worker) < options_.worker_begin) {
        Leave(inspection, "number-outside-range", std::to_string(worker),
              fmt::format("snowflake.workers names a number outside snowflake.worker_range {}-{}",
                          options_.worker_begin, options_.worker_end - 1),
              "its node refuses to start", "set one of them right");
      }
    }
    if (state_ && state_->worker) {
      core::WorkerEntry entry;
      entry.worker = *state_->worker;
      entry.address = config_.snowflake.address;
      entry.owner = state_->node_uuid;
      if (state_->ceiling > WallTime{}) entry.ceiling = state_->ceiling;
      entry.records.push_back(StateRecord());
      inspection.entries.insert(inspection.entries.begin(), std::move(entry));
      if (state_->ceiling > options_.now + options_.window + options_.ahead_max) {
        Leave(inspection, "future-ceiling", StatePath(),
              fmt::format("IDs of worker {} may have been issued up to {}", *state_->worker,
                          FormatRfc3339(state_->ceiling)),
              "it issues nothing before that", "set the clock right, or wait");
      }
    }
    return inspection;
  }

  Result<WorkerInspection> InspectForRepair(bool /*java_retired*/) override { return Inspect(); }

  Result<std::vector<core::RawRecord>> Records() override {
    std::vector<core::RawRecord> records;
    for (const auto& [address, worker] : config_.snowflake.workers)
      records.push_back({"snowflake.workers/" + address, std::to_string(worker), {}});
    if (state_) records.push_back(StateRecord());
    return records;
  }

  Result<std::optional<core::RepairStep>> PlanRelease(std::uint64_t worker) override {
    return Error{
        ErrorCode::kRefused,
        fmt::format("cannot release worker {}: static numbers belong to whom the configuration gives them",
                    worker),
        "change snowflake.worker_id or snowflake.workers"};
  }

  Result<bool> Apply(const core::RepairStep& step) override {
    return Error{ErrorCode::kInternal, fmt::format("the static registry cannot {}", step.what), ""};
  }

 private:
  static void Leave(WorkerInspection& inspection, std::string code, std::string subject, std::string cause,
                    std::string consequence, std::string remedy) {
    inspection.findings.push_back({std::move(code), std::move(subject), std::move(cause),
                                   std::move(consequence), std::move(remedy), false,
                                   "the configuration says so"});
  }
  std::string StatePath() const {
    return fmt::format("{}/{}", config_.state_dir, sys::WorkerStateFile::kName);
  }
  core::RawRecord StateRecord() const {
    return {StatePath(),
            state_->worker ? std::to_string(*state_->worker) : "",
            {{"uuid", state_->node_uuid},
             {"cluster", state_->cluster.name},
             {"layout", state_->cluster.layout.Bits()},
             {"epoch_ms", std::to_string(state_->cluster.layout.epoch_ms())},
             {"ceiling", FormatRfc3339(state_->ceiling)},
             {"ceiling_ms", std::to_string(UnixMillis(state_->ceiling))}}};
  }

  CommandContext& context_;
  const config::Config& config_;
  core::InspectionOptions options_;
  const std::optional<core::WorkerState> state_;
};

}  // namespace

Result<std::unique_ptr<WorkerSource>> WorkerSource::Open(CommandContext& context, Store::Access access) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config& config = resolved->config;
  const config::Config::Snowflake& snowflake = config.snowflake;
  LEAF_ASSIGN_OR_RETURN(core::InspectionOptions options, InspectionOptionsOf(context));
  if (snowflake.registry == "static") {
    sys::FileOps file_ops;
    sys::WorkerStateFile state_file(config.state_dir, file_ops);
    LEAF_ASSIGN_OR_RETURN(auto state, state_file.Load());
    return std::unique_ptr<WorkerSource>(
        std::make_unique<StaticSource>(context, config, std::move(options), std::move(state)));
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
    LEAF_ASSIGN_OR_RETURN(auto store, Store::Open(context, access));
    return std::unique_ptr<WorkerSource>(
        std::make_unique<SqlSource>(context, std::move(store), std::move(options), std::move(properties)));
  }
  LEAF_ASSIGN_OR_RETURN(auto tree, zookeeper::Tree::Make(snowflake.cluster));
  auto source = std::make_unique<ZookeeperSource>(
      context, std::move(tree), std::move(options),
      zookeeper::PropertiesRecord{std::move(properties), snowflake.recycle}, snowflake.recycle);
  LEAF_RETURN_IF_ERROR(source->Connect());
  return std::unique_ptr<WorkerSource>(std::move(source));
}

}  // namespace leaf::cmd
