#include "leaf/embed/segment_adapters.h"

#include <fmt/format.h>

#include <string>

#include "leaf/base/limits.h"
#include "leaf/sys/boot_id.h"
#include "leaf/sys/process_name.h"

namespace leaf::embed {
namespace {

bool IsSqlite(const config::Config& config) { return config.segment.store == "sqlite"; }

// The state directory has one process at a time, so a later one there is proof that this one has ended: after
// a reboot, too. A copy of it, or a directory that took its place, is another one; so is one of a machine
// that was cloned, as soon as that has a name of its own. Where the place cannot be told, no run proves
// anything of another.
std::string PlaceOrId(const std::string& state_dir, const std::string& id) {
  const std::string place = OrderPlaceOf(state_dir);
  return place.empty() ? id : place;
}

}  // namespace

std::string OrderPlaceOf(const std::string& state_dir) {
  const std::string place = sys::ReadPlaceId(state_dir);
  return place.empty() ? place : fmt::format("{}/{}", sys::HostName(), place);
}

SegmentAdapters::SegmentAdapters(const Environment& environment, const config::Config& config,
                                 sys::FilesIn files)
    : environment_(environment),
      config_(config),
      codes_(config.codes),
      files_(std::move(files)),
      paused_file_(config.state_dir, files_),
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
  LEAF_ASSIGN_OR_RETURN(sys::FilesIn files, sys::FilesIn::Open(resolved->config.state_dir));
  std::unique_ptr<SegmentAdapters> adapters(
      new SegmentAdapters(environment, resolved->config, std::move(files)));
  LEAF_RETURN_IF_ERROR(adapters->paused_.Load());
  LEAF_ASSIGN_OR_RETURN(adapters->store_, Store::Open(environment, Store::Access::kWrite, &log));
  LEAF_ASSIGN_OR_RETURN(adapters->marks_, OpenMarks(environment, process));
  LEAF_ASSIGN_OR_RETURN(adapters->cluster_,
                        ClusterLink::Join(environment, log, sys::ProcessName(process), *adapters->marks_,
                                          ClusterLink::JoinAs::kDaemon));
  adapters->orders_ = std::make_unique<sql::SqlTagOrders>(adapters->store_->database());
  adapters->order_node_ = adapters->NewOrderNode(process);
  if (adapters->cluster_) adapters->cluster_thread_.emplace("leaf-cluster", 1, environment.ClockInUse());
  if (adapters->cluster_) log.Info("grants are claimed from the witness {}", adapters->cluster_->name());
  return adapters;
}

core::OrderNode SegmentAdapters::NewOrderNode(const std::string& process) {
  std::string id = fmt::format("{:016x}", random_.Next());
  return {.id = id,
          .process = sys::ProcessName(process),
          .place = PlaceOrId(config_.state_dir, id),
          .fallback = cluster_ != nullptr && cluster_->fence().Status().fallback_allowed,
          .acknowledged = 0,
          .since = {}};
}

void SegmentAdapters::SetCodes(const config::Config::Codes& codes) {
  const MutexLock lock(codes_mutex_);
  codes_ = codes;
}

Result<core::CodeEnds> SegmentAdapters::CodeEnds() {
  config::Config::Codes codes;
  {
    const MutexLock lock(codes_mutex_);
    codes = codes_;
  }
  return ReadCodeEnds(store_->database(), codes);
}

service::SegmentPorts SegmentAdapters::Ports() {
  service::SegmentOptions options = SegmentOptionsOf(environment_, config_, paused_);
  options.orders = orders_.get();
  options.order_node = order_node_;
  options.code_ends = [this] { return CodeEnds(); };
  if (cluster_) options.fence = &cluster_->fence();
  return {.options = options,
          .store = store_->segments(),
          .marks = *marks_,
          .random = random_,
          .executors = {timers_, workers_, slow_workers_, refresher_,
                        cluster_thread_ ? &*cluster_thread_ : nullptr}};
}

}  // namespace leaf::embed
