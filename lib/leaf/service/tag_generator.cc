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

// Leaf asks for the next range when more than a tenth of the newest one is used, on the take of the ID after
// that: with so many IDs left in reserve.
std::uint64_t LeafLowWater(std::uint64_t range_size) {
  const std::uint64_t taken = range_size / 10 + 2;
  return range_size > taken ? range_size - taken : 0;
}

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

Error PausedError(const std::string& tag) {
  return {ErrorCode::kPaused, fmt::format("tag {} is paused on this node", Quoted(tag)),
          TagCommand("resume", tag)};
}

}  // namespace

void ParkedRequest::Withdraw() const {
  if (const auto generator = generator_.lock()) generator->Withdraw(waiter_id_);
}

TagGenerator::TagGenerator(std::string tag, GeneratorWorld& world, bool confirmed, const core::Mark& mark,
                           std::uint64_t witness)
    : tag_(std::move(tag)),
      world_(world),
      seen_pass_(world.refresh_pass.load()),
      state_(confirmed ? State::kServing : State::kUnconfirmed),
      policy_(world.step_policy, world.step_max) {
  AdoptMarkLocked(mark);
  witness_ = witness;
  before_refresh_ = {mark_, witness_};
}

void TagGenerator::AdoptMarkLocked(const core::Mark& mark) {
  mark_ = std::max(mark_, mark.end);
  if (mark.end == 0) return;
  Account& account = OpenAccountLocked();
  account.base = mark.base;
  account.wasted_before = mark.wasted;
  account.wasted_last = mark.wasted_last;
  account.wasted_exactly = mark.wasted_exactly;
}

TagGenerator::~TagGenerator() { delete buffer_.load(); }

bool TagGenerator::TryTake(std::uint64_t count, IdSpans& out) {
  core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  if (buffer == nullptr || paused_.load(std::memory_order_acquire)) return false;
  const auto result = buffer->Take(count, out);
  bool taken = result.outcome == core::SegmentBuffer::Outcome::kTaken;
  if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) [[unlikely]]
    taken = TakeOvershoot(*buffer, result.position, out);
  if (result.refill_wanted) WantRefill();
  return taken;
}

// Apart: its locals would cost the way of every ID a stack protector.
[[gnu::noinline, gnu::cold]] bool TagGenerator::TakeOvershoot(core::SegmentBuffer& buffer,
                                                              std::uint64_t position, IdSpans& out) {
  const std::lock_guard lock(mutex_);
  std::uint64_t id = 0;
  if (!buffer.Resolve(position, id)) return false;
  out.Append({id, id + 1});
  return true;
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
      answer = UnknownTag(tag_);
    } else if (state_ == State::kStopped) {
      answer = world_.stop.why();
    } else if (paused_.load(std::memory_order_relaxed)) {
      answer = PausedError(tag_);
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
      const MonotonicTime now = world_.clock.Monotonic();
      const MonotonicTime deadline = now + limits.wait;
      const MonotonicTime first_look =
          failures_ > 0 ? std::min(deadline, now + limits.wait_while_failing) : deadline;
      waiters_.push_back(
          {id, count, deadline, first_look == deadline, limits.wait_while_failing, std::move(done)});
      parked_ids_ += count;
      ++TalliesLocked().waits;
      world_.counters.AddWait();
      ScheduleExpiryLocked(id, first_look);
      StartRefillLocked();
      parked = ParkedRequest(weak_from_this(), id);
      return true;
    }
    if (!answer->ok()) CountErrorLocked(SlotOf(answer->error().code));
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
  if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) {
    std::uint64_t id = 0;
    // Nothing was installed while we hold the mutex: the position is void.
    LEAF_CHECK(!buffer->Resolve(result.position, id));
  }
  return result.outcome == core::SegmentBuffer::Outcome::kTaken;
}

void TagGenerator::ScheduleExpiryLocked(std::uint64_t waiter_id, MonotonicTime at) {
  world_.timers.PostAt(at, [weak = weak_from_this(), waiter_id] {
    if (const auto self = weak.lock()) self->Expire(waiter_id);
  });
}

std::list<TagGenerator::Waiter>::iterator TagGenerator::FindWaiterLocked(std::uint64_t waiter_id) {
  // Most timers belong to waiters that were served long ago; the first comparison finds that out.
  if (waiters_.empty() || waiter_id < waiters_.front().id) return waiters_.end();
  const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                  [&](const Waiter& waiter) { return waiter.id >= waiter_id; });
  return found != waiters_.end() && found->id == waiter_id ? found : waiters_.end();
}

