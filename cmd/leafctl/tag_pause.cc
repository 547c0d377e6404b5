// leafctl tag pause, leafctl tag resume
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagPauseOptions {
  std::string tag;
  ConfirmFlags confirm;
};

Result<void> RunTagPause(CommandContext& context, const TagPauseOptions& options, bool pause) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("{} tag {}", pause ? "pause" : "resume", Quoted(options.tag)),
                               options.tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  client::DaemonClient daemon(FindDaemons(*resolved).servers, context.flags.timeout.value_or(kAskTimeout));
  LEAF_ASSIGN_OR_RETURN(const std::string body,
                        daemon.SetPaused(options.tag, pause, options.confirm.dry_run));
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object() || json.value("tag", "") != options.tag) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), ""};
  }
  if (context.flags.json) {
    WriteJson(context, json);
    return {};
  }
  const std::string what = fmt::format("tag {} on {}", Quoted(options.tag), daemon.answered_by());
  if (!json.value("changed", false)) {
    context.Report(fmt::format("{} is {}", what, pause ? "already paused" : "not paused"));
  } else if (options.confirm.dry_run) {
    context.Report(fmt::format("would {} {}", pause ? "pause" : "resume", what));
  } else {
    context.Report(fmt::format("{} {}; other nodes are not asked", pause ? "paused" : "resumed", what));
  }
  if (pause && !json.value("known", true))
    context.Note(fmt::format("note: that node has no tag {} at present", Quoted(options.tag)));
  return {};
}

Run AddEither(CLI::App& app, CommandContext& context, bool pause, const char* footer) {
  const auto options = std::make_shared<TagPauseOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  AddServerFlag(app, context,
                "The daemon, on this machine: unix:/PATH or http://127.0.0.1:PORT; the first that answers");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(footer);
  return [options, pause](CommandContext& run_context) { return RunTagPause(run_context, *options, pause); };
}

}  // namespace

Run AddTagPause(CLI::App& app, CommandContext& context) {
  return AddEither(
      app, context, true,
      "Requests for the tag fail with 503 and the code 'paused' (Leaf's -3) until it is resumed, across\n"
      "restarts, on this node only. Asks no database. Its reserve is kept.\n"
      "Example: leafctl tag pause pay");
}

Run AddTagResume(CLI::App& app, CommandContext& context) {
  return AddEither(app, context, false, "Example: leafctl tag resume pay");
}

}  // namespace leaf::cmd
