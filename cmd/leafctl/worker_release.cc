// leafctl worker release
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

struct WorkerReleaseOptions {
  std::string worker;
  ConfirmFlags confirm;
};

void Report(CommandContext& context, const inspect::WorkerSource& source, std::uint64_t worker, bool released,
            bool dry_run, const std::string& text) {
  if (!context.flags.json) {
    context.Report(text);
    return;
  }
  Json json = WorkerHeading(source);
  json["worker"] = worker;
  json["released"] = released && !dry_run;
  json["dry_run"] = dry_run;
  WriteJson(context, json);
}

Result<void> RunWorkerRelease(CommandContext& context, const WorkerReleaseOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t worker,
                        ParseUnsigned("WORKER", options.worker, 0, std::numeric_limits<std::int64_t>::max()));
  const bool dry_run = options.confirm.dry_run;
  LEAF_ASSIGN_OR_RETURN(const auto source,
                        inspect::WorkerSource::Open(context, embed::Store::AccessFor(dry_run)));
  LEAF_ASSIGN_OR_RETURN(const auto step, source->PlanRelease(worker));
  if (!step) {
    Report(context, *source, worker, false, dry_run, fmt::format("worker {} has no owner", worker));
    return {};
  }
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kSevere, step->what, source->cluster()));
  if (!dry_run) {
    LEAF_ASSIGN_OR_RETURN(const bool done, source->Apply(*step));
    if (!done) {
      return Error{
          ErrorCode::kRefused,
          fmt::format("did not release worker {}: its record has changed meanwhile, or its node has started",
                      worker),
          "leafctl worker show " + options.worker};
    }
  }
  Report(context, *source, worker, true, dry_run,
         dry_run ? fmt::format("would {}; its ceiling stays", step->what)
                 : fmt::format("released worker {}; its ceiling stays, so its next owner repeats no IDs",
                               worker));
  return {};
}

}  // namespace

Run AddWorkerRelease(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<WorkerReleaseOptions>();
  app.add_option("WORKER", options->worker, "The worker number")->required();
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "For a node that is gone for good or has lost its state directory: another node may then take its "
      "number. Refused while the node is live. A node with a fixed number continues while it is cut off "
      "from the registry, so make sure that it is stopped. The name to confirm is the cluster's.\n"
      "Examples:\n"
      "  leafctl worker release 7 --confirm pay");
  return [options](CommandContext& context) { return RunWorkerRelease(context, *options); };
}

}  // namespace leaf::cmd
