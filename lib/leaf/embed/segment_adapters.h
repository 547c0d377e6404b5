// What segment mode stands on, as the configuration describes it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/core/code_records.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/environment.h"
#include "leaf/embed/stores.h"
#include "leaf/service/node.h"
#include "leaf/service/paused_tags.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"

namespace leaf::embed {

// core::OrderNode::place of a process with this state directory; "" where it cannot be told.
std::string OrderPlaceOf(const std::string& state_dir);

// The store, the marks, the witness if there is one, and the threads.
class SegmentAdapters {
 public:
  // Connects nothing that is waited for. `process`: what raises marks and claims, for people. The environment
  // and `log` outlive it. The state directory as for SnowflakeAdapters. Errors: kConfig, kPermission.
  static Result<std::unique_ptr<SegmentAdapters>> Open(Environment& environment, const std::string& process,
                                                       Logger& log);

  // For one service, which ends before this does.
  service::SegmentPorts Ports();

  Store& store() { return *store_; }
  core::MarkStore& marks() { return *marks_; }
  // [codes] is another from now on. Thread-safe.
  void SetCodes(const config::Config::Codes& codes);
  // As ReadCodeEnds. Thread-safe.
  Result<core::CodeEnds> CodeEnds();
  // Null for the node fence.
  ClusterLink* cluster() { return cluster_.get(); }
  sys::ThreadPool& timers() { return timers_; }
  sys::ThreadPool& workers() { return workers_; }
  sys::ThreadPool& slow_workers() { return slow_workers_; }

 private:
  SegmentAdapters(const Environment& environment, const config::Config& config, sys::FilesIn files);
  // How this run is called on the table's list of nodes.
  core::OrderNode NewOrderNode(const std::string& process);

  const Environment& environment_;
  const config::Config& config_;
  Mutex codes_mutex_;
  config::Config::Codes codes_ LEAF_GUARDED_BY(codes_mutex_);
  sys::FilesIn files_;
  sys::PausedTagsFile paused_file_;
  service::PausedTags paused_;
  sys::SystemRandom random_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<sql::SqlTagOrders> orders_;
  core::OrderNode order_node_;
  std::unique_ptr<sql::SqliteMarkStore> marks_;
  std::unique_ptr<ClusterLink> cluster_;
  sys::ThreadPool timers_;
  sys::ThreadPool workers_;
  sys::ThreadPool slow_workers_;
  sys::ThreadPool refresher_;
  std::optional<sys::ThreadPool> cluster_thread_;  // where there is a cluster
};

}  // namespace leaf::embed
