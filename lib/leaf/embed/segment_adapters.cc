#include "leaf/embed/segment_adapters.h"

#include "leaf/base/limits.h"
#include "leaf/sys/process_name.h"

namespace leaf::embed {
namespace {

bool IsSqlite(const config::Config& config) { return config.segment.store == "sqlite"; }

}  // namespace

SegmentAdapters::SegmentAdapters(const Environment& environment, const config::Config& config)
    : environment_(environment),
      config_(config),
      paused_file_(config.state_dir, file_ops_),
      paused_(paused_file_),
      timers_("leaf-timers", 1, environment.ClockInUse()),
      workers_("leaf-workers", IsSqlite(config) ? kSqliteRefillWorkers : kRefillWorkers,
               environment.ClockInUse()),
      slow_workers_("leaf-slow", IsSqlite(config) ? kSqliteSlowRefillWorkers : kSlowRefillWorkers,
                    environment.ClockInUse()),
      refresher_("leaf-refresh", 1, environment.ClockInUse()) {}

Result<std::unique_ptr<SegmentAdapters>> SegmentAdapters::Open(Environment& environment,
                                                               const std::string& process, Logger& log) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  std::unique_ptr<SegmentAdapters> adapters(new SegmentAdapters(environment, resolved->config));
  LEAF_RETURN_IF_ERROR(adapters->paused_.Load());
  LEAF_ASSIGN_OR_RETURN(adapters->store_, Store::Open(environment, Store::Access::kWrite, &log));
  LEAF_ASSIGN_OR_RETURN(adapters->marks_, OpenMarks(environment, process));
  LEAF_ASSIGN_OR_RETURN(adapters->cluster_,
                        ClusterLink::Join(environment, log, sys::ProcessName(process), *adapters->marks_,
                                          ClusterLink::JoinAs::kDaemon));
  if (adapters->cluster_) adapters->cluster_thread_.emplace("leaf-cluster", 1, environment.ClockInUse());
  if (adapters->cluster_) log.Info("grants are claimed from the witness {}", adapters->cluster_->name());
  return adapters;
}

service::SegmentPorts SegmentAdapters::Ports() {
  service::SegmentOptions options = SegmentOptionsOf(environment_, config_, paused_);
  if (cluster_) options.fence = &cluster_->fence();
  return {.options = options,
          .store = store_->segments(),
          .marks = *marks_,
          .random = random_,
          .executors = {timers_, workers_, slow_workers_, refresher_,
                        cluster_thread_ ? &*cluster_thread_ : nullptr}};
}

}  // namespace leaf::embed
