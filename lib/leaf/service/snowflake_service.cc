#include "leaf/service/snowflake_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::service {
namespace {

using Outcome = core::Snowflake::Outcome;
using std::chrono::milliseconds;

constexpr milliseconds kTickMin{10};
constexpr milliseconds kTickMax{250};
// How long the exhaustion of a layout is announced.
constexpr milliseconds kExhaustionWarning = std::chrono::hours{24 * 730};

// RFC 4122, version 4.
std::string NewUuid(Random& random) {
  const std::uint64_t high = (random.Next() & 0xFFFFFFFFFFFF0FFFU) | 0x4000U;
  const std::uint64_t low = (random.Next() & 0x3FFFFFFFFFFFFFFFU) | 0x8000000000000000U;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF,
                     low >> 48, low & 0xFFFFFFFFFFFFU);
}

Error StoppedError() {
  return {ErrorCode::kUnavailable, "this server is shutting down", "ask another server"};
}

Error WithdrawnError() { return {ErrorCode::kExhausted, "the request was withdrawn", ""}; }

}  // namespace

SnowflakeService::SnowflakeService(SnowflakeOptions options, core::WorkerRegistry& registry,
                                   core::StateFile& state_file, const Clock& clock, Random& random,
                                   Executor& timers, Executor& workers, Logger& log)
    : options_(std::move(options)),
      registry_(registry),
      state_file_(state_file),
      clock_(clock),
      random_(random),
      timers_(timers),
      workers_(workers),
      log_(log),
      tick_(std::clamp(options_.window / 12, kTickMin, kTickMax)),
      extend_least_(std::max(options_.window / 64, milliseconds{1})) {}

Result<void> SnowflakeService::Start() {
  LEAF_CHECK(!generator_);
  const std::lock_guard lock(extend_mutex_);
  LEAF_ASSIGN_OR_RETURN(const auto stored, state_file_.Load());
  state_ = stored.value_or(core::WorkerState{});
  if (!stored) state_.node_uuid = NewUuid(random_);
  core::ClusterProperties cluster = options_.cluster;
  cluster.registry = registry_.kind();
  if (cluster.name.empty()) cluster.name = "local-" + state_.node_uuid;
  if (stored) LEAF_RETURN_IF_ERROR(core::CheckSameCluster(stored->cluster, cluster, "this state directory"));
  state_.cluster = cluster;

  LEAF_ASSIGN_OR_RETURN(claim_, registry_.Claim({options_.address, state_.node_uuid}, cluster));
  const core::IdLayout& layout = cluster.layout;
  const std::uint64_t worker_end = std::min(options_.worker_end, layout.worker_end());
  if (claim_.worker < options_.worker_begin || claim_.worker >= worker_end) {
    return Error{ErrorCode::kRefused,
                 fmt::format("worker number {} is not in {}..{} (snowflake.worker_range, and what layout {} "
                             "can hold)",
                             claim_.worker, options_.worker_begin, worker_end - 1, layout.Bits()),
                 ""};
  }
  if (stored && stored->worker != claim_.worker) {
    log_.Warning("this node was worker {} and is worker {} from now on", stored->worker, claim_.worker);
  }
  state_.worker = claim_.worker;

  const WallTime now = clock_.Wall();
  if (now < WallTimeOf(layout.epoch_ms())) {
    return Error{ErrorCode::kClock,
                 fmt::format("the wall clock says {}, which is before the epoch of the IDs, {}",
                             FormatRfc3339(now), FormatRfc3339(WallTimeOf(layout.epoch_ms()))),
                 "set the clock right, or snowflake.epoch_ms"};
  }
  const bool same_boot = stored && !options_.boot_id.empty() && stored->boot_id == options_.boot_id;
  guard_.emplace(options_.clock_jump_max, now, clock_.Boot(),
                 same_boot ? std::optional(stored->clock_offset) : std::nullopt);
  state_.boot_id = options_.boot_id;
  LEAF_RETURN_IF_ERROR(CheckClock(now));

  // Every ceiling found, of a former owner as well as of this node under whatever number.
  WallTime known_end = WallTimeOf(layout.epoch_ms());
  if (stored) known_end = std::max(known_end, stored->ceiling);
  if (claim_.ceiling) known_end = std::max(known_end, *claim_.ceiling);
  LEAF_ASSIGN_OR_RETURN(begin_, core::PlanStart(now, known_end, options_.window, options_.start_wait));
  if (begin_ > layout.LastTime()) {
    return Error{ErrorCode::kOverflow,
                 fmt::format("layout {} with epoch {} has no IDs after {}", layout.Bits(), layout.epoch_ms(),
                             FormatRfc3339(layout.LastTime())),
                 "a new cluster with a new epoch is needed"};
  }
  if (begin_ > layout.LastTime() - kExhaustionWarning) {
    log_.Warning("layout {} with epoch {} has no IDs after {}", layout.Bits(), layout.epoch_ms(),
                 FormatRfc3339(layout.LastTime()));
  }
  generator_.emplace(layout, claim_.worker, begin_, options_.window, random_.Next());
  if (begin_ > now) {
    log_.Info("waiting {} for the wall clock to pass {}, up to which IDs may have been issued",
              FormatDuration(begin_ - now), FormatRfc3339(begin_));
    // That the state can be written is found out now, not when it is needed.
    LEAF_RETURN_IF_ERROR(MakeDurable(begin_));
  } else {
    const WallTime ceiling = generator_->CeilingAt(now);
    LEAF_RETURN_IF_ERROR(MakeDurable(ceiling));
    generator_->RaiseCeiling(ceiling);
  }
  timers_.PostAt(clock_.Monotonic() + tick_, [this] { Tick(); });
  return {};
}

