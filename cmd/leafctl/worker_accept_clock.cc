// leafctl worker accept-clock
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/time.h"
#include "leaf/sys/boot_id.h"
#include "leaf/sys/clock_acceptance.h"
#include "tag_output.h"
#include "worker_state.h"

namespace leaf::cmd {
namespace {

Result<void> RunAcceptClock(CommandContext& context, const ConfirmFlags& flags) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const std::string& state_dir = resolved->config.state_dir;
  sys::FileOps file_ops;
  sys::WorkerStateFile state_file(state_dir, file_ops);
  // The clock may have been set while the first claim of a number went on.
  LEAF_ASSIGN_OR_RETURN(const std::optional<core::WorkerState> found, state_file.Load());
  if (!found) return NoWorkerState(state_dir);
  const core::WorkerState& state = *found;
  const std::string whose =
      state.worker ? fmt::format("worker {}", *state.worker) : std::string("a worker without a number yet");
  const WallTime now = context.clock.Wall();
  const auto offset = core::ClockGuard::OffsetOf(now, context.clock.Boot());
  const std::string action = fmt::format("accept {} as the right time for {}", FormatRfc3339(now), whose);
  LEAF_RETURN_IF_ERROR(Confirm(context, flags, Severity::kSevere, action, state.cluster.name));
  if (!flags.dry_run) {
    LEAF_RETURN_IF_ERROR(sys::StoreAcceptedOffset(state_dir, sys::ReadBootId(), offset));
  }
  if (context.flags.json) {
    WriteJson(context, Json{{"cluster", state.cluster.name},
                            {"worker", state.worker ? Json(*state.worker) : Json(nullptr)},
                            {"time", FormatRfc3339(now)},
                            {"time_ms", UnixMillis(now)},
                            {"dry_run", flags.dry_run}});
  } else {
    context.Report(flags.dry_run
                       ? fmt::format("would {}", action)
                       : fmt::format("accepted {} for {} of {}; a running daemon continues within a second",
                                     FormatRfc3339(now), whose, state.cluster.name));
  }
  return {};
}

}  // namespace

Run AddWorkerAcceptClock(CLI::App& app, CommandContext&) {
  const auto flags = std::make_shared<ConfirmFlags>();
  AddConfirmFlags(app, *flags);
  app.footer(
      "Check the clock first: IDs issued with a time in the future keep the worker from issuing until "
      "that time. The name to confirm is the cluster's (see leafctl status). Valid until the next boot.\n"
      "Examples:\n"
      "  leafctl worker accept-clock --confirm pay");
  return [flags](CommandContext& context) { return RunAcceptClock(context, *flags); };
}

}  // namespace leaf::cmd
