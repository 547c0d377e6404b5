// The public face of core/id_layout.h.
#include <fmt/format.h>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
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

Result<std::string> FormatSnowflake(std::uint64_t id, SnowflakeText form, const SnowflakeLayout& layout) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout parsed, core::IdLayout::Parse(layout.bits, layout.epoch_ms));
  if (id >= kIdEnd)
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad ID {}: not below 2^63", id), ""};
  LEAF_ASSIGN_OR_RETURN(const TimedIdText text,
                        TimedIdText::Make(form == SnowflakeText::kUuid ? IdFormat::kUuid : IdFormat::kUlid,
                                          parsed.TimeSplit()));
  std::string out;
  text.Append(out, id);
  return out;
}

Result<std::uint64_t> ParseSnowflake(std::string_view text, const SnowflakeLayout& layout) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout parsed, core::IdLayout::Parse(layout.bits, layout.epoch_ms));
  const auto format = TimedShapeOf(text);
  if (!format)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad ID {}: neither a UUID nor a ULID", Quoted(text)), ""};
  return ParseAnyId(text, format, parsed.TimeSplit());
}

}  // namespace leaf
