// leafctl tag add
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/sys/process_name.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagAddOptions {
  std::string tag;
  std::string step = std::to_string(kStepDefault);
  std::optional<std::string> start;
  std::optional<std::string> description;
  bool if_absent = false;
  ConfirmFlags confirm;
};

Result<void> RunTagAdd(CommandContext& context, const TagAddOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateNewTag(options.tag));
  core::NewTag tag;
  tag.tag = options.tag;
  LEAF_ASSIGN_OR_RETURN(tag.step, ParseStep(options.step));
  if (options.start) {
    LEAF_ASSIGN_OR_RETURN(tag.start, ParseUnsigned("--start", *options.start, 0, kMaxIdLimit - 1));
  }
  if (options.description) LEAF_RETURN_IF_ERROR(ValidateDescription(*options.description));
  tag.description = options.description;

  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("add tag {}", Quoted(options.tag)), options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(context, options.tag));
  tag.mark = mark.end;
  ContextLogger log(context);
  LEAF_ASSIGN_OR_RETURN(const auto cluster,
                        embed::ClusterLink::Open(context, log, sys::ProcessName("tag add")));
  if (cluster) {
    // What was granted under this name is known to the cluster, even if this machine never saw it.
    const auto raised = cluster->RaiseMark(tag);
    if (!raised.ok()) return raised.error();
  }
  auto row = store->segments().Add(tag, options.confirm.mode());
  if (!row.ok() && row.error().code == ErrorCode::kAlreadyExists && options.if_absent) {
    // Only this very tag may stand in for it, not one that the collation takes for it.
    if (const auto existing = store->segments().Describe(options.tag); existing.ok()) {
      ReportChange(context, *existing, options.confirm.dry_run,
                   fmt::format("tag {} exists already", Quoted(options.tag)),
                   fmt::format("leave tag {} as it is", Quoted(options.tag)));
      return {};
    }
  }
  if (!row.ok()) return std::move(row).error();
  const std::string what =
      fmt::format("tag {}: step {}, first ID {}", Quoted(row->tag), row->step, row->max_id);
  ReportChange(context, *row, options.confirm.dry_run, fmt::format("added {}", what),
               fmt::format("add {}", what));
  return {};
}

}  // namespace

Run AddTagAdd(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagAddOptions>();
  app.add_option("TAG", options->tag, "The new tag: UTF-8, 1..128 characters, no '/'")->required();
  app.add_option("--step", options->step, "IDs of a grant")->type_name("N")->capture_default_str();
  app.add_option("--start", options->start,
                 "The first ID to issue (default 1, or above a removed tag's mark)")
      ->type_name("N");
  app.add_option("--description", options->description, "A note for people")->type_name("TEXT");
  app.add_flag("--if-absent", options->if_absent, "Success if the tag exists already");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer("Example: leafctl tag add pay --step 1000 --start 1");
  return [options](CommandContext& context) { return RunTagAdd(context, *options); };
}

}  // namespace leaf::cmd
