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
// How often the registry hears of this node at least. Leaf's heartbeat has the same pace
// (SnowflakeZookeeperHolder).
constexpr milliseconds kTellInterval{3000};
// Between attempts to obtain a worker number.
constexpr milliseconds kLifeBackoffMin{500};
constexpr milliseconds kLifeBackoffMax{15'000};
// How long the exhaustion of a layout is announced.
constexpr milliseconds kExhaustionWarning = std::chrono::hours{24 * 730};

// RFC 4122, version 4.
std::string NewUuid(Random& random) {
  const std::uint64_t high = (random.Next() & 0xFFFFFFFFFFFF0FFFU) | 0x4000U;
  const std::uint64_t low = (random.Next() & 0x3FFFFFFFFFFFFFFFU) | 0x8000000000000000U;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF,
                     low >> 48, low & 0xFFFFFFFFFFFFU);
}

Error WithdrawnError() { return {ErrorCode::kExhausted, "the request was withdrawn", ""}; }

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
      extend_least_(std::max(options_.window / 64, milliseconds{1})) {}

Result<void> SnowflakeService::Start() {
  LEAF_CHECK(life_.load() == nullptr);
  const std::lock_guard lock(extend_mutex_);
  LEAF_RETURN_IF_ERROR(LoadState());
  LEAF_RETURN_IF_ERROR(TryToLive());
  timers_.PostAt(clock_.Monotonic() + tick_, [this] { Tick(); });
  return {};
}

void SnowflakeService::StartInBackground(std::function<void(Result<void>)> started) {
  LEAF_CHECK(life_.load() == nullptr && !extending_.exchange(true));
  on_first_attempt_ = std::move(started);
  workers_.Post([this] { RunLife(); });
}

Result<void> SnowflakeService::LoadState() {
  LEAF_ASSIGN_OR_RETURN(loaded_, state_file_.Load());
  state_ = loaded_.value_or(core::WorkerState{});
  if (!loaded_) state_.node_uuid = NewUuid(random_);
  core::ClusterProperties cluster = options_.cluster;
  cluster.registry = registry_.kind();
  if (cluster.name.empty()) cluster.name = "local-" + state_.node_uuid;
  // Durable with the first ceiling, which is after the claim: a crash in between needs an operator.
  if (MayBeCopied() && registry_.remote() && !registry_.leased())
    former_uuid_ = std::exchange(state_.node_uuid, NewUuid(random_));
  // Without a number nothing was issued: a first start with a wrong configuration binds nobody.
  if (loaded_ && loaded_->worker)
    LEAF_RETURN_IF_ERROR(core::CheckSameCluster(loaded_->cluster, cluster, "this state directory"));
  state_.cluster = cluster;
  {
    const std::lock_guard lock(mutex_);
    cluster_ = cluster;
    node_uuid_ = state_.node_uuid;
  }
  if (options_.private_cluster && (options_.says_always_that_it_is_private || !loaded_)) {
    log_.Warning(
        "snowflake IDs of {} are unique in this state directory only; before a second node issues "
        "IDs, name a cluster that all nodes share (snowflake.cluster)",
        cluster.name);
  }
  last_contact_.store(state_.last_contact);
  const bool same_boot = loaded_ && !options_.boot_id.empty() && loaded_->boot_id == options_.boot_id;
  guard_.emplace(options_.clock_jump_max, clock_.Wall(), clock_.Boot(),
                 same_boot ? std::optional(loaded_->clock_offset) : std::nullopt);
  state_.boot_id = options_.boot_id;
  state_.machine = options_.machine;
  if (loaded_) return {};
  state_.clock_offset = guard_->reference();
  state_.ceiling = state_.highest = WallTimeOf(cluster.layout.epoch_ms());
  return state_file_.Store(state_);
}

