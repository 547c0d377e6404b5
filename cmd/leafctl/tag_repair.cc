// leafctl tag repair
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagRepairOptions {
  std::string tag;
  std::optional<std::string> to;
  ConfirmFlags confirm;
};

// Where a mark is known from, how high it is (0: none there), and what else is known of it.
struct Witnessed {
  std::string where;
  std::uint64_t end = 0;
  std::string details;
};

Witnessed ByDaemon(const std::string& server, const client::NodeMark& mark) {
  Witnessed witnessed{fmt::format("daemon at {}", server), mark.end, ""};
  if (!mark.raised_by.empty())
    witnessed.details = fmt::format(", at {} by {}", mark.raised_at, mark.raised_by);
  if (!mark.frozen_since.empty()) {
    witnessed.details +=
        fmt::format("; frozen there since {}, when max_id was {}", mark.frozen_since, mark.max_id_seen);
  }
  return witnessed;
}

Result<void> RunTagRepair(CommandContext& context, const TagRepairOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  std::uint64_t target = 0;
  if (options.to) {
    LEAF_ASSIGN_OR_RETURN(target, ParseUnsigned("--to", *options.to, 0, kMaxIdLimit));
  }
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store->segments().Describe(options.tag));

  std::vector<Witnessed> seen;
  LEAF_ASSIGN_OR_RETURN(const core::Mark local, LocalMark(context, options.tag));
  seen.push_back({fmt::format("state directory {}", resolved->config.state_dir), local.end,
                  fmt::format(", at {} by {}", FormatRfc3339(local.raised_at), local.raised_by)});
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, store->segments().RemovedMark(options.tag));
  seen.push_back({"table leafctl_removed_tags", removed, ", by a tag of this name that was removed"});
  const Daemons daemons = FindDaemons(*resolved);
  for (const std::string& server : daemons.servers) {
    client::DaemonClient daemon({server}, context.flags.timeout.value_or(kAskTimeout));
    const auto mark = daemon.Mark(options.tag);
    if (mark.ok()) {
      seen.push_back(ByDaemon(server, *mark));
      continue;
    }
    // Nobody at a default socket is nobody to ask. Anyone else may hold the highest mark of all: without it
    // nothing is known to be safe.
    if (!daemons.configured && mark.error().code == ErrorCode::kUnreachable) continue;
    if (!options.to) {
      return Error{
          ErrorCode::kRefused,
          fmt::format("cannot repair tag {}: the mark of {} is not known: {}", Quoted(options.tag), server,
                      mark.error().message),
          fmt::format("bring it back, or name a value above everything it may hold with --to N --confirm {}",
                      options.tag)};
    }
    context.Note(
        fmt::format("leafctl: warning: the mark of {} is not known: {}", server, mark.error().message));
  }
  context.Note(fmt::format("tag {}: the table says max_id {} (last changed {})", Quoted(options.tag),
                           row.max_id, FormatRfc3339(row.update_time)));
  for (const Witnessed& witnessed : seen) {
    context.Note(fmt::format("  {}: {}", witnessed.where,
                             witnessed.end == 0
                                 ? "no mark"
                                 : fmt::format("granted up to {}{}", witnessed.end, witnessed.details)));
    target = std::max(target, witnessed.end);
  }
  if (row.max_id >= 0 && static_cast<std::uint64_t>(row.max_id) >= target) {
    ReportChange(context, row, options.confirm.dry_run,
                 fmt::format("nothing to repair: max_id {} is above every known mark", row.max_id),
                 fmt::format("change nothing: max_id {} is above every known mark", row.max_id));
    return {};
  }
  const std::string action =
      fmt::format("move tag {} from {} to {}", Quoted(options.tag), row.max_id, target);
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kSevere, action, options.tag));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow repaired,
                        store->segments().Advance(options.tag, target, options.confirm.mode()));
  ReportChange(context, repaired, options.confirm.dry_run,
               fmt::format("repaired tag {}: the next grant begins at {}; daemons thaw at their next refresh",
                           Quoted(options.tag), repaired.max_id),
               action);
  return {};
}

}  // namespace

Run AddTagRepair(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<TagRepairOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.add_option("--to", options->to, "At least up to here, if a node that holds a higher mark is lost")
      ->type_name("N");
  AddServerFlag(app, context, "Daemons whose marks to ask for");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Marks are collected from this state directory, the database and every daemon named (or found).\n"
      "Example: leafctl tag repair pay --server http://10.0.0.1:8080 --confirm pay");
  return [options](CommandContext& run_context) { return RunTagRepair(run_context, *options); };
}

}  // namespace leaf::cmd
