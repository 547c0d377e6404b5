#include "leaf/service/tag_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/fence.h"

namespace leaf::service {
namespace {

// Leaf asks for the next range when more than a tenth of the newest one is used: on the take of the ID after
// that.
std::uint64_t RefillAfter(std::uint64_t range_size) { return range_size / 10 + 1; }

// A failure that waiting does not cure: parked requests are told at once.
bool IsLasting(ErrorCode code) {
  switch (code) {
    case ErrorCode::kRefused:
    case ErrorCode::kOverflow:
    case ErrorCode::kConfig:
    case ErrorCode::kPermission:
      return true;
    default:
      return false;
  }
}

Error GoneError(const std::string& tag) {
  return {ErrorCode::kNotFound, fmt::format("unknown tag {}", Quoted(tag)),
          fmt::format("leafctl tag add {}", tag)};
}

Error StoppedError() {
  return {ErrorCode::kUnavailable, "this server is shutting down", "ask another server"};
}

}  // namespace

void ParkedRequest::Withdraw() const {
  if (const auto generator = generator_.lock()) generator->Withdraw(waiter_id_);
}

TagGenerator::TagGenerator(std::string tag, GeneratorWorld& world, const std::optional<core::TagRow>& row,
                           std::uint64_t mark)
    : tag_(std::move(tag)),
      world_(world),
      seen_pass_(world.refresh_pass.load()),
      state_(row ? State::kServing : State::kUnconfirmed),
      policy_(world.step_policy, world.step_max),
      mark_(mark) {
  if (!row) return;
  table_step_ = row->step;
  if (auto verdict = core::JudgeRow(tag_, row->max_id, mark); !verdict.ok()) {
    Completions none;
    FreezeLocked(verdict.error(), none);
  }
}

TagGenerator::~TagGenerator() { delete buffer_.load(); }

bool TagGenerator::TryTake(std::uint64_t count, IdSpans& out) {
  core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  if (buffer == nullptr) return false;
  const auto result = buffer->Take(count, out);
  bool taken = result.outcome == core::SegmentBuffer::Outcome::kTaken;
  if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    taken = buffer->Resolve(result.position, out);
  }
  if (result.refill_wanted) WantRefill();
  return taken;
}

bool TagGenerator::Park(std::uint64_t count, const ParkLimits& limits, NextCallback& done,
                        ParkedRequest& parked) {
  LEAF_CHECK(count > 0);
  std::optional<Result<IdSpans>> answer;
  {
    const std::lock_guard lock(mutex_);
    IdSpans spans;
    if (state_ == State::kRetired) return false;
    if (state_ == State::kGone) {
      answer = GoneError(tag_);
    } else if (state_ == State::kStopped) {
      answer = StoppedError();
    } else if (TakeLocked(count, spans)) {
      answer = spans;
    } else if (state_ == State::kFrozen || (failures_ > 0 && retry_scheduled_ && IsLasting(problem_->code))) {
      answer = *problem_;
    } else if (waiters_.size() >= kWaitersMax) {
      answer = Error{ErrorCode::kLimited,
                     fmt::format("tag {} has {} requests waiting already", Quoted(tag_), kWaitersMax),
                     "retry later"};
    } else {
      const std::uint64_t id = next_waiter_id_++;
      waiters_.push_back({id, count, limits.wait_while_failing, std::move(done)});
      parked_ids_ += count;
      ScheduleExpiryLocked(id,
                           failures_ > 0 ? std::min(limits.wait, limits.wait_while_failing) : limits.wait);
      StartRefillLocked();
      parked = ParkedRequest(weak_from_this(), id);
      return true;
    }
  }
  done(std::move(*answer));
  return true;
}

bool TagGenerator::TakeLocked(std::uint64_t count, IdSpans& out) {
  core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  if (buffer == nullptr || !waiters_.empty()) return false;
  const auto result = buffer->Take(count, out);
  if (result.refill_wanted) {
    refill_wanted_ = true;
    StartRefillLocked();
  }
  // Nothing is installed while we hold the mutex, so a position past the limit is void.
  return result.outcome == core::SegmentBuffer::Outcome::kTaken;
}