// Requires extend_mutex_.
Result<void> SnowflakeService::TryToLive() {
  LEAF_CHECK(life_.load() == nullptr || life_.load()->generator.closed());
  told_at_.store(clock_.Monotonic());
  const Life* const last = life_.load();
  core::NodeIdentity node{.address = options_.address,
                          .uuid = state_.node_uuid,
                          .former_uuid = former_uuid_,
                          // The number of a lease is not a fixed number.
                          .held = state_.leased == registry_.leased() ? state_.worker : std::nullopt,
                          .held_ceiling = state_.ceiling};
  if (last != nullptr && !registry_.leased()) node.again = last->claim.worker;
  const auto is_denied = [this] {
    disputed_.store(true);
    RememberDispute();
  };
  if (!registry_.leased()) node.on_denied = is_denied;
  auto claimed = registry_.Claim(node, state_.cluster);
  registered_.store(claimed.ok());
  // The number of this state directory is another node's by now.
  const auto is_another = [&](const core::WorkerClaim& got) {
    return !registry_.leased() && node.held && node.former_uuid.empty() && got.worker != *node.held;
  };
  core::WorkerClaim claim;
  if (claimed.ok()) {
    claim = *claimed;
    last_contact_.store(clock_.Wall());
  } else {
    const bool refused = node.held && node.former_uuid.empty() && claimed.error().code == ErrorCode::kRefused;
    if (refused && !registry_.leased()) is_denied();
    LEAF_ASSIGN_OR_RETURN(claim, ClaimFromState(claimed.error()));
    log_.Warning("{}; starting as worker {} without the registry", claimed.error().message, claim.worker);
    const std::lock_guard lock(mutex_);
    registry_problem_ = claimed.error();
  }
  LEAF_RETURN_IF_ERROR(CheckIsNoCopy(claim));
  if (node.again && claim.worker != *node.again) {
    claims_again_.store(false);
    return Error{
        ErrorCode::kNotOwner,
        fmt::format("this node was worker {}, and the registry gives it {} now", *node.again, claim.worker),
        "look at leafctl worker check, then restart"};
  }
  // From here on the state file names the number that was claimed.
  if (claimed.ok()) disputed_.store(false);
  auto begun = BeginLife(claim);
  if (!begun.ok() && claimed.ok() && is_another(claim)) disputed_.store(true);
  // Nothing was issued with it: who needs a number may have it at once.
  if (!begun.ok() && claimed.ok() && registry_.leased()) {
    const auto released =
        registry_.Release(claim, claim.ceiling.value_or(WallTimeOf(state_.cluster.layout.epoch_ms())));
    if (!released.ok()) log_.Warning("worker {}: {}", claim.worker, released.error().message);
  }
  return begun;
}

// A fixed number stays this node's whether or not the registry can be asked, unless this state is a copy, or
// so old that an operator may have given the number to somebody else.
Result<core::WorkerClaim> SnowflakeService::ClaimFromState(const Error& registry_error) const {
  const bool away =
      registry_error.code == ErrorCode::kUnavailable || registry_error.code == ErrorCode::kOutcomeUnknown;
  if (!away || registry_.leased() || life_.load() != nullptr || stopped_.load()) return registry_error;
  const auto refuse = [&](std::string why) {
    Error error = registry_error;
    error.message += "; no start without it: " + std::move(why);
    return error;
  };
  if (!loaded_ || !loaded_->worker) return refuse("this state directory has no worker number yet");
  if (disputed_.load() || loaded_->last_contact <= WallTime{})
    return refuse(
        fmt::format("it has refused worker {} to this node, or never confirmed it", *loaded_->worker));
  if (loaded_->leased)
    return refuse("the number in this state directory was a lease, which others may have by now");
  if (MayBeCopied())
    return refuse(
        "the state directory was written on another machine, or in another place: it may be a copy");
  if (const milliseconds age = clock_.Wall() - loaded_->last_contact; age > options_.offline_start_max) {
    return refuse(fmt::format("the registry last answered {}, more than {} ago (snowflake.offline_start_max)",
                              FormatRfc3339(loaded_->last_contact),
                              FormatDuration(options_.offline_start_max)));
  }
  return core::WorkerClaim{*loaded_->worker, 0, std::nullopt};
}

