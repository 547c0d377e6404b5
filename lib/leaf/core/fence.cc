#include "leaf/core/fence.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::core {
namespace {

Error Frozen(std::string_view tag, std::int64_t max_id, std::uint64_t mark) {
  return {
      ErrorCode::kFrozen,
      fmt::format(
          "tag {} is frozen: the table says max_id {}, but this node was already granted everything up to "
          "{}: the database went back",
          Quoted(tag), max_id, mark),
      fmt::format("leafctl tag repair {} explains it and moves max_id above every known mark", tag)};
}

}  // namespace

Result<void> JudgeGrant(std::string_view tag, IdRange grant, std::uint64_t mark) {
  if (grant.empty() || grant.end > kMaxIdLimit) {
    return Error{ErrorCode::kInternal,
                 fmt::format("tag {} was granted [{}, {}), which is no range of IDs", Quoted(tag),
                             grant.begin, grant.end),
                 ""};
  }
  if (grant.begin < mark) return Frozen(tag, static_cast<std::int64_t>(grant.begin), mark);
  return {};
}

Result<void> JudgeRow(std::string_view tag, std::int64_t max_id, std::uint64_t mark) {
  // A negative column is below every mark; compare without converting it.
  if (mark > 0 && (max_id < 0 || static_cast<std::uint64_t>(max_id) < mark)) return Frozen(tag, max_id, mark);
  return {};
}

}  // namespace leaf::core
