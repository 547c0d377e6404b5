// The public face of core/id_layout.h.
#include <fmt/format.h>

#include "leaf/base/limits.h"
#include "leaf/core/id_layout.h"
#include "leaf/leaf.h"

namespace leaf {

Result<SnowflakeParts> DecodeSnowflake(std::uint64_t id, const SnowflakeLayout& layout) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout parsed, core::IdLayout::Parse(layout.bits, layout.epoch_ms));
  if (id >= kIdEnd) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad ID {}: not below 2^63", id), ""};
  }
  const core::IdFields fields = parsed.Decompose(id);
  return SnowflakeParts{UnixMillis(fields.time), fields.worker, fields.sequence};
}

Result<std::uint64_t> EncodeSnowflake(const SnowflakeParts& parts, const SnowflakeLayout& layout) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout parsed, core::IdLayout::Parse(layout.bits, layout.epoch_ms));
  return parsed.Compose({WallTimeOf(parts.time_ms), parts.worker, parts.sequence});
}

}  // namespace leaf
