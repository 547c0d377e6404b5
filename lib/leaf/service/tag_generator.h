// One tag, live: its reserve, its parked requests, and the one refill in flight that feeds both.
//
// Requests take from the reserve without a lock; everything else (waiters, refill, freeze) happens under the
// tag's mutex, which is never held across a call to the outside. A refill runs on a worker: it asks the
// Granter, then serves parked requests in arrival order straight from the new grant, and only the rest
// becomes visible to newcomers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/id_range.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/random.h"
#include "leaf/base/result.h"
#include "leaf/core/exhaustion.h"
#include "leaf/core/fence.h"
#include "leaf/core/peak_rate.h"
#include "leaf/core/ports.h"
#include "leaf/core/reserve_policy.h"
#include "leaf/core/segment_buffer.h"
#include "leaf/core/step_policy.h"
#include "leaf/core/tag_orders.h"
#include "leaf/service/failure_log.h"
#include "leaf/service/gathering.h"
#include "leaf/service/granter.h"
#include "leaf/service/look_up_lane.h"
#include "leaf/service/order_book.h"
#include "leaf/service/refill_schedule.h"
#include "leaf/service/request_limit.h"
#include "leaf/service/stop_sign.h"
#include "leaf/service/tag_ledger.h"
#include "leaf/service/tag_state.h"
#include "leaf/service/tallies.h"
#include "leaf/service/waiting_line.h"

namespace leaf::service {

// What all generators of a service share. Everything referenced outlives them.
struct TagContext {
  core::SegmentStore& store;
  core::MarkStore& marks;
  Granter& granter;
  const Clock& clock;
  Random& random;
  Executor& timers;        // quick tasks only
  Executor& workers;       // may block
  Executor& slow_workers;  // may block; for tags whose last grant failed
  LookUpLane& look_ups;    // may block; for names not confirmed yet
  Logger& log;
  // What is strict; a grant is asked for only once it is known.
  OrderBook& orders;
  // Grants may go without a claim while the witness is away: then no strict tag is served.
  bool fallback = false;
  core::StepPolicy::Kind step_policy = core::StepPolicy::Kind::kLeaf;
  std::int64_t step_max = 0;
  std::atomic<std::chrono::milliseconds> reserve_time{};
  // The refresh pass under way or last done, modulo 2^32; see TagGenerator::SeenSince().
  std::atomic<std::uint32_t> refresh_pass{0};
  // A generator that has become useless (tag gone, or never existed) reports itself, from a worker or a
  // timer, with no lock held. `known_absent`: the store has just said that there is no such tag.
  std::function<void(const std::string& tag, bool known_absent)> retire;
  // A grant has failed since the store did not do it, from a worker, with no lock held.
  std::function<void()> store_failed;
  SegmentCounters counters{};
  // Raised before the generators are stopped: what they answer from then on.
  StopSign stop{};
  FailureLog failure_log{clock, timers, log};
};

// What a request asks for.
struct Batch {
  // NOLINTNEXTLINE(google-explicit-constructor): most ask for a plain number
  Batch(std::uint64_t ids, bool follow_each_other = false) : count(ids), contiguous(follow_each_other) {}

  std::uint64_t count;
  bool contiguous;  // the IDs have to follow each other without a gap
};

// How long a request that cannot be served at once may wait.
struct ParkLimits {
  std::chrono::milliseconds wait{};
  // At most so long while the tag's last grant has failed (Java Leaf fails fast then; callers rely on it).
  std::chrono::milliseconds wait_while_failing{};
};

using NextCallback = WaitingRequest<IdSpans>::Callback;

class TagGenerator;

// A request that is waiting, for its connection, which may have to give it up. Default: none.
class ParkedRequest {
 public:
  ParkedRequest() = default;
  ParkedRequest(std::weak_ptr<TagGenerator> generator, std::uint64_t ticket)
      : generator_(std::move(generator)), ticket_(ticket) {}

  explicit operator bool() const { return !generator_.expired(); }

  // The asker has left: takes the request out of the line, so that no grant is made or enlarged for it, and
  // completes it with kExhausted on this thread. Nothing if it was completed already. Thread-safe.
  void Withdraw() const;

