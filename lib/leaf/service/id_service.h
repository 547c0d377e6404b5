// The service as the server sees it: which modes there are, whether this node is ready, and draining.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/service/causes.h"
#include "leaf/service/segment_service.h"
#include "leaf/service/snowflake_service.h"
#include "leaf/service/tallies.h"

namespace leaf::service {

struct Reason {
  std::string code;  // stable, for machines
  std::string message;
  std::string hint;  // the next step, or empty
};

struct Readiness {
  bool ready = false;
  std::vector<Reason> reasons;  // why not; empty if ready
};

// What became of the configuration file.
struct ConfigStatus {
  std::optional<WallTime> taken_over_at;  // when the settings in force were read
  std::optional<Error> problem;           // why the last reload changed nothing
};

// Thread-safe.
class IdService {
 public:
  // Each is null if its mode is disabled; else it outlives this.
  explicit IdService(SegmentService* segment, SnowflakeService* snowflake = nullptr)
      : segment_(segment), snowflake_(snowflake) {}

  SegmentService* segment() const { return segment_; }
  SnowflakeService* snowflake() const { return snowflake_; }

  // What this node works with, for metrics and status: `look` is called for each report, must
  // not block, and outlives this. Before the first request.
  using DependencyLook = std::function<Dependency()>;
  void Watch(DependencyLook look) { dependencies_.push_back(std::move(look)); }
  std::vector<Dependency> Dependencies() const;

  // From now on not ready; requests are still served.
  void BeginDrain() { draining_.store(true); }
  bool draining() const { return draining_.load(); }

  // The state directory is not this process's any more (sys::StateDirWatch): from now on neither mode issues
  // anything, and every answer is `why`. The first call counts.
  void StateDirLost(const Error& why);

  // The configuration was read, at the start or by a reload, and taken over unless there is a `problem`.
  void ConfigRead(WallTime now, std::optional<Error> problem = std::nullopt);
  ConfigStatus config() const;

  Readiness GetReadiness() const;
  // Of the whole node; `tags` as from SegmentService::TagStatuses.
  std::vector<Problem> Problems(const std::vector<TagStatus>& tags) const;
  // `problems`, as of Problems, and why the node is not ready, one entry for each cause, the gravest first.
  std::vector<Cause> Causes(std::vector<Problem> problems, const std::vector<TagStatus>& tags) const;
  // Notes since when what is wrong with the node, rather than with a tag, is wrong: it is as exact as this is
  // called often.
  void ObserveProblems(WallTime now);

 private:
  std::optional<Reason> halted() const;
  std::vector<Problem> NodeProblems() const;
  std::vector<Problem> PausedProblems() const;
  // Why the node is not ready.
  std::vector<Problem> ReadinessProblems(const std::vector<Problem>& others) const;
  void AddSince(std::vector<Problem>& problems) const;

  SegmentService* const segment_;
  SnowflakeService* const snowflake_;
  std::vector<DependencyLook> dependencies_;
  std::atomic<bool> draining_{false};
  mutable Mutex mutex_;
  std::optional<Reason> halted_ LEAF_GUARDED_BY(mutex_);
  ConfigStatus config_ LEAF_GUARDED_BY(mutex_);
  std::map<std::string, WallTime, std::less<>> since_ LEAF_GUARDED_BY(mutex_);  // by cause
};

}  // namespace leaf::service