void TagGenerator::ScheduleExpiryLocked(std::uint64_t waiter_id, std::chrono::milliseconds wait) {
  world_.timers.PostAt(world_.clock.Monotonic() + wait, [weak = weak_from_this(), waiter_id] {
    if (const auto self = weak.lock()) self->Expire(waiter_id);
  });
}

void TagGenerator::Expire(std::uint64_t waiter_id) {
  EndWait(waiter_id, [this] {
    return Error{ErrorCode::kExhausted,
                 problem_ ? fmt::format("tag {} is drained and its last grant failed: {}", Quoted(tag_),
                                        problem_->message)
                          : fmt::format("tag {} is drained and no grant came in time", Quoted(tag_)),
                 "retry soon"};
  });
}

void TagGenerator::Withdraw(std::uint64_t waiter_id) {
  EndWait(waiter_id, [this] {
    return Error{ErrorCode::kExhausted,
                 fmt::format("tag {} is drained, and the client hung up while it waited", Quoted(tag_)),
                 "retry soon"};
  });
}

void TagGenerator::EndWait(std::uint64_t waiter_id, const std::function<Error()>& why_locked) {
  NextCallback done;
  Error error;
  bool retire = false;
  {
    const std::lock_guard lock(mutex_);
    // Waiters stand in the order of their IDs: most timers are of long served ones, and those are told at
    // once.
    if (waiters_.empty() || waiter_id < waiters_.front().id) return;
    const auto waiter =
        std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.id >= waiter_id; });
    if (waiter == waiters_.end() || waiter->id != waiter_id) return;
    done = std::move(waiter->done);
    parked_ids_ -= waiter->count;
    waiters_.erase(waiter);
    error = why_locked();
    retire = state_ == State::kUnconfirmed && waiters_.empty() && !refill_in_flight_;
  }
  done(std::move(error));
  if (retire) world_.retire(tag_, false);
}

void TagGenerator::WantRefill() {
  const std::lock_guard lock(mutex_);
  refill_wanted_ = true;
  StartRefillLocked();
}

void TagGenerator::StartRefillLocked() {
  if (refill_in_flight_ || retry_scheduled_) return;
  if (state_ != State::kServing && state_ != State::kUnconfirmed) return;
  refill_in_flight_ = true;
  // Names nobody knows, and tags in trouble, wait for each other and not for what is well.
  const bool slow = failures_ > 0 || state_ == State::kUnconfirmed;
  Executor& workers = slow ? world_.slow_workers : world_.workers;
  workers.Post([self = shared_from_this()] { self->RunRefill(); });
}

void TagGenerator::RunRefill() {
  Result<core::Grant> grant = ObtainGrant();
  // Whoever repairs a frozen tag asks this node for its mark, which another process may have raised.
  std::uint64_t durable_mark = 0;
  if (!grant.ok() && grant.error().code == ErrorCode::kFrozen) {
    if (const auto mark = world_.marks.Load(tag_); mark.ok()) durable_mark = *mark;
  }
  Completions completions;
  bool retire = false;
  bool known_absent = false;
  {
    const std::lock_guard lock(mutex_);
    refill_in_flight_ = false;
    if (grant.ok()) {
      OnGrantLocked(*grant, completions);
    } else {
      known_absent = grant.error().code == ErrorCode::kNotFound;
      OnFailureLocked(grant.error(), durable_mark, completions, retire);
    }
  }
  for (const auto& complete : completions) complete();
  if (retire) world_.retire(tag_, known_absent);
}

Result<core::Grant> TagGenerator::ObtainGrant() {
  bool confirmed = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kStopped) return StoppedError();
    confirmed = state_ != State::kUnconfirmed;
  }
  if (!confirmed) {
    // A plain read first: an unknown name must not take locks in the table.
    if (auto row = world_.store.Describe(tag_); !row.ok()) return std::move(row).error();
  }
  // Decided as late as can be, with the row locked: who parked or left while the database was slow counts.
  return world_.granter.Obtain(tag_, [&](const core::TagRow& row) -> Result<core::GrantSize> {
    const std::lock_guard lock(mutex_);
    const auto step = static_cast<std::uint64_t>(policy_.Propose(row.step, world_.clock.Monotonic()));
    const std::uint64_t least = waiters_.empty() ? 1 : waiters_.front().count;
    // At least what is parked, up to step_max; the first in line is always served whole.
    const std::uint64_t enlarged =
        std::min(parked_ids_, std::max(static_cast<std::uint64_t>(world_.step_max), least));
    return core::GrantSize{std::max({step, enlarged, least}), least};
  });
}