void TagGenerator::Expire(std::uint64_t waiter_id) {
  const auto goes_on = [this](Waiter& waiter) {
    // Grants failed when it came, or while it waited. If they work again, it keeps its full wait.
    if (failures_ > 0 || world_.clock.Monotonic() >= waiter.deadline) return false;
    if (!std::exchange(waiter.has_timer, true)) ScheduleExpiryLocked(waiter.id, waiter.deadline);
    return true;
  };
  EndWait(waiter_id, SlotOf(ErrorCode::kExhausted), goes_on, [this] {
    return Error{ErrorCode::kExhausted,
                 problem_ ? fmt::format("tag {} is drained and its last grant failed: {}", Quoted(tag_),
                                        problem_->message)
                          : fmt::format("tag {} is drained and no grant came in time", Quoted(tag_)),
                 "retry soon"};
  });
}

void TagGenerator::Withdraw(std::uint64_t waiter_id) {
  const auto goes_on = [](const Waiter&) { return false; };
  EndWait(waiter_id, kWithdrawnSlot, goes_on, [this] {
    return Error{ErrorCode::kExhausted,
                 fmt::format("tag {} is drained, and the client hung up while it waited", Quoted(tag_)),
                 "retry soon"};
  });
}

void TagGenerator::EndWait(std::uint64_t waiter_id, std::size_t cause_slot,
                           const std::function<bool(Waiter&)>& goes_on_locked,
                           const std::function<Error()>& why_locked) {
  NextCallback done;
  Error error;
  bool retire = false;
  {
    const std::lock_guard lock(mutex_);
    const auto waiter = FindWaiterLocked(waiter_id);
    if (waiter == waiters_.end() || goes_on_locked(*waiter)) return;
    done = std::move(waiter->done);
    parked_ids_ -= waiter->count;
    waiters_.erase(waiter);
    error = why_locked();
    CountErrorLocked(cause_slot);
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
  const MonotonicTime asked_at = world_.clock.Monotonic();
  const Obtained obtained = ObtainGrant();
  const Result<core::Grant>& grant = obtained.grant;
  // Whoever repairs a frozen tag asks this node for its mark, which another process may have raised.
  core::Mark durable_mark;
  if (!grant.ok() && grant.error().code == ErrorCode::kFrozen) {
    if (auto mark = world_.marks.Load(tag_); mark.ok()) durable_mark = std::move(*mark);
  }
  Completions completions;
  bool retire = false;
  bool known_absent = false;
  {
    const std::lock_guard lock(mutex_);
    refill_in_flight_ = false;
    witness_ = std::max(witness_, obtained.witness);
    OpenAccountLocked().granted += obtained.dropped;
    world_.counters.AddGranted(obtained.dropped);
    DropLocked(obtained.dropped);
    if (grant.ok()) {
      OnGrantLocked(*grant, world_.clock.Monotonic() - asked_at, completions);
    } else {
      known_absent = grant.error().code == ErrorCode::kNotFound;
      OnFailureLocked(grant.error(), durable_mark, completions, retire);
    }
  }
  for (const auto& complete : completions) complete();
  if (retire) world_.retire(tag_, known_absent);
}

Obtained TagGenerator::ObtainGrant() {
  bool confirmed = false;
  std::uint64_t witness = 0;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kStopped) return {world_.stop.why(), 0, 0};
    confirmed = state_ != State::kUnconfirmed;
    witness = witness_;
  }
  if (!confirmed) {
    // A plain read first: an unknown name must not take locks in the table.
    if (auto row = world_.store.Describe(tag_); !row.ok()) return {std::move(row).error(), 0, 0};
  }
  // Decided as late as can be, once the row was read: requests that parked or left while the database was
  // slow count.
  const auto size = [this](const core::TagRow& row) -> Result<core::GrantSize> {
    const std::lock_guard lock(mutex_);
    const auto step = static_cast<std::uint64_t>(policy_.Propose(row.step, world_.clock.Monotonic()));
    const std::uint64_t first = waiters_.empty() ? 1 : waiters_.front().count;
    sized_for_ = first;
    // At least what is parked, up to step_max; the first in line is always served whole.
    const std::uint64_t enlarged =
        std::min(parked_ids_, std::max(static_cast<std::uint64_t>(world_.step_max), first));
    // Where the numbers end, the reserve and what is left may still be enough together.
    const std::uint64_t in_reserve = reserve();
    return core::GrantSize{std::max({step, enlarged, first}), first > in_reserve ? first - in_reserve : 1};
  };
  return world_.granter.Obtain(
      tag_, size, [this](std::uint64_t granted) { return reserve() + granted; }, witness);
}