void SnowflakeService::Stop() {
  if (!generator_ || abandoned_.load() || stopped_.exchange(true)) return;
  generator_->Close();
  std::list<Waiter> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(parked_);
    parked_count_.store(0);
  }
  for (const Waiter& waiter : dropped) waiter.done(StoppedError());

  // An extension on its way ends first; one that comes later finds the word closed.
  const std::lock_guard lock(extend_mutex_);
  // Closed, so this is final. No ID at or after it exists: it may be lower than the ceiling in the file.
  const WallTime end = generator_->End();
  // The lead is a window at most, but for a clock that went back meanwhile: then the next start waits.
  const MonotonicTime deadline = clock_.Monotonic() + options_.window;
  while (clock_.Wall() < end && clock_.Monotonic() < deadline) {
    clock_.WaitUntil(std::min(deadline, clock_.Monotonic() + std::max(end - clock_.Wall(), milliseconds{1})));
  }
  state_.ceiling = end;
  state_.clock_offset = guard_->reference();
  if (const auto stored = state_file_.Store(state_); !stored.ok()) {
    log_.Warning("{}; the next start waits for the ceiling instead", stored.error().message);
  }
  if (const auto released = registry_.Release(claim_, end); !released.ok()) {
    log_.Warning("worker {}: {}", claim_.worker, released.error().message);
  }
}

void SnowflakeService::Abandon() {
  abandoned_.store(true);
  if (generator_) generator_->Close();
}

std::uint64_t SnowflakeService::Next(std::uint64_t count, milliseconds wait, NextCallback done) {
  if (count > generator_->count_max()) {
    done(Error{ErrorCode::kTooLarge,
               fmt::format("{} IDs at once are more than {} hold, which is how far IDs may be ahead of the "
                           "clock: at most {}",
                           count, FormatDuration(options_.window), generator_->count_max()),
               "ask several times"});
    return 0;
  }
  core::SnowflakeRun run;
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    const WallTime now = clock_.Wall();
    core::Snowflake::TakeResult result = generator_->Probe(count, now);
    // Behind others who wait, even what could be served has to wait.
    if (parked_.empty()) result = TakeNow(count, run);
    if (result.outcome != Outcome::kTaken || !parked_.empty()) {
      if (result.outcome != Outcome::kTaken && !MayComeWithin(result, now, wait)) {
        failure = ErrorOf(result, now);
      } else {
        const std::uint64_t ticket = next_ticket_++;
        parked_.push_back({ticket, count, clock_.Monotonic() + wait, std::move(done)});
        parked_count_.store(parked_.size());
        SchedulePump(std::max(result.wait, milliseconds{1}));
        return ticket;
      }
    }
  }
  if (failure) {
    done(*std::move(failure));
  } else {
    done(run);
  }
  return 0;
}

