// A file that a command reads as a whole, or stdin in its place.
#pragma once

#include <cstddef>
#include <string>

#include "context.h"
#include "leaf/base/result.h"

namespace leaf::cmd {

inline constexpr std::size_t kInputFileBytesMax = std::size_t{16} << 20;

// The content of `file`; "-" is stdin. Errors: kConfig for a file that is missing, or larger than
// kInputFileBytesMax; those of sys::ReadWholeFile.
Result<std::string> ReadInputFile(CommandContext& context, const std::string& file);

}  // namespace leaf::cmd
