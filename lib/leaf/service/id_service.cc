#include "leaf/service/id_service.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::service {

void IdService::StateDirLost(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (halted_) return;
    halted_ = Reason{"state_dir_lost", why.message, why.hint};
  }
  if (segment_ != nullptr) segment_->Halt(why);
  if (snowflake_ != nullptr) snowflake_->Halt(why);
}

void IdService::ConfigRead(WallTime now, std::optional<Error> problem) {
  const std::lock_guard lock(mutex_);
  if (!problem) config_.taken_over_at = now;
  config_.problem = std::move(problem);
}

ConfigStatus IdService::config() const {
  const std::lock_guard lock(mutex_);
  return config_;
}

std::optional<Reason> IdService::halted() const {
  const std::lock_guard lock(mutex_);
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

std::vector<Problem> IdService::Problems(const std::vector<TagStatus>& tags) const {
  std::vector<Problem> problems;
  if (auto why = halted())
    problems.push_back({std::move(why->code), std::move(why->message), std::move(why->hint), ""});
  if (segment_ != nullptr) {
    if (const SegmentStatus status = segment_->Status(); status.store_problem) {
      problems.push_back({std::string(ErrorCodeName(status.store_problem->code)),
                          status.store_problem->message, status.store_problem->hint, ""});
    }
  }
  for (const Dependency& dependency : Dependencies()) {
    // Unless the same was said just now: the table is read less often than grants are asked for.
    if (dependency.up || !dependency.problem || (dependency.name == "database" && !problems.empty()))
      continue;
    problems.push_back({std::string(ErrorCodeName(dependency.problem->code)), dependency.problem->message,
                        dependency.problem->hint, ""});
  }
  if (snowflake_ != nullptr) {
    const SnowflakeStatus status = snowflake_->Status();
    for (const auto& problem : {status.problem, status.registry_problem}) {
      if (problem)
        problems.push_back({std::string(ErrorCodeName(problem->code)), problem->message, problem->hint, ""});
    }
    if (status.exhaustion_near) {
      problems.push_back(
          {"exhaustion_near",
           fmt::format("layout {} with epoch {} has no IDs after {}", status.cluster.layout.Bits(),
                       status.cluster.layout.epoch_ms(), FormatRfc3339(status.exhausted_at)),
           "plan a new cluster with a new epoch", ""});
    }
  }
  if (const ConfigStatus status = config(); status.problem) {
    problems.push_back({"reload_failed",
                        fmt::format("the last reload of the configuration failed, the old settings stay in "
                                    "force: {}",
                                    status.problem->message),
                        status.problem->hint.empty() ? "leafctl config check" : status.problem->hint, ""});
  }
  if (segment_ != nullptr && segment_->paused() != nullptr) {
    for (const auto& [tag, since] : segment_->paused()->All()) {
      problems.push_back({"paused", fmt::format("tag {} is paused on this node", Quoted(tag)),
                          fmt::format("leafctl tag resume {}", tag), tag});
    }
  }
  for (const TagStatus& tag : tags) AddProblems(tag, problems);
  return problems;
}

void IdService::AddProblems(const TagStatus& tag, std::vector<Problem>& problems) {
  if (tag.near_exhaustion) {
    problems.push_back(
        {"near_exhaustion",
         fmt::format("tag {}: {} IDs are left below 2^63{}", Quoted(tag.tag), core::IdsLeft(tag.max_id),
                     tag.days_to_exhaustion
                         ? fmt::format(", {:.1f} days at the rate seen", *tag.days_to_exhaustion)
                         : ""),
         "plan a new tag name, or ask whether its max_id was moved by mistake", tag.tag});
  }
  if (!tag.problem) return;
  problems.push_back(
      {std::string(ErrorCodeName(tag.problem->code)), tag.problem->message, tag.problem->hint, tag.tag});
}

}  // namespace leaf::service
