#include "input_file.h"

#include <fmt/format.h>

#include "leaf/base/text.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file_ops.h"

namespace leaf::cmd {

Result<std::string> ReadInputFile(CommandContext& context, const std::string& file) {
  if (file != "-") {
    sys::FileOps ops;
    LEAF_ASSIGN_OR_RETURN(auto content, sys::ReadWholeFile(ops, file, kInputFileBytesMax));
    if (!content)
      return Error{ErrorCode::kConfig, fmt::format("cannot read {}: no such file", Printable(file)), ""};
    return std::move(*content);
  }
  std::string bytes;
  while (const auto line = context.ReadBulkLine()) {
    bytes += *line + '\n';
    if (bytes.size() > kInputFileBytesMax)
      return Error{ErrorCode::kConfig, fmt::format("stdin has more than {} bytes", kInputFileBytesMax), ""};
  }
  return bytes;
}

}  // namespace leaf::cmd
