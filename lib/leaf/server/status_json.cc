#include "leaf/server/status_json.h"

#include <chrono>
#include <string>

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

Json TagJson(const service::TagStatus& tag) {
  Json json{{"tag", tag.tag},
            {"state", tag.state},
            {"reserve", tag.reserve},
            {"reserve_target", tag.reserve_target},
            {"rate", tag.ids_per_second},
            {"grant_latency_ms", std::chrono::duration<double, std::milli>(tag.grant_latency).count()},
            {"waiting", tag.waiting},
            {"step", tag.step},
            {"table_step", tag.table_step},
            {"max_id", std::to_string(tag.max_id)},
            {"mark", std::to_string(tag.mark)},
            {"issued", tag.issued},
            {"granted", tag.granted},
            {"wasted", tag.wasted},
            {"wasted_by_restarts", tag.wasted_by_restarts},
            {"wasted_by_last_restart", tag.wasted_by_last_restart},
            {"wasted_by_restarts_exactly", tag.wasted_by_restarts_exactly},
            {"grants", tag.grants},
            {"failures", tag.failures},
            {"days_to_exhaustion", tag.days_to_exhaustion ? Json(*tag.days_to_exhaustion) : Json(nullptr)}};
  if (tag.frozen_since) json["frozen_since"] = FormatRfc3339(*tag.frozen_since);
  if (tag.problem) {
    json["problem"] = {{"code", ErrorCodeName(tag.problem->code)},
                       {"message", tag.problem->message},
                       {"hint", tag.problem->hint}};
  }
  return json;
}

Json ErrorJson(const Error& error) {
  return {{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
}

Json SnowflakeJson(const service::SnowflakeService* snowflake) {
  if (snowflake == nullptr) return {{"enabled", false}};
  const service::SnowflakeStatus status = snowflake->Status();
  Json json{{"enabled", true},
            {"state", status.state},
            {"cluster", status.cluster.name},
            {"registry", status.cluster.registry},
            {"worker", status.worker},
            {"node", status.node_uuid},
            {"layout", status.cluster.layout.Bits()},
            {"epoch_ms", status.cluster.layout.epoch_ms()},
            {"ceiling", FormatRfc3339(status.ceiling)},
            {"ceiling_ms", UnixMillis(status.ceiling)},
            {"lead_ms", status.lead.count()},
            {"exhausted_at", FormatRfc3339(status.exhausted_at)},
            {"exhausted_at_ms", UnixMillis(status.exhausted_at)}};
  if (status.problem) json["problem"] = ErrorJson(*status.problem);
  if (status.registry_problem) json["registry_problem"] = ErrorJson(*status.registry_problem);
  return json;
}

}  // namespace

Json ReadinessJson(const service::Readiness& readiness) {
  Json reasons = Json::array();
  for (const service::Reason& reason : readiness.reasons) {
    reasons.push_back({{"code", reason.code}, {"message", reason.message}});
  }
  return {{"ready", readiness.ready}, {"reasons", std::move(reasons)}};
}

Json MarkJson(const std::string& tag, const core::Mark& mark,
              const std::optional<service::TagStatus>& status) {
  Json json{{"tag", tag}, {"mark", std::to_string(mark.end)}};
  if (mark.end > 0) {
    json["raised_at"] = FormatRfc3339(mark.raised_at);
    json["raised_by"] = mark.raised_by;
  }
  if (status) {
    json["state"] = status->state;
    if (status->frozen_since) {
      json["frozen_since"] = FormatRfc3339(*status->frozen_since);
      json["max_id_seen"] = std::to_string(status->max_id);
    }
  }
  return json;
}

Json StatusJson(const NodeFacts& facts, const service::IdService& ids) {
  Json json = ReadinessJson(ids.GetReadiness());
  json["version"] = facts.version;
  json["time"] = FormatRfc3339(facts.now);
  json["time_ms"] = UnixMillis(facts.now);
  json["uptime_ms"] = facts.uptime.count();
  json["listen"] = facts.listen;
  json["limits"] = {{"max_count", facts.max_count}};
  // Grants are fenced by this node's own marks; a witness shared by all nodes is not part of this version.
  json["fence"] = "node";

  std::vector<service::TagStatus> tags;
  Json segment{{"enabled", ids.segment() != nullptr}};
  if (ids.segment() != nullptr) {
    const service::SegmentStatus status = ids.segment()->Status();
    tags = ids.segment()->TagStatuses();
    segment["store"] = facts.store;
    segment["loaded"] = status.loaded;
    segment["store_reachable"] = status.loaded && !status.store_problem;
    if (status.refreshed_at) {
      segment["refreshed_at"] = FormatRfc3339(*status.refreshed_at);
      segment["refreshed_at_ms"] = UnixMillis(*status.refreshed_at);
    }
    Json tag_list = Json::array();
    for (const service::TagStatus& tag : tags) tag_list.push_back(TagJson(tag));
    segment["tags"] = std::move(tag_list);
  }
  Json problems = Json::array();
  for (const service::Problem& problem : ids.Problems(tags)) {
    Json item{{"code", problem.code}, {"message", problem.message}, {"hint", problem.hint}};
    if (!problem.tag.empty()) item["tag"] = problem.tag;
    problems.push_back(std::move(item));
  }
  json["problems"] = std::move(problems);
  json["segment"] = std::move(segment);
  json["snowflake"] = SnowflakeJson(ids.snowflake());
  return json;
}

}  // namespace leaf::server