// Requires extend_mutex_. The registry has refused the number to this node: no start without it may use
// the number, whatever happens to this process. False if that could not be written.
bool SnowflakeService::RememberDispute() {
  // What was read may be a copy that has no identity of its own yet.
  core::WorkerState& known = life_.load() == nullptr && loaded_ ? *loaded_ : state_;
  if (abandoned_.load()) return true;  // the file may be another process's by now
  if (!known.worker || known.last_contact <= WallTime{}) return true;
  core::WorkerState disputed = known;
  disputed.last_contact = WallTime{};
  if (const auto stored = state_file_.Store(disputed); !stored.ok()) {
    log_.Warning("{}; a start without the registry may use worker {}, which is another node's",
                 stored.error().message, *disputed.worker);
    return false;
  }
  known.last_contact = state_.last_contact = WallTime{};
  return true;
}

// The last contact as the state file has it: none where the registry disputes the number.
WallTime SnowflakeService::DurableContact() const {
  return disputed_.load() ? WallTime{} : last_contact_.load();
}

// Requires extend_mutex_.
bool SnowflakeService::MayBeCopied() const {
  return loaded_ && loaded_->worker &&
         (options_.machine.empty() || !core::IsSamePlace(loaded_->machine, options_.machine));
}

// A registry without an outside cannot see that two processes use one number, so the copy of a state
// directory is refused. Requires extend_mutex_.
Result<void> SnowflakeService::CheckIsNoCopy(const core::WorkerClaim& claim) const {
  if (registry_.remote() || !MayBeCopied() || claim.worker != *loaded_->worker) return {};
  // What cannot be told is no reason to stop.
  if (options_.machine.empty() || loaded_->machine.empty()) return {};
  return Error{
      ErrorCode::kRefused,
      fmt::format("the state directory was written on another machine, or in another place: it may be a "
                  "copy, and the original may be issuing IDs as worker {}, too",
                  claim.worker),
      fmt::format("if the original is gone for good: leafctl worker adopt {}", claim.worker)};
}

// Requires extend_mutex_.
Result<void> SnowflakeService::BeginLife(const core::WorkerClaim& claim) {
  const core::IdLayout& layout = state_.cluster.layout;
  const std::uint64_t worker_end = std::min(options_.worker_end, layout.worker_end());
  if (claim.worker < options_.worker_begin || claim.worker >= worker_end) {
    return Error{ErrorCode::kRefused,
                 fmt::format("worker number {} is not in {}..{} (snowflake.worker_range, and what layout {} "
                             "can hold)",
                             claim.worker, options_.worker_begin, worker_end - 1, layout.Bits()),
                 ""};
  }
  if (state_.worker && *state_.worker != claim.worker) {
    log_.Warning("this node was worker {} and is worker {} from now on", *state_.worker, claim.worker);
  }

  const WallTime now = clock_.Wall();
  if (now < WallTimeOf(layout.epoch_ms())) {
    return Error{ErrorCode::kClock,
                 fmt::format("the wall clock says {}, which is before the epoch of the IDs, {}",
                             FormatRfc3339(now), FormatRfc3339(WallTimeOf(layout.epoch_ms()))),
                 "set the clock right, or snowflake.epoch_ms"};
  }
  LEAF_RETURN_IF_ERROR(CheckClock(now));

  // Every ceiling found, of a former owner as well as of this node under whatever number.
  WallTime known_end = std::max(WallTimeOf(layout.epoch_ms()), state_.ceiling);
  if (claim.ceiling) {
    const milliseconds untold = claim.ceiling_may_lag ? kTellInterval + options_.window : milliseconds{0};
    known_end = std::max(known_end, *claim.ceiling + untold);
  }
  LEAF_ASSIGN_OR_RETURN(const WallTime begin,
                        core::PlanStart(now, known_end, options_.window, options_.start_wait));
  if (begin > layout.LastTime()) {
    return Error{ErrorCode::kOverflow,
                 fmt::format("layout {} with epoch {} has no IDs after {}", layout.Bits(), layout.epoch_ms(),
                             FormatRfc3339(layout.LastTime())),
                 "a new cluster with a new epoch is needed"};
  }
  // After our own ceilings: what they say of this clock is certain.
  if (options_.check_peers) LEAF_RETURN_IF_ERROR(options_.check_peers());
  if (begin > layout.LastTime() - kExhaustionWarning) {
    log_.Warning("layout {} with epoch {} has no IDs after {}", layout.Bits(), layout.epoch_ms(),
                 FormatRfc3339(layout.LastTime()));
  }
  const core::WorkerState before = state_;
  state_.worker = claim.worker;
  state_.leased = registry_.leased();
  Life& life = lives_.emplace_back(claim, layout, begin, std::max(known_end, state_.highest), options_.window,
                                   random_.Next());
  Result<void> durable;
  if (begin > now) {
    log_.Info("waiting {} for the wall clock to pass {}, up to which IDs may have been issued",
              FormatDuration(begin - now), FormatRfc3339(begin));
    // That the state can be written is found out now, not when it is needed.
    durable = MakeDurable(life, begin);
  } else {
    const WallTime ceiling = life.generator.CeilingAt(now);
    durable = MakeDurable(life, ceiling);
    if (durable.ok()) life.generator.RaiseCeiling(ceiling);
  }
  if (!durable.ok()) {
    lives_.pop_back();
    // Its ceiling, too: nothing was issued up to it, and it may be far ahead, and another number's.
    state_ = before;
    return durable;
  }
  {
    const std::lock_guard lock(registry_mutex_);
    claim_ = claim;
  }
  lost_.store(false);
  life_.store(&life, std::memory_order_release);
  if (abandoned_.load()) life.generator.Close();
  if (!registry_.leased()) PostTell();
  return {};
}

