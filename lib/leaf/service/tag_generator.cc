#include "leaf/service/tag_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/fence.h"

namespace leaf::service {
namespace {

Error PausedError(const std::string& tag) {
  return {ErrorCode::kPaused, fmt::format("tag {} is paused on this node", Quoted(tag)),
          TagCommand("resume", tag)};
}

}  // namespace

void ParkedRequest::Withdraw() const {
  if (const auto generator = generator_.lock()) generator->Withdraw(ticket_);
}

TagGenerator::TagGenerator(std::string tag, TagContext& context, bool confirmed, const core::Mark& mark,
                           std::uint64_t witness)
    : tag_(std::move(tag)),
      context_(context),
      seen_pass_(context.refresh_pass.load()),
      state_(confirmed ? TagState::kServing : TagState::kUnconfirmed),
      ledger_(context.counters) {
  AdoptMarkLocked(mark);
  witness_ = witness;
}

void TagGenerator::AdoptMarkLocked(const core::Mark& mark) {
  mark_ = std::max(mark_, mark.end);
  ledger_.Adopt(mark);
}

TagGenerator::~TagGenerator() { delete buffer_.load(); }

bool TagGenerator::TryTake(std::uint64_t count, IdSpans& out) {
  if (count == 1) {
    std::uint64_t id = 0;
    if (!TryTakeOne(id)) return false;
    out.Append({id, id + 1});
    return true;
  }
  core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  if (buffer == nullptr || paused_.load(std::memory_order_acquire)) return false;
  const auto result = buffer->Take(count, out);
  if (result.refill_wanted) WantRefill();
  return result.outcome == core::SegmentBuffer::Outcome::kTaken;
}

bool TagGenerator::TryTakeContiguous(std::uint64_t count, IdSpans& out) {
  core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  if (buffer == nullptr || paused_.load(std::memory_order_acquire)) return false;
  const auto result = buffer->TakeContiguous(count, out);
  if (result.refill_wanted) WantRefill();
  return result.outcome == core::SegmentBuffer::Outcome::kTaken;
}

std::optional<std::uint64_t> TagGenerator::SettleDraw(core::SegmentBuffer& buffer,
                                                      core::SegmentBuffer::Draw draw) {
  auto [result, id] = buffer.SettleDraw(draw);
  bool taken = result.outcome == core::SegmentBuffer::Outcome::kTaken;
  if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) {
    const MutexLock lock(mutex_);
    taken = buffer.Resolve(result.position, id);
  }
  if (result.refill_wanted) WantRefill();
  return taken ? std::optional(id) : std::nullopt;
}

bool TagGenerator::Park(const Batch& batch, const ParkLimits& limits, NextCallback& done,
                        ParkedRequest& parked) {
  LEAF_CHECK(batch.count > 0);
  std::optional<Result<IdSpans>> answer;
  {
    const MutexLock lock(mutex_);
    IdSpans spans;
    if (state_ == TagState::kRetired) return false;
    if (state_ == TagState::kGone) {
      answer = UnknownTag(tag_);
    } else if (state_ == TagState::kStopped) {
      answer = context_.stop.why();
    } else if (paused_.load(std::memory_order_relaxed)) {
      answer = PausedError(tag_);
    } else if (waiters_.empty() && TakeLocked(batch, spans)) {
      answer = spans;
    } else if (state_ == TagState::kFrozen ||
               (refill_.failures() > 0 && refill_.retry_scheduled() && IsLasting(problem_->error.code))) {
      answer = problem_->error;
    } else if (waiters_.size() >= kWaitersMax) {
      answer = Error{ErrorCode::kLimited,
                     fmt::format("tag {} has {} requests waiting already", Quoted(tag_), kWaitersMax),
                     "retry later"};
    } else {
      const MonotonicTime now = context_.clock.Monotonic();
      const MonotonicTime deadline = now + limits.wait;
      const MonotonicTime first_look =
          refill_.failures() > 0 ? std::min(deadline, now + limits.wait_while_failing) : deadline;
      const std::uint64_t ticket =
          waiters_.Add({{.ticket = 0, .count = batch.count, .deadline = deadline, .done = std::move(done)},
                        limits.wait_while_failing,
                        first_look,
                        batch.contiguous});
      ledger_.CountWait();
      LookAtLineLocked(first_look);
      if (grants_ && grants_->gathering) grants_->gathering->OnRequest(now);
      StartRefillLocked();
      parked = ParkedRequest(weak_from_this(), ticket);
      return true;
    }
    if (!answer->ok()) ledger_.CountError(SlotOf(answer->error().code));
  }
  done(std::move(*answer));
  return true;
}

