// leafctl tag history
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::uint64_t kHistoryLimitMax = 10'000;

struct TagHistoryOptions {
  std::string tag;
  std::optional<std::string> limit;
  TagPlace place;
};

Result<void> RunTagHistory(CommandContext& context, const TagHistoryOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t limit,
                        ParseUnsigned("--limit", options.limit.value_or("100"), 1, kHistoryLimitMax));
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, options.place, Store::Access::kLook, "tag history"));
  LEAF_ASSIGN_OR_RETURN(const auto lines, book->History(options.tag, limit));
  if (context.flags.json) {
    WriteJson(context, HistoryJson(options.tag, lines));
    return {};
  }
  for (const core::AuditLine& line : lines)
    context.out.Write(fmt::format("{}  {}\n", FormatRfc3339(line.at), AuditText(line)));
  if (lines.empty()) context.Note(fmt::format("note: no change of tag {} is recorded", Quoted(options.tag)));
  return {};
}

}  // namespace

Run AddTagHistory(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagHistoryOptions>();
  app.add_option("TAG", options->tag, "The tag, or one that was removed")->required();
  app.add_option("--limit", options->limit, "Print at most N changes")->type_name("N")->default_str("100");
  AddTagServerFlag(app, options->place);
  app.footer(
      "Who changed the tag, when, and from what to what; the newest change comes first. Grants are no "
      "changes.\n"
      "Examples:\n"
      "  leafctl tag history pay\n"
      "  leafctl tag history pay --limit 1 --json");
  return [options](CommandContext& context) { return RunTagHistory(context, *options); };
}

}  // namespace leaf::cmd
