// leafctl cluster recover
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/duration.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/client/daemon_client.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/state_dir.h"
#include "leaf/zookeeper/cluster_records.h"
#include "leaf/zookeeper/recovery.h"
#include "stores.h"
#include "tag_book.h"
#include "tag_marks.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct ClusterRecoverOptions {
  std::optional<std::string> beyond;
  ConfirmFlags confirm;
};

using zookeeper::Recovery;

class RecoverCommand {
 public:
  RecoverCommand(CommandContext& context, const ClusterRecoverOptions& options)
      : context_(context), dry_run_(options.confirm.dry_run), options_(options), log_(context) {}

  Result<void> Run() {
    LEAF_ASSIGN_OR_RETURN(resolved_, context_.Config());
    if (options_.beyond) {
      LEAF_ASSIGN_OR_RETURN(beyond_, ParseUnsigned("--beyond", *options_.beyond, 0, kMaxIdLimit));
    }
    LEAF_ASSIGN_OR_RETURN(store_, Store::Open(context_, Store::AccessFor(dry_run_)));
    segments_.emplace(store_->database(), AuthorOfCommand("cluster recover"), WarnOfGaps(context_));
    LEAF_ASSIGN_OR_RETURN(cluster_,
                          embed::ClusterLink::Open(context_, log_, sys::ProcessName("cluster recover")));
    if (!cluster_) {
      return Error{ErrorCode::kRefused, "there is no cluster to recover: segment.fence is not cluster",
                   "leafctl tag repair --all moves tags above this node's own marks"};
    }
    recovery_.emplace(zookeeper::RecoveryPorts{
        .list = [this] { return store_->segments().List(); },
        .removed = [this] { return store_->segments().RemovedMarks(); },
        .advance = [this](const std::string& tag, std::uint64_t to) -> Result<void> {
          LEAF_RETURN_IF_ERROR(segments_->Advance(tag, to, core::WriteMode::kCommit, core::kAuditRecover));
          return {};
        },
        .raise = [this](const std::string& tag, std::uint64_t to) { return cluster_->RaiseWitness(tag, to); },
        .witness = cluster_->witness(),
        .witness_name = cluster_->name(),
        .client = cluster_->session(),
        .tree = cluster_->tree(),
        .clock = context_.clock,
    });
    // Before anything is waited for.
    LEAF_RETURN_IF_ERROR(
        CheckName(options_.confirm, "recover cluster " + Quoted(cluster_->cluster()), cluster_->cluster()));
    LEAF_RETURN_IF_ERROR(recovery_->Read());
    // A directory that contributes enters its own node.
    if (recovery_->records().nodes.empty()) TellOfNoNode();
    LEAF_RETURN_IF_ERROR(ReadDirectories());
    LEAF_RETURN_IF_ERROR(AwaitDaemons());
    was_unsettled_ = recovery_->is_unsettled();
    LEAF_RETURN_IF_ERROR(AskServers());
    LEAF_ASSIGN_OR_RETURN(moves_, recovery_->Plan(beyond_));
    missing_ = recovery_->missing();
    LEAF_RETURN_IF_ERROR(Tell());
    if (!dry_run_ && has_work())
      LEAF_RETURN_IF_ERROR(recovery_->Apply(moves_, sys::ProcessName("cluster recover")));
    Report();
    return {};
  }

 private:
  bool has_work() const { return !moves_.empty() || recovery_->is_unsettled(); }