 private:
  std::weak_ptr<TagGenerator> generator_;
  std::uint64_t ticket_ = 0;
};

struct TagStatus {
  std::string tag;
  std::string_view state;  // "idle", "active", "frozen", "paused"
  core::TagOrder order = core::TagOrder::kTrend;
  std::uint64_t reserve = 0;         // IDs
  std::uint64_t reserve_target = 0;  // IDs to hold at the rate and grant latency seen (core/reserve_policy)
  double ids_per_second = 0;
  double peak_ids_per_second = 0;  // since start, see core/peak_rate
  std::chrono::nanoseconds grant_latency{};
  std::uint64_t waiting = 0;    // parked requests
  std::int64_t step = 0;        // of the last grant; 0 before the first
  std::int64_t table_step = 0;  // 0 if not known yet
  std::int64_t max_id = 0;      // the column, as last seen
  std::uint64_t mark = 0;       // exclusive end of what was granted, 0 if none
  std::uint64_t witness = 0;    // the same of all nodes of the cluster, as seen last; 0 if not known
  std::uint64_t granted = 0;    // IDs, since start
  std::uint64_t issued = 0;     // IDs, since start
  std::uint64_t wasted = 0;     // IDs granted since start that will never be issued
  // IDs that earlier daemons of this state directory left behind; upper bounds unless `exactly`.
  std::uint64_t wasted_by_restarts = 0;
  std::uint64_t wasted_by_last_restart = 0;
  bool wasted_by_restarts_exactly = true;
  std::uint64_t grants = 0;    // since start
  std::uint32_t failures = 0;  // grants that failed in a row
  std::optional<double> days_to_exhaustion;
  bool near_exhaustion = false;
  std::optional<core::CodesLeft> codes_left;  // nothing for a tag without codes
  std::optional<Error> problem;               // why it is frozen, or its last grant failed
  std::optional<WallTime> problem_since;      // when it froze, or the first grant failed of those in a row
  std::optional<WallTime> frozen_since;
  bool paused = false;
  std::optional<WallTime> paused_since;       // filled in by SegmentService; nothing if not known
  std::shared_ptr<const TagTallies> tallies;  // null while there is nothing in them
};

// What a tag's share of the totals is reckoned from.
struct TagTotals {
  std::uint64_t issued = 0;
  std::uint64_t wasted = 0;  // taken out of the reserve for no request
};

// What a tag has in reserve, range by range.
struct TagRanges {
  std::string tag;
  bool granted = false;                         // ever
  std::vector<core::SegmentBuffer::Held> held;  // oldest first
  std::array<IdRange, 2> recent{};              // as TagTallies has them
};

// Thread-safe. Callbacks are called exactly once, with no lock held, on whatever thread completes them.
class TagGenerator : public std::enable_shared_from_this<TagGenerator> {
 public:
  // A tag that the table is known to hold (`confirmed`; OnRow follows), with this node's mark and the highest
  // end granted to any node (0 where that is not known) as they were before the table was read; or a name
  // that was asked for and the table has yet to confirm.
  TagGenerator(std::string tag, TagContext& context, bool confirmed, const core::Mark& mark,
               std::uint64_t witness);
  ~TagGenerator();
  TagGenerator(const TagGenerator&) = delete;
  TagGenerator& operator=(const TagGenerator&) = delete;

  const std::string& tag() const { return tag_; }

  // Takes an ID from the reserve into `id`. Never blocks, never allocates.
  bool TryTakeOne(std::uint64_t& id) {
    core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
    if (buffer == nullptr || paused_.load(std::memory_order_acquire)) [[unlikely]]
      return false;
    core::SegmentBuffer::Draw draw;
    if (buffer->TakePlain(id, draw)) [[likely]]
      return true;
    const std::optional<std::uint64_t> settled = SettleDraw(*buffer, draw);
    id = settled.value_or(0);
    return settled.has_value();
  }
  // Takes `count` IDs from the reserve, or none. Never blocks, never allocates.
  bool TryTake(std::uint64_t count, IdSpans& out);
  // The same, of IDs that follow each other without a gap. What the reserve holds below them is wasted.
  bool TryTakeContiguous(std::uint64_t count, IdSpans& out);

