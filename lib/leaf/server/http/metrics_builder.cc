#include "leaf/server/http/metrics_builder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tuple>

namespace leaf::server {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kSecondsPerDay = 86'400;
// Below this a reserve lasts longer than any plan, and the quotient says nothing.
constexpr double kRateLeast = 0.01;

double Number(std::uint64_t value) { return static_cast<double>(value); }

void AddSample(MetricFamily& family, MetricLabels labels, double value) {
  family.samples.push_back({std::move(labels), value, {}});
}

// `counts` has one more than there are bounds.
void AddHistogram(MetricFamily& family, MetricLabels labels, std::span<const double> bounds,
                  std::span<const std::uint64_t> counts, std::uint64_t sum_ns) {
  family.samples.push_back(
      {std::move(labels),
       0,
       {{bounds.begin(), bounds.end()}, {counts.begin(), counts.end()}, Number(sum_ns) / 1e9}});
}

// What was counted of the routes that `wanted` picks.
void AddRoutes(const RequestTotals& totals, bool (*wanted)(Route), std::string_view label,
               MetricFamily& requests, MetricFamily& durations) {
  std::array<double, kDurationBounds.size()> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = Seconds(kDurationBounds[i]).count();
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const auto route = static_cast<Route>(i);
    if (!wanted(route)) continue;
    const RouteTotals& of = totals.routes[i];
    const MetricLabel name{std::string(label), std::string(RouteName(route))};
    for (std::size_t status = 0; status < kCountedStatuses.size(); ++status) {
      const std::uint64_t count = of.requests[status];
      const int code = kCountedStatuses[status];
      if (count > 0)
        AddSample(requests, {name, {"code", code == 0 ? "other" : std::to_string(code)}}, Number(count));
    }
    if (std::any_of(of.durations.begin(), of.durations.end(), [](std::uint64_t count) { return count > 0; }))
      AddHistogram(durations, {name}, bounds, of.durations, of.sum_ns);
  }
}

void AddErrors(MetricFamily& family, const MetricLabels& labels, const service::ErrorTally& errors) {
  for (std::size_t slot = 0; slot < errors.size(); ++slot) {
    if (errors[slot] == 0) continue;
    MetricLabels with_cause = labels;
    with_cause.push_back({"cause", service::CauseName(slot)});
    AddSample(family, std::move(with_cause), Number(errors[slot]));
  }
}

std::uint64_t RefillsOf(const service::LatencyTally& tally) {
  std::uint64_t count = 0;
  for (const std::uint64_t in_bucket : tally.counts) count += in_bucket;
  return count;
}

bool InTrouble(const service::TagStatus& tag) { return tag.problem.has_value() || tag.paused; }

// Whether `a` is to be shown rather than `b`.
bool GoesBefore(const service::TagStatus& a, const service::TagStatus& b) {
  return std::tuple(InTrouble(a), a.ids_per_second, a.issued, std::string_view(b.tag)) >
         std::tuple(InTrouble(b), b.ids_per_second, b.issued, std::string_view(a.tag));
}

}  // namespace

// ---- tags ------------------------------------------------------------------------------------------------

void TopTags::Add(service::TagStatus&& tag) {
  // A frozen tag needs an operator whether it is paused or not.
  if (tag.frozen_since) {
    ++frozen;
  } else if (tag.state == "paused") {
    ++paused;
  } else {
    ++(tag.state == "idle" ? idle : active);
    if (tag.failures > 0) ++failing;
  }
  reserve += tag.reserve;
  waiting += tag.waiting;
  ids_per_second += tag.ids_per_second;
  if (size_ == 0) return;
  if (heap_.size() == size_) {
    if (!GoesBefore(tag, heap_.front())) return;
    std::pop_heap(heap_.begin(), heap_.end(), GoesBefore);
    heap_.pop_back();
  }
  heap_.push_back(std::move(tag));
  std::push_heap(heap_.begin(), heap_.end(), GoesBefore);
}

