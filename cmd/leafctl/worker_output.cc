#include "worker_output.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::cmd {
namespace {

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

Json RecordJson(const inspect::RawRecord& record) {
  Json json{{"name", record.name}};
  if (CountCodePoints(record.data)) {
    json["data"] = record.data;
  } else {
    json["data_hex"] = Hex(record.data);
  }
  for (const auto& [name, value] : record.facts) json[name] = value;
  return json;
}

std::string AgeText(std::chrono::milliseconds age) {
  const std::string sign = age.count() < 0 ? "-" : "";
  const long long seconds = (age.count() < 0 ? -age.count() : age.count()) / 1000;
  if (seconds < 120) return fmt::format("{}{} s", sign, seconds);
  constexpr long long kHour = 3600;
  if (seconds < 2 * kHour) return fmt::format("{}{} min", sign, seconds / 60);
  if (seconds < 48 * kHour) return fmt::format("{}{} h", sign, seconds / kHour);
  return fmt::format("{}{} d", sign, seconds / (24 * kHour));
}

std::string FindingText(const inspect::WorkerFinding& finding) {
  return fmt::format("{}: {}\n  cause:       {}\n  consequence: {}\n  remedy:      {}\n", finding.code,
                     Printable(finding.subject), Printable(finding.cause), Printable(finding.consequence),
                     Printable(finding.remedy));
}

}  // namespace leaf::cmd
