#include "leaf/service/snowflake_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/service/stop_sign.h"

namespace leaf::service {
namespace {

using Outcome = core::Snowflake::Outcome;
using std::chrono::milliseconds;

constexpr milliseconds kTickMin{10};
constexpr milliseconds kTickMax{250};

}  // namespace

SnowflakeService::SnowflakeService(SnowflakeOptions options, core::WorkerRegistry& registry,
                                   core::StateFile& state_file, const Clock& clock, Random& random,
                                   const SnowflakeExecutors& executors, Logger& log)
    : options_(std::move(options)),
      registry_(registry),
      state_file_(state_file),
      clock_(clock),
      random_(random),
      timers_(executors.timers),
      workers_(executors.ceilings),
      registry_worker_(executors.registry),
      log_(log),
      tick_(std::clamp(options_.window / 12, kTickMin, kTickMax)),
      extend_least_(std::max(options_.window / 64, milliseconds{1})),
      line_(*this, clock, executors.timers, kTickMax) {}

Result<void> SnowflakeService::Start() {
  LEAF_CHECK(term_.load() == nullptr);
  const MutexLock lock(extend_mutex_);
  LEAF_RETURN_IF_ERROR(LoadState());
  LEAF_RETURN_IF_ERROR(TryToClaim());
  timers_.PostAt(clock_.Monotonic() + NextTick(), [this] { Tick(); });
  return {};
}

void SnowflakeService::StartInBackground(Started started) {
  LEAF_CHECK(term_.load() == nullptr && !extending_.exchange(true));
  {
    const MutexLock lock(extend_mutex_);
    on_first_attempt_ = std::move(started);
  }
  workers_.Post([this] { RunClaim(); });
}

void SnowflakeService::Stop() {
  if (abandoned_.load() || stopped_.exchange(true)) return;
  registry_.Interrupt();
  if (Term* const term = term_.load(); term != nullptr) term->generator.Close();
  line_.FailAll(ShuttingDown());

  // An extension or a claim on its way ends first; one that comes later finds the word closed.
  const MutexLock lock(extend_mutex_);
  Term* const term = term_.load();
  if (term == nullptr) return;
  term->generator.Close();
  // Closed, so this is final. No ID at or after it exists: it may be lower than the ceiling in the file.
  const WallTime end = term->generator.End();
  // The lead is a window at most, but for a clock that went back meanwhile: then the next start waits.
  const MonotonicTime deadline = clock_.Monotonic() + options_.window;
  while (clock_.Wall() < end && clock_.Monotonic() < deadline) {
    clock_.WaitUntil(std::min(deadline, clock_.Monotonic() + std::max(end - clock_.Wall(), milliseconds{1})));
  }
  const MutexLock registry_lock(registry_mutex_);
  if (standing_.load() == Standing::kConfirmed) {
    if (const auto released = registry_.Release(claim_, end); released.ok()) {
      last_contact_.store(clock_.Wall());
    } else {
      const ErrorCode code = released.error().code;
      const bool refused = code == ErrorCode::kNotOwner || code == ErrorCode::kRefused;
      if (refused && !registry_.leased()) denied_.store(true);
      log_.Warning("worker {}: {}", claim_.worker, released.error().message);
    }
  }
  state_.ceiling = end;
  state_.clock_offset = guard_->reference();
  state_.last_contact = DurableContact();
  if (const auto stored = state_file_.Store(state_); !stored.ok()) {
    log_.Warning("{}; the next start waits for the ceiling instead", stored.error().message);
  }
}

void SnowflakeService::Halt(const Error& why) {
  {
    const MutexLock lock(mutex_);
    if (halted_) return;
    halted_ = why;
  }
  Abandon();
  registry_.Interrupt();
  line_.FailAll(why);
}

void SnowflakeService::Abandon() {
  abandoned_.store(true);
  if (Term* const term = term_.load(); term != nullptr) term->generator.Close();
}

SnowflakeTallies SnowflakeService::Tallies() const {
  SnowflakeTallies tallies;
  tallies.issued = issued_.Sum();
  tallies.waits = line_.waits();
  for (std::size_t i = 0; i < errors_.size(); ++i)
    tallies.errors[i] = errors_[i].load(std::memory_order_relaxed);
  return tallies;
}

std::uint64_t SnowflakeService::Next(std::uint64_t count, milliseconds wait, NextCallback done) {
  if (count > count_max()) {
    CountError(SlotOf(ErrorCode::kTooLarge));
    done(Error{ErrorCode::kTooLarge,
               fmt::format("{} IDs at once are more than the window of {} holds: at most {}", count,
                           FormatDuration(options_.window), count_max()),
               "ask several times"});
    return 0;
  }
  return line_.Enter(count, wait, std::move(done));
}

bool SnowflakeService::Enter(StandingEvent event) {
  Standing before = standing_.load();
  for (;;) {
    const std::optional<Standing> after = StandingAfter(before, event);
    if (!after) return false;
    if (standing_.compare_exchange_weak(before, *after)) return true;
  }
}

core::Snowflake::TakeResult SnowflakeService::Probe(std::uint64_t count, WallTime now) const {
  const Term* const term = term_.load();
  return term == nullptr ? core::Snowflake::TakeResult{} : term->generator.Probe(count, now);
}

bool SnowflakeService::MayComeWithin(const core::Snowflake::TakeResult& result, WallTime now,
                                     milliseconds wait) const {
  const MutexLock lock(mutex_);
  const Term* const term = term_.load();
  if (term == nullptr || result.outcome == Outcome::kClosed) return false;
  if (term->starting()) return !problem_ && term->begin - now <= wait;
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

Error SnowflakeService::ErrorOf(const core::Snowflake::TakeResult& result, WallTime now) const {
  const MutexLock lock(mutex_);
  return ErrorOfLocked(result, now);
}

Error SnowflakeService::ErrorOfLocked(const core::Snowflake::TakeResult& result, WallTime now) const {
  if (halted_) return *halted_;
  const core::IdLayout& layout = options_.cluster.layout;
  const Term* const term = term_.load();
  if (term == nullptr) {
    if (stopped_.load()) return ShuttingDown();
    if (problem_) return *problem_;
    return {ErrorCode::kUnavailable, "this node has no worker number yet: the registry is being asked",
            "retry; a number that is new to this node is watched first (snowflake.claim_watch)"};
  }
  if (term->starting() && result.outcome != Outcome::kClosed) {
    if (problem_) return *problem_;
    return {
        ErrorCode::kClock,
        fmt::format("IDs up to {} may have been issued before the start: no IDs until the wall clock has "
                    "passed that, in {}",
                    FormatRfc3339(term->begin), FormatDuration(std::max(term->begin - now, milliseconds{0}))),
        ""};
  }
  switch (result.outcome) {
    case Outcome::kAhead:
      return {ErrorCode::kExhausted,
              fmt::format("requests exceed the {} IDs a millisecond of one worker: its IDs are {} ahead of "
                          "the clock already",
                          layout.sequence_end(), FormatDuration(options_.window)),
              "retry, or spread the load over more workers"};
    case Outcome::kClockBack:
      return {
          ErrorCode::kClock,
          fmt::format(
              "the wall clock is {} behind the last ID, and at most {} are tolerated: no IDs for another {}",
              FormatDuration(term->generator.LeadAt(now)), FormatDuration(options_.window),
              FormatDuration(result.wait)),
          "correct the clock, or wait"};
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
      if (problem_ && !stopped_.load()) return *problem_;
      return ShuttingDown();
    case Outcome::kTaken:
      break;
  }
  return {ErrorCode::kInternal, "no error", ""};
}

Result<void> SnowflakeService::CanIssue() const {
  const Term* const term = term_.load();
  const WallTime now = clock_.Wall();
  const MutexLock lock(mutex_);
  if (term == nullptr) return ErrorOfLocked({}, now);
  const auto result = term->generator.Probe(1, now);
  // Borrowed to the limit is busy, not broken: the next millisecond brings more.
  if (result.outcome == Outcome::kTaken || (result.outcome == Outcome::kAhead && !term->starting()))
    return {};
  // So is a ceiling that is being raised.
  if (result.outcome == Outcome::kAtCeiling && !problem_ && !term->starting()) return {};
  return ErrorOfLocked(result, now);
}

SnowflakeStatus SnowflakeService::Status() const {
  SnowflakeStatus status;
  const Term* const term = term_.load();
  const WallTime now = clock_.Wall();
  const MutexLock lock(mutex_);
  status.cluster = cluster_.name.empty() ? options_.cluster : cluster_;
  status.cluster.registry = registry_.kind();
  status.node_uuid = node_uuid_;
  status.leased = registry_.leased();
  if (const WallTime contact = last_contact_.load(); contact > WallTime{}) status.last_contact = contact;
  status.problem = problem_;
  status.registry_problem = registry_problem_;
  status.private_cluster = options_.private_cluster;
  status.exhausted_at = options_.cluster.layout.LastTime();
  if (options_.older_peers) status.older_peers = options_.older_peers();
  status.exhaustion_near = now > status.exhausted_at - kExhaustionWarning;
  status.state = stopped_.load() || halted_ ? "stopped" : "claiming";
  if (term == nullptr) return status;
  status.has_worker = true;
  status.registered = standing_.load() == Standing::kConfirmed;
  const bool closed = term->generator.closed();
  status.state = closed && WantsTerm() ? "claiming"
                 : closed              ? "stopped"
                 : term->starting()    ? "starting"
                                       : "issuing";
  status.worker = term->claim.worker;
  status.worker_source = options_.worker_source;
  status.ceiling = term->generator.ceiling();
  status.lead = term->generator.LeadAt(now);
  return status;
}

void SnowflakeService::Tick() {
  if (stopped_.load() || abandoned_.load()) return;
  Term* const term = term_.load();
  if (term == nullptr || term->generator.closed()) {
    // A number that is lost until a restart.
    if (given_up_.load() || standing_.load() == Standing::kLostForGood) return;
    // Between a claim and its term the node wants none, and has none that is open: the next tick sees it.
    if (WantsTerm() && clock_.Monotonic() >= next_claim_at_.load() && !extending_.exchange(true))
      workers_.Post([this] { RunClaim(); });
  } else {
    // With a problem, too: it may have passed by itself.
    const bool tell = clock_.Monotonic() - told_at_.load() >= core::kTellInterval;
    if (has_problem_.load() || (tell && registry_.leased())) {
      PostExtension();
    } else {
      RequestExtension();
    }
    if (tell && !registry_.leased()) PostTell();
  }
  timers_.PostAt(clock_.Monotonic() + NextTick(), [this] { Tick(); });
}

milliseconds SnowflakeService::NextTick() const {
  // The end of the wait at start is met as exactly as can be.
  const Term* const term = term_.load();
  if (term == nullptr || !term->starting()) return tick_;
  return std::clamp(term->begin - clock_.Wall(), milliseconds{1}, tick_);
}

bool SnowflakeService::SetProblem(std::string_view what, const Result<void>& result) {
  const MutexLock lock(mutex_);
  // An extension that was under way when the number was lost does not clear the reason: only a new claim
  // does.
  if (result.ok() && IsLost(standing_.load())) return false;
  const bool is_new = !result.ok() && !problem_;
  if (!result.ok() && !problem_) log_.Error("snowflake: {}: {}", what, result.error().message);
  if (result.ok() && problem_) log_.Info("snowflake: issuing again");
  problem_ = result.ok() ? std::nullopt : std::optional(result.error());
  // The registry's write has an unknown outcome. A request that gets this error has certainly got no IDs.
  if (problem_ && problem_->code == ErrorCode::kOutcomeUnknown) problem_->code = ErrorCode::kUnavailable;
  has_problem_.store(problem_.has_value());
  return is_new;
}

}  // namespace leaf::service