std::vector<service::TagStatus> TopTags::Take() {
  std::sort(heap_.begin(), heap_.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  return std::move(heap_);
}

void MetricsBuilder::AddTags(const std::vector<service::TagStatus>& tags) {
  if (tags.empty()) return;
  using Tag = service::TagStatus;
  const auto family = [&](std::string_view name, std::string_view help, MetricType type, const auto& value) {
    MetricFamily& made = Family(name, help, type);
    for (const Tag& tag : tags) {
      const std::optional<double> number = value(tag);
      if (!number) continue;
      AddSample(made, {{"tag", tag.tag}}, *number);
    }
  };
  const auto counter = [&](std::string_view name, std::string_view help, const auto& value) {
    family(name, help, MetricType::kCounter, value);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, const auto& value) {
    family(name, help, MetricType::kGauge, value);
  };
  using Value = std::optional<double>;
  counter("leaf_tag_ids_issued_total", "IDs of the tag that were handed out.",
          [](const Tag& tag) -> Value { return Number(tag.issued); });
  counter("leaf_tag_ids_granted_total", "IDs of the tag that the database has granted to this node.",
          [](const Tag& tag) -> Value { return Number(tag.granted); });
  counter("leaf_tag_ids_wasted_total", "IDs of the tag that were granted and will never be issued.",
          [](const Tag& tag) -> Value { return Number(tag.wasted); });
  counter("leaf_tag_waits_total", "Requests of the tag that could not be served at once.",
          [](const Tag& tag) -> Value { return Number(tag.tallies ? tag.tallies->waits : 0); });
  gauge("leaf_tag_ids_per_second", "IDs of the tag that are handed out in a second.",
        [](const Tag& tag) -> Value { return tag.ids_per_second; });
  gauge("leaf_tag_reserve_ids", "IDs of the tag in reserve.",
        [](const Tag& tag) -> Value { return Number(tag.reserve); });
  gauge("leaf_tag_reserve_target_ids", "IDs to hold at the rate and the grants' latency seen.",
        [](const Tag& tag) -> Value {
          // Of a strict tag nothing is held, by intention.
          if (tag.order == core::TagOrder::kStrict) return std::nullopt;
          return Number(tag.reserve_target);
        });
  gauge("leaf_tag_reserve_seconds", "How long the reserve lasts at the rate seen.",
        [](const Tag& tag) -> Value {
          if (tag.ids_per_second < kRateLeast || tag.order == core::TagOrder::kStrict) return std::nullopt;
          return Number(tag.reserve) / tag.ids_per_second;
        });
  gauge("leaf_tag_strict", "1 for a tag whose IDs rise strictly over all nodes.",
        [](const Tag& tag) -> Value {
          if (tag.order != core::TagOrder::kStrict) return std::nullopt;
          return 1;
        });
  gauge("leaf_tag_waiting_requests", "Requests that are waiting for IDs of the tag.",
        [](const Tag& tag) -> Value { return Number(tag.waiting); });
  gauge("leaf_tag_step_ids", "Size of the next grant, before it is enlarged for the requests that wait.",
        [](const Tag& tag) -> Value { return static_cast<double>(tag.step); });
  gauge("leaf_tag_table_step_ids", "The step that the table gives the tag.",
        [](const Tag& tag) -> Value { return static_cast<double>(tag.table_step); });
  gauge("leaf_tag_max_id", "The column max_id of the tag, as it was seen last.",
        [](const Tag& tag) -> Value { return static_cast<double>(tag.max_id); });
  gauge("leaf_tag_frozen", "Whether the tag is frozen because the database lost committed grants.",
        [](const Tag& tag) -> Value { return tag.frozen_since ? 1 : 0; });
  gauge("leaf_tag_paused_timestamp_seconds", "When an operator paused the tag; absent unless it is paused.",
        [](const Tag& tag) -> Value {
          if (!tag.paused_since) return std::nullopt;
          return static_cast<double>(UnixMillis(*tag.paused_since)) / 1e3;
        });
  gauge("leaf_tag_exhaustion_seconds", "When the tag runs out of numbers, at the rate at which max_id moves.",
        [](const Tag& tag) -> Value {
          if (!tag.days_to_exhaustion) return std::nullopt;
          return *tag.days_to_exhaustion * kSecondsPerDay;
        });
  gauge("leaf_tag_codes_exhaustion_seconds",
        "When the tag's IDs arrive at the end of its codes, at the same rate; absent without codes.",
        [](const Tag& tag) -> Value {
          if (!tag.codes_left || !tag.codes_left->days) return std::nullopt;
          return *tag.codes_left->days * kSecondsPerDay;
        });
  AddTallies(tags);
}

void MetricsBuilder::AddTallies(const std::vector<service::TagStatus>& tags) {
  using Tag = service::TagStatus;
  MetricFamily& errors = Family(
      "leaf_tag_errors_total", "Requests of the tag that were answered with an error.", MetricType::kCounter);
  for (const Tag& tag : tags) {
    if (tag.tallies) AddErrors(errors, {{"tag", tag.tag}}, tag.tallies->errors);
  }
  MetricFamily& refills =
      Family("leaf_tag_refills_total", "Grants asked of the database for the tag.", MetricType::kCounter);
  for (const Tag& tag : tags) {
    AddSample(refills, {{"tag", tag.tag}, {"result", "granted"}}, Number(tag.grants));
    AddSample(refills, {{"tag", tag.tag}, {"result", "failed"}},
              Number(tag.tallies ? tag.tallies->refills_failed : 0));
  }
  MetricFamily& latency = Family("leaf_tag_refill_duration_seconds",
                                 "How long grants of the tag took, from asking until IDs could be issued.",
                                 MetricType::kHistogram);
  for (const Tag& tag : tags) {
    if (!tag.tallies) continue;
    AddHistogram(latency, {{"tag", tag.tag}}, service::LatencyTally::kBoundsSeconds,
                 tag.tallies->refills.counts, tag.tallies->refills.sum_ns);
  }
}

// ---- the modes -------------------------------------------------------------------------------------------

void MetricsBuilder::AddSegment(const service::SegmentStatus& status, const service::SegmentTotals& totals,
                                const TopTags& sums) {
  Counter("leaf_segment_ids_issued_total", "IDs of all tags that were handed out.", Number(totals.issued));
  Counter("leaf_segment_ids_granted_total", "IDs of all tags that the database has granted to this node.",
          Number(totals.granted));
  Counter("leaf_segment_ids_wasted_total", "IDs of all tags that were granted and will never be issued.",
          Number(totals.wasted));
  Counter("leaf_segment_waits_total", "Requests that could not be served at once.",
          Number(totals.tallies.waits));
  MetricFamily& refills = Family("leaf_segment_refills_total", "Grants asked of the database, for all tags.",
                                 MetricType::kCounter);
  AddSample(refills, {{"result", "granted"}}, Number(RefillsOf(totals.tallies.refills)));
  AddSample(refills, {{"result", "failed"}}, Number(totals.tallies.refills_failed));
  AddHistogram(Family("leaf_segment_refill_duration_seconds",
                      "How long grants took, from asking until IDs could be issued.", MetricType::kHistogram),
               {}, service::LatencyTally::kBoundsSeconds, totals.tallies.refills.counts,
               totals.tallies.refills.sum_ns);
  AddErrors(Family("leaf_segment_errors_total",
                   "Requests for IDs of a tag, known or not, that were answered with an error.",
                   MetricType::kCounter),
            {}, totals.tallies.errors);
  MetricFamily& tags = Family("leaf_segment_tags", "Tags by state.", MetricType::kGauge);
  AddSample(tags, {{"state", "idle"}}, Number(sums.idle));
  AddSample(tags, {{"state", "active"}}, Number(sums.active));
  AddSample(tags, {{"state", "frozen"}}, Number(sums.frozen));
  AddSample(tags, {{"state", "paused"}}, Number(sums.paused));
  Gauge("leaf_segment_tags_failing",
        "Tags whose last grant has failed, without those that are frozen or paused.", Number(sums.failing));
  Gauge("leaf_segment_reserve_ids", "IDs in reserve, of all tags.", Number(sums.reserve));
  Gauge("leaf_segment_waiting_requests", "Requests that are waiting for IDs.", Number(sums.waiting));
  Gauge("leaf_segment_ids_per_second", "IDs of all tags that are handed out in a second.",
        sums.ids_per_second);
  Gauge("leaf_segment_loaded", "Whether the table of tags was read since start.", status.loaded ? 1 : 0);
  if (status.refreshed_at) {
    Gauge("leaf_segment_refresh_timestamp_seconds", "When the table of tags was read last.",
          static_cast<double>(UnixMillis(*status.refreshed_at)) / 1e3);
  }
}

void MetricsBuilder::AddFence(const std::optional<service::ClusterFenceStatus>& fence) {
  MetricFamily& kinds = Family("leaf_segment_fence",
                               "What grants are fenced by: 1 for the witness of the cluster, or for this "
                               "node's own marks alone.",
                               MetricType::kGauge);
  const bool cluster = fence && fence->guards();
  AddSample(kinds, {{"fence", "cluster"}}, cluster ? 1 : 0);
  AddSample(kinds, {{"fence", "node"}}, cluster ? 0 : 1);
  if (!fence) return;
  Gauge("leaf_witness_usable", "Whether grants can be claimed from the witness.", fence->away_since ? 0 : 1);
  if (fence->membership) {
    const core::MembershipStatus& membership = *fence->membership;
    Gauge("leaf_cluster_open",
          "Whether ZooKeeper is known to have lost no data, so that ranges may be claimed.",
          membership.state == core::MembershipStatus::State::kOpen ? 1 : 0);
    Gauge("leaf_cluster_incarnation", "How often lost data was found in the cluster, plus one.",
          Number(membership.incarnation));
    Gauge("leaf_cluster_nodes", "Nodes that claim ranges of this cluster.", Number(membership.nodes));
    Gauge("leaf_cluster_nodes_missing", "Nodes whose grants may be lost, and which are waited for.",
          Number(membership.waiting_for.size()));
    Gauge("leaf_cluster_older_daemons",
          "Daemons of a version before 0.2, which claim without checking whether ZooKeeper lost data.",
          Number(membership.older_daemons));
  }
  Counter("leaf_witness_claims_total", "Grants that were claimed from the witness.", Number(fence->claims));
  Counter("leaf_witness_outbid_total",
          "Grants that were dropped because another node claimed above them first.", Number(fence->outbid));
  Counter("leaf_witness_unfenced_total",
          "Grants that were used without a claim while the witness was unreachable.",
          Number(fence->unfenced));
}

void MetricsBuilder::AddSnowflake(const service::SnowflakeStatus& status,
                                  const service::SnowflakeTallies& tallies, WallTime now) {
  // A number that this node does not have yet, or has no more, may be another node's.
  const bool has_worker = status.has_worker && status.state != "claiming";
  if (has_worker) {
    AddSample(Family("leaf_snowflake_info", "The worker of this node.", MetricType::kGauge),
              {{"cluster", status.cluster.name},
               {"registry", status.cluster.registry},
               {"worker", std::to_string(status.worker)}},
              1);
    Gauge("leaf_snowflake_worker", "Number of the worker.", Number(status.worker));
    Gauge("leaf_snowflake_lead_seconds", "How far the IDs are ahead of the wall clock.",
          Seconds(status.lead).count());
    Gauge("leaf_snowflake_ceiling_left_seconds",
          "How far the durable ceiling is above the wall clock and what was issued; not above at 0.",
          std::max(0.0, Seconds(status.ceiling - (now + status.lead)).count()));
  }
  MetricFamily& states =
      Family("leaf_snowflake_state", "The worker's state: 1 for the one it is in.", MetricType::kGauge);
  for (const std::string_view state : {"claiming", "starting", "issuing", "stopped"})
    AddSample(states, {{"state", std::string(state)}}, status.state == state ? 1 : 0);
  Counter("leaf_snowflake_ids_issued_total", "Snowflake IDs that were handed out.", Number(tallies.issued));
  Counter("leaf_snowflake_waits_total", "Requests that had to wait for the clock or the ceiling.",
          Number(tallies.waits));
  AddErrors(Family("leaf_snowflake_errors_total",
                   "Requests for snowflake IDs that were answered with an error.", MetricType::kCounter),
            {}, tallies.errors);
  Gauge("leaf_snowflake_ceiling_failing", "Whether the last try to raise the ceiling has failed.",
        status.problem ? 1 : 0);
  Gauge("leaf_snowflake_registry_failing", "Whether the registry could not be told the last ceiling.",
        status.registry_problem ? 1 : 0);
  Gauge("leaf_snowflake_exhaustion_seconds", "When the layout has no more times.",
        Seconds(status.exhausted_at - now).count());
}

// ---- the node --------------------------------------------------------------------------------------------

void MetricsBuilder::AddBuild(const std::string& version) {
  AddSample(Family("leaf_build_info", "The version of leafctl.", MetricType::kGauge),
            {{"version", version}, {"compiler", "g++ " __VERSION__}}, 1);
}

void MetricsBuilder::AddProcess(const ProcessStats& stats) {
  Counter("process_cpu_seconds_total", "User and system time of the process.", stats.cpu_seconds);
  Gauge("process_start_time_seconds", "When the process was started.", stats.start_time_seconds);
  Gauge("process_resident_memory_bytes", "Resident memory.", Number(stats.resident_bytes));
  Gauge("process_virtual_memory_bytes", "Virtual memory.", Number(stats.virtual_bytes));
  Gauge("process_open_fds", "Open files.", Number(stats.open_files));
  Gauge("process_max_fds", "Files that may be open.", Number(stats.open_files_max));
  Gauge("process_threads", "Threads.", Number(stats.threads));
}

void MetricsBuilder::AddReadiness(const service::Readiness& readiness) {
  Gauge("leaf_ready", "Whether every enabled mode of this node can issue IDs.", readiness.ready ? 1 : 0);
  MetricFamily& reasons = Family("leaf_not_ready_reason", "Why the node is not ready.", MetricType::kGauge);
  std::vector<std::string> seen;
  for (const service::Reason& reason : readiness.reasons) {
    if (std::find(seen.begin(), seen.end(), reason.code) != seen.end()) continue;
    seen.push_back(reason.code);
    AddSample(reasons, {{"code", reason.code}}, 1);
  }
}

void MetricsBuilder::AddConfig(const service::ConfigStatus& config) {
  if (!config.taken_over_at) return;
  Gauge("leaf_config_last_reload_successful",
        "Whether the configuration was valid when it was read last, at the start or by a reload.",
        config.problem ? 0 : 1);
  Gauge("leaf_config_last_reload_success_timestamp_seconds", "When the settings in force were read.",
        static_cast<double>(UnixMillis(*config.taken_over_at)) / 1e3);
}

void MetricsBuilder::AddDependencies(const std::vector<service::Dependency>& dependencies) {
  if (dependencies.empty()) return;
  using service::Dependency;
  const auto each = [&](std::string_view name, std::string_view help, MetricType type, const auto& value) {
    MetricFamily& family = Family(name, help, type);
    for (const Dependency& dependency : dependencies) {
      AddSample(family, {{"dependency", dependency.name}, {"kind", dependency.kind}}, value(dependency));
    }
  };
  each("leaf_dependency_up", "Whether it answered when it was asked last.", MetricType::kGauge,
       [](const Dependency& dependency) { return dependency.up ? 1.0 : 0.0; });
  each("leaf_dependency_connections_total", "Connections that were made.", MetricType::kCounter,
       [](const Dependency& dependency) { return Number(dependency.connections); });
  each("leaf_dependency_reconnects_total", "Of those, after one was lost or could not be made.",
       MetricType::kCounter, [](const Dependency& dependency) { return Number(dependency.reconnects); });
  each("leaf_dependency_failures_total", "Times it could not be reached.", MetricType::kCounter,
       [](const Dependency& dependency) { return Number(dependency.failures); });
  each("leaf_dependency_identity_changes_total", "Times another server answered than before.",
       MetricType::kCounter,
       [](const Dependency& dependency) { return Number(dependency.identity_changes); });
  each("leaf_dependency_went_back_total",
       "Times it had lost what it had acknowledged (it was restored or wiped), and was sent it again.",
       MetricType::kCounter, [](const Dependency& dependency) { return Number(dependency.went_back); });
  MetricFamily& open =
      Family("leaf_dependency_connections_open", "Connections that are open now.", MetricType::kGauge);
  for (const Dependency& dependency : dependencies) {
    if (!dependency.open) continue;
    AddSample(open, {{"dependency", dependency.name}, {"kind", dependency.kind}}, Number(*dependency.open));
  }
  MetricFamily& info =
      Family("leaf_dependency_info", "Which server it is, as it says itself.", MetricType::kGauge);
  for (const Dependency& dependency : dependencies) {
    AddSample(info,
              {{"dependency", dependency.name}, {"kind", dependency.kind}, {"identity", dependency.identity}},
              1);
  }
  MetricFamily& leases =
      Family("leaf_dependency_lease_left_seconds", "What is left of the lease.", MetricType::kGauge);
  for (const Dependency& dependency : dependencies) {
    if (!dependency.lease_left) continue;
    AddSample(leases, {{"dependency", dependency.name}, {"kind", dependency.kind}},
              Seconds(*dependency.lease_left).count());
  }
}

void MetricsBuilder::AddRequests(const RequestTotals& totals) {
  MetricFamily requests{"leaf_http_requests_total", "Requests that were answered.", MetricType::kCounter, {}};
  MetricFamily request_times{"leaf_http_request_duration_seconds",
                             "From when a request was there until it was answered.",
                             MetricType::kHistogram,
                             {}};
  AddRoutes(
      totals, [](Route route) { return !IsRedis(route); }, "route", requests, request_times);
  MetricFamily commands{
      "leaf_redis_commands_total",
      "Commands of the Redis port that were answered; the code is what HTTP has for the same answer.",
      MetricType::kCounter,
      {}};
  MetricFamily command_times{"leaf_redis_command_duration_seconds",
                             "From when a command was there until it was answered.",
                             MetricType::kHistogram,
                             {}};
  AddRoutes(
      totals, [](Route route) { return IsRedis(route); }, "command", commands, command_times);
  for (MetricFamily* const family : {&requests, &request_times, &commands, &command_times})
    families_.push_back(std::move(*family));
  Gauge("leaf_http_connections", "Connections that are open, of every protocol.",
        Number(totals.connections_open));
  if (totals.connections_max > 0) {
    Gauge("leaf_http_connections_max",
          "Connections that may be open at once: server.max_connections. The Unix socket has a few more.",
          Number(totals.connections_max));
  }
  Counter("leaf_http_connections_accepted_total", "Connections that were accepted.",
          Number(totals.connections_accepted));
  Counter("leaf_http_connections_refused_total",
          "Connections over a limit, whether their first request was answered or not.",
          Number(totals.connections_refused));
  if (!totals.certificate_end) return;
  MetricFamily& handshakes =
      Family("leaf_tls_handshakes_total", "Handshakes of TLS that came to an end.", MetricType::kCounter);
  AddSample(handshakes, {{"result", "ok"}}, Number(totals.handshakes));
  AddSample(handshakes, {{"result", "failed"}}, Number(totals.handshakes_failed));
  Gauge("leaf_tls_certificate_expiry_seconds",
        "When the certificate of server.tls_cert ends, as Unix time; that of the last reload.",
        std::chrono::duration<double>(totals.certificate_end->time_since_epoch()).count());
}

void MetricsBuilder::AddCollection(std::chrono::nanoseconds took) {
  Gauge("leaf_metrics_collection_seconds", "How long it took to collect these metrics.",
        Seconds(took).count());
}

MetricFamily& MetricsBuilder::Family(std::string_view name, std::string_view help, MetricType type) {
  return families_.emplace_back(MetricFamily{std::string(name), std::string(help), type, {}});
}

void MetricsBuilder::Counter(std::string_view name, std::string_view help, double value) {
  AddSample(Family(name, help, MetricType::kCounter), {}, value);
}

void MetricsBuilder::Gauge(std::string_view name, std::string_view help, double value) {
  AddSample(Family(name, help, MetricType::kGauge), {}, value);
}

}  // namespace leaf::server
