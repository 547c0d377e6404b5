// Segment mode, live: every tag's generator, the refresh that follows the table, and first sight of unknown
// names.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "leaf/service/granter.h"
#include "leaf/service/tag_directory.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {

struct SegmentOptions {
  std::chrono::milliseconds refresh_interval{60'000};
  // A reserve that takes longer is dropped.
  std::chrono::milliseconds reply_timeout{4000};
  std::size_t tags_max = 100'000;
  core::StepPolicy::Kind step_policy = core::StepPolicy::Kind::kLeaf;
  std::int64_t step_max = 1'000'000;
  // Beyond what covers the grants' latency.
  std::chrono::milliseconds reserve_time{0};
};

struct SegmentStatus {
  bool loaded = false;                   // the table was read at least once
  std::optional<Error> store_problem;    // why the last refresh failed
  std::optional<WallTime> refreshed_at;  // the last refresh that succeeded
  std::size_t tags = 0;
};

// Thread-safe. Adapters, clock and executors outlive it; stop the executors before destroying it.
class SegmentService {
 public:
  SegmentService(const SegmentOptions& options, core::SegmentStore& store, core::MarkStore& marks,
                 const Clock& clock, Random& random, Executor& timers, Executor& workers,
                 Executor& slow_workers, Logger& log);

  // Begins to refresh; returns at once.
  void Start();
  // Fails everything parked, drops every reserve and begins nothing new. Idempotent.
  void Stop();
  // Blocks. After Stop, once the executors have ended: writes down what was dropped, for `tag show`.
  Result<void> RecordUnissued();

  // Takes `count` IDs of `tag` from its reserve, or none. Never blocks; never allocates for a tag that this
  // thread asked for lately.
  bool TryNext(std::string_view tag, std::uint64_t count, IdSpans& out) const {
    return directory_.With(tag, [&](TagGenerator& generator) { return generator.TryTake(count, out); });
  }

  // Serves what TryNext turned away; see TagGenerator::Park for waiting and errors. A name not seen before is
  // looked up in the table once; a "no" is remembered for kNegativeTtl. Further errors: kLimited (too many
  // unknown names at once, or the directory is full). Returns the request if it is still waiting.
  ParkedRequest Next(std::string_view tag, std::uint64_t count, const ParkLimits& limits, NextCallback done);

  // Whether at least one ID can be issued, as far as is known: the table was read, and either the store
  // answers or some tag has a reserve. The error says why not.
  Result<void> CanIssue() const;

  // The same for one tag: it exists and is not frozen. `done` is called at once, or by a worker where the
  // table has to be asked. Takes no ID. Errors: kNotFound, kFrozen, kLimited, and the store's.
  using CheckCallback = std::function<void(Result<void>)>;
  void CheckTag(std::string_view tag, const CheckCallback& done);

  // This node's durable mark of `tag`, whether it serves the tag or not (`end` is 0 if it has none), and the
  // tag's status if it does. `done` is called by a worker, or at once with kLimited or kUnavailable.
  struct MarkReport {
    core::Mark mark;
    std::optional<TagStatus> status;
  };
  using MarkCallback = std::function<void(Result<MarkReport>)>;
  void LoadMark(std::string_view tag, MarkCallback done);

  SegmentStatus Status() const;
  // Sorted by tag.
  std::vector<TagStatus> TagStatuses() const;

 private:
  Result<std::shared_ptr<TagGenerator>> FindOrLookUp(std::string_view tag);
  void RunRefresh();
  Result<void> Refresh();
  void ScheduleRefresh(MonotonicTime at);
  void Retire(const std::string& tag, bool known_absent);
  // Whether the table may be asked about a name that is not known here.
  Result<void> AdmitLookUp(std::string_view tag);
  bool IsKnownAbsent(std::string_view tag);
  bool AdmitMiss();
  // False if the directory is full.
  bool AddTag(const core::TagRow& row, const core::Mark& mark);

  const SegmentOptions options_;
  core::SegmentStore& store_;
  core::MarkStore& marks_;
  const Clock& clock_;
  Random& random_;
  Executor& timers_;
  Executor& workers_;
  Logger& log_;
  Granter granter_;
  GeneratorWorld world_;
  TagDirectory directory_;
  std::atomic<bool> stopped_{false};

  bool run_begun_ = false;  // the refresh's own; there is one at a time

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::unordered_map<std::string, MonotonicTime> absent_until_;
  double miss_tokens_ = 0;
  MonotonicTime miss_tokens_at_;
  bool loaded_ = false;
  std::uint32_t refresh_failures_ = 0;
  std::optional<Error> store_problem_;
  std::optional<WallTime> refreshed_at_;
};

}  // namespace leaf::service