  // Serves a request that TryTake turned away: at once if it can be by now, else when a grant arrives, else
  // with an error at its deadline. Never blocks. Errors: kExhausted (drained until the deadline), kNotFound,
  // kFrozen, kPaused, kLimited (too many parked), kRefused / kOverflow / kConfig / kPermission as the grant
  // failed, kUnavailable on Stop. False, with `done` untouched, if this generator was retired meanwhile: look
  // the tag up again. `parked` is set if the request is still waiting when this returns.
  // A contiguous batch that is not in reserve waits for the grant that holds it; then what the reserve holds
  // below it is wasted, so that IDs keep rising.
  bool Park(const Batch& batch, const ParkLimits& limits, NextCallback& done, ParkedRequest& parked);
  // See ParkedRequest.
  void Withdraw(std::uint64_t ticket);

  // Refresh, in this order: before the table is read, with the mark as it stands on disk (another process
  // with this state directory may have raised it) and the highest end granted to any node of the cluster
  // (nothing where that is not known); then with the row, or without one (`Remove`).
  void BeforeRefresh(const core::Mark& durable_mark, std::optional<std::uint64_t> witness);
  void OnRow(const core::TagRow& row);
  void Remove();
  // Whether the table was seen to hold the tag in refresh pass `pass` or after it.
  bool SeenSince(std::uint32_t pass) const {
    return static_cast<std::int32_t>(seen_pass_.load(std::memory_order_relaxed) - pass) >= 0;
  }
  // False for a name that the table has yet to confirm, and once it has it no more.
  bool confirmed() const;
  // True, and final, if it is of no use any more: the tag is gone, or was never confirmed and no request
  // waits for it.
  bool TryRetire();
  // This process has just added the tag's row: if the table is being asked for it, an answer that there is no
  // such row may be older, and it is asked again. False if the generator is gone.
  bool NoteAdded();

  // Cuts the tag off, or lets it go on. Its reserve is kept; what is parked fails with kPaused. A request
  // that begins after this returned is given nothing until the tag is resumed.
  void SetPaused(bool paused);
  // From now on IDs follow each other in this order. What is in reserve of a tag that becomes strict is
  // dropped, and a request that begins after this returned is served from a grant that began after it.
  void SetOrder(core::TagOrder order);
  // Looks at the rate, for its peak. Cheap for a tag that was never used.
  void ObservePeak();
  // SegmentOptions::reserve_time has changed.
  void AdoptReserveTime();
  // What the tag has used of the limits on requests; see RequestLimit.
  RequestShare& request_share() { return request_share_; }

  // A grant is asked for, and after a failure again until one succeeds, whether or not a request waits.
  void WantRefill();
  // The store answers again: a failed refill that a request waits for is tried now.
  void Kick();
  // Fails everything parked; no further refill begins, and nothing more is issued.
  void Stop();
  // After Stop: IDs that were granted and will never be issued.
  std::uint64_t unissued() const;
  // Exclusive end of what is known to have been granted to any node.
  std::uint64_t known_end() const;

  std::uint64_t reserve() const;
  // The highest ID issued since start, as of about now; nothing if none was.
  std::optional<std::uint64_t> LastIssued() const;
  // `codes_end`: the first ID that has no code; nothing for a tag without codes.
  TagStatus Status(std::optional<std::uint64_t> codes_end = std::nullopt);
  // Neither ever goes back.
  TagTotals Totals();
  TagRanges Ranges() const;

 private:
  struct Waiter : WaitingRequest<IdSpans> {
    // Until its deadline, but only so long if grants still fail then.
    std::chrono::milliseconds wait_while_failing{};
    MonotonicTime look_at;    // when it is seen whether it has waited long enough: `deadline`, or before
    bool contiguous = false;  // see Batch
  };
  // Callbacks to run once the mutex is released.
  using Completions = std::vector<std::function<void()>>;
  // Why the tag is frozen, or why its last grant failed. `since`: when it froze, or when the first of these
  // grants failed.
  struct Problem {
    Error error;
    WallTime since;
  };
  // Only a tag that was asked for has this. It is made when a grant is sized, or when the first refill ends.
  struct Grants {
    explicit Grants(const TagContext& context) : step(context.step_policy, context.step_max) {}