bool SnowflakeService::MayPass(const Error& error) const {
  switch (error.code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
      return true;
    case ErrorCode::kPermission:
    case ErrorCode::kConfig:
      // A password, or a table that is missing. What a configuration of ours lacks does not pass.
      return registry_.remote();
    case ErrorCode::kExhausted:
    case ErrorCode::kNotOwner:
      return registry_.leased();
    default:
      return false;
  }
}

bool SnowflakeService::WantsLife() const {
  if (stopped_.load() || abandoned_.load() || given_up_.load()) return false;
  const Life* const life = life_.load();
  return life == nullptr || (lost_.load() && claims_again_.load() && life->generator.closed());
}

void SnowflakeService::RunLife() {
  Result<void> result;
  std::function<void(Result<void>)> first;
  {
    const std::lock_guard lock(extend_mutex_);
    if (WantsLife()) {
      first = std::exchange(on_first_attempt_, nullptr);
      if (!guard_) result = LoadState();
      if (result.ok()) result = TryToLive();
      if (result.ok()) {
        life_backoff_ = {};
      } else {
        if (life_.load() != nullptr && !registry_.leased()) result = StillLost(result.error());
        if (first && !MayPass(result.error())) given_up_.store(true);
        life_backoff_ = std::clamp(life_backoff_ * 2, kLifeBackoffMin, kLifeBackoffMax);
        const milliseconds jitter{random_.Below(static_cast<std::uint64_t>(life_backoff_.count() / 4 + 1))};
        next_life_at_.store(clock_.Monotonic() + life_backoff_ + jitter);
      }
    }
  }
  SetProblem("no worker number", result);
  extending_.store(false);
  if (first) {
    if (!given_up_.load()) timers_.PostAt(clock_.Monotonic() + tick_, [this] { Tick(); });
    first(given_up_.load() ? result : Result<void>{});
  }
  WakeParked();
}

