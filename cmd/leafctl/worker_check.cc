// leafctl worker check
#include <fmt/format.h>

#include "commands.h"
#include "leaf/base/text.h"
#include "worker_output.h"
#include "worker_source.h"

namespace leaf::cmd {
namespace {

Result<void> RunWorkerCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto source, WorkerSource::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const core::WorkerInspection inspection, source->Inspect());
  const auto& findings = inspection.findings;
  if (context.flags.json) {
    Json json = WorkerHeading(*source);
    json["ok"] = findings.empty();
    json["findings"] = Json::array();
    for (const core::WorkerFinding& finding : findings) json["findings"].push_back(FindingJson(finding));
    WriteJson(context, json);
  } else {
    for (const core::WorkerFinding& finding : findings) context.out.Write(FindingText(finding));
    if (findings.empty()) {
      context.out.Write(fmt::format("ok: nothing is wrong with the {} worker number{} of {}\n",
                                    inspection.entries.size(), inspection.entries.size() == 1 ? "" : "s",
                                    source->cluster().empty() ? "this node" : Printable(source->cluster())));
    }
  }
  if (findings.empty()) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("{} finding{} about the worker numbers of {}", findings.size(),
                           findings.size() == 1 ? "" : "s", Printable(source->cluster())),
               ""};
}

}  // namespace

Run AddWorkerCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Each finding has a code, a cause, a consequence and a remedy. Exit code 10 if there is any.\n"
      "Example: leafctl worker check --json");
  return [](CommandContext& context) { return RunWorkerCheck(context); };
}

}  // namespace leaf::cmd