void TagGenerator::OnGrantLocked(const core::Grant& grant, Completions& completions) {
  seen_pass_.store(world_.refresh_pass.load(), std::memory_order_relaxed);
  mark_ = std::max(mark_, grant.range.end);
  granted_ += grant.range.size();
  ++grants_;
  if (state_ != State::kServing && state_ != State::kUnconfirmed) {
    // Frozen, gone or stopped meanwhile: whoever stopped this tag had a reason that the grant does not
    // remove.
    dropped_ += grant.range.size();
    return;
  }
  state_ = State::kServing;
  failures_ = 0;
  problem_.reset();
  refill_wanted_ = false;
  table_step_ = grant.table_step;
  // The policy's own proposal, not an enlarged grant, is what the next step is reckoned from.
  const MonotonicTime now = world_.clock.Monotonic();
  policy_.Commit(policy_.Propose(grant.table_step, now), grant.table_step, now);

  core::SegmentBuffer& buffer = BufferLocked();
  IdRange rest = grant.range;
  while (!waiters_.empty() && waiters_.front().count <= rest.size()) {
    Waiter& waiter = waiters_.front();
    // What a batch left in reserve when it parked comes first: order is kept and nothing is skipped.
    IdSpans spans;
    buffer.TakeUpTo(waiter.count, spans);
    if (const std::uint64_t missing = waiter.count - spans.total(); missing > 0) {
      spans.Append({rest.begin, rest.begin + missing});
      rest.begin += missing;
    }
    parked_ids_ -= waiter.count;
    completions.push_back([done = std::move(waiter.done), spans] { done(spans); });
    waiters_.pop_front();
  }
  const std::uint64_t served = grant.range.size() - rest.size();
  const std::uint64_t refill_after = RefillAfter(grant.range.size());
  if (rest.empty() || served > refill_after || !waiters_.empty()) refill_wanted_ = true;
  if (!rest.empty() && !buffer.Install(rest, refill_after > served ? refill_after - served : 0)) {
    dropped_ += rest.size();
    world_.log.Warning("tag {}: no room for [{}, {}), dropped", Quoted(tag_), rest.begin, rest.end);
  }
  if (refill_wanted_) StartRefillLocked();
}

void TagGenerator::OnFailureLocked(const Error& error, std::uint64_t durable_mark, Completions& completions,
                                   bool& retire) {
  if (state_ != State::kServing && state_ != State::kUnconfirmed) return;
  if (error.code == ErrorCode::kNotFound) {
    state_ = State::kGone;
    if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed))
      dropped_ += buffer->Clear();
    FailAllLocked(GoneError(tag_), completions);
    retire = true;
    return;
  }
  if (error.code == ErrorCode::kFrozen) {
    mark_ = std::max(mark_, durable_mark);
    FreezeLocked(error, completions);
    return;
  }
  ++failures_;
  problem_ = error;
  if (failures_ == 1) {
    world_.log.Warning("grant for tag {} failed: {}", Quoted(tag_), error.message);
    // Who parked while all was well now waits no longer than who comes next.
    for (const Waiter& waiter : waiters_) ScheduleExpiryLocked(waiter.id, waiter.wait_while_failing);
  }
  if (IsLasting(error.code)) FailAllLocked(error, completions);
  if (state_ == State::kUnconfirmed && waiters_.empty()) {
    retire = true;
    return;
  }
  ScheduleRetryLocked();
}

void TagGenerator::ScheduleRetryLocked() {
  const std::uint32_t doublings = std::min<std::uint32_t>(failures_ - 1, 10);
  const auto backoff = std::min(kBackoffMin * (1 << doublings), kBackoffMax);
  const auto jitter =
      std::chrono::milliseconds(world_.random.Below(static_cast<std::uint64_t>(backoff.count()) / 2 + 1));
  retry_scheduled_ = true;
  world_.timers.PostAt(world_.clock.Monotonic() + backoff - jitter, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    self->retry_scheduled_ = false;
    if (self->WantedLocked()) self->StartRefillLocked();
  });
}