void SnowflakeService::Stop() {
  if (abandoned_.load() || stopped_.exchange(true)) return;
  registry_.Interrupt();
  if (Life* const life = life_.load(); life != nullptr) life->generator.Close();
  std::list<Waiter> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(parked_);
    parked_count_.store(0);
  }
  for (const Waiter& waiter : dropped) waiter.done(ShuttingDown());

  // An extension or a claim on its way ends first; one that comes later finds the word closed.
  const std::lock_guard lock(extend_mutex_);
  Life* const life = life_.load();
  if (life == nullptr) return;
  life->generator.Close();
  // Closed, so this is final. No ID at or after it exists: it may be lower than the ceiling in the file.
  const WallTime end = life->generator.End();
  // The lead is a window at most, but for a clock that went back meanwhile: then the next start waits.
  const MonotonicTime deadline = clock_.Monotonic() + options_.window;
  while (clock_.Wall() < end && clock_.Monotonic() < deadline) {
    clock_.WaitUntil(std::min(deadline, clock_.Monotonic() + std::max(end - clock_.Wall(), milliseconds{1})));
  }
  const std::lock_guard registry_lock(registry_mutex_);
  if (!lost_.load() && registered_.load()) {
    if (const auto released = registry_.Release(claim_, end); released.ok()) {
      last_contact_.store(clock_.Wall());
    } else {
      const ErrorCode code = released.error().code;
      const bool refused = code == ErrorCode::kNotOwner || code == ErrorCode::kRefused;
      if (refused && !registry_.leased()) disputed_.store(true);
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
  std::list<Waiter> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (halted_) return;
    halted_ = why;
    dropped.swap(parked_);
    parked_count_.store(0);
  }
  Abandon();
  registry_.Interrupt();
  for (const Waiter& waiter : dropped) waiter.done(why);
}

void SnowflakeService::Abandon() {
  abandoned_.store(true);
  if (Life* const life = life_.load(); life != nullptr) life->generator.Close();
}

SnowflakeService::NextCallback SnowflakeService::Counted(NextCallback done) {
  return [this, done = std::move(done)](Result<core::SnowflakeRun> result) {
    if (!result.ok()) errors_[SlotOf(result.error().code)].fetch_add(1, std::memory_order_relaxed);
    done(std::move(result));
  };
}

SnowflakeTallies SnowflakeService::Tallies() const {
  SnowflakeTallies tallies;
  tallies.issued = issued_.Sum();
  tallies.waits = waits_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < errors_.size(); ++i)
    tallies.errors[i] = errors_[i].load(std::memory_order_relaxed);
  return tallies;
}