void TagGenerator::OnGrantLocked(const core::Grant& grant, std::chrono::nanoseconds latency,
                                 Completions& completions) {
  seen_pass_.store(world_.refresh_pass.load(), std::memory_order_relaxed);
  mark_ = std::max(mark_, grant.range.end);
  Account& account = OpenAccountLocked();
  account.granted += grant.range.size();
  ++account.grants;
  world_.counters.AddGranted(grant.range.size());
  CountRefillLocked(grant.range, latency);
  if (state_ != State::kServing && state_ != State::kUnconfirmed) {
    // Frozen, gone or stopped meanwhile: whoever stopped this tag had a reason that the grant does not
    // remove.
    DropLocked(grant.range.size());
    if (state_ == State::kStopped) account.unissued += grant.range.size();
    return;
  }
  const MonotonicTime now = world_.clock.Monotonic();
  state_ = State::kServing;
  failures_ = 0;
  problem_.reset();
  problem_since_.reset();
  refill_wanted_ = false;
  table_step_ = grant.table_step;
  max_id_ = std::max(max_id_, static_cast<std::int64_t>(grant.range.end));
  if (!account.base) account.base = {grant.range.end, world_.clock.Wall()};
  // The policy's own proposal, not an enlarged grant, is what the next step is reckoned from.
  policy_.Commit(policy_.Propose(grant.table_step, now), grant.table_step, now);

  core::SegmentBuffer& buffer = BufferLocked();
  IdRange rest = grant.range;
  ServeWaitersLocked(rest, completions);
  reserve_policy_->ObserveGrant(latency);
  // What is in reserve and in `rest` was not issued; the rest of the sum was.
  const std::uint64_t issued = IssuedLocked();
  reserve_policy_->ObserveIssued(issued > rest.size() ? issued - rest.size() : 0, now);

  const std::uint64_t low_water = std::max(LeafLowWater(grant.range.size()), reserve_policy_->Target());
  if (rest.empty()) {
    refill_wanted_ = true;
  } else {
    switch (buffer.Install(rest, low_water)) {
      case core::SegmentBuffer::Installed::kYes:
        break;
      case core::SegmentBuffer::Installed::kLow:
        refill_wanted_ = true;
        break;
      case core::SegmentBuffer::Installed::kNo:
        DropLocked(rest.size());
        completions.push_back([this, rest] {
          world_.log.Warning("tag {}: no room for [{}, {}), dropped", Quoted(tag_), rest.begin, rest.end);
        });
    }
  }
  if (!waiters_.empty()) refill_wanted_ = true;
  WatchExhaustionLocked(completions);
  if (refill_wanted_) StartRefillLocked();
}

void TagGenerator::ServeWaitersLocked(IdRange& grant, Completions& completions) {
  core::SegmentBuffer& buffer = BufferLocked();
  while (!waiters_.empty() && waiters_.front().count <= grant.size() + buffer.remaining()) {
    Waiter& waiter = waiters_.front();
    // What a batch left in reserve when it parked comes first: order is kept and nothing is skipped.
    IdSpans spans;
    buffer.TakeUpTo(waiter.count, spans);
    const std::uint64_t missing = waiter.count - spans.total();
    if (missing > grant.size()) {
      // Takers emptied the reserve meanwhile, and what is left below 2^63 is not enough without it.
      DropLocked(spans.total());
      return;
    }
    if (missing > 0) spans.Append({grant.begin, grant.begin + missing});
    grant.begin += missing;
    parked_ids_ -= waiter.count;
    completions.push_back([done = std::move(waiter.done), spans] { done(spans); });
    waiters_.pop_front();
  }
}

