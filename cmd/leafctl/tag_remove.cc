// leafctl tag remove
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagRemoveOptions {
  std::vector<std::string> tags;
  bool if_present = false;
  TagPlace place;
  ConfirmFlags confirm;
};

Result<Json> RemoveOne(CommandContext& context, TagBook& book, const core::TagRow& row, bool dry_run) {
  LEAF_ASSIGN_OR_RETURN(const core::TagRow removed,
                        book.Remove(row, dry_run ? core::WriteMode::kDryRun : core::WriteMode::kCommit));
  if (!context.flags.json) {
    context.Report(fmt::format("{} tag {}; a new tag of this name continues at {} or above",
                               dry_run ? "would remove" : "removed", Quoted(removed.tag),
                               std::max<std::int64_t>(removed.max_id, 1)));
  }
  Json json = TagJson(removed);
  json["removed"] = !dry_run;
  json["dry_run"] = dry_run;
  return json;
}

Result<void> RunTagRemove(CommandContext& context, const TagRemoveOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTags(options.tags));
  LEAF_ASSIGN_OR_RETURN(
      const auto book,
      OpenTagBook(context, options.place, Store::AccessFor(options.confirm.dry_run), "tag remove"));
  // Looked at before the user is asked: there is nothing to confirm about a tag that does not exist.
  std::map<std::string, core::TagRow> rows;
  std::string found;
  for (const std::string& tag : options.tags) {
    auto row = book->Describe(tag);
    if (!row.ok() && row.error().code == ErrorCode::kNotFound && options.if_present) continue;
    if (!row.ok()) {
      Error error = std::move(row).error();
      if (error.code == ErrorCode::kNotFound)
        error.hint = "leafctl tag list shows the tags; with --if-present this is no error";
      return error;
    }
    found += fmt::format("{}{} (max_id {})", found.empty() ? "" : ", ", Quoted(tag), row->max_id);
    rows.emplace(tag, *std::move(row));
  }
  if (!rows.empty()) {
    LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kDestructive,
                                 fmt::format("remove tag {}", found), ConfirmName(options.tags)));
  } else {
    LEAF_RETURN_IF_ERROR(CheckName(options.confirm, fmt::format("remove tag {}", QuotedList(options.tags)),
                                   ConfirmName(options.tags)));
  }
  return ForEachTag(context, options.tags, "removed", [&](const std::string& tag) -> Result<Json> {
    const auto row = rows.find(tag);
    if (row != rows.end()) return RemoveOne(context, *book, row->second, options.confirm.dry_run);
    if (!context.flags.json) context.Report(fmt::format("tag {} does not exist", Quoted(tag)));
    return Json{{"tag", tag}, {"removed", false}, {"dry_run", options.confirm.dry_run}};
  });
}

}  // namespace

Run AddTagRemove(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagRemoveOptions>();
  app.add_option("TAG", options->tags, "The tag, or several")->required();
  app.add_flag("--if-present", options->if_present, "Succeed if there is no such tag");
  AddTagServerFlags(app, options->place);
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Running daemons stop serving the tag within segment.refresh_interval. Its mark is kept, so that a "
      "new tag of this name continues above it.\n"
      "Examples:\n"
      "  leafctl tag remove pay --yes");
  return [options](CommandContext& context) { return RunTagRemove(context, *options); };
}

}  // namespace leaf::cmd
