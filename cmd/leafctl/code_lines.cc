#include "code_lines.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::cmd {
namespace {

class CodeLinePrinter {
 public:
  CodeLinePrinter(CommandContext& context, const std::string& tag, std::string_view key)
      : context_(context), tag_(tag), key_(key) {}

  void Add(const CodeLine& line) {
    if (context_.flags.json) {
      items_ += (items_.empty() ? "" : ",") + line.json.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      context_.out.Write(line.text + "\n");
    }
  }
  void Finish() {
    if (!context_.flags.json) return;
    context_.out.Write(fmt::format("{{\"tag\":{},\"{}\":[{}]}}\n", Json(tag_).dump(), key_, items_));
  }

 private:
  CommandContext& context_;
  const std::string tag_;
  const std::string_view key_;
  std::string items_;
};

Result<void> PrintOfStdin(CommandContext& context, CodeLinePrinter& printer, const MakeCodeLine& make) {
  std::uint64_t number = 0;
  std::uint64_t wrong = 0;
  std::optional<Error> first;
  while (const auto line = context.ReadBulkLine()) {
    ++number;
    std::string_view word = TrimBlanks(*line);
    if (word.ends_with('\r')) word.remove_suffix(1);
    if (word.empty()) continue;
    auto made = make(word);
    if (made.ok()) {
      printer.Add(*made);
      if (context.out.failed()) return context.out.Flush();
      continue;
    }
    Error error = std::move(made).error();
    error.message = fmt::format("line {}: {}", number, error.message);
    if (++wrong == 1) {
      first = std::move(error);
      continue;
    }
    // The first one is the command's own error.
    if (!context.flags.json) context.Note(fmt::format("leafctl: {}", error.message));
  }
  printer.Finish();
  if (!first) return {};
  if (wrong > 1) first->message += fmt::format(" (and {} more)", wrong - 1);
  return *std::move(first);
}

}  // namespace

Result<void> PrintCodeLines(CommandContext& context, const std::string& tag, std::string_view key,
                            const std::vector<std::string>& words, const MakeCodeLine& make) {
  CodeLinePrinter printer(context, tag, key);
  if (words.empty() || (words.size() == 1 && words.front() == "-"))
    return PrintOfStdin(context, printer, make);
  std::vector<CodeLine> lines;
  for (const std::string& word : words) {
    LEAF_ASSIGN_OR_RETURN(CodeLine line, make(word));
    lines.push_back(std::move(line));
  }
  for (const CodeLine& line : lines) printer.Add(line);
  printer.Finish();
  return {};
}

}  // namespace leaf::cmd
