#include "leaf/server/http/metrics_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>

namespace leaf::server {
namespace {

// In a help text quotation marks stand for themselves.
std::string EscapedMetricText(std::string_view text, bool quoted) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quoted && c == '"')) out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string MetricNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  // As many digits as never show how a decimal fraction was rounded.
  return fmt::format("{:.16g}", value);
}

std::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

class FamilyWriter {
 public:
  FamilyWriter(const MetricFamily& family, std::string& out) : family_(family), out_(out) {}

  void Write() {
    if (!family_.help.empty())
      out_ += fmt::format("# HELP {} {}\n", family_.name, EscapedMetricText(family_.help, false));
    out_ += fmt::format("# TYPE {} {}\n", family_.name, MetricTypeName(family_.type));
    for (const MetricSample& sample : family_.samples) {
      if (family_.type == MetricType::kHistogram) {
        WriteHistogram(sample);
      } else {
        WriteLine("", sample, "", MetricNumber(sample.value));
      }
    }
  }

 private:
  void WriteHistogram(const MetricSample& sample) {
    const auto& [bounds, counts, sum] = sample.histogram;
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    WriteLine("_count", sample, "", std::to_string(all));
    WriteLine("_sum", sample, "", MetricNumber(sum));
    std::uint64_t up_to = 0;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      up_to += counts[i];
      WriteLine("_bucket", sample, MetricNumber(bounds[i]), std::to_string(up_to));
    }
    WriteLine("_bucket", sample, "+Inf", std::to_string(all));
  }

  // `bound`: of a bucket, else "".
  void WriteLine(std::string_view suffix, const MetricSample& sample, std::string_view bound,
                 std::string_view value) {
    out_ += family_.name;
    out_ += suffix;
    std::string_view before = "{";
    const auto add = [&](std::string_view name, std::string_view text) {
      out_ += fmt::format("{}{}=\"{}\"", before, name, EscapedMetricText(text, true));
      before = ",";
    };
    for (const MetricLabel& label : sample.labels) add(label.name, label.value);
    if (!bound.empty()) add("le", bound);
    out_ += fmt::format("{} {}\n", before == "," ? "}" : "", value);
  }

  const MetricFamily& family_;
  std::string& out_;
};

}  // namespace

std::string MetricsText(const std::vector<MetricFamily>& families) {
  std::string out;
  for (const MetricFamily& family : families) {
    if (!family.samples.empty()) FamilyWriter(family, out).Write();
  }
  return out;
}

}  // namespace leaf::server