std::uint64_t SnowflakeService::Next(std::uint64_t count, milliseconds wait, NextCallback done) {
  done = Counted(std::move(done));
  if (count > count_max()) {
    done(Error{ErrorCode::kTooLarge,
               fmt::format("{} IDs at once are more than {} hold, which is how far IDs may be ahead of the "
                           "clock: at most {}",
                           count, FormatDuration(options_.window), count_max()),
               "ask several times"});
    return 0;
  }
  core::SnowflakeRun run;
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    const WallTime now = clock_.Wall();
    const Life* const life = life_.load();
    core::Snowflake::TakeResult result;
    if (life != nullptr) result = life->generator.Probe(count, now);
    // Behind others who wait, even what could be served has to wait.
    if (parked_.empty()) result = TakeNow(count, run);
    if (result.outcome != Outcome::kTaken || !parked_.empty()) {
      if (result.outcome != Outcome::kTaken && !MayComeWithin(result, now, wait)) {
        failure = ErrorOf(result, now);
      } else {
        const std::uint64_t ticket = next_ticket_++;
        parked_.push_back({ticket, count, clock_.Monotonic() + wait, std::move(done)});
        parked_count_.store(parked_.size());
        waits_.fetch_add(1, std::memory_order_relaxed);
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
  const Life* const life = life_.load();
  if (life == nullptr) return false;
  if (life->starting()) return !problem_ && life->begin - now <= wait;
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
  if (halted_) return *halted_;
  const core::IdLayout& layout = options_.cluster.layout;
  const Life* const life = life_.load();
  if (life == nullptr) {
    if (stopped_.load()) return ShuttingDown();
    if (problem_) return *problem_;
    return {ErrorCode::kUnavailable, "this node has no worker number yet: the registry is being asked",
            "retry; a number that is new to this node is watched first (snowflake.claim_watch)"};
  }
  if (life->starting() && result.outcome != Outcome::kClosed) {
    if (problem_) return *problem_;
    return {
        ErrorCode::kClock,
        fmt::format("IDs up to {} may have been issued before the start: none until the wall clock has "
                    "passed that, in {}",
                    FormatRfc3339(life->begin), FormatDuration(std::max(life->begin - now, milliseconds{0}))),
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
                          FormatDuration(life->generator.LeadAt(now)), FormatDuration(options_.window),
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
      if (problem_ && !stopped_.load()) return *problem_;
      return ShuttingDown();
    case Outcome::kTaken:
      break;
  }
  return {ErrorCode::kInternal, "no error", ""};
}

Result<void> SnowflakeService::CanIssue() const {
  const Life* const life = life_.load();
  const WallTime now = clock_.Wall();
  const std::lock_guard lock(mutex_);
  if (life == nullptr) return ErrorOf({}, now);
  const auto result = life->generator.Probe(1, now);
  // Borrowed to the limit is busy, not broken: the next millisecond brings more.
  if (result.outcome == Outcome::kTaken || (result.outcome == Outcome::kAhead && !life->starting()))
    return {};
  // So is a ceiling that is being raised.
  if (result.outcome == Outcome::kAtCeiling && !problem_ && !life->starting()) return {};
  return ErrorOf(result, now);
}

SnowflakeStatus SnowflakeService::Status() const {
  SnowflakeStatus status;
  const Life* const life = life_.load();
  const WallTime now = clock_.Wall();
  const std::lock_guard lock(mutex_);
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
  if (life == nullptr) return status;
  status.has_worker = true;
  status.registered = registered_.load();
  const bool closed = life->generator.closed();
  status.state = closed && WantsLife() ? "claiming"
                 : closed              ? "stopped"
                 : life->starting()    ? "starting"
                                       : "issuing";
  status.worker = life->claim.worker;
  status.ceiling = life->generator.ceiling();
  status.lead = life->generator.LeadAt(now);
  return status;
}

void SnowflakeService::Tick() {
  if (stopped_.load() || abandoned_.load()) return;
  Life* const life = life_.load();
  milliseconds next = tick_;
  if (life == nullptr || life->generator.closed()) {
    // A number that is lost until a restart.
    if (!WantsLife()) return;
    if (clock_.Monotonic() >= next_life_at_.load() && !extending_.exchange(true)) {
      workers_.Post([this] { RunLife(); });
    }
  } else {
    // With a problem, too: it may have passed by itself.
    const WallTime now = clock_.Wall();
    const bool tell = clock_.Monotonic() - told_at_.load() >= kTellInterval;
    if (has_problem_.load() || (tell && registry_.leased())) {
      PostExtension();
    } else {
      RequestExtension();
    }
    if (tell && !registry_.leased()) PostTell();
    // The end of the wait at start is met as exactly as can be.
    if (life->starting()) next = std::clamp(life->begin - now, milliseconds{1}, tick_);
  }
  timers_.PostAt(clock_.Monotonic() + next, [this] { Tick(); });
}

void SnowflakeService::RequestExtension() {
  // Whoever finds little left asks, as often as requests come: only what can help is posted. With a problem
  // the timer tries again, at its own pace.
  const Life* const life = life_.load();
  const WallTime now = clock_.Wall();
  if (has_problem_.load() || (life->starting() && now < life->begin) || !life->generator.ExtensionDue(now))
    return;
  PostExtension();
}

void SnowflakeService::PostExtension() {
  if (extending_.exchange(true)) return;
  workers_.Post([this] { RunExtension(); });
}

void SnowflakeService::RunExtension() {
  const Life* const life = life_.load();
  const core::Snowflake& generator = life->generator;
  // At saturation the ceiling is used up as fast as it is raised: not one write for each millisecond.
  const WallTime now = clock_.Wall();
  if (const auto gain = generator.CeilingAt(now) - generator.ceiling();
      gain > milliseconds{0} && gain < extend_least_ &&
      generator.CeilingAt(now) <= generator.layout().LastTime()) {
    timers_.PostAt(clock_.Monotonic() + (extend_least_ - gain),
                   [this] { workers_.Post([this] { RunExtension(); }); });
    return;
  }
  const WallTime ceiling = generator.ceiling();
  const bool problem_is_new = SetProblem("no new ceiling", Extend());
  extending_.store(false);
  // Who waits is looked at only if something has changed: a pump asks for an extension in its turn.
  if (problem_is_new || generator.ceiling() != ceiling) WakeParked();
}

void SnowflakeService::WakeParked() {
  const std::lock_guard lock(mutex_);
  if (!parked_.empty()) timers_.Post([this] { Pump(); });
}

Result<void> SnowflakeService::Extend() {
  const std::lock_guard lock(extend_mutex_);
  Life& life = *life_.load();
  if (life.generator.closed()) {
    const std::lock_guard problem_lock(mutex_);
    return lost_.load() && problem_ ? Result<void>(*problem_) : Result<void>();
  }
  const WallTime now = clock_.Wall();
  LEAF_RETURN_IF_ERROR(CheckClock(now));
  if ((life.starting() && now < life.begin) || !life.generator.ExtensionDue(now)) {
    // Nothing to raise, but a lease has to be seen to live.
    if (!registry_.leased() || clock_.Monotonic() - told_at_.load() < kTellInterval) return {};
    return Renew(life, std::max(life.generator.ceiling(), life.begin));
  }
  const WallTime ceiling = life.generator.CeilingAt(now);
  LEAF_RETURN_IF_ERROR(MakeDurable(life, ceiling));
  // Durable first, then issued: this order is promise P1.
  life.generator.RaiseCeiling(ceiling);
  if (!registry_.leased()) PostTell();
  return {};
}

// Requires extend_mutex_.
Result<void> SnowflakeService::MakeDurable(Life& life, WallTime ceiling) {
  // The file never goes below what it says, but for the exact end after Close.
  state_.ceiling = std::max(state_.ceiling, ceiling);
  state_.highest = std::max(state_.highest, state_.ceiling);
  state_.clock_offset = guard_->reference();
  state_.last_contact = DurableContact();
  LEAF_RETURN_IF_ERROR(state_file_.Store(state_));
  return registry_.leased() ? Renew(life, ceiling) : Result<void>();
}

// Requires extend_mutex_, and a lease.
Result<void> SnowflakeService::Renew(Life& life, WallTime ceiling) {
  told_at_.store(clock_.Monotonic());
  return Heard(life, registry_.Renew(life.claim, ceiling));
}

Result<void> SnowflakeService::Heard(Life& life, const Result<void>& answer) {
  if (answer.ok()) last_contact_.store(clock_.Wall());
  const bool displaced = !answer.ok() && answer.error().code == ErrorCode::kRefused;
  const bool lost = displaced || (!answer.ok() && answer.error().code == ErrorCode::kNotOwner);
  if (lost) {
    // Another node may be issuing with the number.
    claims_again_.store(displaced || registry_.leased());
    if (!registry_.leased()) disputed_.store(true);
    lost_.store(true);
    life.generator.Close();
  }
  const std::lock_guard lock(mutex_);
  if (!answer.ok() && !lost && !registry_problem_)
    log_.Warning("worker {}: {}", life.claim.worker, answer.error().message);
  if (answer.ok() && registry_problem_) log_.Info("worker {}: the registry answers again", life.claim.worker);
  registry_problem_ = answer.ok() ? std::nullopt : std::optional(answer.error());
  if (lost) return Error{ErrorCode::kNotOwner, answer.error().message, answer.error().hint};
  return answer;
}

Error SnowflakeService::StillLost(Error why) const {
  switch (why.code) {
    case ErrorCode::kRefused:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
      why.code = ErrorCode::kNotOwner;
      why.message = fmt::format("worker {} is lost, and is not claimed again yet: {}",
                                life_.load()->claim.worker, why.message);
      return why;
    default:
      return why;
  }
}

void SnowflakeService::PostTell() {
  if (telling_.exchange(true)) return;
  registry_worker_.Post([this] { Tell(); });
}

void SnowflakeService::Tell() {
  const std::lock_guard lock(registry_mutex_);
  // Whatever is raised from here on posts another.
  telling_.store(false);
  Life* const life = life_.load();
  if (stopped_.load() || abandoned_.load() || life->generator.closed()) return;
  told_at_.store(clock_.Monotonic());
  Result<void> answer;
  if (!registered_.load()) answer = Register(*life);
  if (answer.ok()) answer = registry_.Renew(claim_, std::max(life->generator.ceiling(), life->begin));
  answer = Heard(*life, answer);
  if (!lost_.load()) return;
  SetProblem("the worker number is lost", answer);
  WakeParked();
  // Not here: extend_mutex_ comes before registry_mutex_.
  workers_.Post([this] { KeepDispute(); });
}

void SnowflakeService::KeepDispute() {
  const std::lock_guard lock(extend_mutex_);
  // Otherwise a claim has succeeded since, or the file was written as the service stopped.
  if (!disputed_.load() || stopped_.load() || RememberDispute()) return;
  timers_.PostAt(clock_.Monotonic() + kTellInterval, [this] { workers_.Post([this] { KeepDispute(); }); });
}

// Requires registry_mutex_. Makes up for the claim that a start without the registry could not make.
Result<void> SnowflakeService::Register(const Life& life) {
  auto claimed = registry_.Claim({.address = options_.address,
                                  .uuid = node_uuid_,
                                  .again = life.claim.worker,
                                  .held = life.claim.worker,
                                  .held_ceiling = life.known_end},
                                 cluster_);
  const auto lost = [&](std::string why) {
    return Error{ErrorCode::kNotOwner,
                 fmt::format("this node started as worker {} while the registry could not be asked; {}",
                             life.claim.worker, why),
                 "look at leafctl worker check, then restart"};
  };
  if (!claimed.ok()) {
    return claimed.error().code == ErrorCode::kRefused ? lost(claimed.error().message) : claimed.error();
  }
  if (claimed->worker != life.claim.worker)
    return lost(fmt::format("now it says that this node's number is {}", claimed->worker));
  if (claimed->ceiling && *claimed->ceiling > life.known_end) {
    return lost(
        fmt::format("now it says that IDs up to {} may have been issued, which this state directory "
                    "does not know of: somebody else has used the number",
                    FormatRfc3339(*claimed->ceiling)));
  }
  claim_ = *claimed;
  registered_.store(true);
  log_.Info("worker {}: registered", claim_.worker);
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
  if (jump) {
    return Error{
        ErrorCode::kClock,
        fmt::format("the wall clock says {}: it has jumped {} ahead, and at most {} are followed; IDs "
                    "issued with a wrong time would keep this worker from issuing until then",
                    FormatRfc3339(now), FormatDuration(*jump), FormatDuration(options_.clock_jump_max)),
        "set the clock right; if it is right, leafctl worker accept-clock"};
  }
  return options_.peers_verdict ? options_.peers_verdict() : Result<void>();
}

bool SnowflakeService::SetProblem(std::string_view what, const Result<void>& result) {
  const std::lock_guard lock(mutex_);
  // An extension that was under way when the number was lost does not clear the reason: only a new claim
  // does.
  if (result.ok() && lost_.load()) return false;
  const bool is_new = !result.ok() && !problem_;
  if (!result.ok() && !problem_) log_.Error("snowflake: {}: {}", what, result.error().message);
  if (result.ok() && problem_) log_.Info("snowflake: going on");
  problem_ = result.ok() ? std::nullopt : std::optional(result.error());
  // The registry's write has an unknown outcome. A request that gets this error has certainly got no IDs.
  if (problem_ && problem_->code == ErrorCode::kOutcomeUnknown) problem_->code = ErrorCode::kUnavailable;
  has_problem_.store(problem_.has_value());
  return is_new;
}

}  // namespace leaf::service