bool TagGenerator::TakeLocked(const Batch& batch, IdSpans& out) {
  core::SegmentBuffer* const buffer = ReserveLocked();
  if (buffer == nullptr) return false;
  const auto result =
      batch.contiguous ? buffer->TakeContiguous(batch.count, out) : buffer->Take(batch.count, out);
  if (result.refill_wanted) {
    refill_.Want();
    StartRefillLocked();
  }
  if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) {
    std::uint64_t id = 0;
    // Nothing was installed while we hold the mutex: the position is void.
    LEAF_CHECK(!buffer->Resolve(result.position, id));
  }
  return result.outcome == core::SegmentBuffer::Outcome::kTaken;
}

void TagGenerator::LookAtLineLocked(MonotonicTime at) {
  if (at >= waiters_.next_look()) return;
  context_.timers.PostAt(at, [weak = weak_from_this(), at] {
    if (const auto self = weak.lock()) self->OnLineLook(at);
  });
  waiters_.set_next_look(at);
}

bool TagGenerator::HasWaitedEnoughLocked(Waiter& waiter, MonotonicTime now) {
  if (now < waiter.look_at) return false;
  // Grants failed when it came, or while it waited. If they work again, it keeps its full wait.
  if (refill_.failures() > 0 || now >= waiter.deadline) return true;
  waiter.look_at = waiter.deadline;
  return false;
}

void TagGenerator::OnLineLook(MonotonicTime at) {
  // A look walks along the whole line, so a long line is looked at less often.
  constexpr std::size_t kLong = 100;
  constexpr std::chrono::microseconds kPauseOfOne{1};
  Completions completions;
  bool retire = false;
  {
    const MutexLock lock(mutex_);
    // Another timer, which was set later and is due earlier, has looked, or will.
    if (at != waiters_.next_look()) return;
    waiters_.set_next_look(MonotonicTime::max());
    const MonotonicTime now = context_.clock.Monotonic();
    MonotonicTime next = MonotonicTime::max();
    std::optional<Error> why;
    for (auto place = waiters_.begin(); place != waiters_.end();) {
      if (!HasWaitedEnoughLocked(*place, now)) {
        next = std::min(next, place->look_at);
        ++place;
        continue;
      }
      const bool was_first = place == waiters_.begin();
      auto [waiter, after] = waiters_.Remove(place);
      place = after;
      ledger_.CountError(SlotOf(ErrorCode::kExhausted));
      if (!why) why = NoGrantInTimeLocked();
      completions.push_back([done = std::move(waiter.done), error = *why] { done(error); });
      if (!was_first) continue;
      ServeHeldLocked(completions);
      place = waiters_.begin();
    }
    retire = !completions.empty() && IsUnwantedLocked();
    if (waiters_.size() > kLong)
      next = std::max(next, context_.clock.Monotonic() + static_cast<int>(waiters_.size()) * kPauseOfOne);
    if (!waiters_.empty()) LookAtLineLocked(next);
  }
  for (const auto& complete : completions) complete();
  if (retire) context_.retire(tag_, false);
}

Error TagGenerator::NoGrantInTimeLocked() const {
  return {ErrorCode::kExhausted,
          problem_ ? fmt::format("tag {} is drained and its last grant failed: {}", Quoted(tag_),
                                 problem_->error.message)
                   : fmt::format("tag {} is drained and no grant came in time", Quoted(tag_)),
          "retry soon"};
}

void TagGenerator::Withdraw(std::uint64_t ticket) {
  NextCallback done;
  Completions completions;
  bool retire = false;
  {
    const MutexLock lock(mutex_);
    auto waiter = waiters_.Remove(ticket);
    if (!waiter) return;
    done = std::move(waiter->done);
    ledger_.CountError(kWithdrawnSlot);
    ServeHeldLocked(completions);
    retire = IsUnwantedLocked();
  }
  done(Error{ErrorCode::kExhausted,
             fmt::format("tag {} is drained, and the client hung up while it waited", Quoted(tag_)),
             "retry soon"});
  for (const auto& complete : completions) complete();
  if (retire) context_.retire(tag_, false);
}

bool TagGenerator::IsUnwantedLocked() const {
  return state_ == TagState::kUnconfirmed && waiters_.empty() && !refill_.in_flight();
}

void TagGenerator::SetOrder(core::TagOrder order) {
  const MutexLock lock(mutex_);
  if (std::exchange(order_, order) == order || !IsStrictLocked()) return;
  ledger_.Drop(ClearReserveLocked());
  refill_.Unwant();
}

void TagGenerator::AdoptReserveTime() {
  const MutexLock lock(mutex_);
  if (grants_ && grants_->reserve) grants_->reserve->set_reserve_time(context_.reserve_time.load());
}

void TagGenerator::SetPaused(bool paused) {
  Completions completions;
  bool retire = false;
  {
    const MutexLock lock(mutex_);
    paused_.store(paused, std::memory_order_release);
    if (paused) FailAllLocked(PausedError(tag_), completions);
    // Its requests were all that kept it.
    retire = !completions.empty() && state_ == TagState::kUnconfirmed;
  }
  for (const auto& complete : completions) complete();
  if (retire) context_.retire(tag_, false);
}