  // The state directories that are named, and this command's own if it has marks. A node that is down gives
  // back what it knows as at its next start.
  Result<void> ReadDirectories() {
    std::vector<std::string> paths = context_.flags.more_state_dirs;
    if (context_.flags.state_dir) {
      paths.insert(paths.begin(), *context_.flags.state_dir);
    } else {
      LEAF_ASSIGN_OR_RETURN(const auto marks, LocalMarks(context_));
      if (!marks.empty()) paths.push_back(resolved_->config.state_dir);
    }
    for (const std::string& path : paths) {
      LEAF_ASSIGN_OR_RETURN(const auto marks, embed::OpenMarksOf(context_, path, "cluster recover"));
      LEAF_ASSIGN_OR_RETURN(const auto all, marks->LoadAll());
      for (const core::Mark& mark : all)
        recovery_->Know(mark.tag, std::max(mark.end, mark.witness), "state directory " + path);
      LEAF_ASSIGN_OR_RETURN(const core::ClusterMemory memory, marks->LoadMemory(cluster_->tree().Base()));
      if (memory.incarnation == 0) continue;
      if (dry_run_) {
        recovery_->Vouch(memory.id);
        continue;
      }
      const auto lock = sys::StateDirLock::Take(path, sys::StateDirUse::kCommand);
      if (!lock.ok() && lock.error().code == ErrorCode::kRefused) {
        context_.Detail(fmt::format("state directory {} is in use: its daemon reports its own marks", path));
        continue;
      }
      if (!lock.ok()) return lock.error();
      LEAF_ASSIGN_OR_RETURN(const auto node,
                            embed::ClusterLink::Join(context_, log_, sys::ProcessName("cluster recover"),
                                                     *marks, embed::ClusterLink::JoinAs::kDaemon));
      LEAF_RETURN_IF_ERROR(node->Contribute(*marks));
      LEAF_RETURN_IF_ERROR(recovery_->Read());
      if (!recovery_->HasReported(memory.id)) {
        return Error{
            ErrorCode::kUnavailable,
            fmt::format("ZooKeeper did not take what the node of state directory {} was granted", path),
            "run it again"};
      }
      recovery_->Vouch(memory.id);
    }
    return {};
  }

  // Daemons that run find out by themselves, and report.
  Result<void> AwaitDaemons() {
    LEAF_RETURN_IF_ERROR(recovery_->Read());
    const auto watch = cluster_->watch();
    if (recovery_->is_unsettled() && watch.count() > 0) {
      context_.Note(fmt::format("leafctl: waiting up to {} for nodes to report what they were granted",
                                FormatDuration(watch)));
    }
    const MonotonicTime begin = context_.clock.Monotonic();
    LEAF_ASSIGN_OR_RETURN(const auto silent, recovery_->Await(beyond_.has_value(), watch));
    const auto waited = std::chrono::round<std::chrono::seconds>(context_.clock.Monotonic() - begin);
    for (const Recovery::Node& node : silent) {
      context_.Note(
          fmt::format("leafctl: warning: node {} has not reported for {}; if ZooKeeper lost data and "
                      "this node is down, what it was granted since is unknown",
                      Recovery::TextOf(node), FormatDuration(waited)));
    }
    return {};
  }

