#include "leaf/core/fence.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/text.h"

namespace leaf::core {
namespace {

Error Frozen(std::string_view tag, std::int64_t max_id, FenceLevel level) {
  return {ErrorCode::kFrozen,
          fmt::format("tag {} is frozen: the table says max_id {}, but {} was already granted everything up "
                      "to {}: the database lost committed grants",
                      Quoted(tag), max_id,
                      level.mark >= level.witness ? "this node" : "another node of the cluster",
                      std::max(level.mark, level.witness)),
          TagCommand("repair", tag) + " explains it and moves max_id above every known mark"};
}

}  // namespace

Result<void> JudgeGrant(std::string_view tag, IdRange grant, FenceLevel level) {
  if (grant.empty() || grant.end > kMaxIdLimit) {
    return Error{ErrorCode::kInternal,
                 fmt::format("tag {} was granted [{}, {}), which is not a range of IDs", Quoted(tag),
                             grant.begin, grant.end),
                 ""};
  }
  return JudgeRow(tag, static_cast<std::int64_t>(grant.begin), level);
}

Result<void> JudgeRow(std::string_view tag, std::int64_t max_id, FenceLevel level) {
  const std::uint64_t least = std::max(level.mark, level.witness);
  // A negative column is below every mark; compare without converting it.
  if (least > 0 && (max_id < 0 || static_cast<std::uint64_t>(max_id) < least))
    return Frozen(tag, max_id, level);
  return {};
}

}  // namespace leaf::core