void TagGenerator::OnFailureLocked(const Error& error, const core::Mark& durable_mark,
                                   Completions& completions, bool& retire) {
  if (state_ != State::kServing && state_ != State::kUnconfirmed) return;
  // That there is no such tag is an answer; everybody may ask for any name.
  if (error.code != ErrorCode::kNotFound) {
    ++TalliesLocked().refills_failed;
    world_.counters.AddFailedRefill();
  }
  if (error.code == ErrorCode::kNotFound) {
    state_ = State::kGone;
    if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed))
      DropLocked(buffer->Clear());
    FailAllLocked(UnknownTag(tag_), completions);
    retire = true;
    return;
  }
  if (error.code == ErrorCode::kFrozen) {
    AdoptMarkLocked(durable_mark);
    FreezeLocked(error, completions);
    return;
  }
  if (error.code == ErrorCode::kOverflow) {
    OnOverflowLocked(error, completions);
    // Each round answers at least the one it was asked for: whoever is left asks for himself.
    if (!waiters_.empty()) return StartRefillLocked();
  }
  ++failures_;
  problem_ = std::make_unique<Error>(error);
  if (failures_ == 1) {
    problem_since_ = world_.clock.Wall();
    completions.push_back([this, error] {
      world_.failure_log.Tell(error.code,
                              fmt::format("grant for tag {} failed: {}", Quoted(tag_), error.message));
    });
    // Who parked while all was well now waits no longer than who comes next.
    const MonotonicTime now = world_.clock.Monotonic();
    for (const Waiter& waiter : waiters_) ScheduleExpiryLocked(waiter.id, now + waiter.wait_while_failing);
  }
  if (IsLasting(error.code)) FailAllLocked(error, completions);
  if (state_ == State::kUnconfirmed && waiters_.empty()) {
    retire = true;
    return;
  }
  ScheduleRetryLocked();
}

void TagGenerator::OnOverflowLocked(const Error& error, Completions& completions) {
  core::SegmentBuffer& buffer = BufferLocked();
  while (!waiters_.empty()) {
    Waiter& waiter = waiters_.front();
    IdSpans spans;
    if (buffer.Take(waiter.count, spans).outcome == core::SegmentBuffer::Outcome::kTaken) {
      completions.push_back([done = std::move(waiter.done), spans] { done(spans); });
    } else if (waiter.count >= sized_for_) {
      CountErrorLocked(SlotOf(error.code));
      completions.push_back([done = std::move(waiter.done), error] { done(error); });
    } else {
      return;  // less than what was asked for and refused: the next try is for this one
    }
    parked_ids_ -= waiter.count;
    waiters_.pop_front();
  }
}

void TagGenerator::WatchExhaustionLocked(Completions& completions) {
  const auto days = DaysToExhaustionLocked();
  if (near_exhaustion_told_ || !core::IsNearExhaustion(max_id_, days)) return;
  near_exhaustion_told_ = true;
  completions.push_back([this, left = core::IdsLeft(max_id_), days] {
    world_.log.Warning("tag {}: {} IDs are left below 2^63{}", Quoted(tag_), left,
                       days ? fmt::format(", {:.1f} days at the rate seen", *days) : "");
  });
}

std::optional<double> TagGenerator::DaysToExhaustionLocked() const {
  const std::optional<core::Baseline>& base = AccountLocked().base;
  if (!base) return std::nullopt;
  return core::DaysToExhaustion(max_id_, *base, world_.clock.Wall());
}

std::uint64_t TagGenerator::IssuedLocked() const {
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  // Takers move on while this is read: never more issued and in reserve than was granted.
  const Account& account = AccountLocked();
  const std::uint64_t not_issued =
      account.dropped + (buffer == nullptr ? 0 : buffer->lost() + buffer->remaining());
  return account.granted > not_issued ? account.granted - not_issued : 0;
}

std::uint64_t TagGenerator::IssuedToldLocked() {
  if (AccountLocked().grants == 0) return 0;
  // A take that began before a Clear() can turn from issued to dropped; a counter that went back would be
  // taken for a restart.
  std::uint64_t& told = TalliesLocked().issued;
  told = std::max(told, IssuedLocked());
  return told;
}

TagTallies& TagGenerator::TalliesLocked() {
  if (!tallies_) tallies_ = std::make_unique<TagTallies>();
  return *tallies_;
}

const TagGenerator::Account& TagGenerator::AccountLocked() const {
  static const Account kNothing;
  return account_ ? *account_ : kNothing;
}

TagGenerator::Account& TagGenerator::OpenAccountLocked() {
  if (!account_) account_ = std::make_unique<Account>();
  return *account_;
}

void TagGenerator::DropLocked(std::uint64_t count) {
  if (count == 0) return;
  OpenAccountLocked().dropped += count;
  world_.counters.AddDropped(count);
}

void TagGenerator::CountErrorLocked(std::size_t cause_slot) {
  ++TalliesLocked().errors[cause_slot];
  world_.counters.AddError(cause_slot);
}

