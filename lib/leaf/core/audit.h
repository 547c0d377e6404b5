// Who changed a tag, when, from where, and what the tag was before and after.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/time.h"
#include "leaf/core/ports.h"

namespace leaf::core {

// Stable names, as in the history.
inline constexpr std::string_view kAuditAdd = "add";
inline constexpr std::string_view kAuditSet = "set";
inline constexpr std::string_view kAuditAdvance = "advance";
inline constexpr std::string_view kAuditRepair = "repair";
inline constexpr std::string_view kAuditRecover = "recover";
inline constexpr std::string_view kAuditRemove = "remove";
inline constexpr std::string_view kAuditPause = "pause";
inline constexpr std::string_view kAuditResume = "resume";
inline constexpr std::string_view kAuditStrict = "strict";  // the order of its IDs
inline constexpr std::string_view kAuditTrend = "trend";

// Who asks for a change.
struct Author {
  std::string who;     // "unix socket" through a daemon, "root@db1 (tag add)" for a command
  std::string origin;  // the process that makes the change: "leafctl serve, process 77 on db1"
};

// A tag before or after a change.
struct AuditState {
  std::int64_t max_id = 0;
  std::int64_t step = 0;
  std::optional<std::string> description;

  friend bool operator==(const AuditState&, const AuditState&) = default;
};
inline AuditState AuditStateOf(const TagRow& row) { return {row.max_id, row.step, row.description}; }

struct AuditLine {
  std::string tag;
  std::string action;
  Author author;
  std::optional<AuditState> before;  // nothing for a tag that was added, and where the row is not concerned
  std::optional<AuditState> after;   // nothing for a tag that was removed
  WallTime at{};                     // by the database's clock; of a line that was read
};

// Told of each change that was made. `why_not`: why it is not in the history, though the change was made; ""
// where it is.
using AuditListener = std::function<void(const AuditLine& line, const std::string& why_not)>;

}  // namespace leaf::core
