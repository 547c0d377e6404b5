// leafctl worker adopt
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/sys/boot_id.h"
#include "leaf/sys/state_dir.h"
#include "tag_output.h"
#include "worker_state.h"

namespace leaf::cmd {
namespace {

struct WorkerAdoptOptions {
  std::string worker;
  ConfirmFlags confirm;
};

Result<void> RunWorkerAdopt(CommandContext& context, const WorkerAdoptOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t worker,
                        ParseUnsigned("WORKER", options.worker, 0, std::numeric_limits<std::int64_t>::max()));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const std::string& state_dir = resolved->config.state_dir;
  sys::FileOps file_ops;
  sys::WorkerStateFile state_file(state_dir, file_ops);
  // Before the lock, whose file would be made.
  LEAF_RETURN_IF_ERROR(LoadWorkerState(state_file, state_dir));
  LEAF_ASSIGN_OR_RETURN(const sys::StateDirLock lock,
                        sys::StateDirLock::Take(state_dir, sys::StateDirUse::kCommand));
  LEAF_ASSIGN_OR_RETURN(core::WorkerState state, LoadWorkerState(state_file, state_dir));
  if (*state.worker != worker) {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot adopt worker {}: state directory {} belongs to worker {}", worker,
                             state_dir, *state.worker),
                 ""};
  }
  if (state.cluster.registry != "static") {
    return Error{
        ErrorCode::kRefused,
        fmt::format("cannot adopt worker {}: its number comes from the registry {}, which watches whether "
                    "the original of a copy is alive",
                    worker, state.cluster.registry),
        "start leafctl with this directory: nothing has to be adopted"};
  }
  const std::string place = sys::ReadPlaceId(state_dir);
  const bool adopts = !core::IsSamePlace(state.machine, place);
  if (adopts) {
    LEAF_RETURN_IF_ERROR(
        Confirm(context, options.confirm, Severity::kSevere,
                fmt::format("continue as worker {} of {} with a state directory that may be a copy", worker,
                            state.cluster.name),
                options.worker));
    state.machine = place;
    if (!options.confirm.dry_run) LEAF_RETURN_IF_ERROR(state_file.Store(state));
  }
  if (context.flags.json) {
    WriteJson(context, Json{{"cluster", state.cluster.name},
                            {"worker", worker},
                            {"adopted", adopts && !options.confirm.dry_run},
                            {"dry_run", options.confirm.dry_run}});
    return {};
  }
  const std::string what = fmt::format("worker {} of {}", worker, state.cluster.name);
  context.Report(!adopts ? fmt::format("{} was not copied or moved: nothing to adopt", state_dir)
                 : options.confirm.dry_run ? fmt::format("would adopt {}", what)
                                           : fmt::format("adopted {}", what));
  return {};
}

}  // namespace

Run AddWorkerAdopt(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<WorkerAdoptOptions>();
  app.add_option("WORKER", options->worker, "The worker number in the state directory")->required();
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "For registry = static. A state directory that was copied, restored, or moved to another file "
      "system is refused, because the original may be running and would issue the same IDs. Make sure "
      "that the original is gone. The name to confirm is the number.\n"
      "Examples:\n"
      "  leafctl worker adopt 7 --confirm 7");
  return [options](CommandContext& context) { return RunWorkerAdopt(context, *options); };
}

}  // namespace leaf::cmd
