#include "leaf/sys/clock_acceptance.h"

#include <fmt/format.h>

#include "leaf/base/text.h"
#include "leaf/core/id_layout.h"
#include "leaf/sys/durable_file.h"

namespace leaf::sys {
namespace {

constexpr std::string_view kName = "clock-accepted";

}  // namespace

std::optional<core::ClockGuard::Offset> LoadAcceptedOffset(const std::string& state_dir,
                                                           std::string_view boot_id) {
  constexpr std::size_t kBytesMax = 512;
  FileOps ops;
  const auto content = ReadWholeFile(ops, fmt::format("{}/{}", state_dir, kName), kBytesMax);
  if (boot_id.empty() || !content.ok() || !*content) return std::nullopt;
  const std::string prefix = fmt::format("{} ", boot_id);
  std::string_view text = **content;
  if (!text.starts_with(prefix) || !text.ends_with('\n')) return std::nullopt;
  text.remove_prefix(prefix.size());
  text.remove_suffix(1);
  const auto millis = ParseWhole<std::int64_t>(text);
  // No clock is ever that far off. The state file that remembers the offset would be refused with it.
  if (!millis || *millis < -core::kEpochMillisMax || *millis > core::kEpochMillisMax) return std::nullopt;
  return core::ClockGuard::Offset{*millis};
}

Result<void> StoreAcceptedOffset(const std::string& state_dir, std::string_view boot_id,
                                 core::ClockGuard::Offset offset) {
  if (boot_id.empty()) {
    return Error{ErrorCode::kRefused,
                 "this system does not identify its boots: there is nothing to compare with", ""};
  }
  FileOps ops;
  return ReplaceFile(ops, state_dir, std::string(kName), fmt::format("{} {}\n", boot_id, offset.count()));
}

}  // namespace leaf::sys