    core::StepPolicy step;
    // Made at the first grant, as the buffer.
    std::optional<core::ReservePolicy> reserve;
    std::optional<core::PeakRate> peak;
    std::optional<Gathering> gathering;            // made at the first grant of a strict tag
    std::optional<MonotonicTime> gathering_timer;  // when it is due
    // The last in line when the last grant was sized: a strict tag serves nothing behind it from that grant.
    std::uint64_t sized_up_to = 0;
    // The first in line when the last grant was sized, in IDs.
    std::uint64_t sized_for = 0;
    // The level as the last BeforeRefresh, or the constructor, left it; nothing if no refill has ended since.
    // OnRow judges by this level: the row may have been read before the grant.
    std::optional<core::FenceLevel> before_refresh;
  };

  void AdoptMarkLocked(const core::Mark& mark) LEAF_REQUIRES(mutex_);
  bool TakeLocked(const Batch& batch, IdSpans& out) LEAF_REQUIRES(mutex_);
  // The rest of a take that was not plain: its overshoot is settled, a refill asked for.
  std::optional<std::uint64_t> SettleDraw(core::SegmentBuffer& buffer, core::SegmentBuffer::Draw draw);
  void StartRefillLocked() LEAF_REQUIRES(mutex_);
  // Whether the next grant of this strict tag waits for more requests; a timer ends that.
  bool GathersLocked() LEAF_REQUIRES(mutex_);
  void RunRefill();
  Obtained ObtainGrant();
  void OnGrantLocked(const core::Grant& grant, std::chrono::nanoseconds latency, Completions& completions)
      LEAF_REQUIRES(mutex_);
  // A grant of a tag that is strict, or not.
  void HandOutLocked(const IdRange& range, std::chrono::nanoseconds latency, Completions& completions)
      LEAF_REQUIRES(mutex_);
  void StockLocked(const core::Grant& grant, std::chrono::nanoseconds latency, Completions& completions)
      LEAF_REQUIRES(mutex_);
  // Serves waiters in order from the reserve and then from `grant`, whose begin moves up.
  void ServeWaitersLocked(IdRange& grant, Completions& completions) LEAF_REQUIRES(mutex_);
  // Takes `count` contiguous IDs for the first in line from the reserve, from `grant`, or from the end of the
  // one and the begin of the other. False if they do not hold so many.
  bool TakeContiguousLocked(std::uint64_t count, IdRange& grant, IdSpans& out) LEAF_REQUIRES(mutex_);
  void OnFailureLocked(const Error& error, const core::Mark& durable_mark, Completions& completions,
                       bool& retire) LEAF_REQUIRES(mutex_);
  // Serves the first in line as long as the reserve holds all that they want: what stood before them has
  // left.
  void ServeHeldLocked(Completions& completions) LEAF_REQUIRES(mutex_);
  // Ends requests that the reserve does not hold, until one wants less than `least`; those that it holds are
  // served.
  void FailUnheldLocked(const Error& error, std::uint64_t least, Completions& completions)
      LEAF_REQUIRES(mutex_);
  void ScheduleRetryLocked() LEAF_REQUIRES(mutex_);
  static bool IsLasting(ErrorCode code);
  void FreezeLocked(const Error& error, Completions& completions) LEAF_REQUIRES(mutex_);
  void FailAllLocked(const Error& error, Completions& completions) LEAF_REQUIRES(mutex_);
  // One timer for the whole line: nearly all requests are served long before they have waited too long.
  void LookAtLineLocked(MonotonicTime at) LEAF_REQUIRES(mutex_);
  // Ends the requests that have waited long enough. `at`: what the timer was set to.
  void OnLineLook(MonotonicTime at);
  bool HasWaitedEnoughLocked(Waiter& waiter, MonotonicTime now) LEAF_REQUIRES(mutex_);
  Error NoGrantInTimeLocked() const LEAF_REQUIRES(mutex_);
  // Whether nothing keeps it, of a name that may be no tag: a request that waited for it was the last.
  bool IsUnwantedLocked() const LEAF_REQUIRES(mutex_);
  // Tells the log, once, when the end of the numbers comes near.
  void WatchExhaustionLocked(Completions& completions) LEAF_REQUIRES(mutex_);
  std::optional<double> DaysToExhaustionLocked() const LEAF_REQUIRES(mutex_);
  // Until max_id arrives there.
  std::optional<double> DaysUntilLocked(std::uint64_t end) const LEAF_REQUIRES(mutex_);
  // The state changes by the table of tag_state.h. False, and nothing changes, if the event has no say.
  bool EnterLocked(TagEvent event) LEAF_REQUIRES(mutex_);
  // Drops what is in reserve: how much that was.
  std::uint64_t ClearReserveLocked() LEAF_REQUIRES(mutex_);
  // Null before the first grant.
  core::SegmentBuffer* ReserveLocked() const LEAF_REQUIRES(mutex_) {
    return buffer_.load(std::memory_order_relaxed);
  }
  void ClearProblemLocked() LEAF_REQUIRES(mutex_);
  void ObserveRateLocked() LEAF_REQUIRES(mutex_);
  core::SegmentBuffer& BufferLocked() LEAF_REQUIRES(mutex_);
  Grants& OpenGrantsLocked() LEAF_REQUIRES(mutex_);
  // Called before anything but a refresh raises mark_ or witness_.
  void KeepLevelLocked() LEAF_REQUIRES(mutex_);
  bool IsStrictLocked() const LEAF_REQUIRES(mutex_) { return order_ == core::TagOrder::kStrict; }
  // Of a strict tag nothing is held in reserve.
  bool WantedLocked() const LEAF_REQUIRES(mutex_) {
    return (refill_.wanted() && !IsStrictLocked()) || !waiters_.empty();
  }
  // How many IDs the grant is to have; see tag_refill.cc.
  Result<core::GrantSize> SizeGrant(const core::TagRow& row);
  // The same for a strict tag, without the row. Errors: kExhausted if no request waits.
  Result<core::GrantSize> SizeStrictGrant();
  Result<core::GrantSize> SizeStrictLocked() LEAF_REQUIRES(mutex_);
  // Notes for which requests the grant is sized: the count of the first in line.
  std::uint64_t NoteLineLocked() LEAF_REQUIRES(mutex_);

