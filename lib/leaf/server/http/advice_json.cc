#include "leaf/server/http/advice_json.h"

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/peak_rate.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

std::string Why(const service::TagStatus& status, std::int64_t advised, std::chrono::seconds watched) {
  if (advised == 0) {
    return "no rate was seen yet: IDs were asked for in single batches, or not at all";
  }
  const std::string peak = fmt::format("the highest rate seen in {} is {:.1f} IDs a second",
                                       FormatDuration(watched), status.peak_ids_per_second);
  const double lasts = static_cast<double>(status.table_step) / status.peak_ids_per_second;
  return fmt::format("{}: a step of {} lasts {:.1f} s of that, one of {} lasts {}", peak, status.table_step,
                     lasts, advised,
                     advised == kStepMax ? "as long as a step can" : FormatDuration(kAdvisedGrantTime));
}

}  // namespace

Json AdviceJson(const service::TagStatus& status, MonotonicTime::duration watched) {
  const std::int64_t advised = core::AdvisedStep(status.peak_ids_per_second);
  const auto whole_seconds = std::chrono::floor<std::chrono::seconds>(watched);
  Json json{{"tag", status.tag},
            {"step", status.table_step},
            {"dynamic_step", status.step},
            {"advised_step", advised > 0 ? Json(advised) : Json(nullptr)},
            {"rate", status.ids_per_second},
            {"peak_rate", status.peak_ids_per_second},
            {"watched_s", whole_seconds.count()},
            {"reserve", status.reserve}};
  json["reserve_s"] = status.peak_ids_per_second > 0
                          ? Json(static_cast<double>(status.reserve) / status.peak_ids_per_second)
                          : Json(nullptr);
  json["reserve_target"] = status.reserve_target;
  json["grant_latency_ms"] = std::chrono::duration<double, std::milli>(status.grant_latency).count();
  json["why"] = Why(status, advised, whole_seconds);
  return json;
}

}  // namespace leaf::server
