// The text format of prometheus-cpp, version 0.0.4: what its headers declare and leave to the library. Debian
// has that as a shared library only, which brings the shared C++ library with it, and every start of leafctl
// would load both.
#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <ostream>
#include <sstream>
#include <string_view>

namespace prometheus {
namespace {

// In a help text quotation marks stand for themselves.
std::string Escaped(std::string_view text, bool quoted) {
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

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  // As many digits as never show how a decimal fraction was rounded.
  return fmt::format("{:.16g}", value);
}

class Writer {
 public:
  Writer(std::ostream& out, const MetricFamily& family) : out_(out), family_(family) {}

  void Write() {
    if (!family_.help.empty())
      out_ << "# HELP " << family_.name << ' ' << Escaped(family_.help, false) << '\n';
    out_ << "# TYPE " << family_.name << ' ' << TypeName() << '\n';
    for (const ClientMetric& metric : family_.metric) WriteMetric(metric);
  }

 private:
  std::string_view TypeName() const {
    switch (family_.type) {
      case MetricType::Counter:
        return "counter";
      case MetricType::Gauge:
        return "gauge";
      case MetricType::Summary:
        return "summary";
      case MetricType::Histogram:
        return "histogram";
      case MetricType::Untyped:
        break;
    }
    return "untyped";
  }

  void WriteMetric(const ClientMetric& metric) {
    switch (family_.type) {
      case MetricType::Counter:
        return WriteSample(metric, "", Number(metric.counter.value));
      case MetricType::Gauge:
        return WriteSample(metric, "", Number(metric.gauge.value));
      case MetricType::Untyped:
        return WriteSample(metric, "", Number(metric.untyped.value));
      case MetricType::Summary:
        WriteTotals(metric, metric.summary.sample_sum, metric.summary.sample_count);
        for (const ClientMetric::Quantile& quantile : metric.summary.quantile)
          WriteSample(metric, "", Number(quantile.value), "quantile", Number(quantile.quantile));
        return;
      case MetricType::Histogram:
        return WriteHistogram(metric);
    }
  }

  void WriteHistogram(const ClientMetric& metric) {
    WriteTotals(metric, metric.histogram.sample_sum, metric.histogram.sample_count);
    // The last bucket is everything, whether it was given or not.
    bool everything = false;
    for (const ClientMetric::Bucket& bucket : metric.histogram.bucket) {
      WriteSample(metric, "_bucket", std::to_string(bucket.cumulative_count), "le",
                  Number(bucket.upper_bound));
      everything = everything || (std::isinf(bucket.upper_bound) && bucket.upper_bound > 0);
    }
    if (!everything)
      WriteSample(metric, "_bucket", std::to_string(metric.histogram.sample_count), "le", "+Inf");
  }

  void WriteTotals(const ClientMetric& metric, double sum, std::uint64_t count) {
    WriteSample(metric, "_count", std::to_string(count));
    WriteSample(metric, "_sum", Number(sum));
  }

  // One line. `label` is one more label, "" for none.
  void WriteSample(const ClientMetric& metric, std::string_view suffix, std::string_view value,
                   std::string_view label = "", std::string_view label_value = "") {
    out_ << family_.name << suffix;
    std::string_view before = "{";
    const auto add = [&](std::string_view name, std::string_view text) {
      out_ << before << name << "=\"" << Escaped(text, true) << '"';
      before = ",";
    };
    for (const ClientMetric::Label& own : metric.label) add(own.name, own.value);
    if (!label.empty()) add(label, label_value);
    out_ << (before == "," ? "} " : " ") << value;
    if (metric.timestamp_ms != 0) out_ << ' ' << metric.timestamp_ms;
    out_ << '\n';
  }

  std::ostream& out_;
  const MetricFamily& family_;
};

}  // namespace

std::string Serializer::Serialize(const std::vector<MetricFamily>& metrics) const {
  std::ostringstream out;
  Serialize(out, metrics);
  return std::move(out).str();
}

void TextSerializer::Serialize(std::ostream& out, const std::vector<MetricFamily>& metrics) const {
  for (const MetricFamily& family : metrics) Writer(out, family).Write();
}

}  // namespace prometheus
