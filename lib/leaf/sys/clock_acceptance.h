// What an operator has said about the clock: `<state_dir>/clock-accepted`, written by `worker accept-clock`
// and read by the process that sees the clock jump.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/core/clock_guard.h"

namespace leaf::sys {

// The offset of wall time to boot time that was accepted in the boot `boot_id`; nothing if none was, or the
// file is not readable as one.
std::optional<core::ClockGuard::Offset> LoadAcceptedOffset(const std::string& state_dir,
                                                           std::string_view boot_id);

// Durable when it returns. Errors: kRefused without a boot ID; kPermission, kConfig, kUnavailable.
Result<void> StoreAcceptedOffset(const std::string& state_dir, std::string_view boot_id,
                                 core::ClockGuard::Offset offset);

}  // namespace leaf::sys
