// leafctl tag set
#include <fmt/format.h>

#include <memory>
#include <optional>
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

struct TagSetOptions {
  std::vector<std::string> tags;
  std::optional<std::string> step;
  std::optional<std::string> description;
  std::optional<std::string> order;
  std::vector<std::string> gone;
  TagPlace place;
  ConfirmFlags confirm;
};

Result<void> RunTagSet(CommandContext& context, const TagSetOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTags(options.tags));
  core::TagChange change;
  if (options.step) {
    LEAF_ASSIGN_OR_RETURN(change.step, ParseStep(*options.step));
  }
  if (options.description) LEAF_RETURN_IF_ERROR(ValidateDescription(*options.description));
  change.description = options.description;
  LEAF_ASSIGN_OR_RETURN(change.order, ParseOrder(options.order, options.gone));
  change.gone = options.gone;
  if (change.order) change.wait = context.flags.timeout;
  if (!change.changes_row() && !change.order) {
    return Error{ErrorCode::kInvalidArgument, "nothing to set", "give --step, --description or --order"};
  }
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("change tag {}", QuotedList(options.tags)),
                               ConfirmName(options.tags)));
  TagPlace place = options.place;
  place.waits = change.order == core::TagOrder::kStrict;
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, place, Store::AccessFor(options.confirm.dry_run), "tag set"));
  // A missing tag is an error before the first of several tags is changed.
  for (const std::string& tag : options.tags) LEAF_RETURN_IF_ERROR(book->Describe(tag));
  return ForEachTag(context, options.tags, "changed", [&](const std::string& tag) -> Result<Json> {
    LEAF_ASSIGN_OR_RETURN(const core::TagRow row, book->Change(tag, change, options.confirm.mode()));
    const bool dry_run = options.confirm.dry_run;
    if (!context.flags.json) {
      context.Report(
          fmt::format("{} tag {}: step {}{}{}", dry_run ? "would set" : "set", Quoted(row.tag), row.step,
                      row.description ? fmt::format(", description {}", Quoted(*row.description)) : "",
                      change.order ? ", " + OrderText(row) : ""));
    }
    Json json = TagJson(row);
    json["dry_run"] = dry_run;
    return json;
  });
}

}  // namespace

Run AddTagSet(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagSetOptions>();
  app.add_option("TAG", options->tags, "The tag, or several")->required();
  app.add_option("--step", options->step,
                 "How many IDs a grant has; running daemons use it from their next grant on")
      ->type_name("N");
  app.add_option("--description", options->description, "A note for people")->type_name("TEXT");
  AddOrderFlags(app, options->order, options->gone);
  AddTagServerFlags(app, options->place);
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(
      "Examples:\n"
      "  leafctl tag set pay --step 5000\n"
      "  leafctl tag set pay --description 'payments, team billing'\n"
      "  leafctl tag set pay --order strict");
  return [options](CommandContext& context) { return RunTagSet(context, *options); };
}

}  // namespace leaf::cmd
