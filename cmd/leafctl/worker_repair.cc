// leafctl worker repair
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/text.h"
#include "repair_record.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

struct WorkerRepairOptions {
  bool java_retired = false;
  ConfirmFlags confirm;
};

constexpr std::string_view kDone = "done";
constexpr std::string_view kSkipped = "skipped";
constexpr std::string_view kPlanned = "planned";

// Text mode: the plan, and what is left alone.
void PrintPlan(CommandContext& context, const inspect::WorkerInspection& inspection) {
  if (inspection.steps.empty()) context.out.Write("nothing to repair\n");
  int number = 0;
  for (const inspect::RepairStep& step : inspection.steps) {
    context.out.Write(
        fmt::format("{}. {}\n   why: {}\n", ++number, Printable(step.what), Printable(step.why)));
  }
  for (const inspect::WorkerFinding& finding : inspection.findings) {
    if (finding.repairable) continue;
    context.out.Write(fmt::format("left alone: {}: {}\n   why: {}\n   remedy: {}\n", finding.code,
                                  Printable(finding.subject), Printable(finding.left),
                                  Printable(finding.remedy)));
  }
}

void PrintJson(CommandContext& context, const inspect::WorkerSource& source,
               const inspect::WorkerInspection& inspection, const std::vector<std::string_view>& outcomes,
               const std::string& record, bool dry_run) {
  Json json = WorkerHeading(source);
  json["dry_run"] = dry_run;
  json["record"] = record.empty() ? Json(nullptr) : Json(record);
  json["steps"] = Json::array();
  for (std::size_t i = 0; i < inspection.steps.size(); ++i) {
    Json step = StepJson(inspection.steps[i]);
    step["outcome"] = i < outcomes.size() ? outcomes[i] : kPlanned;
    json["steps"].push_back(std::move(step));
  }
  json["left"] = Json::array();
  for (const inspect::WorkerFinding& finding : inspection.findings) {
    if (!finding.repairable) json["left"].push_back(FindingJson(finding));
  }
  WriteJson(context, json);
}

Result<void> RunWorkerRepair(CommandContext& context, const WorkerRepairOptions& options) {
  const bool dry_run = options.confirm.dry_run;
  LEAF_ASSIGN_OR_RETURN(const auto source,
                        inspect::WorkerSource::Open(context, embed::Store::AccessFor(dry_run)));
  LEAF_ASSIGN_OR_RETURN(const inspect::WorkerInspection inspection,
                        source->InspectForRepair(options.java_retired));
  const auto& steps = inspection.steps;
  LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "repair cluster " + source->cluster(), source->cluster()));
  if (!context.flags.json) PrintPlan(context, inspection);
  if (dry_run || steps.empty()) {
    if (context.flags.json) PrintJson(context, *source, inspection, {}, "", dry_run);
    return {};
  }
  // The plan has to be on the screen before the user is asked about it.
  LEAF_RETURN_IF_ERROR(context.out.Flush());
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kDestructive,
                               fmt::format("do {} step{} in cluster {}", steps.size(),
                                           steps.size() == 1 ? "" : "s", source->cluster()),
                               source->cluster()));
  LEAF_ASSIGN_OR_RETURN(const std::string record, WriteRepairRecord(context, *source, steps));
  context.Note(fmt::format("saved the records that will change in {}", record));

  std::vector<std::string_view> outcomes;
  std::size_t skipped = 0;
  Result<void> result;
  for (std::size_t i = 0; i < steps.size() && result.ok(); ++i) {
    const auto applied = source->Apply(steps[i]);
    if (!applied.ok()) {
      // Whether an unknown outcome happened, the next look will tell: the steps are conditional.
      result = Error{
          applied.error().code,
          fmt::format("repair stopped at step {} of {}: {}", i + 1, steps.size(), applied.error().message),
          "run it again: it continues where this run stopped"};
      break;
    }
    outcomes.push_back(*applied ? kDone : kSkipped);
    if (!*applied) ++skipped;
    if (!context.flags.json) {
      context.out.Write(fmt::format("{}. {}\n", i + 1,
                                    *applied ? "done" : "skipped: it has changed since the plan was made"));
    }
  }
  if (context.flags.json) PrintJson(context, *source, inspection, outcomes, record, dry_run);
  if (!result.ok() || skipped == 0) return result;
  return Error{ErrorCode::kRefused,
               fmt::format("{} of {} steps skipped: their records have changed since the plan was made",
                           skipped, steps.size()),
               "run it again"};
}

}  // namespace

Run AddWorkerRepair(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<WorkerRepairOptions>();
  app.add_flag("--java-retired", options->java_retired,
               "State that no Java node of the cluster will ever start again, so that reported times in the "
               "future may be lowered");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Shows its plan and asks. It never lowers a ceiling and never removes what a Java node still needs; "
      "it gives the reason for each problem that it leaves. Each step happens only if the data is still "
      "as it was read, and is first written to <state_dir>/repairs. Exit code 11 if a step was skipped.\n"
      "Examples:\n"
      "  leafctl worker repair --dry-run");
  return [options](CommandContext& context) { return RunWorkerRepair(context, *options); };
}

}  // namespace leaf::cmd
