#include "code_lines.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "input_file.h"

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
  LEAF_ASSIGN_OR_RETURN(const std::optional<Error> wrong,
                        ForEachLineOfStdin(context, [&](std::string_view word) -> Result<void> {
                          LEAF_ASSIGN_OR_RETURN(const CodeLine line, make(word));
                          printer.Add(line);
                          return {};
                        }));
  printer.Finish();
  return wrong ? Result<void>(*wrong) : Result<void>();
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
