// Segment mode, live: every tag's generator, the refresh that follows the table, and first sight of unknown
// names.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/core/code_records.h"
#include "leaf/core/tag_orders.h"
#include "leaf/core/token_bucket.h"
#include "leaf/service/granter.h"
#include "leaf/service/look_up_lane.h"
#include "leaf/service/order_book.h"
#include "leaf/service/paused_tags.h"
#include "leaf/service/request_limit.h"
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
  // Which tags are cut off; null for none, ever. Outlives the service.
  PausedTags* paused = nullptr;
  // The witness of the cluster; null for the node fence. Outlives the service.
  ClusterFence* fence = nullptr;
  // Which tags are strict; null where none ever is. Outlives the service.
  core::TagOrders* orders = nullptr;
  core::OrderNode order_node{};  // this node, where `orders` is not null
  // Where the codes of the tags end, for status alone. May block: a refresh asks. Empty where there are none.
  std::function<Result<core::CodeEnds>()> code_ends{};
};

// Where segment mode works. All of them outlive it; `timers` must not be held up, the others may block.
struct SegmentExecutors {
  Executor& timers;
  Executor& workers;       // refills
  Executor& slow_workers;  // refills of tags in trouble, and of names not confirmed yet
  Executor& refresher;     // reads the whole table; one thread does, and keeps what it allocates to itself
  // Takes part in the cluster; one thread. Null where there is no membership.
  Executor* cluster = nullptr;
};

struct SegmentStatus {
  bool loaded = false;                      // the table was read at least once
  std::optional<Error> store_problem;       // why the last refresh failed
  std::optional<ClusterFenceStatus> fence;  // nothing: the node fence
  std::optional<WallTime> refreshed_at;     // the last refresh that succeeded
  std::size_t tags = 0;
};

// Takes IDs of one tag, as SegmentService::TryNextOne, at what a take out of its reserve costs. It follows
// its name: a tag that is removed has no more IDs, and one that is added again under the name is found, both
// at the first take that the reserve has nothing for. For one thread at a time; a copy is another thread's.
// Ends before the service.
class TagHandle {
 public:
  TagHandle(const TagDirectory& directory, std::string_view tag)
      : directory_(&directory), tag_(tag), generator_(directory.Find(tag)) {}

  // False if the reserve has none, or the tag is not known (yet): SegmentService::Next says why, and waits.
  // Never blocks; allocates nothing.
  bool TryTakeOne(std::uint64_t& id) {
    if (generator_ != nullptr && generator_->TryTakeOne(id)) [[likely]]
      return true;
    return FindAnother() && generator_->TryTakeOne(id);
  }

  const std::string& tag() const { return tag_; }

 private:
  // Whether the name is another generator's by now.
  bool FindAnother();

  const TagDirectory* directory_;
  std::string tag_;
  std::shared_ptr<TagGenerator> generator_;
};

// Thread-safe. Adapters, clock and executors outlive it; stop the executors before destroying it.
class SegmentService {
 public:
  SegmentService(const SegmentOptions& options, core::SegmentStore& store, core::MarkStore& marks,
                 const Clock& clock, Random& random, const SegmentExecutors& executors, Logger& log);

  // Begins to refresh; returns at once.
  void Start();
  // New settings, at once: a table that is to be read more often is read now. After Start.
  void Reconfigure(std::chrono::milliseconds refresh_interval, std::chrono::milliseconds reserve_time);
  // Fails everything parked, drops every reserve and begins nothing new. Idempotent.
  void Stop();
  // The same, for good and for another reason than the process's end: every answer from now on is `why`.
  void Halt(Error why);
  // Blocks. After Stop, once the executors have ended: writes down what was dropped, for `tag show`.
  Result<void> RecordUnissued();

  // Blocks. After Stop, once the executors have ended: other nodes need not count on this one any more.
  void LeaveCluster();
  void LeaveOrders() { orders_.Leave(); }

  // Takes an ID of `tag` from its reserve into `id`. Never blocks; never allocates for a tag that this thread
  // asked for lately.
  bool TryNextOne(std::string_view tag, std::uint64_t& id) const {
    return directory_.With(tag, [&](TagGenerator& generator) { return generator.TryTakeOne(id); });
  }
  // The tag to take IDs of without looking up its name each time. It need not exist.
  TagHandle Tag(std::string_view tag) const { return {directory_, tag}; }
  // Takes `count` IDs of `tag` from its reserve, or none. Never blocks; never allocates for a tag that this
  // thread asked for lately.
  bool TryNext(std::string_view tag, std::uint64_t count, IdSpans& out) const {
    return directory_.With(tag, [&](TagGenerator& generator) { return generator.TryTake(count, out); });
  }

