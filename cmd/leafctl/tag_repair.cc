// leafctl tag repair
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "repair_site.h"
#include "tag_marks.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagRepairOptions {
  std::string tag;
  bool all = false;
  std::optional<std::string> to;
  ConfirmFlags confirm;
};

// What has to be typed for --all.
constexpr std::string_view kAll = "all";

// ---- output

std::string MarkText(const KnownMark& mark) {
  if (mark.end == 0) return fmt::format("  {}: no mark", mark.where);
  std::string text = fmt::format("  {}: granted up to {}", mark.where, mark.end);
  if (!mark.raised_by.empty()) {
    text += mark.raised_at.empty() ? fmt::format(", by {}", mark.raised_by)
                                   : fmt::format(", at {} by {}", mark.raised_at, mark.raised_by);
  }
  if (!mark.frozen_since.empty()) {
    text += fmt::format("; frozen there since {}, when max_id was {}", mark.frozen_since, mark.max_id_seen);
  }
  return text;
}

// Text mode: a line of the plan. It is the result of a dry run, and else a message before the question.
void Explain(CommandContext& context, bool dry_run, const std::string& line) {
  if (context.flags.json) return;
  if (dry_run) {
    context.Report(line);
  } else {
    context.Note(line);
  }
}

void ExplainEvidence(CommandContext& context, bool dry_run, const Evidence& evidence) {
  Explain(context, dry_run,
          fmt::format("tag {}: the table says max_id {} (last changed {})", Quoted(evidence.row.tag),
                      evidence.row.max_id, FormatRfc3339(evidence.row.update_time)));
  for (const KnownMark& mark : evidence.known) Explain(context, dry_run, MarkText(mark));
}

void WarnOf(CommandContext& context, const Missing& missing) {
  context.Note(fmt::format("leafctl: warning: {}", MissingText(missing)));
}

std::string RepairedText(const core::TagRow& row) {
  return fmt::format("repaired tag {}: the next grant begins at {}; daemons thaw at their next refresh",
                     Quoted(row.tag), row.max_id);
}

// ---- one tag

Result<void> RepairOne(CommandContext& context, const TagRepairOptions& options, RepairSite& site) {
  const bool dry_run = options.confirm.dry_run;
  std::uint64_t target = 0;
  if (options.to) {
    LEAF_ASSIGN_OR_RETURN(target, ParseUnsigned("--to", *options.to, 0, kMaxIdLimit));
  }
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, site.Describe(options.tag));
  LEAF_RETURN_IF_ERROR(site.Open());
  LEAF_ASSIGN_OR_RETURN(const Evidence evidence, site.Collect(row));
  ExplainEvidence(context, dry_run, evidence);
  for (const Missing& missing : evidence.missing) WarnOf(context, missing);
  if (!evidence.missing.empty() && !options.to)
    return RefusalOf("tag " + Quoted(options.tag), evidence.missing.front(), options.tag);
  target = std::max(target, evidence.highest());

  core::TagRow after = row;
  std::string text = fmt::format("{}: max_id {} is above every known mark",
                                 dry_run ? "would change nothing" : "nothing to repair", row.max_id);
  if (evidence.IsBelow(target)) {
    const std::string action = MoveText(evidence, target);
    LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kSevere, action, options.tag));
    LEAF_ASSIGN_OR_RETURN(after, site.Move(options.tag, target, options.confirm.mode()));
    text = dry_run ? "would " + action : RepairedText(after);
  } else {
    LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "repair tag " + Quoted(options.tag), options.tag));
  }
  if (context.flags.json) {
    Json json = RepairJson(evidence, after);
    json["dry_run"] = dry_run;
    WriteJson(context, json);
  } else {
    context.Report(text);
  }
  return {};
}

// ---- all tags

// Those whose max_id is below a mark. Errors: kRefused if a mark of any tag is not known.
Result<std::vector<Evidence>> PlanAll(CommandContext& context, const std::vector<core::TagRow>& rows,
                                      RepairSite& site) {
  std::vector<Evidence> plan;
  std::map<std::string, Missing> missing;  // each once, not tag by tag
  std::string tag;                         // the first that one is missing of
  for (const core::TagRow& row : rows) {
    LEAF_ASSIGN_OR_RETURN(Evidence evidence, site.Collect(row));
    if (!evidence.missing.empty() && tag.empty()) tag = row.tag;
    for (const Missing& one : evidence.missing) missing.emplace(one.whose, one);
    if (evidence.IsBelow(evidence.highest())) plan.push_back(std::move(evidence));
  }
  for (const auto& [whose, one] : missing) WarnOf(context, one);
  if (!missing.empty()) return RefusalOf("all tags", missing.begin()->second, tag);
  return plan;
}

