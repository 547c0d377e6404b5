// The claim of a worker number, and the term that begins with it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/service/snowflake_service.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;

// Between attempts to obtain a worker number.
constexpr milliseconds kClaimBackoffMin{500};
constexpr milliseconds kClaimBackoffMax{15'000};

// RFC 4122, version 4.
std::string NewUuid(Random& random) {
  const std::uint64_t high = (random.Next() & 0xFFFFFFFFFFFF0FFFU) | 0x4000U;
  const std::uint64_t low = (random.Next() & 0x3FFFFFFFFFFFFFFFU) | 0x8000000000000000U;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF,
                     low >> 48, low & 0xFFFFFFFFFFFFU);
}

}  // namespace

Result<void> SnowflakeService::LoadState() {
  LEAF_ASSIGN_OR_RETURN(loaded_, state_file_.Load());
  state_ = loaded_.value_or(core::WorkerState{});
  if (!loaded_) state_.node_uuid = NewUuid(random_);
  core::ClusterProperties cluster = options_.cluster;
  cluster.registry = registry_.kind();
  if (cluster.name.empty()) cluster.name = "local-" + state_.node_uuid;
  // Durable right after the claim (KeepNewIdentity): a crash in between needs an operator. A directory
  // without a number has an identity as well, under which the original may be claiming one.
  if (IsElsewhere() && registry_.remote() && !registry_.leased())
    former_uuid_ = std::exchange(state_.node_uuid, NewUuid(random_));
  // Without a number nothing was issued: a first start with a wrong configuration binds no later one.
  if (loaded_ && loaded_->worker)
    LEAF_RETURN_IF_ERROR(core::CheckSameCluster(loaded_->cluster, cluster, "this state directory"));
  state_.cluster = cluster;
  {
    const MutexLock lock(mutex_);
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
  auto stored = state_file_.Store(state_);
  // A claim under an identity that is not on the disk would be another node's after a restart.
  if (!stored.ok()) guard_.reset();
  return stored;
}

Result<void> SnowflakeService::TryToClaim() {
  LEAF_CHECK(term_.load() == nullptr || term_.load()->generator.closed());
  told_at_.store(clock_.Monotonic());
  const Term* const last = term_.load();
  const bool met_a_copy = registry_.met_a_copy();
  if (met_a_copy) TakeNewIdentity();
  core::NodeIdentity node{
      .address = options_.address,
      .uuid = state_.node_uuid,
      .former_uuid = former_uuid_,
      // The number of a lease is not a fixed number.
      .held = state_.leased == registry_.leased() && !met_a_copy ? state_.worker : std::nullopt,
      .held_ceiling = state_.ceiling,
      .last_contact = last_contact_.load()};
  if (last != nullptr && !registry_.leased()) node.again = last->claim.worker;
  const auto is_denied = [this]() LEAF_REQUIRES(extend_mutex_) {
    denied_.store(true);
    RememberDenial();
  };
  if (!registry_.leased()) node.on_denied = is_denied;
  if (!former_uuid_.empty()) {
    node.on_claimed = [this](const core::WorkerClaim& got)
                          LEAF_REQUIRES(extend_mutex_) { return KeepNewIdentity(got); };
  }
  auto claimed = registry_.Claim(node, state_.cluster);
  // The number of this state directory is another node's by now.
  const auto is_another = [&](const core::WorkerClaim& got) {
    return !registry_.leased() && node.held && node.former_uuid.empty() && got.worker != *node.held;
  };
  core::WorkerClaim claim;
  if (claimed.ok()) {
    claim = *claimed;
    last_contact_.store(clock_.Wall());
    if (!former_uuid_.empty()) LEAF_RETURN_IF_ERROR(KeepNewIdentity(claim));
  } else {
    const bool refused = node.held && node.former_uuid.empty() && claimed.error().code == ErrorCode::kRefused;
    if (refused && !registry_.leased()) is_denied();
    LEAF_ASSIGN_OR_RETURN(claim, ClaimFromState(claimed.error()));
    log_.Warning("{}; starting as worker {} without the registry", claimed.error().message, claim.worker);
    const MutexLock lock(mutex_);
    registry_problem_ = claimed.error();
  }
  LEAF_RETURN_IF_ERROR(CheckIsNoCopy(claim));
  if (node.again && claim.worker != *node.again) {
    Enter(StandingEvent::kExchanged);
    return Error{
        ErrorCode::kNotOwner,
        fmt::format("this node was worker {}, and the registry gives it {} now", *node.again, claim.worker),
        "run leafctl worker check, then restart"};
  }
  // From here on the state file names the number that was claimed.
  if (claimed.ok()) denied_.store(false);
  auto begun = BeginTerm(claim, claimed.ok() ? StandingEvent::kClaimed : StandingEvent::kStartedAlone);
  if (!begun.ok() && claimed.ok() && is_another(claim)) denied_.store(true);
  // Nothing was issued with it: a node that needs a number may have it at once.
  if (!begun.ok() && claimed.ok() && registry_.leased()) {
    const auto released =
        registry_.Release(claim, claim.ceiling.value_or(WallTimeOf(state_.cluster.layout.epoch_ms())));
    if (!released.ok()) log_.Warning("worker {}: {}", claim.worker, released.error().message);
  }
  return begun;
}

// The registry knows this directory under its new uuid from now on. What the term needs may still fail, and a
// later start that had the former uuid would be refused as another directory. Without a last contact no start
// does without the registry.
Result<void> SnowflakeService::KeepNewIdentity(const core::WorkerClaim& claim) {
  if (loaded_->node_uuid == state_.node_uuid && loaded_->worker == claim.worker) return {};
  core::WorkerState kept = *loaded_;
  kept.cluster = state_.cluster;
  kept.node_uuid = state_.node_uuid;
  kept.machine = options_.machine;
  kept.worker = claim.worker;
  kept.last_contact = WallTime{};
  LEAF_RETURN_IF_ERROR(state_file_.Store(kept));
  loaded_ = kept;
  return {};
}

void SnowflakeService::TakeNewIdentity() {
  log_.Warning(
      "another process uses the lease of this state directory: one of them has a copy; this one goes on with "
      "a "
      "new identity, and another number");
  state_.node_uuid = NewUuid(random_);
  const MutexLock lock(mutex_);
  node_uuid_ = state_.node_uuid;
}

// A fixed number stays this node's whether or not the registry can be asked, unless this state is a copy, or
// so old that an operator may have given the number to another node.
Result<core::WorkerClaim> SnowflakeService::ClaimFromState(const Error& registry_error) const {
  const bool away =
      registry_error.code == ErrorCode::kUnavailable || registry_error.code == ErrorCode::kOutcomeUnknown;
  if (!away || registry_.leased() || term_.load() != nullptr || stopped_.load()) return registry_error;
  const auto refuse = [&](std::string why) {
    Error error = registry_error;
    error.message += "; no start without it: " + std::move(why);
    return error;
  };
  if (!loaded_ || !loaded_->worker) return refuse("this state directory has no worker number yet");
  if (denied_.load() || loaded_->last_contact <= WallTime{})
    return refuse(
        fmt::format("it has refused worker {} to this node, or never confirmed it", *loaded_->worker));
  if (loaded_->leased)
    return refuse("the number in this state directory was a lease, which others may have by now");
  if (MayBeCopied())
    return refuse(
        "the state directory was written on another machine, or in another place: it may be a copy");
  // How long ago a time to come was is not known: the clock was ahead then, or is behind now. One that is
  // behind the ceiling, too, is refused for that.
  const WallTime latest = clock_.Wall() + options_.start_wait;
  if (loaded_->last_contact > latest && loaded_->ceiling <= latest) {
    return refuse(fmt::format(
        "the registry last answered at {}, by a clock that is at {} now: how long ago that was is "
        "not known (snowflake.offline_start_max)",
        FormatRfc3339(loaded_->last_contact), FormatRfc3339(clock_.Wall())));
  }
  // 0 means never.
  const milliseconds most = options_.offline_start_max;
  if (clock_.Wall() - loaded_->last_contact > most || most == milliseconds{0}) {
    return refuse(fmt::format("the registry last answered {}, more than {} ago (snowflake.offline_start_max)",
                              FormatRfc3339(loaded_->last_contact),
                              FormatDuration(options_.offline_start_max)));
  }
  return core::WorkerClaim{*loaded_->worker, 0, std::nullopt};
}

// The registry has refused the number to this node: no start without it may use
// the number, whatever happens to this process. False if that could not be written.
bool SnowflakeService::RememberDenial() {
  // What was read may be a copy that has no identity of its own yet.
  core::WorkerState& known = term_.load() == nullptr && loaded_ ? *loaded_ : state_;
  if (abandoned_.load()) return true;  // the file may be another process's by now
  if (!known.worker || known.last_contact <= WallTime{}) return true;
  core::WorkerState denied = known;
  denied.last_contact = WallTime{};
  if (const auto stored = state_file_.Store(denied); !stored.ok()) {
    log_.Warning("{}; a start without the registry may use worker {}, which is another node's",
                 stored.error().message, *denied.worker);
    return false;
  }
  known.last_contact = state_.last_contact = WallTime{};
  return true;
}

// The last contact as the state file has it: none where the registry has denied the number.
WallTime SnowflakeService::DurableContact() const {
  return denied_.load() ? WallTime{} : last_contact_.load();
}

bool SnowflakeService::IsElsewhere() const {
  return loaded_ && (options_.machine.empty() || !core::IsSamePlace(loaded_->machine, options_.machine));
}

bool SnowflakeService::MayBeCopied() const { return IsElsewhere() && loaded_->worker; }

// A registry without an outside cannot see that two processes use one number, so the copy of a state
// directory is refused.
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

Result<void> SnowflakeService::BeginTerm(const core::WorkerClaim& claim, StandingEvent how) {
  const core::IdLayout& layout = state_.cluster.layout;
  LEAF_RETURN_IF_ERROR(
      core::CheckWorkerNumber(claim.worker, options_.worker_begin, options_.worker_end, layout));
  if (state_.worker && *state_.worker != claim.worker) {
    log_.Warning("this node was worker {} and is worker {} from now on", *state_.worker, claim.worker);
  }

  const WallTime now = clock_.Wall();
  if (now < WallTimeOf(layout.epoch_ms())) {
    return Error{ErrorCode::kClock,
                 fmt::format("the wall clock says {}, which is before the epoch of the IDs, {}",
                             FormatRfc3339(now), FormatRfc3339(WallTimeOf(layout.epoch_ms()))),
                 "correct the clock, or snowflake.epoch_ms"};
  }
  LEAF_RETURN_IF_ERROR(CheckClock(now));

  // Every ceiling found, of a former owner as well as of this node under whatever number.
  WallTime known_end = std::max(WallTimeOf(layout.epoch_ms()), state_.ceiling);
  if (claim.ceiling) known_end = std::max(known_end, *claim.ceiling);
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
  Term& term = terms_.emplace_back(claim, layout, begin, std::max(known_end, state_.highest), options_.window,
                                   random_.Next());
  Result<void> durable;
  if (begin > now) {
    log_.Info("waiting {} for the wall clock to pass {}, up to which IDs may have been issued",
              FormatDuration(begin - now), FormatRfc3339(begin));
    // That the state can be written is found out now, not when it is needed.
    durable = MakeDurable(term, begin);
  } else {
    const WallTime ceiling = term.generator.CeilingAt(now);
    durable = MakeDurable(term, ceiling);
    if (durable.ok()) term.generator.RaiseCeiling(ceiling);
  }
  if (!durable.ok()) {
    terms_.pop_back();
    // Its ceiling, too: nothing was issued up to it, and it may be far ahead, and another number's.
    state_ = before;
    return durable;
  }
  {
    const MutexLock lock(registry_mutex_);
    claim_ = claim;
  }
  LEAF_CHECK(Enter(how));
  // In one order with Abandon(), which looks for a term after it has said so.
  term_.store(&term);
  if (abandoned_.load()) term.generator.Close();
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
    case ErrorCode::kInternal:
      // A password, a table that is missing, an error of a server that was not foreseen. What a configuration
      // of ours lacks does not pass.
      return registry_.remote();
    case ErrorCode::kExhausted:
    case ErrorCode::kNotOwner:
      return registry_.leased();
    default:
      return false;
  }
}

