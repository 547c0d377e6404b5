// Metrics, and their text in Prometheus' format, version 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace leaf::server {

struct MetricLabel {
  std::string name;
  std::string value;
};
using MetricLabels = std::vector<MetricLabel>;

// One more count than there are bounds: of what is above them all.
struct MetricHistogram {
  std::vector<double> bounds;         // ascending
  std::vector<std::uint64_t> counts;  // each of its own bucket, without those below
  double sum = 0;
};

struct MetricSample {
  MetricLabels labels;
  double value = 0;           // of a counter or a gauge
  MetricHistogram histogram;  // of a histogram
};

enum class MetricType { kCounter, kGauge, kHistogram };

struct MetricFamily {
  std::string name;
  std::string help;  // "": none
  MetricType type = MetricType::kGauge;
  std::vector<MetricSample> samples;
};

// A family without a sample is left out.
std::string MetricsText(const std::vector<MetricFamily>& families);

}  // namespace leaf::server
