#include "leaf/server/http/status_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "leaf/core/finding.h"
#include "leaf/server/finding_json.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

// Below this a reserve lasts longer than any plan.
constexpr double kRateShown = 0.01;

Json ErrorsJson(const service::ErrorTally& errors) {
  Json json = Json::object();
  for (std::size_t slot = 0; slot < errors.size(); ++slot) {
    if (errors[slot] > 0) json[service::CauseName(slot)] = errors[slot];
  }
  return json;
}

Json ErrorJson(const Error& error) {
  return {{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
}

Json TagJson(const service::TagStatus& tag) {
  Json json{{"tag", tag.tag},
            {"state", tag.state},
            {"order", core::TagOrderName(tag.order)},
            {"reserve", tag.reserve},
            {"reserve_target", tag.reserve_target},
            {"rate", tag.ids_per_second},
            {"peak_rate", tag.peak_ids_per_second},
            {"grant_latency_ms", std::chrono::duration<double, std::milli>(tag.grant_latency).count()},
            {"waiting", tag.waiting},
            {"step", tag.step},
            {"table_step", tag.table_step},
            {"max_id", std::to_string(tag.max_id)},
            {"mark", std::to_string(tag.mark)},
            {"witness", std::to_string(tag.witness)},
            {"issued", tag.issued},
            {"granted", tag.granted},
            {"wasted", tag.wasted},
            {"wasted_by_restarts", tag.wasted_by_restarts},
            {"wasted_by_last_restart", tag.wasted_by_last_restart},
            {"wasted_by_restarts_exactly", tag.wasted_by_restarts_exactly},
            {"grants", tag.grants},
            {"failures", tag.failures},
            {"days_to_exhaustion", tag.days_to_exhaustion ? Json(*tag.days_to_exhaustion) : Json(nullptr)}};
  if (tag.codes_left) {
    json["codes_end"] = std::to_string(tag.codes_left->end);
    json["codes_days_to_exhaustion"] = tag.codes_left->days ? Json(*tag.codes_left->days) : Json(nullptr);
  }
  json["reserve_s"] = tag.ids_per_second < kRateShown
                          ? Json(nullptr)
                          : Json(static_cast<double>(tag.reserve) / tag.ids_per_second);
  json["waits"] = tag.tallies ? tag.tallies->waits : 0;
  json["refills_failed"] = tag.tallies ? tag.tallies->refills_failed : 0;
  if (tag.tallies) json["errors"] = ErrorsJson(tag.tallies->errors);
  if (tag.frozen_since) json["frozen_since"] = FormatRfc3339(*tag.frozen_since);
  if (tag.paused_since) json["paused_since"] = FormatRfc3339(*tag.paused_since);
  if (tag.problem) {
    json["problem"] = ErrorJson(*tag.problem);
  }
  return json;
}

double ReserveSeconds(const service::TagStatus& tag) {
  return tag.ids_per_second < kRateShown ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(tag.reserve) / tag.ids_per_second;
}

// Those that match, in the order asked for.
void SelectTags(std::vector<const service::TagStatus*>& tags, const StatusQuery& query) {
  using Tag = service::TagStatus;
  using Sort = StatusQuery::Sort;
  if (const std::string wanted = LowerCase(query.search); !wanted.empty()) {
    std::erase_if(tags,
                  [&](const Tag* tag) { return LowerCase(tag->tag).find(wanted) == std::string::npos; });
  }
  const auto key = [&](const Tag& tag) -> std::pair<bool, double> {
    switch (query.sort) {
      case Sort::kTrouble:
        return {!tag.problem.has_value(), -tag.ids_per_second};
      case Sort::kRate:
        return {false, -tag.ids_per_second};
      case Sort::kReserve:
        return {false, ReserveSeconds(tag)};
      case Sort::kIssued:
        return {false, -static_cast<double>(tag.issued)};
      case Sort::kTag:
        break;
    }
    return {false, 0};
  };
  std::sort(tags.begin(), tags.end(), [&](const Tag* a, const Tag* b) {
    const auto key_a = key(*a);
    const auto key_b = key(*b);
    return key_a != key_b ? key_a < key_b : a->tag < b->tag;
  });
}

Json DependenciesJson(const service::IdService& ids) {
  Json list = Json::array();
  for (const service::Dependency& dependency : ids.Dependencies()) {
    Json item{{"name", dependency.name},
              {"kind", dependency.kind},
              {"up", dependency.up},
              {"identity", dependency.identity},
              {"connections", dependency.connections},
              {"reconnects", dependency.reconnects},
              {"failures", dependency.failures},
              {"identity_changes", dependency.identity_changes},
              {"went_back", dependency.went_back}};
    if (dependency.open) item["connections_open"] = *dependency.open;
    if (dependency.lease_left) item["lease_left_ms"] = dependency.lease_left->count();
    if (dependency.problem) item["problem"] = ErrorJson(*dependency.problem);
    list.push_back(std::move(item));
  }
  return list;
}

void AddSince(Json& json, const std::optional<WallTime>& since) {
  if (!since) return;
  json["since"] = FormatRfc3339(*since);
  json["since_ms"] = UnixMillis(*since);
}

Json CausesJson(const std::vector<service::Cause>& causes) {
  constexpr std::size_t kTagsShown = 5;
  Json list = Json::array();
  for (const service::Cause& cause : causes) {
    const std::vector<std::string>& tags = cause.tags;
    Json item{{"cause", cause.name},
              {"urgent", cause.urgent},
              {"not_ready", cause.not_ready},
              {"title", cause.title},
              {"effect", cause.effect},
              {"message", cause.message},
              {"hint", cause.hint},
              {"tags", std::vector(tags.begin(), tags.begin() + static_cast<std::ptrdiff_t>(
                                                                    std::min(tags.size(), kTagsShown)))},
              {"tags_total", tags.size()}};
    AddSince(item, cause.since);
    if (cause.shortest_reserve) {
      item["shortest_reserve"] = {{"tag", cause.shortest_reserve->tag},
                                  {"seconds", cause.shortest_reserve->seconds}};
    }
    list.push_back(std::move(item));
  }
  return list;
}

std::vector<core::Finding> FindingsOf(const std::vector<service::Cause>& causes) {
  using Severity = core::Finding::Severity;
  std::vector<core::Finding> findings;
  for (const service::Cause& cause : causes) {
    core::Finding finding;
    finding.code = cause.name;
    if (cause.tags.size() == 1) finding.subject = cause.tags.front();
    finding.cause = cause.message.empty() ? cause.title : cause.message;
    finding.consequence = cause.effect;
    finding.remedy = cause.hint;
    finding.severity = cause.urgent || cause.not_ready ? Severity::kProblem : Severity::kWarning;
    findings.push_back(std::move(finding));
  }
  return findings;
}

// How grants are fenced at present: by the witness of the cluster, or by this node's own marks.
void AddFence(Json& json, const service::SegmentService* segment) {
  std::optional<service::ClusterFenceStatus> fence;
  if (segment != nullptr) fence = segment->Status().fence;
  json["fence"] = fence && fence->guards() ? "cluster" : "node";
  if (!fence) return;
  Json witness{{"fallback_allowed", fence->fallback_allowed},
               {"usable", !fence->away_since.has_value()},
               {"claims", fence->claims},
               {"outbid", fence->outbid},
               {"unfenced", fence->unfenced},
               {"raised_to", fence->raised_to}};
  if (fence->away_since) {
    witness["away_since"] = FormatRfc3339(*fence->away_since);
    witness["away_since_ms"] = UnixMillis(*fence->away_since);
  }
  if (fence->problem) witness["problem"] = ErrorJson(*fence->problem);
  if (fence->membership) {
    const core::MembershipStatus& membership = *fence->membership;
    Json cluster{{"state", core::NameOf(membership.state)},
                 {"incarnation", membership.incarnation},
                 {"nodes", membership.nodes},
                 {"older_daemons", membership.older_daemons},
                 {"heartbeats", membership.heartbeats},
                 {"went_back", membership.went_back}};
    if (!membership.why.empty()) cluster["why"] = membership.why;
    if (!membership.waiting_for.empty()) cluster["missing"] = membership.waiting_for;
    witness["cluster"] = std::move(cluster);
  }
  json["witness"] = std::move(witness);
}

// All but the tags themselves, which are appended to `tags`, in no order.
void AddSegment(Json& json, const std::string& store, const service::SegmentService& segment,
                std::vector<service::TagStatus>& tags) {
  const service::SegmentStatus status = segment.Status();
  const service::SegmentTotals totals =
      segment.Visit([&](service::TagStatus&& tag) { tags.push_back(std::move(tag)); });
  json["store"] = store;
  json["loaded"] = status.loaded;
  json["store_reachable"] = status.loaded && !status.store_problem;
  if (status.refreshed_at) {
    json["refreshed_at"] = FormatRfc3339(*status.refreshed_at);
    json["refreshed_at_ms"] = UnixMillis(*status.refreshed_at);
  }
  double rate = 0;
  std::uint64_t reserve = 0;
  std::uint64_t frozen = 0;
  std::uint64_t paused_tags = 0;
  for (const service::TagStatus& tag : tags) {
    rate += tag.ids_per_second;
    reserve += tag.reserve;
    // As metrics count them: a frozen tag needs an operator whether it is paused or not.
    if (tag.frozen_since) {
      ++frozen;
    } else if (tag.state == "paused") {
      ++paused_tags;
    }
  }
  json["totals"] = {{"rate", rate},
                    {"reserve", reserve},
                    {"frozen", frozen},
                    {"paused", paused_tags},
                    {"issued", totals.issued},
                    {"granted", totals.granted},
                    {"wasted", totals.wasted},
                    {"waits", totals.tallies.waits},
                    {"refills_failed", totals.tallies.refills_failed},
                    {"errors", ErrorsJson(totals.tallies.errors)}};
  json["tags_total"] = tags.size();
  // Their place, for StatusSnapshot::Tell.
  for (const char* const field : {"tags_matching", "tags_truncated", "tags"}) json[field] = nullptr;
  // By name, as some may not be in the table.
  const service::PausedTags* const paused = segment.paused();
  json["paused"] = Json::array();
  if (paused != nullptr) {
    for (const core::PausedTag& tag : paused->All()) json["paused"].push_back(tag.tag);
  }
}

Json SnowflakeJson(const service::SnowflakeService* snowflake) {
  if (snowflake == nullptr) return {{"enabled", false}};
  const service::SnowflakeStatus status = snowflake->Status();
  Json json{{"enabled", true},
            {"state", status.state},
            {"cluster", status.cluster.name},
            {"private", status.private_cluster},
            {"registry", status.cluster.registry},
            {"leased", status.leased},
            {"registered", status.registered},
            {"node", status.node_uuid},
            {"layout", status.cluster.layout.Bits()},
            {"epoch_ms", status.cluster.layout.epoch_ms()},
            {"exhausted_at", FormatRfc3339(status.exhausted_at)},
            {"exhausted_at_ms", UnixMillis(status.exhausted_at)}};
  if (status.has_worker) {
    json["worker"] = status.worker;
    json["worker_source"] = status.worker_source;
    json["ceiling"] = FormatRfc3339(status.ceiling);
    json["ceiling_ms"] = UnixMillis(status.ceiling);
    json["lead_ms"] = status.lead.count();
    json["older_peers"] = status.older_peers;
  }
  const service::SnowflakeTallies tallies = snowflake->Tallies();
  json["issued"] = tallies.issued;
  json["waits"] = tallies.waits;
  json["errors"] = ErrorsJson(tallies.errors);
  if (status.problem) json["problem"] = ErrorJson(*status.problem);
  if (status.registry_problem) json["registry_problem"] = ErrorJson(*status.registry_problem);
  return json;
}

}  // namespace

Json ReadinessJson(const service::Readiness& readiness) {
  Json reasons = Json::array();
  for (const service::Reason& reason : readiness.reasons) {
    reasons.push_back({{"code", reason.code}, {"message", reason.message}, {"hint", reason.hint}});
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

Result<StatusQuery> ParseStatusQuery(const Target& target) {
  StatusQuery query;
  LEAF_ASSIGN_OR_RETURN(const auto tag, target.Parameter("tag"));
  if (tag) {
    LEAF_RETURN_IF_ERROR(ValidateTag(*tag));
    query.tag = *tag;
    for (const std::string_view other : {"search", "sort", "offset", "limit"}) {
      LEAF_ASSIGN_OR_RETURN(const auto value, target.Parameter(other));
      if (value)
        return Error{ErrorCode::kInvalidArgument, fmt::format("tag and {} exclude each other", other), ""};
    }
  }
  LEAF_ASSIGN_OR_RETURN(const auto search, target.Parameter("search"));
  if (search) query.search = *search;
  LEAF_ASSIGN_OR_RETURN(const auto sort, target.Parameter("sort"));
  if (sort) {
    using Sort = StatusQuery::Sort;
    constexpr std::pair<std::string_view, Sort> kSorts[] = {{"tag", Sort::kTag},
                                                            {"trouble", Sort::kTrouble},
                                                            {"rate", Sort::kRate},
                                                            {"reserve", Sort::kReserve},
                                                            {"issued", Sort::kIssued}};
    const auto* const found = std::find_if(std::begin(kSorts), std::end(kSorts),
                                           [&](const auto& known) { return known.first == *sort; });
    if (found == std::end(kSorts)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad sort {}: none of tag, trouble, rate, reserve, issued", Quoted(*sort)),
                   ""};
    }
    query.sort = found->second;
  }
  constexpr std::uint64_t kMost = 1'000'000'000;
  LEAF_ASSIGN_OR_RETURN(const auto offset, target.Parameter("offset"));
  if (offset) {
    LEAF_ASSIGN_OR_RETURN(query.offset, ParseUnsigned("offset", *offset, 0, kMost));
  }
  LEAF_ASSIGN_OR_RETURN(const auto limit, target.Parameter("limit"));
  if (limit) {
    LEAF_ASSIGN_OR_RETURN(query.limit, ParseUnsigned("limit", *limit, 0, kMost));
  }
  LEAF_ASSIGN_OR_RETURN(const auto problems, target.Parameter("problems"));
  if (problems) {
    LEAF_ASSIGN_OR_RETURN(query.problems, ParseUnsigned("problems", *problems, 0, kMost));
  }
  return query;
}

StatusSnapshot::StatusSnapshot(const NodeFacts& facts, const service::IdService& ids)
    : common_(ReadinessJson(ids.GetReadiness())), problems_(Json::array()) {
  common_["version"] = facts.version;
  common_["time"] = FormatRfc3339(facts.now);
  common_["time_ms"] = UnixMillis(facts.now);
  common_["uptime_ms"] = facts.uptime.count();
  common_["listen"] = facts.listen;
  common_["state_dir"] = facts.state_dir;
  if (facts.gate != nullptr) {
    common_["access"] = {
        {"tokens", facts.gate->has_tokens() ? Json(facts.gate->token_count()) : Json(nullptr)},
        {"anonymous", facts.gate->Anonymous()->roles.Text()},
        {"open", facts.is_open}};
  }
  common_["store_at"] = facts.store_at;
  common_["limits"] = {{"max_count", facts.max_count}};
  AddFence(common_, ids.segment());
  common_["dependencies"] = DependenciesJson(ids);
  Json segment{{"enabled", ids.segment() != nullptr}};
  if (ids.segment() != nullptr) AddSegment(segment, facts.store, *ids.segment(), tags_);
  // Of equal weight, so in the order of the names.
  std::sort(tags_.begin(), tags_.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  const std::vector<service::Problem> all = ids.Problems(tags_);
  for (const service::Problem& problem : all) {
    Json item{{"code", problem.code}, {"message", problem.message}, {"hint", problem.hint}};
    if (!problem.tag.empty()) item["tag"] = problem.tag;
    item["cause"] = problem.cause;
    AddSince(item, problem.since);
    problems_.push_back(std::move(item));
  }
  common_["problems"] = nullptr;  // its place
  common_["problems_total"] = all.size();
  const std::vector<service::Cause> causes = ids.Causes(all, tags_);
  common_["causes"] = CausesJson(causes);
  common_["findings"] = FindingsJson(FindingsOf(causes));
  common_["segment"] = std::move(segment);
  common_["snowflake"] = SnowflakeJson(ids.snowflake());
}

Json StatusSnapshot::Tell(const StatusQuery& query, const service::IdService& ids) const {
  Json json = common_;
  const std::size_t shown =
      std::min<std::uint64_t>(query.problems.value_or(problems_.size()), problems_.size());
  json["problems"] = Json(problems_.begin(), problems_.begin() + static_cast<std::ptrdiff_t>(shown));
  if (ids.segment() == nullptr) return json;
  std::optional<service::TagStatus> one;
  std::vector<const service::TagStatus*> selected;
  if (!query.tag.empty()) {
    one = ids.segment()->StatusOf(query.tag);
    if (one) selected.push_back(&*one);
  } else {
    selected.reserve(tags_.size());
    for (const service::TagStatus& tag : tags_) selected.push_back(&tag);
    SelectTags(selected, query);
  }
  const std::size_t begin = std::min<std::size_t>(query.offset, selected.size());
  const std::size_t count = std::min<std::size_t>(query.limit, selected.size() - begin);
  Json list = Json::array();
  for (std::size_t i = begin; i < begin + count; ++i) list.push_back(TagJson(*selected[i]));
  Json& segment = json["segment"];
  segment["tags_matching"] = selected.size();
  segment["tags_truncated"] = begin + count < selected.size();
  segment["tags"] = std::move(list);
  return json;
}

}  // namespace leaf::server
