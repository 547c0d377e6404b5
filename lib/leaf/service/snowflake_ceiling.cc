// The ceiling: made durable beside the requests, and told to the registry.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/service/snowflake_service.h"

namespace leaf::service {

using std::chrono::milliseconds;

void SnowflakeService::RequestExtension() {
  // A request that finds little left asks, so this is called often: only what can help is posted. With a
  // problem the timer tries again, at its own pace.
  const Term* const term = term_.load();
  const WallTime now = clock_.Wall();
  if (has_problem_.load() || (term->starting() && now < term->begin) || !term->generator.ExtensionDue(now))
    return;
  PostExtension();
}

void SnowflakeService::PostExtension() {
  if (extending_.exchange(true)) return;
  workers_.Post([this] { RunExtension(); });
}

void SnowflakeService::RunExtension() {
  const Term* const term = term_.load();
  const core::Snowflake& generator = term->generator;
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
  // The line is looked at only if something has changed: a look asks for an extension in its turn.
  if (problem_is_new || generator.ceiling() != ceiling) line_.Wake();
}

Result<void> SnowflakeService::Extend() {
  const MutexLock lock(extend_mutex_);
  Term& term = *term_.load();
  if (term.generator.closed()) {
    const MutexLock problem_lock(mutex_);
    return IsLost(standing_.load()) && problem_ ? Result<void>(*problem_) : Result<void>();
  }
  const WallTime now = clock_.Wall();
  if (auto checked = CheckClock(now); !checked.ok()) {
    // No ceiling is raised, but the lease is kept: another node would take the number.
    if (auto kept = KeepLease(term); !kept.ok() && kept.error().code == ErrorCode::kNotOwner) return kept;
    return checked;
  }
  if ((term.starting() && now < term.begin) || !term.generator.ExtensionDue(now)) {
    return KeepLease(term);
  }
  const WallTime ceiling = term.generator.CeilingAt(now);
  LEAF_RETURN_IF_ERROR(MakeDurable(term, ceiling));
  // Durable first, then issued: this order is promise P1.
  term.generator.RaiseCeiling(ceiling);
  if (!registry_.leased()) PostTell();
  return {};
}

// Where nothing is raised a lease has to be seen to live all the same.
Result<void> SnowflakeService::KeepLease(Term& term) {
  if (!registry_.leased() || clock_.Monotonic() - told_at_.load() < core::kTellInterval) return {};
  return Renew(term, std::max(term.generator.ceiling(), term.begin));
}

Result<void> SnowflakeService::MakeDurable(Term& term, WallTime ceiling) {
  // The file never goes below what it says, but for the exact end after Close.
  state_.ceiling = std::max(state_.ceiling, ceiling);
  state_.highest = std::max(state_.highest, state_.ceiling);
  state_.clock_offset = guard_->reference();
  state_.last_contact = DurableContact();
  LEAF_RETURN_IF_ERROR(state_file_.Store(state_));
  return registry_.leased() ? Renew(term, ceiling) : Result<void>();
}

// Requires a lease.
Result<void> SnowflakeService::Renew(Term& term, WallTime ceiling) {
  told_at_.store(clock_.Monotonic());
  return OnRegistryAnswer(term, registry_.Renew(term.claim, ceiling));
}

Result<void> SnowflakeService::OnRegistryAnswer(Term& term, const Result<void>& answer) {
  if (answer.ok()) last_contact_.store(clock_.Wall());
  const bool displaced = !answer.ok() && answer.error().code == ErrorCode::kRefused;
  const bool lost = displaced || (!answer.ok() && answer.error().code == ErrorCode::kNotOwner);
  if (lost) {
    // Another node may be issuing with the number.
    if (!registry_.leased()) denied_.store(true);
    Enter(displaced || registry_.leased() ? StandingEvent::kDisplaced : StandingEvent::kTaken);
    term.generator.Close();
  }
  const MutexLock lock(mutex_);
  if (!answer.ok() && !lost && !registry_problem_)
    log_.Warning("worker {}: {}", term.claim.worker, answer.error().message);
  if (answer.ok() && registry_problem_) log_.Info("worker {}: the registry answers again", term.claim.worker);
  registry_problem_ = answer.ok() ? std::nullopt : std::optional(answer.error());
  if (lost) return Error{ErrorCode::kNotOwner, answer.error().message, answer.error().hint};
  return answer;
}

void SnowflakeService::PostTell() {
  if (telling_.exchange(true)) return;
  registry_worker_.Post([this] { Tell(); });
}

void SnowflakeService::Tell() {
  const MutexLock lock(registry_mutex_);
  // Whatever is raised from here on posts another.
  telling_.store(false);
  Term* const term = term_.load();
  if (stopped_.load() || abandoned_.load() || term->generator.closed()) return;
  told_at_.store(clock_.Monotonic());
  Result<void> answer;
  if (standing_.load() == Standing::kUnconfirmed) answer = Register(*term);
  if (answer.ok()) answer = registry_.Renew(claim_, std::max(term->generator.ceiling(), term->begin));
  answer = OnRegistryAnswer(*term, answer);
  if (!IsLost(standing_.load())) return;
  SetProblem("the worker number is lost", answer);
  line_.Wake();
  // Not here: extend_mutex_ comes before registry_mutex_.
  workers_.Post([this] { KeepDenial(); });
}

// Makes up for the claim that a start without the registry could not make.
Result<void> SnowflakeService::Register(const Term& term) {
  std::string uuid;
  core::ClusterProperties cluster;
  {
    const MutexLock lock(mutex_);
    uuid = node_uuid_;
    cluster = cluster_;
  }
  auto claimed = registry_.Claim({.address = options_.address,
                                  .uuid = std::move(uuid),
                                  .again = term.claim.worker,
                                  .held = term.claim.worker,
                                  .held_ceiling = term.known_end,
                                  .last_contact = last_contact_.load()},
                                 cluster);
  const auto lost = [&](std::string why) {
    return Error{ErrorCode::kNotOwner,
                 fmt::format("this node started as worker {} while the registry could not be asked; {}",
                             term.claim.worker, why),
                 "run leafctl worker check, then restart"};
  };
  if (!claimed.ok()) {
    return claimed.error().code == ErrorCode::kRefused ? lost(claimed.error().message) : claimed.error();
  }
  if (claimed->worker != term.claim.worker)
    return lost(fmt::format("now it says that this node's number is {}", claimed->worker));
  // An operator may have released the number, and this node has it again: the claim has added UntoldMax to
  // what the node itself told. Another node that had it meanwhile has added that, too.
  if (claimed->ceiling && *claimed->ceiling > term.known_end + core::UntoldMax(options_.window)) {
    return lost(
        fmt::format("now it says that IDs up to {} may have been issued, which this state directory "
                    "does not know of: another node has used the number",
                    FormatRfc3339(*claimed->ceiling)));
  }
  claim_ = *claimed;
  Enter(StandingEvent::kConfirmed);
  log_.Info("worker {}: registered", claim_.worker);
  return {};
}

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
        fmt::format("the wall clock says {}: it has jumped {} ahead, and at most {} are accepted; IDs issued "
                    "with a wrong time would stop this worker until then",
                    FormatRfc3339(now), FormatDuration(*jump), FormatDuration(options_.clock_jump_max)),
        "correct the clock; if it is right: leafctl worker accept-clock"};
  }
  return options_.peers_verdict ? options_.peers_verdict() : Result<void>();
}

}  // namespace leaf::service
