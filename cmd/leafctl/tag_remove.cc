// leafctl tag remove
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/text.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagRemoveOptions {
  std::string tag;
  bool if_present = false;
  ConfirmFlags confirm;
};

Result<void> RunTagRemove(CommandContext& context, const TagRemoveOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  // Looked at before the user is asked: there is nothing to confirm about a tag that does not exist.
  auto row = store->segments().Describe(options.tag);
  if (!row.ok() && row.error().code == ErrorCode::kNotFound && options.if_present) {
    if (context.flags.json) {
      WriteJson(context, {{"tag", options.tag}, {"removed", false}, {"dry_run", options.confirm.dry_run}});
    } else {
      context.Report(fmt::format("tag {} does not exist", Quoted(options.tag)));
    }
    return {};
  }
  if (!row.ok()) return std::move(row).error();
  const std::string action = fmt::format("remove tag {} (max_id {})", Quoted(options.tag), row->max_id);
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kDestructive, action, options.tag));
  const std::uint64_t end = row->max_id > 0 ? static_cast<std::uint64_t>(row->max_id) : 0;
  if (!options.confirm.dry_run) {
    // First, so that a crash between the two forgets nothing. Grants in between are the removal's own to
    // remember.
    LEAF_ASSIGN_OR_RETURN(const auto marks, OpenMarks(context, "tag remove"));
    LEAF_RETURN_IF_ERROR(marks->Raise({options.tag, end, std::nullopt}));
  }
  LEAF_ASSIGN_OR_RETURN(const auto removal, store->segments().Remove(options.tag, options.confirm.mode()));
  if (!removal.mark_remembered && !options.confirm.dry_run) {
    context.Note(
        fmt::format("leafctl: warning: the database has no table leafctl_removed_tags: only this state "
                    "directory remembers that the tag was at {}",
                    removal.row.max_id));
  }
  if (context.flags.json) {
    Json json = TagJson(removal.row);
    json["removed"] = !options.confirm.dry_run;
    json["dry_run"] = options.confirm.dry_run;
    WriteJson(context, json);
  } else {
    context.Report(fmt::format("{} tag {}; adding it again continues at {}",
                               options.confirm.dry_run ? "would remove" : "removed", Quoted(removal.row.tag),
                               removal.row.max_id));
  }
  return {};
}

}  // namespace

Run AddTagRemove(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagRemoveOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.add_flag("--if-present", options->if_present, "Success if there is no such tag");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Running daemons stop serving it within segment.refresh_interval.\nExample: leafctl tag remove pay "
      "--yes");
  return [options](CommandContext& context) { return RunTagRemove(context, *options); };
}

}  // namespace leaf::cmd
