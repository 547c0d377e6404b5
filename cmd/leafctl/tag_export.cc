// leafctl tag export
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "tag_book.h"
#include "tag_file.h"
#include "tag_output.h"
#include "text_width.h"

namespace leaf::cmd {
namespace {

struct TagExportOptions {
  std::optional<std::string> pattern;
  bool no_max_id = false;
  TagPlace place;
};

Result<void> RunTagExport(CommandContext& context, const TagExportOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, options.place, Store::Access::kLook, "tag export"));
  LEAF_ASSIGN_OR_RETURN(auto rows, book->List());
  std::sort(rows.begin(), rows.end(),
            [](const core::TagRow& a, const core::TagRow& b) { return a.tag < b.tag; });
  if (options.pattern) {
    std::erase_if(rows, [&](const core::TagRow& row) { return !MatchesPattern(*options.pattern, row.tag); });
  }
  std::vector<WantedTag> wanted;
  for (const core::TagRow& row : rows) {
    auto tag = ToWantedTag(row, [&](const std::string& note) { context.Note(note); });
    if (!tag) continue;
    if (options.no_max_id) tag->max_id.reset();
    wanted.push_back(*std::move(tag));
  }
  if (!context.flags.json) {
    context.out.Write(FormatTagFile(wanted));
    return {};
  }
  Json tags = Json::array();
  for (const WantedTag& tag : wanted) {
    Json item{{"tag", tag.tag}};
    if (tag.max_id) item["max_id"] = std::to_string(*tag.max_id);
    if (tag.step) item["step"] = *tag.step;
    if (tag.order) item["order"] = core::TagOrderName(*tag.order);
    item["description"] = tag.description ? Json(*tag.description) : Json(nullptr);
    tags.push_back(std::move(item));
  }
  WriteJson(context, {{"tags", std::move(tags)}});
  return {};
}

}  // namespace

Run AddTagExport(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagExportOptions>();
  app.add_option("PATTERN", options->pattern, "Only tags like this, with the shell's * and ? and [...]");
  app.add_flag("--no-max-id", options->no_max_id, "Leave max_id out, for a file under version control");
  AddTagServerFlag(app, options->place);
  app.footer(
      "Prints TOML, or JSON with --json, for leafctl tag apply. The order is by tag, so that two exports can "
      "be compared.\n"
      "Examples:\n"
      "  leafctl tag export >tags.toml\n"
      "  leafctl tag export 'order*' --no-max-id");
  return [options](CommandContext& context) { return RunTagExport(context, *options); };
}

}  // namespace leaf::cmd
