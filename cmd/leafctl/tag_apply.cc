// leafctl tag apply: makes the table as a file says. A plan first, then each change in a transaction of its
// own; run again, it does what is left.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "input_file.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_changes.h"
#include "tag_file.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

// What a severe plan is confirmed with, as of `tag repair --all`.
constexpr std::string_view kSevereName = "all";

struct TagApplyOptions {
  std::string file;
  bool prune = false;
  TagPlace place;
  ConfirmFlags confirm;
};

struct TagStep {
  enum class Action { kAdd, kSet, kAdvance, kRemove };
  Action action;
  std::string tag;
  std::string text;  // "add tag 'pay': step 1000, first ID 1"
  bool severe = false;
  core::NewTag add{};         // kAdd
  core::TagChange set{};      // kSet
  std::uint64_t advance = 0;  // kAdvance
  core::TagRow row{};         // kRemove: as it was seen
};

std::string_view NameOf(TagStep::Action action) {
  switch (action) {
    case TagStep::Action::kAdd:
      return "add";
    case TagStep::Action::kSet:
      return "set";
    case TagStep::Action::kAdvance:
      return "advance";
    case TagStep::Action::kRemove:
      break;
  }
  return "remove";
}

// `mark`: where a tag of this name had got to before it was removed.
TagStep PlanAdd(const WantedTag& wanted, std::uint64_t mark) {
  TagStep step{.action = TagStep::Action::kAdd, .tag = wanted.tag, .text = ""};
  step.add.tag = wanted.tag;
  step.add.step = wanted.step.value_or(kStepDefault);
  // max_id is "at least": what was granted before is passed over without being asked for.
  if (wanted.max_id && *wanted.max_id >= mark) step.add.start = wanted.max_id;
  step.add.description = wanted.description;
  step.add.order = wanted.order.value_or(core::TagOrder::kTrend);
  const std::uint64_t first = step.add.start.value_or(std::max<std::uint64_t>(mark, 1));
  const std::string why_far = first > mark ? WhyFarAbove(first) : "";
  step.severe = !why_far.empty();
  step.text = fmt::format("add tag {}: step {}, first ID {}{}{}", Quoted(wanted.tag), step.add.step, first,
                          step.add.order == core::TagOrder::kStrict ? ", order strict" : "", why_far);
  return step;
}

void PlanExisting(CommandContext& context, const WantedTag& wanted, const core::TagRow& row,
                  std::vector<TagStep>& plan) {
  TagStep set{.action = TagStep::Action::kSet, .tag = wanted.tag, .text = ""};
  std::string what;
  if (wanted.step && *wanted.step != row.step) {
    set.set.step = wanted.step;
    what = fmt::format("step {} instead of {}", *wanted.step, row.step);
  }
  if (wanted.description && wanted.description != row.description) {
    set.set.description = wanted.description;
    what += fmt::format("{}description {}", what.empty() ? "" : ", ", Quoted(*wanted.description));
  }
  const bool is_awaited = row.strict && !row.strict->since;
  if (wanted.order && (*wanted.order != row.order() || is_awaited)) {
    set.set.order = wanted.order;
    what += fmt::format(
        "{}order {} instead of {}", what.empty() ? "" : ", ", core::TagOrderName(*wanted.order),
        is_awaited ? "one that not all nodes have acknowledged" : core::TagOrderName(row.order()));
  }
  if (!what.empty()) {
    set.text = fmt::format("set tag {}: {}", Quoted(wanted.tag), what);
    plan.push_back(std::move(set));
  }
  if (!wanted.max_id) return;
  const std::uint64_t max_id = row.max_id > 0 ? static_cast<std::uint64_t>(row.max_id) : 0;
  if (*wanted.max_id < max_id) {
    context.Detail(fmt::format("tag {} keeps max_id {}, above the file's {}", Quoted(wanted.tag), row.max_id,
                               *wanted.max_id));
  } else if (*wanted.max_id > max_id) {
    plan.push_back({.action = TagStep::Action::kAdvance,
                    .tag = wanted.tag,
                    .text = AdvanceText(row, *wanted.max_id),
                    .severe = !WhyFar(row, *wanted.max_id).empty(),
                    .advance = *wanted.max_id});
  }
}

// Additions and changes first: if a removal fails, nothing is missing that the file has.
Result<std::vector<TagStep>> MakePlan(CommandContext& context, TagBook& book,
                                      const std::vector<WantedTag>& wanted, bool prune) {
  LEAF_ASSIGN_OR_RETURN(const auto rows, book.List());
  std::map<std::string_view, const core::TagRow*> by_tag;
  for (const core::TagRow& row : rows) by_tag.emplace(row.tag, &row);
  std::vector<TagStep> plan;
  std::set<std::string_view> named;
  for (const WantedTag& tag : wanted) {
    named.insert(tag.tag);
    const auto row = by_tag.find(tag.tag);
    if (row != by_tag.end()) {
      PlanExisting(context, tag, *row->second, plan);
      continue;
    }
    LEAF_RETURN_IF_ERROR(ValidateNewTag(tag.tag));
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t mark, book.KnownMark(tag.tag));
    plan.push_back(PlanAdd(tag, mark));
  }
  for (const auto& [tag, row] : by_tag) {
    if (!prune || named.count(tag) > 0) continue;
    plan.push_back({.action = TagStep::Action::kRemove,
                    .tag = std::string(tag),
                    .text = fmt::format("remove tag {} (max_id {})", Quoted(tag), row->max_id),
                    .severe = true,
                    .row = *row});
  }
  return plan;
}

