#include "input_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

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
  auto bytes = context.ReadBulk(kInputFileBytesMax);
  if (bytes.ok() || bytes.error().code != ErrorCode::kTooLarge) return bytes;
  return Error{ErrorCode::kConfig, bytes.error().message, ""};
}

Result<std::optional<Error>> ForEachLineOfStdin(CommandContext& context, const UseLine& use) {
  constexpr std::string_view kBlanks = " \t\r";
  std::uint64_t number = 0;
  std::uint64_t wrong = 0;
  std::optional<Error> first;
  while (true) {
    auto line = context.ReadBulkLine();
    Result<void> used;
    if (!line.ok()) {
      if (line.error().code != ErrorCode::kTooLarge) return std::move(line).error();
      used = line.error();
    } else if (!*line) {
      break;
    } else {
      const std::string& text = **line;
      const std::size_t begin = text.find_first_not_of(kBlanks);
      if (begin != std::string::npos)
        used = use(std::string_view(text).substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
    }
    ++number;
    if (context.out.failed()) LEAF_RETURN_IF_ERROR(context.out.Flush());
    if (used.ok()) continue;
    Error error = std::move(used).error();
    error.message = fmt::format("line {}: {}", number, error.message);
    if (++wrong == 1) {
      first = std::move(error);
    } else if (!context.flags.json) {
      // The first one is the command's own error; under --json stderr holds that one object and nothing else.
      context.Note(fmt::format("leafctl: {}", error.message));
    }
  }
  if (wrong > 1) first->message += fmt::format(" (and {} more)", wrong - 1);
  return first;
}

}  // namespace leaf::cmd
