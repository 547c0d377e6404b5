#include "leaf/service/id_service.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::service {

Readiness IdService::GetReadiness() const {
  Readiness readiness;
  if (draining()) readiness.reasons.push_back({"draining", "this server is shutting down"});
  if (segment_ == nullptr && snowflake_ == nullptr)
    readiness.reasons.push_back({"disabled", "no mode is enabled"});
  const auto judge = [&](std::string_view mode, const Result<void>& can_issue) {
    if (can_issue.ok()) return;
    readiness.reasons.push_back({fmt::format("{}_{}", mode, ErrorCodeName(can_issue.error().code)),
                                 fmt::format("{} mode: {}", mode, can_issue.error().message)});
  };
  if (segment_ != nullptr) judge("segment", segment_->CanIssue());
  if (snowflake_ != nullptr) judge("snowflake", snowflake_->CanIssue());
  readiness.ready = readiness.reasons.empty();
  return readiness;
}

std::vector<Problem> IdService::Problems(const std::vector<TagStatus>& tags) const {
  std::vector<Problem> problems;
  if (segment_ != nullptr) {
    if (const SegmentStatus status = segment_->Status(); status.store_problem) {
      problems.push_back({std::string(ErrorCodeName(status.store_problem->code)),
                          status.store_problem->message, status.store_problem->hint, ""});
    }
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
  for (const TagStatus& tag : tags) {
    if (tag.near_exhaustion) {
      problems.push_back(
          {"near_exhaustion",
           fmt::format("tag {}: {} IDs are left below 2^63{}", Quoted(tag.tag), core::IdsLeft(tag.max_id),
                       tag.days_to_exhaustion
                           ? fmt::format(", {:.1f} days at the rate seen", *tag.days_to_exhaustion)
                           : ""),
           "plan a new tag name, or ask whether its max_id was moved by mistake", tag.tag});
    }
    if (!tag.problem) continue;
    problems.push_back(
        {std::string(ErrorCodeName(tag.problem->code)), tag.problem->message, tag.problem->hint, tag.tag});
  }
  return problems;
}

}  // namespace leaf::service