void SnowflakeService::Withdraw(std::uint64_t ticket) {
  NextCallback done;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(parked_.begin(), parked_.end(),
                                    [&](const Waiter& waiter) { return waiter.ticket == ticket; });
    if (found == parked_.end()) return;
    done = std::move(found->done);
    parked_.erase(found);
    parked_count_.store(parked_.size());
  }
  done(WithdrawnError());
}

// Requires mutex_.
void SnowflakeService::SchedulePump(milliseconds after) {
  if (std::exchange(pump_scheduled_, true)) return;
  timers_.PostAt(clock_.Monotonic() + after, [this, id = ++pump_id_] {
    {
      const std::lock_guard lock(mutex_);
      // A pump that came earlier has scheduled its own successor: one chain of timers, however often it is
      // woken.
      if (id != pump_id_) return;
    }
    Pump();
  });
}

void SnowflakeService::Pump() {
  std::vector<std::pair<NextCallback, Result<core::SnowflakeRun>>> completed;
  {
    const std::lock_guard lock(mutex_);
    ++pump_id_;  // whatever is scheduled has no say any more
    pump_scheduled_ = false;
    const MonotonicTime now = clock_.Monotonic();
    const auto complete = [&](std::list<Waiter>::iterator waiter, Result<core::SnowflakeRun> result) {
      completed.emplace_back(std::move(waiter->done), std::move(result));
      return parked_.erase(waiter);
    };
    milliseconds after{1};
    while (!parked_.empty()) {
      core::SnowflakeRun run;
      const auto result = TakeNow(parked_.front().count, run);
      if (result.outcome == Outcome::kTaken) {
        complete(parked_.begin(), run);
        continue;
      }
      const WallTime wall = clock_.Wall();
      std::optional<MonotonicTime> next_deadline;
      for (auto waiter = parked_.begin(); waiter != parked_.end();) {
        const auto left = std::chrono::ceil<milliseconds>(waiter->deadline - now);
        if (left <= milliseconds{0} || !MayComeWithin(result, wall, left)) {
          waiter = complete(waiter, ErrorOf(result, wall));
        } else {
          next_deadline = std::min(next_deadline.value_or(waiter->deadline), waiter->deadline);
          ++waiter;
        }
      }
      // Woken as well when the ceiling is raised, which is all that helps at the ceiling.
      after = result.outcome == Outcome::kAtCeiling ? kTickMax
                                                    : std::clamp(result.wait, milliseconds{1}, kTickMax);
      if (next_deadline)
        after =
            std::min(after, std::max(std::chrono::ceil<milliseconds>(*next_deadline - now), milliseconds{1}));
      break;
    }
    parked_count_.store(parked_.size());
    if (!parked_.empty()) SchedulePump(after);
  }
  for (auto& [done, result] : completed) done(std::move(result));
}

// Requires mutex_.
bool SnowflakeService::MayComeWithin(const core::Snowflake::TakeResult& result, WallTime now,
                                     milliseconds wait) const {
  if (starting()) return !problem_ && begin_ - now <= wait;
  switch (result.outcome) {
    case Outcome::kTaken:
      return true;
    case Outcome::kAhead:
    case Outcome::kClockBack:
      return result.wait <= wait;
    case Outcome::kAtCeiling:
      return !problem_;
    case Outcome::kEnded:
    case Outcome::kClosed:
      return false;
  }
  return false;
}

