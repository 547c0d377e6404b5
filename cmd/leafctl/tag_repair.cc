// leafctl tag repair
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cluster_link.h"
#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/sys/process_name.h"
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
struct KnownMark {
  std::string where;
  std::uint64_t end = 0;
  std::string details;
};

// Somebody who may hold the highest mark of all, and could not be asked.
struct Missing {
  std::string whose;
  Error why;
};

// Everything that is known of a tag's grants.
class Evidence {
 public:
  Evidence(CommandContext& context, const config::Resolved& resolved, const std::string& tag)
      : context_(context), resolved_(resolved), tag_(tag) {}

  Result<void> Collect(Store& store) {
    LEAF_ASSIGN_OR_RETURN(const core::Mark local, LocalMark(context_, tag_));
    known_.push_back({fmt::format("state directory {}", resolved_.config.state_dir), local.end,
                      fmt::format(", at {} by {}", FormatRfc3339(local.raised_at), local.raised_by)});
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, store.segments().RemovedMark(tag_));
    known_.push_back({"table leafctl_removed_tags", removed, ", by a tag of this name that was removed"});
    // Nobody at a default socket is nobody to ask.
    const Daemons daemons = FindDaemons(resolved_);
    for (const std::string& server : daemons.servers) Ask({server}, server, !daemons.configured);
    ContextLogger log(context_);
    LEAF_ASSIGN_OR_RETURN(const auto cluster,
                          ClusterLink::Open(context_, log, sys::ProcessName("tag repair")));
    if (cluster) AskCluster(*cluster);
    if (cluster && resolved_.config.segment.witness_fallback) {
      context_.Note(
          "leafctl: warning: with segment.witness_fallback a daemon that is cut off from ZooKeeper is not "
          "found "
          "there, and may have been granted what the witness does not know of: name it with --server");
    }
    return {};
  }

  const std::vector<KnownMark>& known() const { return known_; }
  const std::vector<Missing>& missing() const { return missing_; }

 private:
  void AskCluster(ClusterLink& cluster) {
    const auto state = cluster.witness().Load(tag_);
    if (state.ok()) {
      known_.push_back({fmt::format("witness in {}", cluster.name()), state->end,
                        fmt::format(", at {} by {}", FormatRfc3339(state->raised_at), state->raised_by)});
    } else {
      missing_.push_back({fmt::format("the witness in {}", cluster.name()), state.error()});
    }
    const auto daemons = cluster.Daemons();
    if (!daemons.ok()) {
      missing_.push_back({"the daemons of the cluster", daemons.error()});
      return;
    }
    for (const zookeeper::DaemonRecord& daemon : *daemons) AskRegistered(daemon);
  }

  void AskRegistered(const zookeeper::DaemonRecord& daemon) {
    // A socket, or a loopback address, of another machine is somebody else's here.
    const bool here = daemon.host == sys::HostName();
    std::vector<std::string> urls;
    for (const std::string& url : daemon.urls) {
      if (here || !IsLocal(url)) urls.push_back(url);
    }
    const std::string who = fmt::format("{} ({})", fmt::join(daemon.urls, ", "), daemon.process);
    if (urls.empty()) {
      missing_.push_back({who, {ErrorCode::kUnreachable, "it answers on its own machine only", ""}});
      return;
    }
    if (std::any_of(urls.begin(), urls.end(), [&](const auto& url) { return asked_.count(url) > 0; })) return;
    Ask(urls, who, false);
  }

  static bool IsLocal(const std::string& url) {
    return url.starts_with("unix:") || url.starts_with("http://127.") ||
           url.starts_with("http://localhost") || url.starts_with("http://[::1]") ||
           url.starts_with("http://0.0.0.0") || url.starts_with("http://[::]");
  }

  void Ask(const std::vector<std::string>& urls, const std::string& who, bool may_be_nobody) {
    client::DaemonClient daemon(urls, context_.flags.timeout.value_or(kAskTimeout));
    const auto mark = daemon.Mark(tag_);
    if (!mark.ok()) {
      if (!may_be_nobody || mark.error().code != ErrorCode::kUnreachable)
        missing_.push_back({who, mark.error()});
      return;
    }
    asked_.insert(urls.begin(), urls.end());
    KnownMark known{fmt::format("daemon at {}", who), mark->end, ""};
    if (!mark->raised_by.empty())
      known.details = fmt::format(", at {} by {}", mark->raised_at, mark->raised_by);
    if (!mark->frozen_since.empty()) {
      known.details +=
          fmt::format("; frozen there since {}, when max_id was {}", mark->frozen_since, mark->max_id_seen);
    }
    known_.push_back(std::move(known));
  }

  CommandContext& context_;
  const config::Resolved& resolved_;
  const std::string& tag_;
  std::vector<KnownMark> known_;
  std::vector<Missing> missing_;
  std::set<std::string> asked_;
};

Result<void> RunTagRepair(CommandContext& context, const TagRepairOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  std::uint64_t target = 0;
  if (options.to) {
    LEAF_ASSIGN_OR_RETURN(target, ParseUnsigned("--to", *options.to, 0, kMaxIdLimit));
  }
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store->segments().Describe(options.tag));

  Evidence evidence(context, *resolved, options.tag);
  LEAF_RETURN_IF_ERROR(evidence.Collect(*store));
  context.Note(fmt::format("tag {}: the table says max_id {} (last changed {})", Quoted(options.tag),
                           row.max_id, FormatRfc3339(row.update_time)));
  for (const KnownMark& known : evidence.known()) {
    context.Note(fmt::format(
        "  {}: {}", known.where,
        known.end == 0 ? "no mark" : fmt::format("granted up to {}{}", known.end, known.details)));
    target = std::max(target, known.end);
  }
  for (const Missing& missing : evidence.missing())
    context.Note(
        fmt::format("leafctl: warning: the mark of {} is not known: {}", missing.whose, missing.why.message));
  // Without one of the marks nothing is known to be safe.
  if (!evidence.missing().empty() && !options.to) {
    const Missing& missing = evidence.missing().front();
    return Error{
        ErrorCode::kRefused,
        fmt::format("cannot repair tag {}: the mark of {} is not known: {}", Quoted(options.tag),
                    missing.whose, missing.why.message),
        fmt::format("bring it back, or name a value above everything it may hold with --to N --confirm {}",
                    options.tag)};
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
      "Marks are collected from this state directory, the database, every daemon named (or found) and, with\n"
      "segment.fence = cluster, the witness in ZooKeeper and all daemons that are registered there.\n"
      "Example: leafctl tag repair pay --server http://10.0.0.1:8080 --confirm pay");
  return [options](CommandContext& run_context) { return RunTagRepair(run_context, *options); };
}

}  // namespace leaf::cmd
