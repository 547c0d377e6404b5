// The refill of a tag: what a worker asks the Granter, and what its answer does to the tag and its waiting
// requests.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {
namespace {

// Leaf asks for the next range when more than a tenth of the newest one is used, on the take of the ID after
// that: with so many IDs left in reserve.
std::uint64_t LeafLowWater(std::uint64_t range_size) {
  const std::uint64_t taken = range_size / 10 + 2;
  return range_size > taken ? range_size - taken : 0;
}

// Other failures are the tag's.
bool MayBeOfStore(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kOutcomeUnknown ||
         code == ErrorCode::kPermission || code == ErrorCode::kConfig;
}

}  // namespace

// A failure that waiting does not cure: parked requests are told at once.
bool TagGenerator::IsLasting(ErrorCode code) {
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

void TagGenerator::WantRefill() {
  const MutexLock lock(mutex_);
  refill_.Want();
  StartRefillLocked();
}

void TagGenerator::StartRefillLocked() {
  if (!MayRefill(state_) || (IsStrictLocked() && (waiters_.empty() || GathersLocked())) || !refill_.Begin())
    return;
  auto run = [self = shared_from_this()] { self->RunRefill(); };
  if (state_ == TagState::kUnconfirmed) return context_.look_ups.Post(std::move(run));
  // Tags in trouble wait for each other and do not hold up the rest.
  (refill_.failures() > 0 ? context_.slow_workers : context_.workers).Post(std::move(run));
}

bool TagGenerator::GathersLocked() {
  if (!grants_ || !grants_->gathering || refill_.in_flight() || refill_.failures() > 0) return false;
  const auto until = grants_->gathering->WaitsUntil(context_.clock.Monotonic());
  if (!until) return false;
  if (!grants_->gathering_timer || *until < *grants_->gathering_timer) {
    grants_->gathering_timer = until;
    context_.timers.PostAt(*until, [weak = weak_from_this(), at = *until] {
      const auto self = weak.lock();
      if (!self) return;
      const MutexLock lock(self->mutex_);
      // An earlier one has taken its place.
      if (self->grants_->gathering_timer != at) return;
      self->grants_->gathering_timer.reset();
      if (self->WantedLocked()) self->StartRefillLocked();
    });
  }
  return true;
}

void TagGenerator::RunRefill() {
  const MonotonicTime asked_at = context_.clock.Monotonic();
  const Obtained obtained = ObtainGrant();
  const Result<core::Grant>& grant = obtained.grant;
  // To repair a frozen tag, an operator asks this node for its mark, which another process may have raised.
  core::Mark durable_mark;
  if (!grant.ok() && grant.error().code == ErrorCode::kFrozen) {
    if (auto mark = context_.marks.Load(tag_); mark.ok()) durable_mark = std::move(*mark);
  }
  Completions completions;
  bool retire = false;
  bool known_absent = false;
  {
    const MutexLock lock(mutex_);
    refill_.End();
    KeepLevelLocked();
    witness_ = std::max(witness_, obtained.witness);
    ledger_.DropUnseen(obtained.dropped);
    if (grant.ok()) {
      OnGrantLocked(*grant, context_.clock.Monotonic() - asked_at, completions);
    } else if (grant.error().code == ErrorCode::kNotFound && refill_.TakeAdded()) {
      retire = IsUnwantedLocked();
      if (!retire) StartRefillLocked();
    } else {
      known_absent = grant.error().code == ErrorCode::kNotFound;
      OnFailureLocked(grant.error(), durable_mark, completions, retire);
    }
  }
  for (const auto& complete : completions) complete();
  if (retire) context_.retire(tag_, known_absent);
}

Obtained TagGenerator::ObtainGrant() {
  if (auto known = context_.orders.Ensure(); !known.ok()) return {std::move(known).error(), 0, 0};
  bool confirmed = false;
  bool is_strict = false;
  std::uint64_t witness = 0;
  std::optional<StrictGrant> strict;
  {
    const MutexLock lock(mutex_);
    if (state_ == TagState::kStopped) return {context_.stop.why(), 0, 0};
    is_strict = IsStrictLocked();
    if (is_strict) {
      if (context_.fallback) return {NoStrictWithFallback(tag_), 0, 0};
      if (!waiters_.empty())
        strict = {.size = [this] { return SizeStrictGrant(); }, .until = waiters_.front().deadline};
    }
    confirmed = state_ != TagState::kUnconfirmed;
    witness = witness_;
    refill_.NoteAsked();
  }
  if (!confirmed) {
    // A plain read first: an unknown name must not take locks in the table.
    if (auto row = context_.store.Describe(tag_); !row.ok()) return {std::move(row).error(), 0, 0};
  }
  // A table that went back does not say so. From here on this is a grant of a strict tag: if it is sized by
  // now, it serves those who were in line then.
  const auto heed = [this](const core::StrictMark& mark) -> Result<void> {
    if (!context_.orders.LearnStrict(tag_, mark)) return {};
    if (context_.fallback) return NoStrictWithFallback(tag_);
    return {};
  };
  return context_.granter.Obtain(
      tag_, [this](const core::TagRow& row) { return SizeGrant(row); },
      [this](std::uint64_t granted) { return reserve() + granted; }, witness, strict ? &*strict : nullptr,
      is_strict ? Granter::HeedStrict() : heed);
}

// Decided as late as can be, once the row was read: requests that parked or left while the database was slow
// count. The row is raised after this, so all that are in line now have come before the grant.
Result<core::GrantSize> TagGenerator::SizeGrant(const core::TagRow& row) {
  const MutexLock lock(mutex_);
  if (IsStrictLocked()) return SizeStrictLocked();
  const std::uint64_t first = NoteLineLocked();
  const auto step = static_cast<std::uint64_t>(grants_->step.Propose(row.step, context_.clock.Monotonic()));
  // At least what is parked, up to step_max; the first in line is always served whole.
  const std::uint64_t enlarged =
      std::min(waiters_.ids(), std::max(static_cast<std::uint64_t>(context_.step_max), first));
  // Where the numbers end, the reserve and what is left may still be enough together.
  const std::uint64_t in_reserve = !waiters_.empty() && waiters_.front().contiguous ? 0 : reserve();
  return core::GrantSize{std::max({step, enlarged, first}), first > in_reserve ? first - in_reserve : 1};
}

Result<core::GrantSize> TagGenerator::SizeStrictGrant() {
  const MutexLock lock(mutex_);
  return SizeStrictLocked();
}

Result<core::GrantSize> TagGenerator::SizeStrictLocked() {
  const std::uint64_t first = NoteLineLocked();
  if (waiters_.empty()) return Error{ErrorCode::kExhausted, "no request waits any more", ""};
  return core::GrantSize{waiters_.ids(), first};
}

std::uint64_t TagGenerator::NoteLineLocked() {
  Grants& grants = OpenGrantsLocked();
  grants.sized_for = waiters_.empty() ? 1 : waiters_.front().count;
  grants.sized_up_to = waiters_.last_ticket();
  return grants.sized_for;
}

void TagGenerator::OnGrantLocked(const core::Grant& grant, std::chrono::nanoseconds latency,
                                 Completions& completions) {
  seen_pass_.store(context_.refresh_pass.load(), std::memory_order_relaxed);
  mark_ = std::max(mark_, grant.range.end);
  ledger_.AddGrant(grant.range, latency);
  if (!EnterLocked(TagEvent::kGranted)) {
    // What ended this tag's service meanwhile had a reason that the grant does not remove.
    if (state_ == TagState::kStopped) {
      ledger_.LeaveUnissued(grant.range.size());
    } else {
      ledger_.Drop(grant.range.size());
    }
    return;
  }
  ClearProblemLocked();
  refill_.Unwant();
  if (grant.table_step != 0) table_step_ = grant.table_step;
  max_id_ = std::max(max_id_, static_cast<std::int64_t>(grant.range.end));
  ledger_.BeginAt(grant.range.end, context_.clock.Wall());
  if (IsStrictLocked()) {
    HandOutLocked(grant.range, latency, completions);
  } else {
    StockLocked(grant, latency, completions);
  }
  if (!waiters_.empty()) refill_.Want();
  WatchExhaustionLocked(completions);
  if (WantedLocked()) StartRefillLocked();
}

void TagGenerator::HandOutLocked(const IdRange& range, std::chrono::nanoseconds latency,
                                 Completions& completions) {
  BufferLocked();
  grants_->reserve->ObserveGrant(latency);
  IdRange rest = range;
  const std::size_t waiting = waiters_.size();
  ServeWaitersLocked(rest, completions);
  if (!grants_->gathering) grants_->gathering.emplace();
  grants_->gathering->OnAnswered(waiting - waiters_.size(), latency, context_.clock.Monotonic());
  // Requests that have left meanwhile. What comes later gets none of it: its grant would have begun before.
  ledger_.Drop(rest.size());
}

void TagGenerator::StockLocked(const core::Grant& grant, std::chrono::nanoseconds latency,
                               Completions& completions) {
  const MonotonicTime now = context_.clock.Monotonic();
  // Of a tag that was strict when the grant began, the row may not have been read, or only by a refresh.
  const std::int64_t table_step = std::clamp<std::int64_t>(table_step_, 1, kStepMax);
  // The policy's own proposal, not an enlarged grant, is what the next step is reckoned from.
  core::StepPolicy& step = OpenGrantsLocked().step;
  step.Commit(step.Propose(table_step, now), table_step, now);

  core::SegmentBuffer& buffer = BufferLocked();
  core::ReservePolicy& policy = *grants_->reserve;
  IdRange rest = grant.range;
  ServeWaitersLocked(rest, completions);
  policy.ObserveGrant(latency);
  // What is in reserve and in `rest` was not issued; the rest of the sum was.
  const std::uint64_t issued = ledger_.Issued(&buffer);
  policy.ObserveIssued(issued > rest.size() ? issued - rest.size() : 0, now);

  const std::uint64_t low_water = std::max(LeafLowWater(grant.range.size()), policy.Target());
  if (rest.empty()) {
    refill_.Want();
  } else {
    switch (buffer.Install(rest, low_water)) {
      case core::SegmentBuffer::Installed::kYes:
        break;
      case core::SegmentBuffer::Installed::kLow:
        refill_.Want();
        break;
      case core::SegmentBuffer::Installed::kNo:
        ledger_.Drop(rest.size());
        completions.push_back([this, rest] {
          context_.log.Warning("tag {}: no room for [{}, {}), dropped", Quoted(tag_), rest.begin, rest.end);
        });
    }
  }
}

void TagGenerator::ServeWaitersLocked(IdRange& grant, Completions& completions) {
  core::SegmentBuffer& buffer = BufferLocked();
  while (!waiters_.empty() && waiters_.front().count <= grant.size() + buffer.remaining()) {
    const Waiter& waiter = waiters_.front();
    if (IsStrictLocked() && waiter.ticket > grants_->sized_up_to) return;
    IdSpans spans;
    if (waiter.contiguous) {
      if (!TakeContiguousLocked(waiter.count, grant, spans)) return;
    } else {
      // What a batch left in reserve when it parked comes first: order is kept and nothing is skipped.
      buffer.TakeUpTo(waiter.count, spans);
      const std::uint64_t missing = waiter.count - spans.total();
      if (missing > grant.size()) {
        // Takers emptied the reserve meanwhile, and what is left below 2^63 is not enough without it.
        ledger_.Drop(spans.total());
        return;
      }
      if (missing > 0) spans.Append({grant.begin, grant.begin + missing});
      grant.begin += missing;
    }
    ledger_.NoteIssued(spans.ranges().back().end - 1);
    completions.push_back([done = std::move(waiters_.RemoveFront().done), spans] { done(spans); });
  }
}

bool TagGenerator::TakeContiguousLocked(std::uint64_t count, IdRange& grant, IdSpans& out) {
  core::SegmentBuffer& buffer = BufferLocked();
  if (buffer.TakeContiguous(count, out).outcome == core::SegmentBuffer::Outcome::kTaken) return true;
  // So many of the last IDs in reserve are continued by the grant.
  const auto tail_of = [&](const IdSpans& spans) {
    if (spans.empty() || spans.ranges().back().end != grant.begin) return std::uint64_t{0};
    return spans.ranges().back().size();
  };
  IdSpans held;
  for (const core::SegmentBuffer::Held& range : buffer.Ranges()) held.Append({range.next, range.end});
  if (tail_of(held) + grant.size() < count) return false;
  // IDs of a tag rise: those below the batch are never issued.
  IdSpans below;
  buffer.TakeUpTo(buffer.remaining(), below);
  // Takers may have taken some of them meanwhile.
  const std::uint64_t tail = std::min(tail_of(below), count);
  if (tail + grant.size() < count) {
    ledger_.Drop(below.total());
    return false;
  }
  ledger_.Drop(below.total() - tail);
  out.Append({grant.begin - tail, grant.begin - tail + count});
  grant.begin += count - tail;
  return true;
}

void TagGenerator::OnFailureLocked(const Error& error, const core::Mark& durable_mark,
                                   Completions& completions, bool& retire) {
  if (!MayRefill(state_)) return;
  // The last request has left while the database was slow: nothing was granted, and nothing failed.
  if (error.code == ErrorCode::kExhausted) {
    if (WantedLocked()) StartRefillLocked();
    retire = state_ == TagState::kUnconfirmed && waiters_.empty();
    return;
  }
  // That there is no such tag is an answer, not a failure: a caller may ask for any name.
  if (error.code != ErrorCode::kNotFound) ledger_.CountFailedRefill();
  if (error.code == ErrorCode::kNotFound) {
    EnterLocked(TagEvent::kAbsent);
    ledger_.Drop(ClearReserveLocked());
    FailAllLocked(UnknownTag(tag_), completions);
    retire = true;
    return;
  }
  if (error.code == ErrorCode::kFrozen) {
    AdoptMarkLocked(durable_mark);  // RunRefill has kept the level
    EnterLocked(TagEvent::kGrantBehind);
    FreezeLocked(error, completions);
    return;
  }
  if (error.code == ErrorCode::kOverflow) {
    // Each round answers at least the request it was asked for: those that want less need another one.
    FailUnheldLocked(error, grants_->sized_for, completions);
    if (!waiters_.empty()) return StartRefillLocked();
  }
  refill_.CountFailure();
  const bool is_first = refill_.failures() == 1;
  if (MayBeOfStore(error.code)) completions.push_back([this] { context_.store_failed(); });
  problem_ = std::make_unique<Problem>(
      Problem{error, problem_ && !is_first ? problem_->since : context_.clock.Wall()});
  if (is_first) {
    completions.push_back([this, error] {
      context_.failure_log.Tell(error.code,
                                fmt::format("grant for tag {} failed: {}", Quoted(tag_), error.message));
    });
    // A request that parked while all was well now waits no longer than one that comes next.
    const MonotonicTime now = context_.clock.Monotonic();
    for (Waiter& waiter : waiters_) {
      waiter.look_at = std::min(waiter.look_at, now + waiter.wait_while_failing);
      LookAtLineLocked(waiter.look_at);
    }
  }
  if (IsLasting(error.code)) FailUnheldLocked(error, 0, completions);
  if (state_ == TagState::kUnconfirmed && waiters_.empty()) {
    retire = true;
    return;
  }
  ScheduleRetryLocked();
}

void TagGenerator::ServeHeldLocked(Completions& completions) {
  while (!waiters_.empty()) {
    IdSpans spans;
    if (!TakeLocked({waiters_.front().count, waiters_.front().contiguous}, spans)) return;
    completions.push_back([done = std::move(waiters_.RemoveFront().done), spans] { done(spans); });
  }
}

void TagGenerator::FailUnheldLocked(const Error& error, std::uint64_t least, Completions& completions) {
  for (;;) {
    ServeHeldLocked(completions);
    if (waiters_.empty() || waiters_.front().count < least) return;
    ledger_.CountError(SlotOf(error.code));
    completions.push_back([done = std::move(waiters_.RemoveFront().done), error] { done(error); });
  }
}

void TagGenerator::ScheduleRetryLocked() {
  const RefillSchedule::Retry retry = refill_.ScheduleRetry(context_.random);
  context_.timers.PostAt(context_.clock.Monotonic() + retry.after, [weak = weak_from_this(), id = retry.id] {
    const auto self = weak.lock();
    if (!self) return;
    const MutexLock lock(self->mutex_);
    if (self->refill_.TakeRetry(id) && self->WantedLocked()) self->StartRefillLocked();
  });
}

void TagGenerator::Kick() {
  const MutexLock lock(mutex_);
  if (refill_.failures() == 0 || !WantedLocked()) return;
  refill_.SkipRetry();
  StartRefillLocked();
}

}  // namespace leaf::service
