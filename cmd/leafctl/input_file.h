// A file that a command reads as a whole, or stdin in its place; and stdin a line at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "context.h"
#include "leaf/base/result.h"

namespace leaf::cmd {

inline constexpr std::size_t kInputFileBytesMax = std::size_t{16} << 20;

// The content of `file`; "-" is stdin. Errors: kConfig for a file that is missing, or larger than
// kInputFileBytesMax; kInternal (stdin cannot be read); those of sys::ReadWholeFile.
Result<std::string> ReadInputFile(CommandContext& context, const std::string& file);

// Calls `use` with each line of stdin, without the blanks around it, unless the line is empty. A line for
// which `use` fails does not end the loop: its error gets the line's number, and is printed on stderr from
// the second one on. The first such error is returned, and says how many followed; nothing if there is none.
// Errors: kInternal (stdin cannot be read), and those of writing the output.
using UseLine = std::function<Result<void>(std::string_view line)>;
Result<std::optional<Error>> ForEachLineOfStdin(CommandContext& context, const UseLine& use);

}  // namespace leaf::cmd
