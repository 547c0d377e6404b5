#include "leaf/service/id_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "leaf/base/text.h"

namespace leaf::service {

void IdService::StateDirLost(const Error& why) {
  {
    const MutexLock lock(mutex_);
    if (halted_) return;
    halted_ = Reason{"state_dir_lost", why.message, why.hint};
  }
  if (segment_ != nullptr) segment_->Halt(why);
  if (snowflake_ != nullptr) snowflake_->Halt(why);
}

void IdService::ConfigRead(WallTime now, std::optional<Error> problem) {
  const MutexLock lock(mutex_);
  if (!problem) config_.taken_over_at = now;
  config_.problem = std::move(problem);
}

ConfigStatus IdService::config() const {
  const MutexLock lock(mutex_);
  return config_;
}

std::optional<Reason> IdService::halted() const {
  const MutexLock lock(mutex_);
  return halted_;
}

Readiness IdService::GetReadiness() const {
  Readiness readiness;
  if (auto why = halted()) {
    readiness.reasons.push_back(*std::move(why));
    return readiness;
  }
  if (draining())
    readiness.reasons.push_back({"draining", "this server is shutting down", "ask another server"});
  if (segment_ == nullptr && snowflake_ == nullptr)
    readiness.reasons.push_back(
        {"disabled", "no mode is enabled", "set segment.enabled or snowflake.enabled = true"});
  const auto judge = [&](std::string_view mode, const Result<void>& can_issue) {
    if (can_issue.ok()) return;
    readiness.reasons.push_back({fmt::format("{}_{}", mode, ErrorCodeName(can_issue.error().code)),
                                 fmt::format("{} mode: {}", mode, can_issue.error().message),
                                 can_issue.error().hint});
  };
  if (segment_ != nullptr) judge("segment", segment_->CanIssue());
  if (snowflake_ != nullptr) judge("snowflake", snowflake_->CanIssue());
  readiness.ready = readiness.reasons.empty();
  return readiness;
}

std::vector<Dependency> IdService::Dependencies() const {
  std::vector<Dependency> dependencies;
  dependencies.reserve(dependencies_.size());
  for (const DependencyLook& look : dependencies_) dependencies.push_back(look());
  return dependencies;
}

std::vector<Problem> IdService::NodeProblems() const {
  std::vector<Problem> problems;
  const auto add = [&](std::string_view cause, const Error& error) {
    problems.push_back(
        {std::string(ErrorCodeName(error.code)), error.message, error.hint, "", std::string(cause)});
  };
  if (auto why = halted())
    problems.push_back({why->code, std::move(why->message), std::move(why->hint), "", "state_dir_lost"});
  const std::vector<Dependency> dependencies = Dependencies();
  const auto is = [&](std::string_view name, bool up) {
    return std::any_of(dependencies.begin(), dependencies.end(),
                       [&](const Dependency& one) { return one.name == name && one.up == up; });
  };
  if (segment_ != nullptr) {
    // With a database that answers, something else is in the way: the schema, or this node's own marks.
    if (const SegmentStatus status = segment_->Status(); status.store_problem)
      add(is("database", true) ? "table" : "database", *status.store_problem);
  }
  for (const Dependency& dependency : dependencies) {
    // Unless the same was said just now: the table is read less often than grants are asked for.
    if (dependency.up || !dependency.problem || (dependency.name == "database" && !problems.empty()))
      continue;
    add(dependency.name, *dependency.problem);
  }
  if (snowflake_ != nullptr) {
    const SnowflakeStatus status = snowflake_->Status();
    if (status.problem) {
      const bool of_registry = status.problem->code == ErrorCode::kUnavailable && is("registry", false);
      add(of_registry ? "registry" : "snowflake", *status.problem);
    }
    if (status.registry_problem) add("registry", *status.registry_problem);
    if (status.exhaustion_near) {
      problems.push_back(
          {"exhaustion_near",
           fmt::format("layout {} with epoch {} has no IDs after {}", status.cluster.layout.Bits(),
                       status.cluster.layout.epoch_ms(), FormatRfc3339(status.exhausted_at)),
           "plan a new cluster with a new epoch", "", "exhaustion_near"});
    }
  }
  if (const ConfigStatus status = config(); status.problem) {
    problems.push_back({"reload_failed",
                        fmt::format("the last reload of the configuration failed, the old settings stay in "
                                    "force: {}",
                                    status.problem->message),
                        status.problem->hint.empty() ? "leafctl config check" : status.problem->hint, "",
                        "reload_failed"});
  }
  return problems;
}

std::vector<Problem> IdService::PausedProblems() const {
  std::vector<Problem> problems;
  if (segment_ == nullptr || segment_->paused() == nullptr) return problems;
  for (const auto& [tag, since] : segment_->paused()->All()) {
    problems.push_back({"paused", fmt::format("tag {} is paused on this node", Quoted(tag)),
                        TagCommand("resume", tag), tag, "paused", since});
  }
  return problems;
}

std::vector<Problem> IdService::ReadinessProblems(const std::vector<Problem>& others) const {
  std::vector<Problem> problems;
  for (const Reason& reason : GetReadiness().reasons) {
    problems.push_back({reason.code, reason.message, reason.hint, "", CauseOfReason(reason.code, others)});
    problems.back().not_ready = true;
  }
  return problems;
}

void IdService::ObserveProblems(WallTime now) {
  std::vector<Problem> problems = NodeProblems();
  const std::vector<Problem> reasons = ReadinessProblems(problems);
  problems.insert(problems.end(), reasons.begin(), reasons.end());
  const MutexLock lock(mutex_);
  std::map<std::string, WallTime, std::less<>> since;
  for (const Problem& problem : problems) {
    const auto known = since_.find(problem.cause);
    since.emplace(problem.cause, known == since_.end() ? now : known->second);
  }
  since_ = std::move(since);
}

void IdService::AddSince(std::vector<Problem>& problems) const {
  const MutexLock lock(mutex_);
  for (Problem& problem : problems) {
    if (const auto found = since_.find(problem.cause); found != since_.end()) problem.since = found->second;
  }
}

std::vector<Problem> IdService::Problems(const std::vector<TagStatus>& tags) const {
  std::vector<Problem> problems = NodeProblems();
  AddSince(problems);
  const std::vector<Problem> node = problems;
  for (Problem& problem : PausedProblems()) problems.push_back(std::move(problem));
  for (const TagStatus& tag : tags) AddProblems(tag, node, problems);
  return problems;
}

std::vector<Cause> IdService::Causes(std::vector<Problem> problems,
                                     const std::vector<TagStatus>& tags) const {
  std::vector<Problem> reasons = ReadinessProblems(problems);
  AddSince(reasons);
  problems.insert(problems.end(), reasons.begin(), reasons.end());
  return GroupByCause(problems, tags);
}

}  // namespace leaf::service
