// leafctl tag set
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/text.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagSetOptions {
  std::string tag;
  std::optional<std::string> step;
  std::optional<std::string> description;
  ConfirmFlags confirm;
};

Result<void> RunTagSet(CommandContext& context, const TagSetOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  core::TagChange change;
  if (options.step) {
    LEAF_ASSIGN_OR_RETURN(change.step, ParseStep(*options.step));
  }
  if (options.description) LEAF_RETURN_IF_ERROR(ValidateDescription(*options.description));
  change.description = options.description;
  if (!change.step && !change.description) {
    return Error{ErrorCode::kInvalidArgument, "nothing to set", "give --step or --description"};
  }
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("change tag {}", Quoted(options.tag)), options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row,
                        store->segments().Update(options.tag, change, options.confirm.mode()));
  const std::string what =
      fmt::format("tag {}: step {}{}", Quoted(row.tag), row.step,
                  row.description ? fmt::format(", description '{}'", *row.description) : "");
  ReportChange(context, row, options.confirm.dry_run, fmt::format("set {}", what),
               fmt::format("set {}", what));
  return {};
}

}  // namespace

Run AddTagSet(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagSetOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.add_option("--step", options->step, "IDs of a grant; running daemons use it from their next grant on")
      ->type_name("N");
  app.add_option("--description", options->description, "A note for people")->type_name("TEXT");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer("Example: leafctl tag set pay --step 5000");
  return [options](CommandContext& context) { return RunTagSet(context, *options); };
}

}  // namespace leaf::cmd