  // The same, of IDs that follow each other without a gap; what the reserve holds below them is wasted.
  bool TryNextContiguous(std::string_view tag, std::uint64_t count, IdSpans& out) const {
    return directory_.With(tag,
                           [&](TagGenerator& generator) { return generator.TryTakeContiguous(count, out); });
  }
  // The highest ID of `tag` that this process issued, as of about now; nothing if none was. Never blocks for
  // long, and takes nothing.
  std::optional<std::uint64_t> LastIssued(std::string_view tag) const;

  // Whether a request for `tag` is within the limits. Never blocks.
  RequestLimit::Verdict AdmitRequest(std::string_view tag, RequestLimit& limit) const {
    auto verdict = RequestLimit::Verdict::kAdmitted;
    const bool known = directory_.With(tag, [&](TagGenerator& generator) {
      verdict = limit.Admit(generator.request_share());
      return true;
    });
    return known ? verdict : limit.AdmitOther();
  }

  // Serves what TryNext turned away; see TagGenerator::Park for waiting and errors. A name not seen before is
  // looked up in the table once; a "no" is remembered for kNegativeTtl. Further errors: kPaused, kLimited
  // (too many unknown names at once, or the directory is full). Returns the request if it is still waiting.
  ParkedRequest Next(std::string_view tag, const Batch& batch, const ParkLimits& limits, NextCallback done);

  // Whether at least one ID can be issued, as far as is known: the table was read, and either the store (and
  // the witness that grants have to be claimed from) answers or some tag has a reserve. The error says why
  // not.
  Result<void> CanIssue() const;

  // Whether there is such a tag, neither frozen nor paused. `done` is called at once, or by a worker where
  // the table has to be asked. Takes no ID. Errors: kNotFound, kFrozen, kPaused, kLimited, and the store's.
  using CheckCallback = std::function<void(Result<void>)>;
  void CheckTag(std::string_view tag, const CheckCallback& done);
  // And whether it has IDs, as far as is known: not if none is in reserve and its last grant has failed. Then
  // another one is asked for, as no request may come while balancers are told so. Of names that are not known
  // here fewer are looked up than by CheckTag, and none of those that requests may ask for.
  void CheckReady(std::string_view tag, const CheckCallback& done);

  // This node's durable mark of `tag`, whether it serves the tag or not (`end` is 0 if it has none), and the
  // tag's status if it does. `done` is called by a worker, or at once with kLimited or kUnavailable.
  struct MarkReport {
    core::Mark mark;
    std::optional<TagStatus> status;
  };
  using MarkCallback = std::function<void(Result<MarkReport>)>;
  void LoadMark(std::string_view tag, MarkCallback done);

  // This process has just added the tag to the table: requests find it from now on, also if an earlier
  // request was told that it does not exist. `mark` and `witness` were loaded before the tag was added.
  void Adopt(const core::TagRow& row, const core::Mark& mark, std::uint64_t witness);

  // This process has just removed the tag from the table: requests are told so from now on.
  void Forget(const std::string& tag);
  // This process has just changed rows: the table is read now, not when the interval is over. Returns at
  // once; changes that follow each other closely cost one reading.
  void RefreshNow();

  // Cuts `tag` off on this node, whether it is known or not, or lets it go on; remembered across restarts.
  // Blocks on the disk, never on the database. `who`: for the log. Returns whether that changed anything.
  // Errors: as PausedTags::Set. Requires: SegmentOptions::paused.
  Result<bool> SetPaused(std::string_view tag, bool paused, std::string_view who = "an operator");
  // Null if no tag can be.
  const PausedTags* paused() const { return options_.paused; }
  // Looks at every tag's rate, for its peak. Once a second or so.
  void ObservePeaks();
  // Nothing if this node does not know the tag (yet).
  std::optional<TagStatus> StatusOf(std::string_view tag) const;

  SegmentStatus Status() const;
  // Sorted by tag.
  std::vector<TagStatus> TagStatuses() const;

  // Calls `visit` with every tag's status, in no particular order, and holds no more than one of them at a
  // time; the totals count tags that are gone, too, and never go back. Takes longer the more tags there are.
  using TagVisitor = std::function<void(TagStatus&&)>;
  SegmentTotals Visit(const TagVisitor& visit) const;

  // What Leaf's pages show: what the tags hold, in no particular order; and the table itself, for which
  // `done` is called by a worker, or at once with kLimited or kUnavailable.
  std::vector<TagRanges> Ranges() const;
  using TableCallback = std::function<void(Result<std::vector<core::TagRow>>)>;
  void ReadTable(TableCallback done);