bool TagGenerator::EnterLocked(TagEvent event) {
  const std::optional<TagState> after = StateAfter(state_, event);
  if (after) state_ = *after;
  return after.has_value();
}

std::uint64_t TagGenerator::ClearReserveLocked() {
  core::SegmentBuffer* const buffer = ReserveLocked();
  if (buffer == nullptr) return 0;
  if (const auto last = buffer->LastTaken()) ledger_.NoteIssued(*last);
  return buffer->Clear();
}

void TagGenerator::ClearProblemLocked() {
  refill_.ForgetFailures();
  refill_.SkipRetry();
  problem_.reset();
}

void TagGenerator::FreezeLocked(const Error& error, Completions& completions) {
  problem_ = std::make_unique<Problem>(Problem{error, context_.clock.Wall()});
  refill_.Unwant();
  const std::uint64_t dropped = ClearReserveLocked();
  ledger_.Drop(dropped);
  completions.push_back([this, message = error.message, dropped] {
    context_.log.Error("{}; {} reserved IDs were dropped", message, dropped);
  });
  FailAllLocked(error, completions);
}

void TagGenerator::FailAllLocked(const Error& error, Completions& completions) {
  for (Waiter& waiter : waiters_.RemoveAll()) {
    ledger_.CountError(SlotOf(error.code));
    completions.push_back([done = std::move(waiter.done), error] { done(error); });
  }
}

void TagGenerator::BeforeRefresh(const core::Mark& durable_mark, std::optional<std::uint64_t> witness) {
  const MutexLock lock(mutex_);
  AdoptMarkLocked(durable_mark);
  witness_ = std::max(witness_, witness.value_or(0));
  if (grants_) grants_->before_refresh.reset();
}

void TagGenerator::KeepLevelLocked() {
  std::optional<core::FenceLevel>& level = OpenGrantsLocked().before_refresh;
  if (!level) level = {mark_, witness_};
}

void TagGenerator::OnRow(const core::TagRow& row) {
  Completions completions;
  {
    const MutexLock lock(mutex_);
    seen_pass_.store(context_.refresh_pass.load(), std::memory_order_relaxed);
    table_step_ = row.step;
    max_id_ = row.max_id;
    ObserveRateLocked();
    WatchExhaustionLocked(completions);
    const core::FenceLevel level =
        grants_ && grants_->before_refresh ? *grants_->before_refresh : core::FenceLevel{mark_, witness_};
    const auto verdict = core::JudgeRow(tag_, row.max_id, level);
    if (!verdict.ok()) {
      if (EnterLocked(TagEvent::kRowBehind)) FreezeLocked(verdict.error(), completions);
    } else if (EnterLocked(TagEvent::kRowFits)) {
      ClearProblemLocked();
      completions.push_back([this, max_id = row.max_id, level] {
        context_.log.Info("tag {} thaws: max_id {} is not below the mark {}", Quoted(tag_), max_id,
                          std::max(level.mark, level.witness));
      });
    }
  }
  for (const auto& complete : completions) complete();
}

void TagGenerator::Remove() {
  Completions completions;
  {
    const MutexLock lock(mutex_);
    if (!EnterLocked(TagEvent::kAbsent)) return;
    ledger_.Drop(ClearReserveLocked());
    FailAllLocked(UnknownTag(tag_), completions);
  }
  for (const auto& complete : completions) complete();
}

bool TagGenerator::confirmed() const {
  const MutexLock lock(mutex_);
  return IsConfirmed(state_);
}

bool TagGenerator::NoteAdded() {
  const MutexLock lock(mutex_);
  if (state_ == TagState::kGone || state_ == TagState::kRetired) return false;
  refill_.NoteAdded();
  return true;
}

bool TagGenerator::TryRetire() {
  const MutexLock lock(mutex_);
  if (waiters_.empty() && !refill_.in_flight()) EnterLocked(TagEvent::kUnwanted);
  return state_ == TagState::kGone || state_ == TagState::kRetired;
}

void TagGenerator::Stop() {
  Completions completions;
  {
    const MutexLock lock(mutex_);
    EnterLocked(TagEvent::kStop);
    ledger_.LeaveUnissued(ClearReserveLocked());
    FailAllLocked(context_.stop.why(), completions);
  }
  for (const auto& complete : completions) complete();
}

core::SegmentBuffer& TagGenerator::BufferLocked() {
  core::SegmentBuffer* buffer = ReserveLocked();
  if (buffer == nullptr) {
    buffer = new core::SegmentBuffer;
    Grants& grants = OpenGrantsLocked();
    grants.reserve.emplace(context_.reserve_time.load());
    grants.peak.emplace().Observe(0, context_.clock.Monotonic());
    buffer_.store(buffer, std::memory_order_release);
  }
  return *buffer;
}

TagGenerator::Grants& TagGenerator::OpenGrantsLocked() {
  if (!grants_) grants_ = std::make_unique<Grants>(context_);
  return *grants_;
}

}  // namespace leaf::service
