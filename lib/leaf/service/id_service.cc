#include "leaf/service/id_service.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::service {

Readiness IdService::GetReadiness() const {
  Readiness readiness;
  if (draining()) readiness.reasons.push_back({"draining", "this server is shutting down"});
  if (segment_ == nullptr) {
    readiness.reasons.push_back({"disabled", "no mode is enabled"});
  } else if (const auto can_issue = segment_->CanIssue(); !can_issue.ok()) {
    readiness.reasons.push_back({fmt::format("segment_{}", ErrorCodeName(can_issue.error().code)),
                                 fmt::format("segment mode: {}", can_issue.error().message)});
  }
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