  // Daemons that are named, tag by tag: one of a version before 0.2 does not speak up by itself.
  Result<void> AskServers() {
    if (resolved_->config.client.servers.empty()) return {};
    LEAF_ASSIGN_OR_RETURN(const auto rows, store_->segments().List());
    LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved_));
    for (const std::string& server : resolved_->config.client.servers) {
      client::DaemonClient daemon({server}, context_.flags.timeout.value_or(kAskTimeout), TlsOf(*resolved_),
                                  token);
      for (const core::TagRow& row : rows) {
        auto mark = AskForMark(daemon, row.tag, context_.clock);
        if (!mark.ok() && mark.error().code == ErrorCode::kUnreachable) {
          return Error{mark.error().code, mark.error().message,
                       "start it; or name its state directory with --state-dir, and leave the daemon out of "
                       "--server and client.servers"};
        }
        if (!mark.ok()) return std::move(mark).error();
        recovery_->Know(row.tag, mark->end, "daemon at " + server);
      }
    }
    return {};
  }

  void Line(const std::string& line) {
    if (context_.flags.json) return;
    if (dry_run_) {
      context_.Report(line);
    } else {
      context_.Note(line);
    }
  }

  // As with the wrong chroot: nothing is behind what is known, since nothing is known.
  void TellOfNoNode() {
    context_.Note(fmt::format(
        "leafctl: warning: ZooKeeper knows no node of cluster {}: there is no record in {}. Check "
        "zookeeper.connect, with its chroot, and snowflake.cluster; if ZooKeeper was wiped, start "
        "the daemons first",
        Quoted(cluster_->cluster()), cluster_->name()));
  }

  Result<void> Tell() {
    if (recovery_->is_unsettled())
      Line(fmt::format("ZooKeeper lost data: {}", recovery_->records().incarnation->why));
    for (const Recovery::Node& node : missing_)
      Line(fmt::format("  missing: {}; allowing for {} IDs of each tag", Recovery::TextOf(node), *beyond_));
    for (const std::string& tag : recovery_->skipped()) {
      context_.Note(
          fmt::format("leafctl: warning: cannot read the witness of tag {}, which is not in the table; the "
                      "witness is left unchanged, and the tag cannot be added",
                      Quoted(tag)));
    }
    for (const Recovery::Move& move : moves_) {
      const std::string where = move.where.empty() ? "no mark" : move.where;
      if (move.in_table) {
        Line(fmt::format("tag {}: the table says max_id {}, {} says {}; move it to {}", Quoted(move.row.tag),
                         move.row.max_id, where, move.known, move.target));
      } else {
        Line(fmt::format("tag {}: not in the table{}, {} says {}; move its witness to {}",
                         Quoted(move.row.tag),
                         move.removed > 0 ? fmt::format(" (removed at {})", move.removed) : "", where,
                         move.known, move.target));
      }
    }
    const std::string action = fmt::format("recover cluster {}: {}", Quoted(cluster_->cluster()), What());
    if (!has_work()) return CheckName(options_.confirm, action, cluster_->cluster());
    return Confirm(context_, options_.confirm, Severity::kSevere, action, cluster_->cluster());
  }

  std::string What() const {
    std::string text = fmt::format("move {} tag{} up", moves_.size(), moves_.size() == 1 ? "" : "s");
    if (!missing_.empty()) {
      text +=
          fmt::format(", and continue without {} node{}", missing_.size(), missing_.size() == 1 ? "" : "s");
    }
    return text;
  }

  void Report() {
    if (context_.flags.json) return ReportJson();
    if (!has_work_at_start()) {
      return context_.Report(fmt::format(
          "nothing to recover: none of {} tags has a max_id below what is known, and no node is missing",
          recovery_->examined()));
    }
    context_.Report(fmt::format("{} {}: {}", dry_run_ ? "would recover cluster" : "recovered cluster",
                                Quoted(cluster_->cluster()), What()));
  }
  // Apply has read the records again.
  bool has_work_at_start() const { return was_unsettled_ || has_work(); }

  void ReportJson() {
    const auto& incarnation = recovery_->records().incarnation;
    Json json{{"cluster", cluster_->cluster()},
              {"dry_run", dry_run_},
              {"examined", recovery_->examined()},
              {"incarnation", incarnation ? Json(incarnation->number) : Json(nullptr)},
              {"settled", !recovery_->is_unsettled()},
              {"missing", Json::array()},
              {"tags", Json::array()}};
    for (const Recovery::Node& node : missing_) {
      json["missing"].push_back({{"node", node.id},
                                 {"host", node.record.host},
                                 {"process", node.record.process},
                                 {"last_seen", FormatRfc3339(node.record.at)}});
    }
    for (const Recovery::Move& move : moves_) {
      json["tags"].push_back(
          {{"tag", move.row.tag},
           {"max_id_before", move.in_table ? Json(std::to_string(move.row.max_id)) : Json()},
           {"witness_before", std::to_string(move.witness)},
           {"known", std::to_string(move.known)},
           {"where", move.where},
           {"to", std::to_string(move.target)},
           {"outcome", dry_run_ ? "planned" : "moved"}});
    }
    WriteJson(context_, json);
  }

  CommandContext& context_;
  const bool dry_run_;
  const ClusterRecoverOptions& options_;
  ContextLogger log_;
  const config::Resolved* resolved_ = nullptr;
  std::optional<std::uint64_t> beyond_;
  std::unique_ptr<Store> store_;
  std::optional<sql::SqlSegmentStore> segments_;
  std::unique_ptr<embed::ClusterLink> cluster_;
  std::optional<Recovery> recovery_;
  bool was_unsettled_ = false;
  std::vector<Recovery::Node> missing_;  // in the plan
  std::vector<Recovery::Move> moves_;
};

}  // namespace

Run AddClusterRecover(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<ClusterRecoverOptions>();
  app.add_option("--beyond", options->beyond,
                 "For lost nodes: how many IDs of a tag they may have been granted above the known marks")
      ->type_name("N");
  AddServerFlag(app, context, "Daemon of a version before 0.2 to ask for its marks");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Use it after the database or ZooKeeper lost committed grants, for example after a failover or a "
      "restore. Running daemons report by themselves what they were granted. Pass the state directory of "
      "each node that is down with --state-dir, as often as needed. Each tag whose max_id is below a "
      "known mark moves above it. Missing nodes are no longer waited for. The name to confirm is the "
      "cluster's.\n"
      "Examples:\n"
      "  leafctl cluster recover --dry-run\n"
      "  leafctl cluster recover --state-dir /srv/node2 --confirm pay");
  return [options](CommandContext& run_context) { return RecoverCommand(run_context, *options).Run(); };
}

}  // namespace leaf::cmd