// Requires mutex_.
Error SnowflakeService::ErrorOf(const core::Snowflake::TakeResult& result, WallTime now) const {
  const core::IdLayout& layout = generator_->layout();
  if (starting() && result.outcome != Outcome::kClosed) {
    if (problem_) return *problem_;
    return {ErrorCode::kClock,
            fmt::format("IDs up to {} may have been issued before the start: none until the wall clock has "
                        "passed that, in {}",
                        FormatRfc3339(begin_), FormatDuration(std::max(begin_ - now, milliseconds{0}))),
            ""};
  }
  switch (result.outcome) {
    case Outcome::kAhead:
      return {
          ErrorCode::kExhausted,
          fmt::format("more IDs are asked for than the {} a millisecond of one worker: they are {} ahead of "
                      "the clock already",
                      layout.sequence_end(), FormatDuration(options_.window)),
          "retry, or spread the load over more workers"};
    case Outcome::kClockBack:
      return {ErrorCode::kClock,
              fmt::format("the wall clock is {} behind the last ID, and at most {} are bridged: no IDs for "
                          "another {}",
                          FormatDuration(generator_->LeadAt(now)), FormatDuration(options_.window),
                          FormatDuration(result.wait)),
              "set the clock right, or wait"};
    case Outcome::kAtCeiling:
      if (problem_) return *problem_;
      return {ErrorCode::kExhausted, "the next ceiling is not on the disk yet", "retry"};
    case Outcome::kEnded:
      return {ErrorCode::kOverflow,
              fmt::format("layout {} with epoch {} has no IDs after {}", layout.Bits(), layout.epoch_ms(),
                          FormatRfc3339(layout.LastTime())),
              "a new cluster with a new epoch is needed"};
    case Outcome::kClosed:
      // A number that was lost closes the generator as well.
      if (problem_) return *problem_;
      return StoppedError();
    case Outcome::kTaken:
      break;
  }
  return {ErrorCode::kInternal, "no error", ""};
}

Result<void> SnowflakeService::CanIssue() const {
  if (!generator_) return Error{ErrorCode::kUnavailable, "not started", ""};
  const WallTime now = clock_.Wall();
  const auto result = generator_->Probe(1, now);
  // Borrowed to the limit is busy, not broken: the next millisecond brings more.
  if (result.outcome == Outcome::kTaken || (result.outcome == Outcome::kAhead && !starting())) return {};
  const std::lock_guard lock(mutex_);
  // So is a ceiling that is being raised.
  if (result.outcome == Outcome::kAtCeiling && !problem_ && !starting()) return {};
  return ErrorOf(result, now);
}

SnowflakeStatus SnowflakeService::Status() const {
  SnowflakeStatus status;
  status.cluster = options_.cluster;
  if (!generator_) return status;
  const WallTime now = clock_.Wall();
  status.started = true;
  status.state = generator_->closed() ? "stopped" : starting() ? "starting" : "issuing";
  // Constant after Start, unlike the rest of state_.
  status.cluster = state_.cluster;
  status.node_uuid = state_.node_uuid;
  status.worker = claim_.worker;
  status.ceiling = generator_->ceiling();
  status.lead = generator_->LeadAt(now);
  status.exhausted_at = generator_->layout().LastTime();
  status.exhaustion_near = now > status.exhausted_at - kExhaustionWarning;
  const std::lock_guard lock(mutex_);
  status.problem = problem_;
  status.registry_problem = registry_problem_;
  return status;
}

void SnowflakeService::Tick() {
  if (generator_->closed()) return;
  // With a problem, too: it may have passed by itself.
  const WallTime now = clock_.Wall();
  if (has_problem_.load()) {
    PostExtension();
  } else {
    RequestExtension();
  }
  // The end of the wait at start is met as exactly as can be.
  const milliseconds next = starting() ? std::clamp(begin_ - now, milliseconds{1}, tick_) : tick_;
  timers_.PostAt(clock_.Monotonic() + next, [this] { Tick(); });
}

void SnowflakeService::RequestExtension() {
  // Whoever finds little left asks, as often as requests come: only what can help is posted. With a problem
  // the timer tries again, at its own pace.
  const WallTime now = clock_.Wall();
  if (has_problem_.load() || (starting() && now < begin_) || !generator_->ExtensionDue(now)) return;
  PostExtension();
}