Result<void> TakeStep(TagBook& book, const TagStep& step, core::WriteMode mode) {
  const auto forget_value = [](const auto& result) -> Result<void> {
    if (!result.ok()) return result.error();
    return {};
  };
  switch (step.action) {
    case TagStep::Action::kAdd:
      return forget_value(book.Add(step.add, mode));
    case TagStep::Action::kSet:
      return forget_value(book.Change(step.tag, step.set, mode));
    case TagStep::Action::kAdvance:
      return forget_value(book.Advance(step.tag, step.advance, mode));
    case TagStep::Action::kRemove:
      break;
  }
  return forget_value(book.Remove(step.row, mode));
}

void WritePlanJson(CommandContext& context, const std::vector<TagStep>& plan, bool dry_run) {
  Json changes = Json::array();
  for (const TagStep& step : plan)
    changes.push_back({{"action", NameOf(step.action)}, {"tag", step.tag}, {"text", step.text}});
  WriteJson(context, {{"changes", std::move(changes)}, {"dry_run", dry_run}});
}

Result<void> RunTagApply(CommandContext& context, const TagApplyOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const std::string content, ReadInputFile(context, options.file));
  LEAF_ASSIGN_OR_RETURN(const std::vector<WantedTag> wanted,
                        ReadTagFile(content, options.file == "-" ? "stdin" : options.file));
  LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "make any change", kSevereName));
  const bool dry_run = options.confirm.dry_run;
  TagPlace place = options.place;
  place.waits = std::any_of(wanted.begin(), wanted.end(),
                            [](const WantedTag& tag) { return tag.order == core::TagOrder::kStrict; });
  LEAF_ASSIGN_OR_RETURN(const auto book, OpenTagBook(context, place, Store::AccessFor(dry_run), "tag apply"));
  LEAF_ASSIGN_OR_RETURN(std::vector<TagStep> plan, MakePlan(context, *book, wanted, options.prune));
  for (TagStep& step : plan) step.add.wait = step.set.wait = context.flags.timeout;
  if (plan.empty()) {
    if (context.flags.json) {
      WritePlanJson(context, plan, dry_run);
    } else {
      context.Report("nothing to change");
    }
    return {};
  }
  bool severe = false;
  std::string lines;
  for (const TagStep& step : plan) {
    severe = severe || step.severe;
    lines += fmt::format("would {}\n", step.text);
    // What would fail is found before the first change is made.
    LEAF_RETURN_IF_ERROR(TakeStep(*book, step, core::WriteMode::kDryRun));
  }
  if (dry_run) {
    if (context.flags.json) {
      WritePlanJson(context, plan, true);
    } else if (!context.flags.quiet) {
      context.out.Write(lines);
    }
    return {};
  }
  const bool asks = options.confirm.confirm.empty() && !(options.confirm.yes && !severe);
  if (asks && !context.flags.quiet) LEAF_RETURN_IF_ERROR(context.Tell(lines));
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, severe ? Severity::kSevere : Severity::kDestructive,
                               fmt::format("make {} change{}", plan.size(), plan.size() == 1 ? "" : "s"),
                               kSevereName));
  std::size_t done = 0;
  Result<void> result;
  for (const TagStep& step : plan) {
    result = TakeStep(*book, step, core::WriteMode::kCommit);
    if (!result.ok()) break;
    ++done;
    if (!context.flags.json) context.Report(fmt::format("done: {}", step.text));
  }
  if (result.ok()) {
    if (context.flags.json) WritePlanJson(context, plan, false);
    return {};
  }
  Error error = std::move(result).error();
  error.message = fmt::format("{} of {} changes were made{}, then: {}: {}", done, plan.size(),
                              error.code == ErrorCode::kOutcomeUnknown ? ", and perhaps one more" : "",
                              plan[done].text, error.message);
  // Another program may have made that change meanwhile: a new plan knows.
  if (error.hint.empty() || error.code == ErrorCode::kAlreadyExists || error.code == ErrorCode::kNotFound)
    error.hint = "run it again for the rest";
  return error;
}

}  // namespace

Run AddTagApply(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagApplyOptions>();
  app.add_option("-f,--file", options->file, "TOML or JSON, as leafctl tag export writes it; '-' reads stdin")
      ->type_name("FILE")
      ->check(NotEmpty)
      ->required();
  app.add_flag("--prune", options->prune, "Also remove the tags that FILE does not have");
  AddTagServerFlags(app, options->place);
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Adds tags that are missing and changes step, description and order where they differ; max_id only "
      "moves "
      "up. "
      "Shows the plan and asks, and with --yes does not ask. A plan that removes a tag, or jumps over more "
      "than 1000 steps of one, needs the name 'all' typed, or --confirm all. Running it again changes "
      "nothing.\n"
      "Examples:\n"
      "  leafctl tag apply -f tags.toml --dry-run\n"
      "  leafctl tag apply -f tags.toml --yes\n"
      "  leafctl tag apply -f tags.toml --prune --confirm all");
  return [options](CommandContext& context) { return RunTagApply(context, *options); };
}

}  // namespace leaf::cmd