  // A hundred thousand idle tags must stay small: what only a tag in use has is made when it is first used,
  // and small members stand together.
  const std::string tag_;
  TagContext& context_;
  // Made at the first grant, never replaced.
  std::atomic<core::SegmentBuffer*> buffer_{nullptr};
  RequestShare request_share_;
  std::atomic<std::uint32_t> seen_pass_;
  std::atomic<bool> paused_{false};  // changed under mutex_

  TagState state_ LEAF_GUARDED_BY(mutex_);
  core::TagOrder order_ LEAF_GUARDED_BY(mutex_) = core::TagOrder::kTrend;
  bool near_exhaustion_told_ LEAF_GUARDED_BY(mutex_) = false;
  RefillSchedule refill_ LEAF_GUARDED_BY(mutex_);
  mutable MutexOfMany mutex_;
  std::unique_ptr<Grants> grants_ LEAF_GUARDED_BY(mutex_);
  WaitingLine<Waiter> waiters_ LEAF_GUARDED_BY(mutex_);
  std::unique_ptr<Problem> problem_ LEAF_GUARDED_BY(mutex_);
  std::int64_t table_step_ LEAF_GUARDED_BY(mutex_) = 0;
  std::int64_t max_id_ LEAF_GUARDED_BY(mutex_) = 0;
  std::uint64_t mark_ LEAF_GUARDED_BY(mutex_) = 0;
  std::uint64_t witness_ LEAF_GUARDED_BY(mutex_) = 0;  // as seen last
  TagLedger ledger_ LEAF_GUARDED_BY(mutex_);
};
// A shared pointer and the allocator make it 208 bytes. Each 16 bytes more are 1.6 MB for a hundred thousand
// tags.
static_assert(sizeof(MutexOfMany) > 4 || sizeof(TagGenerator) <= 184);

}  // namespace leaf::service