void TagGenerator::CountRefillLocked(const IdRange& range, std::chrono::nanoseconds latency) {
  latency = std::max(latency, std::chrono::nanoseconds{0});
  TagTallies& tallies = TalliesLocked();
  tallies.refills.Add(latency);
  world_.counters.AddRefill(latency);
  tallies.recent = {tallies.recent[1], range};
}

TagTotals TagGenerator::Totals() {
  const std::lock_guard lock(mutex_);
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  return {.issued = IssuedToldLocked(), .lost = buffer == nullptr ? 0 : buffer->lost()};
}

void TagGenerator::ObserveRateLocked() {
  if (reserve_policy_) reserve_policy_->ObserveIssued(IssuedLocked(), world_.clock.Monotonic());
}

void TagGenerator::ObservePeak() {
  if (buffer_.load(std::memory_order_acquire) == nullptr) return;
  const std::lock_guard lock(mutex_);
  peak_->Observe(IssuedLocked(), world_.clock.Monotonic());
}

void TagGenerator::AdoptReserveTime() {
  const std::lock_guard lock(mutex_);
  if (reserve_policy_) reserve_policy_->set_reserve_time(world_.reserve_time.load());
}

void TagGenerator::SetPaused(bool paused) {
  Completions completions;
  {
    const std::lock_guard lock(mutex_);
    paused_.store(paused, std::memory_order_release);
    if (paused) FailAllLocked(PausedError(tag_), completions);
  }
  for (const auto& complete : completions) complete();
}

void TagGenerator::ScheduleRetryLocked() {
  const std::uint32_t doublings = std::min<std::uint32_t>(failures_ - 1, 10);
  const auto backoff = std::min(kBackoffMin * (1 << doublings), kBackoffMax);
  const auto jitter =
      std::chrono::milliseconds(world_.random.Below(static_cast<std::uint64_t>(backoff.count()) / 2 + 1));
  retry_scheduled_ = true;
  const std::uint64_t id = ++retry_id_;
  world_.timers.PostAt(world_.clock.Monotonic() + backoff - jitter, [weak = weak_from_this(), id] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    if (!self->retry_scheduled_ || self->retry_id_ != id) return;
    self->retry_scheduled_ = false;
    if (self->WantedLocked()) self->StartRefillLocked();
  });
}

void TagGenerator::Kick() {
  const std::lock_guard lock(mutex_);
  if (failures_ == 0 || !WantedLocked()) return;
  retry_scheduled_ = false;
  StartRefillLocked();
}

void TagGenerator::FreezeLocked(const Error& error, Completions& completions) {
  state_ = State::kFrozen;
  problem_ = std::make_unique<Error>(error);
  problem_since_ = world_.clock.Wall();
  refill_wanted_ = false;
  std::uint64_t dropped = 0;
  if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed)) dropped = buffer->Clear();
  DropLocked(dropped);
  completions.push_back([this, message = error.message, dropped] {
    world_.log.Error("{}; {} reserved IDs were dropped", message, dropped);
  });
  FailAllLocked(error, completions);
}

void TagGenerator::FailAllLocked(const Error& error, Completions& completions) {
  for (Waiter& waiter : waiters_) {
    CountErrorLocked(SlotOf(error.code));
    completions.push_back([done = std::move(waiter.done), error] { done(error); });
  }
  waiters_.clear();
  parked_ids_ = 0;
}

void TagGenerator::BeforeRefresh(const core::Mark& durable_mark, std::optional<std::uint64_t> witness) {
  const std::lock_guard lock(mutex_);
  AdoptMarkLocked(durable_mark);
  witness_ = std::max(witness_, witness.value_or(0));
  before_refresh_ = {mark_, witness_};
}

void TagGenerator::OnRow(const core::TagRow& row) {
  Completions completions;
  {
    const std::lock_guard lock(mutex_);
    seen_pass_.store(world_.refresh_pass.load(), std::memory_order_relaxed);
    table_step_ = row.step;
    max_id_ = row.max_id;
    ObserveRateLocked();
    WatchExhaustionLocked(completions);
    const auto verdict = core::JudgeRow(tag_, row.max_id, before_refresh_);
    if (verdict.ok() && state_ == State::kFrozen) {
      state_ = State::kServing;
      failures_ = 0;
      problem_.reset();
      problem_since_.reset();
      completions.push_back([this, max_id = row.max_id, level = before_refresh_] {
        world_.log.Info("tag {} thaws: max_id {} is not below the mark {}", Quoted(tag_), max_id,
                        std::max(level.mark, level.witness));
      });
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
      DropLocked(buffer->Clear());
    FailAllLocked(UnknownTag(tag_), completions);
  }
  for (const auto& complete : completions) complete();
}

bool TagGenerator::confirmed() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kUnconfirmed && state_ != State::kGone && state_ != State::kRetired;
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
    if (core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed)) {
      const std::uint64_t left = buffer->Clear();
      OpenAccountLocked().unissued += left;
      DropLocked(left);
    }
    FailAllLocked(world_.stop.why(), completions);
  }
  for (const auto& complete : completions) complete();
}