void PrintAllJson(CommandContext& context, const std::vector<Evidence>& plan,
                  const std::vector<core::TagRow>& repaired, std::size_t examined, bool dry_run) {
  Json json{{"dry_run", dry_run}, {"examined", examined}, {"tags", Json::array()}};
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool done = i < repaired.size();
    Json tag = RepairJson(plan[i], done ? repaired[i] : plan[i].row);
    tag["to"] = std::to_string(plan[i].highest());
    tag["outcome"] = done && !dry_run ? "repaired" : "planned";
    json["tags"].push_back(std::move(tag));
  }
  WriteJson(context, json);
}

Result<void> RepairAll(CommandContext& context, const TagRepairOptions& options, RepairSite& site) {
  const bool dry_run = options.confirm.dry_run;
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::TagRow> rows, site.List());
  LEAF_RETURN_IF_ERROR(site.Open());
  LEAF_ASSIGN_OR_RETURN(const std::vector<Evidence> plan, PlanAll(context, rows, site));
  const std::string count = fmt::format("{} tag{}", plan.size(), plan.size() == 1 ? "" : "s");
  for (const Evidence& evidence : plan) {
    ExplainEvidence(context, dry_run, evidence);
    Explain(context, dry_run, "  " + MoveText(evidence, evidence.highest()));
  }
  if (plan.empty()) {
    LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "repair all tags", kAll));
    if (!context.flags.json) {
      context.Report(
          fmt::format("nothing to repair: none of {} tags has a max_id below a known mark", rows.size()));
    }
  }
  std::vector<core::TagRow> repaired;
  Result<void> result;
  if (!plan.empty()) {
    LEAF_RETURN_IF_ERROR(
        Confirm(context, options.confirm, Severity::kSevere, fmt::format("move {} up", count), kAll));
  }
  for (std::size_t i = 0; i < plan.size() && !dry_run; ++i) {
    auto row = site.Move(plan[i].row.tag, plan[i].highest(), options.confirm.mode());
    if (!row.ok()) {
      result = Error{row.error().code,
                     fmt::format("repair stopped at tag {}, {} of {}: {}", Quoted(plan[i].row.tag), i + 1,
                                 plan.size(), row.error().message),
                     "run it again: it continues where this run stopped"};
      break;
    }
    if (!context.flags.json) context.Report(RepairedText(*row));
    repaired.push_back(*std::move(row));
  }
  if (context.flags.json) PrintAllJson(context, plan, repaired, rows.size(), dry_run);
  return result;
}

Result<void> RunTagRepair(CommandContext& context, const TagRepairOptions& options) {
  if (options.all != options.tag.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 options.all ? "--all and a TAG exclude each other" : "no TAG is given",
                 "leafctl tag repair TAG, or leafctl tag repair --all"};
  }
  if (options.all && options.to)
    return Error{ErrorCode::kInvalidArgument, "--all and --to exclude each other", "--to is for one TAG"};
  if (!options.all) LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto site, OpenRepairSite(context, options.confirm.dry_run));
  return options.all ? RepairAll(context, options, *site) : RepairOne(context, options, *site);
}

}  // namespace

Run AddTagRepair(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<TagRepairOptions>();
  app.add_option("TAG", options->tag, "The tag");
  app.add_flag("--all", options->all, "All tags that need repair, in one plan; the name to confirm is 'all'");
  app.add_option("--to", options->to, "Move max_id at least here, for a lost node that held a higher mark")
      ->type_name("N");
  AddServerFlag(app, context,
                "Daemon to ask for its marks; the first one makes the repair if it serves another store than "
                "the one configured here");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Marks are collected from this state directory, the database, every named (or found) daemon and, "
      "with segment.fence = cluster, the witness in ZooKeeper and all daemons that are registered there.\n"
      "Examples:\n"
      "  leafctl tag repair pay --dry-run\n"
      "  leafctl tag repair pay --server http://10.0.0.1:8080 --confirm pay");
  return [options](CommandContext& run_context) { return RunTagRepair(run_context, *options); };
}

}  // namespace leaf::cmd