void TagGenerator::Kick() {
  const std::lock_guard lock(mutex_);
  if (failures_ == 0 || !WantedLocked()) return;
  retry_scheduled_ = false;  // its timer will find nothing to do, or a refill in flight
  StartRefillLocked();
}

void TagGenerator::FreezeLocked(const Error& error, Completions& completions) {
  state_ = State::kFrozen;
  problem_ = error;
  refill_wanted_ = false;
  std::uint64_t dropped = 0;
  if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed)) dropped = buffer->Clear();
  dropped_ += dropped;
  world_.log.Error("{}; {} reserved IDs were dropped", error.message, dropped);
  FailAllLocked(error, completions);
}

void TagGenerator::FailAllLocked(const Error& error, Completions& completions) {
  for (Waiter& waiter : waiters_) {
    completions.push_back([done = std::move(waiter.done), error] { done(error); });
  }
  waiters_.clear();
  parked_ids_ = 0;
}

void TagGenerator::BeforeRefresh(std::uint64_t durable_mark) {
  const std::lock_guard lock(mutex_);
  mark_ = std::max(mark_, durable_mark);
  mark_before_refresh_ = mark_;
}

void TagGenerator::OnRow(const core::TagRow& row) {
  Completions completions;
  {
    const std::lock_guard lock(mutex_);
    seen_pass_.store(world_.refresh_pass.load(), std::memory_order_relaxed);
    table_step_ = row.step;
    const auto verdict = core::JudgeRow(tag_, row.max_id, mark_before_refresh_);
    if (verdict.ok() && state_ == State::kFrozen) {
      state_ = State::kServing;
      failures_ = 0;
      problem_.reset();
      world_.log.Info("tag {} thaws: max_id {} is above the mark {}", Quoted(tag_), row.max_id,
                      mark_before_refresh_);
    } else if (!verdict.ok() && state_ == State::kServing) {
      FreezeLocked(verdict.error(), completions);
    }
  }
  for (const auto& complete : completions) complete();
}

void TagGenerator::Remove() {
  Completions completions;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kGone || state_ == State::kStopped) return;
    state_ = State::kGone;
    if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed))
      dropped_ += buffer->Clear();
    FailAllLocked(GoneError(tag_), completions);
  }
  for (const auto& complete : completions) complete();
}

bool TagGenerator::confirmed() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kUnconfirmed;
}

bool TagGenerator::TryRetire() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kUnconfirmed && waiters_.empty() && !refill_in_flight_) state_ = State::kRetired;
  return state_ == State::kGone || state_ == State::kRetired;
}

void TagGenerator::Stop() {
  Completions completions;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kStopped;
    FailAllLocked(StoppedError(), completions);
  }
  for (const auto& complete : completions) complete();
}

core::SegmentBuffer& TagGenerator::BufferLocked() {
  core::SegmentBuffer* buffer = buffer_.load(std::memory_order_relaxed);
  if (buffer == nullptr) {
    buffer = new core::SegmentBuffer;
    buffer_.store(buffer, std::memory_order_release);
  }
  return *buffer;
}

std::uint64_t TagGenerator::reserve() const {
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  return buffer == nullptr ? 0 : buffer->remaining();
}

TagStatus TagGenerator::Status() const {
  const std::lock_guard lock(mutex_);
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  TagStatus status;
  status.tag = tag_;
  status.state = state_ == State::kFrozen ? "frozen" : grants_ == 0 ? "idle" : "active";
  status.reserve = buffer == nullptr ? 0 : buffer->remaining();
  status.waiting = waiters_.size();
  status.step = policy_.step();
  status.table_step = table_step_;
  status.mark = mark_;
  status.granted = granted_;
  status.wasted = dropped_ + (buffer == nullptr ? 0 : buffer->lost());
  // Takers move on while this is read: never report more issued and in reserve than was granted.
  const std::uint64_t not_issued = status.wasted + status.reserve;
  status.issued = granted_ > not_issued ? granted_ - not_issued : 0;
  status.grants = grants_;
  status.failures = failures_;
  status.problem = problem_;
  return status;
}

}  // namespace leaf::service
