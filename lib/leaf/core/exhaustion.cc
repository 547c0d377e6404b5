#include "leaf/core/exhaustion.h"

#include <chrono>

#include "leaf/base/limits.h"

namespace leaf::core {

std::uint64_t IdsLeft(std::int64_t max_id) {
  if (max_id < 0 || static_cast<std::uint64_t>(max_id) > kMaxIdLimit) return 0;
  return kMaxIdLimit - static_cast<std::uint64_t>(max_id);
}

std::optional<double> DaysToExhaustion(std::int64_t max_id, const Baseline& base, WallTime now) {
  return DaysUntil(kMaxIdLimit, max_id, base, now);
}

std::optional<double> DaysUntil(std::uint64_t end, std::int64_t max_id, const Baseline& base, WallTime now) {
  if (max_id >= 0 && static_cast<std::uint64_t>(max_id) >= end) return 0;
  const auto watched = now - base.at;
  if (watched < kExhaustionWatchMin) return std::nullopt;
  if (max_id < 0 || static_cast<std::uint64_t>(max_id) <= base.max_id) return std::nullopt;
  const auto used = static_cast<double>(static_cast<std::uint64_t>(max_id) - base.max_id);
  const double days = std::chrono::duration<double, std::ratio<86400>>(watched).count();
  return static_cast<double>(end - static_cast<std::uint64_t>(max_id)) / used * days;
}

bool IsNearCodesEnd(std::int64_t max_id, const CodesLeft& codes) {
  // Codes that last as long as the numbers: IsNearExhaustion reports that end.
  if (max_id < 0 || codes.end >= kIdEnd) return false;
  return static_cast<std::uint64_t>(max_id) >= codes.end - codes.end / 10 ||
         (codes.days && *codes.days < kFewDaysLeft);
}

bool IsNearExhaustion(std::int64_t max_id, std::optional<double> days) {
  return max_id >= 0 && (IdsLeft(max_id) < kFewIdsLeft || (days && *days < kFewDaysLeft));
}

}  // namespace leaf::core
