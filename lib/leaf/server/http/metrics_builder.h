// Puts what was counted into metrics. Pure: the caller hands in the numbers.
//
// Thousands of tags: the `top_tags` that matter most have metrics of their own (those in trouble, then the
// fastest); all of them are in the totals. A tag's counters vanish when it drops out, and come back with what
// was counted meanwhile; totals never go back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/process_stats.h"
#include "leaf/server/http/metrics_text.h"
#include "leaf/server/request_metrics.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

// The tags that get metrics of their own, and sums over all. Not thread-safe.
class TopTags {
 public:
  explicit TopTags(std::size_t size) : size_(size) {}
  void Add(service::TagStatus&& tag);
  // Ends the collection: the tags that are in, by name.
  std::vector<service::TagStatus> Take();

  // Over all tags that were added.
  std::uint64_t idle = 0;
  std::uint64_t active = 0;
  std::uint64_t frozen = 0;
  std::uint64_t paused = 0;
  std::uint64_t failing = 0;  // neither frozen nor paused, and their last grant failed
  std::uint64_t reserve = 0;
  std::uint64_t waiting = 0;
  double ids_per_second = 0;

 private:
  const std::size_t size_;
  std::vector<service::TagStatus> heap_;  // the least of those that are in stands first
};

// Not thread-safe.
class MetricsBuilder {
 public:
  void AddBuild(const std::string& version);
  void AddProcess(const ProcessStats& stats);
  void AddReadiness(const service::Readiness& readiness);
  void AddConfig(const service::ConfigStatus& config);
  void AddDependencies(const std::vector<service::Dependency>& dependencies);
  void AddSegment(const service::SegmentStatus& status, const service::SegmentTotals& totals,
                  const TopTags& sums);
  // Nothing: the node fence.
  void AddFence(const std::optional<service::ClusterFenceStatus>& fence);
  void AddTags(const std::vector<service::TagStatus>& tags);
  void AddSnowflake(const service::SnowflakeStatus& status, const service::SnowflakeTallies& tallies,
                    WallTime now);
  void AddRequests(const RequestTotals& totals);
  void AddCollection(std::chrono::nanoseconds took);

  // In the order of the calls; each family once.
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  MetricFamily& Family(std::string_view name, std::string_view help, MetricType type);
  void Counter(std::string_view name, std::string_view help, double value);
  void Gauge(std::string_view name, std::string_view help, double value);
  void AddTallies(const std::vector<service::TagStatus>& tags);

  std::vector<MetricFamily> families_;
};

}  // namespace leaf::server
