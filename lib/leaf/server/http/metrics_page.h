// The page /metrics: collects, and writes Prometheus' text.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/clock.h"
#include "leaf/base/process_stats.h"
#include "leaf/server/request_metrics.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

struct MetricsOptions {
  std::string version;
  std::size_t top_tags = 100;  // tags that have metrics of their own
};

// Thread-safe. Everything referenced outlives it.
class MetricsPage {
 public:
  using ProcessLook = std::function<ProcessStats()>;
  MetricsPage(MetricsOptions options, const service::IdService& ids, const RequestMetrics& requests,
              const Clock& clock, ProcessLook process)
      : options_(std::move(options)),
        ids_(ids),
        requests_(requests),
        clock_(clock),
        process_(std::move(process)) {}

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  // Takes longer the more tags there are: not for a thread that serves.
  std::string Render() const;

 private:
  const MetricsOptions options_;
  const service::IdService& ids_;
  const RequestMetrics& requests_;
  const Clock& clock_;
  const ProcessLook process_;
};

}  // namespace leaf::server