void SnowflakeService::PostExtension() {
  if (extending_.exchange(true)) return;
  workers_.Post([this] { RunExtension(); });
}

void SnowflakeService::RunExtension() {
  // At saturation the ceiling is used up as fast as it is raised: not one write for each millisecond.
  const WallTime now = clock_.Wall();
  if (const auto gain = generator_->CeilingAt(now) - generator_->ceiling();
      gain > milliseconds{0} && gain < extend_least_ &&
      generator_->CeilingAt(now) <= generator_->layout().LastTime()) {
    timers_.PostAt(clock_.Monotonic() + (extend_least_ - gain),
                   [this] { workers_.Post([this] { RunExtension(); }); });
    return;
  }
  const WallTime ceiling = generator_->ceiling();
  const bool problem_is_new = SetProblem(Extend());
  extending_.store(false);
  // Who waits is looked at only if something has changed: a pump asks for an extension in its turn.
  if (!problem_is_new && generator_->ceiling() == ceiling) return;
  const std::lock_guard lock(mutex_);
  if (!parked_.empty()) timers_.Post([this] { Pump(); });
}

Result<void> SnowflakeService::Extend() {
  const std::lock_guard lock(extend_mutex_);
  if (generator_->closed()) return {};
  const WallTime now = clock_.Wall();
  LEAF_RETURN_IF_ERROR(CheckClock(now));
  if ((starting() && now < begin_) || !generator_->ExtensionDue(now)) return {};
  const WallTime ceiling = generator_->CeilingAt(now);
  LEAF_RETURN_IF_ERROR(MakeDurable(ceiling));
  // Durable first, then issued: this order is promise P1.
  generator_->RaiseCeiling(ceiling);
  return {};
}

// Requires extend_mutex_.
Result<void> SnowflakeService::MakeDurable(WallTime ceiling) {
  // The file never goes below what it says, but for the exact end after Close.
  state_.ceiling = std::max(state_.ceiling, ceiling);
  state_.clock_offset = guard_->reference();
  LEAF_RETURN_IF_ERROR(state_file_.Store(state_));
  auto renewed = registry_.Renew(claim_, ceiling);
  if (!renewed.ok() && renewed.error().code == ErrorCode::kNotOwner) {
    // Lost for good: who has the number now may be issuing.
    generator_->Close();
    return renewed;
  }
  if (!renewed.ok() && registry_.leased()) return renewed;
  const std::lock_guard lock(mutex_);
  if (!renewed.ok() && !registry_problem_)
    log_.Warning("worker {}: {}", claim_.worker, renewed.error().message);
  registry_problem_ = renewed.ok() ? std::nullopt : std::optional(renewed.error());
  return {};
}

// Requires extend_mutex_.
Result<void> SnowflakeService::CheckClock(WallTime now) {
  const BootTime boot = clock_.Boot();
  auto jump = guard_->Jump(now, boot);
  if (jump && options_.accepted_offset) {
    if (const auto accepted = options_.accepted_offset()) guard_->Accept(*accepted);
    jump = guard_->Jump(now, boot);
  }
  if (!jump) return {};
  return Error{
      ErrorCode::kClock,
      fmt::format("the wall clock says {}: it has jumped {} ahead, and at most {} are followed; IDs "
                  "issued with a wrong time would keep this worker from issuing until then",
                  FormatRfc3339(now), FormatDuration(*jump), FormatDuration(options_.clock_jump_max)),
      "set the clock right; if it is right, leafctl worker accept-clock"};
}

bool SnowflakeService::SetProblem(const Result<void>& result) {
  const std::lock_guard lock(mutex_);
  const bool is_new = !result.ok() && !problem_;
  if (!result.ok() && !problem_) log_.Error("snowflake: no new ceiling: {}", result.error().message);
  if (result.ok() && problem_) log_.Info("snowflake: going on");
  problem_ = result.ok() ? std::nullopt : std::optional(result.error());
  has_problem_.store(problem_.has_value());
  return is_new;
}

}  // namespace leaf::service
