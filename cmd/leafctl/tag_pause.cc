// leafctl tag pause, leafctl tag resume
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagPauseOptions {
  std::vector<std::string> tags;
  ConfirmFlags confirm;
};

Result<Json> PauseOne(CommandContext& context, client::DaemonClient& daemon, const std::string& tag,
                      bool pause, bool dry_run) {
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.SetPaused(tag, pause, dry_run));
  Json json = ParseForeignJson<Json>(body);
  const auto is_bool = [&](const char* name) { return json.value(name, Json(false)).is_boolean(); };
  if (!json.is_object() || json.value("tag", Json()) != Json(tag) || !is_bool("changed") ||
      !is_bool("known")) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), ""};
  }
  if (context.flags.json) return json;
  const std::string what = fmt::format("tag {} on {}", Quoted(tag), daemon.answered_by());
  if (!json.value("changed", false)) {
    context.Report(fmt::format("{} is {}", what, pause ? "already paused" : "not paused"));
  } else if (dry_run) {
    context.Report(fmt::format("would {} {}", pause ? "pause" : "resume", what));
  } else {
    context.Report(fmt::format("{} {}; other nodes are not asked", pause ? "paused" : "resumed", what));
  }
  if (pause && !json.value("known", true))
    context.Note(fmt::format("note: that node has no tag {} at present", Quoted(tag)));
  return json;
}

Result<void> RunTagPause(CommandContext& context, const TagPauseOptions& options, bool pause) {
  LEAF_RETURN_IF_ERROR(ValidateTags(options.tags));
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless,
                               fmt::format("{} tag {}", pause ? "pause" : "resume", QuotedList(options.tags)),
                               ConfirmName(options.tags)));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(FindDaemons(*resolved).servers, context.flags.timeout.value_or(kAskTimeout),
                              TlsOf(*resolved), token);
  if (options.tags.size() > 1 && !options.confirm.dry_run) {
    // What would fail is found before the first of several is changed.
    for (const std::string& tag : options.tags) {
      const auto asked = daemon.SetPaused(tag, pause, true);
      if (!asked.ok()) return asked.error();
    }
  }
  return ForEachTag(context, options.tags, pause ? "paused" : "resumed", [&](const std::string& tag) {
    return PauseOne(context, daemon, tag, pause, options.confirm.dry_run);
  });
}

Run AddEither(CLI::App& app, CommandContext& context, bool pause, const char* footer) {
  const auto options = std::make_shared<TagPauseOptions>();
  app.add_option("TAG", options->tags, "The tag, or several")->required();
  AddServerFlag(
      app, context,
      "Daemon on this machine: unix:/PATH or http://127.0.0.1:PORT; the first that answers is used");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(footer);
  return [options, pause](CommandContext& run_context) { return RunTagPause(run_context, *options, pause); };
}

}  // namespace

Run AddTagPause(CLI::App& app, CommandContext& context) {
  return AddEither(app, context, true,
                   "Requests for the tag fail with 503 and the code 'paused' (Leaf's -3) until it is "
                   "resumed, also after a "
                   "restart, on this node only. Needs no database. The tag's reserve is kept.\n"
                   "Examples:\n"
                   "  leafctl tag pause pay");
}

Run AddTagResume(CLI::App& app, CommandContext& context) {
  return AddEither(app, context, false, "Examples:\n  leafctl tag resume pay");
}

}  // namespace leaf::cmd