 private:
  TagStatus StatusOf(TagGenerator& generator) const;
  Result<std::shared_ptr<TagGenerator>> FindOrLookUp(std::string_view tag);
  std::shared_ptr<TagGenerator> MakeGenerator(std::string_view tag, bool confirmed, const core::Mark& mark,
                                              std::uint64_t witness);
  // Every generator keeps to the order that the book has.
  void AdoptOrders();
  void ScheduleOrderLook();
  void RunRefresh(std::uint64_t chain);
  Result<void> Refresh();
  void LookAtCodes();
  bool FenceIsAway() const;
  void ScheduleFenceProbe();
  void LookAfterFailure();
  void StepMembership();
  void ScheduleRefresh(MonotonicTime at, std::uint64_t chain);
  void Retire(const std::string& tag, bool known_absent);
  // Whether the table may be asked about a name that is not known here: for a request, or for a health check.
  enum class Asking : std::uint8_t { kRequest, kProbe };
  Result<void> AdmitLookUp(std::string_view tag, Asking asking = Asking::kRequest);
  void Check(std::string_view tag, Asking asking, const CheckCallback& done);
  bool IsKnownAbsent(std::string_view tag);
  // Whether a client that may read the database may do so now.
  Result<void> AdmitRead();
  // False if the directory is full.
  bool AddTag(const core::TagRow& row, const core::Mark& mark, std::optional<std::uint64_t> witness);
  // The generator of the row's tag; null if there is none and the directory is full. If it `is_new`, it was
  // judged by the row.
  std::shared_ptr<TagGenerator> FindOrAddRow(const core::TagRow& row, const core::Mark& mark,
                                             std::uint64_t witness, bool& is_new);
  // What the witness says of the tags that are known, or, at the first refresh, are in the table; empty where
  // there is none, or it cannot be used.
  Result<std::unordered_map<std::string, core::WitnessState>> LoadWitnesses(
      const std::vector<std::shared_ptr<TagGenerator>>& generators);
  // Notes this node's marks that the witness does not know of, and makes them known: one write each, and
  // there may be very many, so it comes after the refresh, takes turns with other reads, and makes way for
  // the next refresh.
  void NoteUnwitnessed(const std::vector<core::Mark>& marks,
                       const std::unordered_map<std::string, core::WitnessState>& witnesses);
  void CatchUpWitness(MonotonicTime until, std::uint64_t chain);
  // The orders of tags go both ways: what a table that went back has lost is learned from the witness, and
  // what the witness does not know of is noted, as the marks are. Not of orders that are not `are_new`: a
  // newer one may have been noted, and taken out again.
  void CompareOrders(const std::unordered_map<std::string, core::WitnessState>& witnesses, bool are_new);
  // Fails a request that no tag's generator has seen.
  void Fail(const NextCallback& done, Error error);

  const SegmentOptions options_;
  core::SegmentStore& store_;
  core::MarkStore& marks_;
  const Clock& clock_;
  Random& random_;
  Executor& timers_;
  Executor& refresher_;
  Executor* const cluster_;
  Logger& log_;
  Granter granter_;
  OrderBook orders_;
  TagContext context_;
  LookUpLane look_ups_;
  LookUpLane reads_lane_;
  TagDirectory directory_;
  // Apart: any client may ask for a name that there is not, and must not hold up one that repairs a tag.
  core::TokenBucket misses_;
  core::TokenBucket probed_misses_;
  core::TokenBucket reads_;
  std::atomic<std::chrono::milliseconds> refresh_interval_;
  // Of the refreshes that follow each other; those of an older chain have no say.
  std::atomic<std::uint64_t> refresh_chain_{0};
  std::atomic<bool> probing_fence_{false};
  // Of LookAfterFailure.
  bool look_is_due_ LEAF_GUARDED_BY(mutex_) = false;
  MonotonicTime no_look_before_ LEAF_GUARDED_BY(mutex_);

  // Held while a tag leaves the directory and while the totals are reckoned; see tallies.h.
  mutable Mutex totals_mutex_;
  TagTotals departed_ LEAF_GUARDED_BY(totals_mutex_);  // of tags that have left
  mutable SegmentTotals told_ LEAF_GUARDED_BY(totals_mutex_);

  struct UnwitnessedMark {
    std::string tag;
    std::uint64_t end = 0;
    core::WitnessState seen;
  };
  // The refresh's own; there is one at a time.
  bool run_begun_ = false;
  std::vector<UnwitnessedMark> unwitnessed_;
  std::vector<std::pair<core::OrderRow, core::WitnessState>> unnoted_;
  std::string codes_problem_;

  mutable Mutex mutex_;
  std::unordered_map<std::string, MonotonicTime> absent_until_ LEAF_GUARDED_BY(mutex_);
  bool loaded_ LEAF_GUARDED_BY(mutex_) = false;
  std::uint32_t refresh_failures_ LEAF_GUARDED_BY(mutex_) = 0;
  std::optional<Error> store_problem_ LEAF_GUARDED_BY(mutex_);
  std::optional<WallTime> refreshed_at_ LEAF_GUARDED_BY(mutex_);
  std::shared_ptr<const core::CodeEnds> code_ends_ LEAF_GUARDED_BY(mutex_);  // null for none
};

}  // namespace leaf::service