bool SnowflakeService::WantsTerm() const {
  if (stopped_.load() || abandoned_.load() || given_up_.load()) return false;
  const Term* const term = term_.load();
  return term == nullptr || (standing_.load() == Standing::kLost && term->generator.closed());
}

void SnowflakeService::RunClaim() {
  Result<void> result;
  Started first;
  {
    const MutexLock lock(extend_mutex_);
    if (WantsTerm()) {
      first = std::exchange(on_first_attempt_, nullptr);
      if (!guard_) result = LoadState();
      if (result.ok()) result = TryToClaim();
      if (result.ok()) {
        claim_backoff_ = {};
      } else {
        if (term_.load() != nullptr && !registry_.leased()) result = StillLost(result.error());
        claim_backoff_ = std::clamp(claim_backoff_ * 2, kClaimBackoffMin, kClaimBackoffMax);
        const milliseconds jitter{random_.Below(static_cast<std::uint64_t>(claim_backoff_.count() / 4 + 1))};
        next_claim_at_.store(clock_.Monotonic() + claim_backoff_ + jitter);
      }
    }
  }
  SetProblem("no worker number", result);
  if (first) {
    const bool lasts = !result.ok() && !MayPass(result.error());
    const bool ends = first(lasts ? result : Result<void>());
    if (lasts && ends) {
      given_up_.store(true);
    } else {
      timers_.PostAt(clock_.Monotonic() + NextTick(), [this] { Tick(); });
    }
  }
  extending_.store(false);
  line_.Wake();
}

Error SnowflakeService::StillLost(Error why) const {
  switch (why.code) {
    case ErrorCode::kRefused:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
      why.code = ErrorCode::kNotOwner;
      why.message = fmt::format("worker {} is lost, and is not claimed again yet: {}",
                                term_.load()->claim.worker, why.message);
      return why;
    default:
      return why;
  }
}

void SnowflakeService::KeepDenial() {
  const MutexLock lock(extend_mutex_);
  // Otherwise a claim has succeeded since, or the file was written as the service stopped.
  if (!denied_.load() || stopped_.load() || RememberDenial()) return;
  timers_.PostAt(clock_.Monotonic() + core::kTellInterval,
                 [this] { workers_.Post([this] { KeepDenial(); }); });
}

}  // namespace leaf::service
