// leafctl tag add
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagAddOptions {
  std::vector<std::string> tags;
  std::optional<std::string> step;
  std::optional<std::string> start;
  std::optional<std::string> description;
  std::optional<std::string> order;
  std::vector<std::string> gone;
  bool if_absent = false;
  TagPlace place;
  ConfirmFlags confirm;
};

// What a row that exists already has otherwise than was asked for.
void NoteDifferences(CommandContext& context, const core::TagRow& row, const TagAddOptions& options,
                     const core::NewTag& wanted) {
  const auto note = [&](const std::string& what, const std::string& remedy) {
    context.Note(fmt::format("note: tag {} exists with {}\nhint: {}", Quoted(row.tag), what, remedy));
  };
  if (options.step && row.step != wanted.step) {
    note(fmt::format("step {}, not {}", row.step, wanted.step),
         TagCommand("set", row.tag, fmt::format("--step {}", wanted.step)));
  }
  if (options.description && row.description != options.description) {
    note(
        row.description ? fmt::format("the description '{}'", Printable(*row.description)) : "no description",
        TagCommand("set", row.tag, fmt::format("--description {}", ShellWord(*options.description))));
  }
  const bool is_awaited = row.strict && !row.strict->since;
  if (options.order &&
      (row.order() != wanted.order || (is_awaited && wanted.order == core::TagOrder::kStrict))) {
    note(row.order() == wanted.order ? "order strict, which not all nodes have acknowledged"
                                     : fmt::format("order {}, not {}", core::TagOrderName(row.order()),
                                                   core::TagOrderName(wanted.order)),
         TagCommand("set", row.tag, fmt::format("--order {}", core::TagOrderName(wanted.order))));
  }
  if (wanted.start && row.max_id >= 0 && static_cast<std::uint64_t>(row.max_id) < *wanted.start) {
    note(fmt::format("max_id {}, below --start {}", row.max_id, *wanted.start),
         TagCommand("advance", row.tag, fmt::format("--to {}", *wanted.start)));
  }
}

// Adds one tag, or finds it. Errors: as of TagBook::Add.
Result<Json> AddOne(CommandContext& context, TagBook& book, const TagAddOptions& options,
                    const core::NewTag& tag) {
  const bool dry_run = options.confirm.dry_run;
  auto row = book.Add(tag, options.confirm.mode());
  std::string text;
  if (!row.ok() && row.error().code == ErrorCode::kAlreadyExists && options.if_absent) {
    // Only this very tag may stand in for it, not one that the collation takes for it.
    auto existing = book.Describe(tag.tag);
    if (!existing.ok()) return std::move(row).error();
    NoteDifferences(context, *existing, options, tag);
    text = dry_run ? fmt::format("would leave tag {} as it is", Quoted(tag.tag))
                   : fmt::format("tag {} exists already", Quoted(tag.tag));
    row = std::move(existing);
  } else if (row.ok()) {
    text = fmt::format("{} tag {}: step {}, first ID {}{}", dry_run ? "would add" : "added", Quoted(row->tag),
                       row->step, row->max_id, row->strict ? ", " + OrderText(*row) : "");
  }
  if (!row.ok()) return std::move(row).error();
  if (!context.flags.json) context.Report(text);
  Json json = TagJson(*row);
  json["dry_run"] = dry_run;
  return json;
}

Result<void> RunTagAdd(CommandContext& context, const TagAddOptions& options) {
  for (const std::string& tag : options.tags) LEAF_RETURN_IF_ERROR(ValidateNewTag(tag));
  LEAF_RETURN_IF_ERROR(ValidateTags(options.tags));
  core::NewTag tag;
  LEAF_ASSIGN_OR_RETURN(tag.step, ParseStep(options.step.value_or(std::to_string(kStepDefault))));
  if (options.start) {
    LEAF_ASSIGN_OR_RETURN(tag.start, ParseUnsigned("--start", *options.start, 0, kMaxIdLimit - 1));
  }
  if (options.description) LEAF_RETURN_IF_ERROR(ValidateDescription(*options.description));
  tag.description = options.description;
  LEAF_ASSIGN_OR_RETURN(const auto order, ParseOrder(options.order, options.gone));
  tag.order = order.value_or(core::TagOrder::kTrend);
  tag.gone = options.gone;
  if (order) tag.wait = context.flags.timeout;

  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("add tag {}", QuotedList(options.tags)),
                               ConfirmName(options.tags)));
  TagPlace place = options.place;
  place.waits = tag.order == core::TagOrder::kStrict;
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, place, Store::AccessFor(options.confirm.dry_run), "tag add"));
  if (options.tags.size() > 1 && !options.confirm.dry_run) {
    // What would fail is found before the first of several is added.
    for (const std::string& name : options.tags) {
      tag.tag = name;
      const auto row = book->Add(tag, core::WriteMode::kDryRun);
      if (!row.ok() && !(row.error().code == ErrorCode::kAlreadyExists && options.if_absent))
        return row.error();
    }
  }
  return ForEachTag(context, options.tags, "added", [&](const std::string& name) {
    tag.tag = name;
    return AddOne(context, *book, options, tag);
  });
}

}  // namespace

Run AddTagAdd(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagAddOptions>();

  app.add_option("TAG", options->tags, "The new tag, or several: UTF-8, 1 to 128 characters, no '/'")
      ->required();
  app.add_option("--step", options->step, "How many IDs a grant has")
      ->type_name("N")
      ->default_str(std::to_string(kStepDefault));
  app.add_option("--start", options->start,
                 "The first ID to issue; 1 if not given, or above a removed tag's mark")
      ->type_name("N");
  app.add_option("--description", options->description, "A note for people")->type_name("TEXT");
  AddOrderFlags(app, options->order, options->gone);
  app.add_flag("--if-absent", options->if_absent, "Succeed if the tag already exists");
  AddTagServerFlags(app, options->place);
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(
      "Examples:\n"
      "  leafctl tag add pay\n"
      "  leafctl tag add pay order user --step 1000 --if-absent\n"
      "  leafctl tag add pay --start 5000001 --dry-run\n"
      "  leafctl tag add version --order strict");
  return [options](CommandContext& context) { return RunTagAdd(context, *options); };
}

}  // namespace leaf::cmd