core::SegmentBuffer& TagGenerator::BufferLocked() {
  core::SegmentBuffer* buffer = buffer_.load(std::memory_order_relaxed);
  if (buffer == nullptr) {
    buffer = new core::SegmentBuffer;
    reserve_policy_ = std::make_unique<core::ReservePolicy>(world_.reserve_time.load());
    peak_ = std::make_unique<core::PeakRate>();
    peak_->Observe(0, world_.clock.Monotonic());
    buffer_.store(buffer, std::memory_order_release);
  }
  return *buffer;
}

std::uint64_t TagGenerator::reserve() const {
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  return buffer == nullptr ? 0 : buffer->remaining();
}

std::uint64_t TagGenerator::unissued() const {
  const std::lock_guard lock(mutex_);
  return AccountLocked().unissued;
}

std::uint64_t TagGenerator::known_end() const {
  const std::lock_guard lock(mutex_);
  return std::max(mark_, witness_);
}

TagStatus TagGenerator::Status() {
  const std::lock_guard lock(mutex_);
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  ObserveRateLocked();
  TagStatus status;
  status.tag = tag_;
  status.paused = paused_.load(std::memory_order_relaxed);
  const Account& account = AccountLocked();
  status.state = status.paused              ? "paused"
                 : state_ == State::kFrozen ? "frozen"
                 : account.grants == 0      ? "idle"
                                            : "active";
  status.reserve = buffer == nullptr ? 0 : buffer->remaining();
  if (reserve_policy_) {
    status.reserve_target = reserve_policy_->Target();
    status.ids_per_second = reserve_policy_->ids_per_second();
    status.grant_latency = reserve_policy_->grant_latency();
    status.peak_ids_per_second = std::max(peak_->ids_per_second(), status.ids_per_second);
  }
  status.waiting = waiters_.size();
  status.step = policy_.step();
  status.table_step = table_step_;
  status.max_id = max_id_;
  status.mark = mark_;
  status.witness = witness_;
  status.granted = account.granted;
  status.wasted = account.dropped + (buffer == nullptr ? 0 : buffer->lost());
  status.wasted_by_restarts = account.wasted_before;
  status.wasted_by_last_restart = account.wasted_last;
  status.wasted_by_restarts_exactly = account.wasted_exactly;
  status.issued = IssuedToldLocked();
  status.grants = account.grants;
  status.failures = failures_;
  status.days_to_exhaustion = DaysToExhaustionLocked();
  status.near_exhaustion = core::IsNearExhaustion(max_id_, status.days_to_exhaustion);
  if (problem_) status.problem = *problem_;
  status.problem_since = problem_since_;
  if (state_ == State::kFrozen) status.frozen_since = problem_since_;
  if (tallies_) status.tallies = std::make_shared<const TagTallies>(*tallies_);
  return status;
}

LeafView TagGenerator::View() const {
  const std::lock_guard lock(mutex_);
  LeafView view{.tag = tag_,
                .initialised = AccountLocked().grants > 0,
                .next_ready = false,
                .position = 0,
                .segments = {}};
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_relaxed);
  if (buffer == nullptr) return view;
  const std::vector<core::SegmentBuffer::Held> held = buffer->Ranges();
  view.next_ready = held.size() > 1;
  // Leaf's two segments take turns, and so do the places of ours.
  view.position = held.empty() ? 0 : static_cast<std::size_t>(held.front().number % 2);
  for (std::size_t i = 0; i < std::min<std::size_t>(held.size(), 2); ++i) {
    const core::SegmentBuffer::Held& range = held[i];
    std::uint64_t step = range.size;
    // What the grant's first IDs were given to at once is part of it.
    for (const IdRange& grant : tallies_->recent) {
      if (grant.end == range.end) step = grant.size();
    }
    view.segments[(view.position + i) % 2] = {range.next, range.end, step};
  }
  return view;
}

}  // namespace leaf::service
