#include "leaf/server/request_metrics.h"

#include <algorithm>

namespace leaf::server {
namespace {

std::size_t StatusSlot(int status) {
  std::size_t slot = 0;
  while (slot + 1 < kCountedStatuses.size() && kCountedStatuses[slot] != status) ++slot;
  return slot;
}

std::size_t DurationSlot(std::chrono::nanoseconds took) {
  std::size_t slot = 0;
  while (slot < kDurationBounds.size() && took > kDurationBounds[slot]) ++slot;
  return slot;
}

}  // namespace

void RequestMetrics::Shard::Count(Route route, int status, std::chrono::nanoseconds took) {
  took = std::max(took, std::chrono::nanoseconds{0});
  RouteCells& cells = routes_[static_cast<std::size_t>(route)];
  Add(cells.requests[StatusSlot(status)], 1);
  Add(cells.durations[DurationSlot(took)], 1);
  Add(cells.sum_ns, static_cast<std::uint64_t>(took.count()));
}

RequestMetrics::Shard& RequestMetrics::NewShard() {
  const MutexLock lock(mutex_);
  shards_.push_back(std::make_unique<Shard>());
  return *shards_.back();
}

RequestTotals RequestMetrics::Collect() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  RequestTotals totals;
  std::uint64_t closed = 0;
  const MutexLock lock(mutex_);
  for (const auto& shard : shards_) {
    for (std::size_t route = 0; route < kRoutes; ++route) {
      const Shard::RouteCells& cells = shard->routes_[route];
      RouteTotals& sum = totals.routes[route];
      for (std::size_t i = 0; i < cells.requests.size(); ++i)
        sum.requests[i] += cells.requests[i].load(kRelaxed);
      for (std::size_t i = 0; i < cells.durations.size(); ++i)
        sum.durations[i] += cells.durations[i].load(kRelaxed);
      sum.sum_ns += cells.sum_ns.load(kRelaxed);
    }
    totals.connections_accepted += shard->accepted_.load(kRelaxed);
    totals.connections_refused += shard->refused_.load(kRelaxed);
    closed += shard->closed_.load(kRelaxed);
    totals.handshakes += shard->handshakes_.load(kRelaxed);
    totals.handshakes_failed += shard->handshakes_failed_.load(kRelaxed);
  }
  totals.connections_open = totals.connections_accepted > closed ? totals.connections_accepted - closed : 0;
  totals.connections_max = connections_max_.load(kRelaxed);
  const std::int64_t certificate_end = certificate_end_.load(kRelaxed);
  if (certificate_end != kNoCertificate) totals.certificate_end = WallTimeOf(certificate_end);
  return totals;
}

}  // namespace leaf::server
