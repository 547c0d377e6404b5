// leafctl cluster recover
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster_link.h"
#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/client/daemon_client.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/state_dir.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct ClusterRecoverOptions {
  std::optional<std::string> beyond;
  ConfirmFlags confirm;
};

// Daemons that run make known by themselves what they were granted; so long they are waited for.
constexpr std::chrono::seconds kDaemonsWait{8};
constexpr std::chrono::milliseconds kRecordsPoll{250};

using Node = zookeeper::ClusterRecords::Node;

std::string NodeText(const Node& node) {
  return fmt::format("{} ({} on {}, last there at {})", node.id,
                     node.record.process.empty() ? "unknown" : node.record.process,
                     node.record.host.empty() ? "an unknown host" : node.record.host,
                     FormatRfc3339(node.record.at));
}

// What is to be done for one tag.
struct Move {
  core::TagRow row;
  std::uint64_t witness = 0;
  std::uint64_t known = 0;  // the highest mark, or the witness
  std::string where;        // it is known from
  std::uint64_t target = 0;

  bool moves_row() const { return row.max_id < 0 || static_cast<std::uint64_t>(row.max_id) < target; }
  bool moves_witness() const { return witness < target; }
};

class Recovery {
 public:
  Recovery(CommandContext& context, const ClusterRecoverOptions& options)
      : context_(context), dry_run_(options.confirm.dry_run), options_(options), log_(context) {}

  Result<void> Run() {
    LEAF_ASSIGN_OR_RETURN(resolved_, context_.Config());
    if (options_.beyond) {
      LEAF_ASSIGN_OR_RETURN(beyond_, ParseUnsigned("--beyond", *options_.beyond, 0, kMaxIdLimit));
    }
    LEAF_ASSIGN_OR_RETURN(store_, Store::Open(context_, Store::AccessFor(dry_run_)));
    LEAF_ASSIGN_OR_RETURN(cluster_, ClusterLink::Open(context_, log_, sys::ProcessName("cluster recover")));
    if (!cluster_) {
      return Error{ErrorCode::kRefused, "there is no cluster to recover: segment.fence is not cluster",
                   "leafctl tag repair --all moves tags above this node's own marks"};
    }
    LEAF_RETURN_IF_ERROR(ReadDirectories());
    LEAF_RETURN_IF_ERROR(AwaitDaemons());
    was_unsettled_ = is_unsettled();
    LEAF_RETURN_IF_ERROR(AskServers());
    LEAF_RETURN_IF_ERROR(Plan());
    LEAF_RETURN_IF_ERROR(Tell());
    if (!dry_run_ && has_work()) LEAF_RETURN_IF_ERROR(Apply());
    Report();
    return {};
  }

 private:
  bool has_work() const { return !moves_.empty() || is_unsettled(); }
  bool is_unsettled() const { return records_.incarnation && !records_.incarnation->settled; }

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
        Know(mark.tag, std::max(mark.end, mark.witness), "state directory " + path);
      LEAF_ASSIGN_OR_RETURN(const core::ClusterMemory memory, marks->LoadMemory(cluster_->tree().Base()));
      if (memory.incarnation == 0) continue;
      if (dry_run_) {
        directories_.insert(memory.id);
        continue;
      }
      const auto lock = sys::StateDirLock::Take(path, sys::StateDirUse::kCommand);
      if (!lock.ok() && lock.error().code == ErrorCode::kRefused) {
        context_.Detail(fmt::format("state directory {} is in use: its daemon speaks for it", path));
        continue;
      }
      if (!lock.ok()) return lock.error();
      LEAF_ASSIGN_OR_RETURN(const auto node,
                            ClusterLink::Join(context_, log_, sys::ProcessName("cluster recover"), *marks,
                                              ClusterLink::JoinAs::kDaemon));
      LEAF_RETURN_IF_ERROR(node->Contribute(*marks));
      directories_.insert(memory.id);
    }
    return {};
  }

  Result<void> AwaitDaemons() {
    const MonotonicTime deadline = context_.clock.Monotonic() + kDaemonsWait;
    while (true) {
      LEAF_ASSIGN_OR_RETURN(records_, cluster_->ReadCluster());
      missing_ = records_.Missing();
      std::erase_if(missing_, [this](const Node& node) { return directories_.contains(node.id); });
      if (missing_.empty() || dry_run_ || context_.clock.Monotonic() >= deadline) return {};
      context_.clock.WaitUntil(context_.clock.Monotonic() + kRecordsPoll);
    }
  }

  // Daemons that are named, tag by tag: one of a version before 0.2 does not speak up by itself.
  Result<void> AskServers() {
    if (resolved_->config.client.servers.empty()) return {};
    LEAF_ASSIGN_OR_RETURN(const auto rows, store_->segments().List());
    for (const std::string& server : resolved_->config.client.servers) {
      client::DaemonClient daemon({server}, context_.flags.timeout.value_or(kAskTimeout));
      for (const core::TagRow& row : rows) {
        LEAF_ASSIGN_OR_RETURN(const auto mark, daemon.Mark(row.tag));
        Know(row.tag, mark.end, "daemon at " + server);
      }
    }
    return {};
  }

  void Know(const std::string& tag, std::uint64_t end, const std::string& where) {
    auto& known = known_[tag];
    if (end > known.first) known = {end, where};
  }

  Result<void> Plan() {
    if (!missing_.empty() && !beyond_) {
      std::vector<std::string> texts;
      texts.reserve(missing_.size());
      for (const Node& node : missing_) texts.push_back(NodeText(node));
      return Error{
          ErrorCode::kRefused,
          fmt::format(
              "cannot recover cluster {}: ZooKeeper went back ({}), and what was granted to {} is not "
              "known: {}",
              Quoted(cluster_->cluster()), records_.incarnation->why,
              missing_.size() == 1 ? "a node" : fmt::format("{} nodes", missing_.size()),
              fmt::join(texts, ", ")),
          "start them, or name their state directories with --state-dir, or, if they are lost, allow for "
          "what "
          "each tag may have given them since: --beyond IDS"};
    }
    LEAF_ASSIGN_OR_RETURN(const auto rows, store_->segments().List());
    std::vector<std::string> tags;
    tags.reserve(rows.size());
    for (const core::TagRow& row : rows) tags.push_back(row.tag);
    LEAF_ASSIGN_OR_RETURN(const auto witnesses, cluster_->witness().LoadAll(tags));
    examined_ = rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!witnesses[i]) {
        return Error{ErrorCode::kRefused,
                     fmt::format("the witness of tag {} cannot be read", Quoted(rows[i].tag)),
                     "leafctl doctor"};
      }
      Know(rows[i].tag, witnesses[i]->end, "witness in " + cluster_->name());
      const auto& [known, where] = known_[rows[i].tag];
      Move move{rows[i], witnesses[i]->end, known, where, known};
      if (!missing_.empty()) {
        const std::uint64_t base =
            std::max(known, static_cast<std::uint64_t>(std::max<std::int64_t>(rows[i].max_id, 0)));
        if (*beyond_ > kMaxIdLimit - base) {
          return Error{ErrorCode::kOverflow,
                       fmt::format("tag {} has no {} IDs left above {}", Quoted(rows[i].tag), *beyond_, base),
                       ""};
        }
        move.target = base + *beyond_;
      }
      if (move.moves_row() || move.moves_witness()) moves_.push_back(std::move(move));
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

  Result<void> Tell() {
    if (is_unsettled()) Line(fmt::format("ZooKeeper went back: {}", records_.incarnation->why));
    for (const Node& node : missing_)
      Line(fmt::format("  missing: {}; {} IDs of each tag are allowed for", NodeText(node), *beyond_));
    for (const Move& move : moves_) {
      Line(fmt::format("tag {}: the table says max_id {}, {} says {}; so move it to {}", Quoted(move.row.tag),
                       move.row.max_id, move.where.empty() ? "no mark" : move.where, move.known,
                       move.target));
    }
    const std::string action = fmt::format("recover cluster {}: {}", Quoted(cluster_->cluster()), What());
    if (!has_work()) return CheckName(options_.confirm, action, cluster_->cluster());
    return Confirm(context_, options_.confirm, Severity::kSevere, action, cluster_->cluster());
  }

  std::string What() const {
    std::string text = fmt::format("move {} tag{} up", moves_.size(), moves_.size() == 1 ? "" : "s");
    if (!missing_.empty()) {
      text += fmt::format(", and go on without {} node{}", missing_.size(), missing_.size() == 1 ? "" : "s");
    }
    return text;
  }

  // The rows last: nothing is granted from them before the witness is up.
  Result<void> Apply() {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      const Move& move = moves_[i];
      auto done = move.moves_witness() ? cluster_->RaiseWitness(move.row.tag, move.target) : Result<void>();
      if (done.ok() && move.moves_row()) {
        auto row = store_->segments().Advance(move.row.tag, move.target, core::WriteMode::kCommit);
        if (!row.ok()) done = std::move(row).error();
      }
      if (!done.ok()) {
        return Error{done.error().code,
                     fmt::format("recovery stopped at tag {}, {} of {}: {}", Quoted(move.row.tag), i + 1,
                                 moves_.size(), done.error().message),
                     "run it again: it goes on where this has got to"};
      }
    }
    std::vector<std::string> waived(directories_.begin(), directories_.end());
    for (const Node& node : missing_) waived.push_back(node.id);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      LEAF_ASSIGN_OR_RETURN(const bool done,
                            zookeeper::Waive(cluster_->client(), cluster_->tree(), records_, waived,
                                             sys::ProcessName("cluster recover"), context_.clock.Wall()));
      LEAF_ASSIGN_OR_RETURN(records_, cluster_->ReadCluster());
      if (done) return {};
      // No node is gone on without that was not in the plan.
      const auto missing = records_.Missing();
      for (const Node& node : missing) {
        if (std::find(waived.begin(), waived.end(), node.id) == waived.end()) {
          return Error{ErrorCode::kRefused, fmt::format("another node is missing by now: {}", NodeText(node)),
                       "run it again"};
        }
      }
    }
    return Error{ErrorCode::kUnavailable, "the records of the cluster keep changing", "run it again"};
  }

  void Report() {
    if (context_.flags.json) return ReportJson();
    if (!has_work_at_start()) {
      return context_.Report(
          fmt::format("nothing to recover: none of {} tags has a max_id below what is known, "
                      "and no node is missing",
                      examined_));
    }
    context_.Report(fmt::format("{} {}: {}", dry_run_ ? "would recover cluster" : "recovered cluster",
                                Quoted(cluster_->cluster()), What()));
  }
  // Apply has read the records again.
  bool has_work_at_start() const { return !moves_.empty() || was_unsettled_ || is_unsettled(); }

  void ReportJson() {
    Json json{{"cluster", cluster_->cluster()},
              {"dry_run", dry_run_},
              {"examined", examined_},
              {"incarnation", records_.incarnation ? Json(records_.incarnation->number) : Json(nullptr)},
              {"settled", !is_unsettled()},
              {"missing", Json::array()},
              {"tags", Json::array()}};
    for (const Node& node : missing_) {
      json["missing"].push_back({{"node", node.id},
                                 {"host", node.record.host},
                                 {"process", node.record.process},
                                 {"last_seen", FormatRfc3339(node.record.at)}});
    }
    for (const Move& move : moves_) {
      json["tags"].push_back({{"tag", move.row.tag},
                              {"max_id_before", std::to_string(move.row.max_id)},
                              {"witness_before", std::to_string(move.witness)},
                              {"known", std::to_string(move.known)},
                              {"where", move.where},
                              {"to", std::to_string(move.target)},
                              {"outcome", dry_run_ ? "planned" : "moved"}});
    }
    WriteJson(context_, json);
  }

  static constexpr int kAttempts = 10;

  CommandContext& context_;
  const bool dry_run_;
  const ClusterRecoverOptions& options_;
  ContextLogger log_;
  const config::Resolved* resolved_ = nullptr;
  std::optional<std::uint64_t> beyond_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ClusterLink> cluster_;
  std::set<std::string> directories_;  // the nodes whose state directories were read
  std::map<std::string, std::pair<std::uint64_t, std::string>> known_;  // by tag: the highest end, and where
  zookeeper::ClusterRecords records_;
  bool was_unsettled_ = false;
  std::vector<Node> missing_;
  std::vector<Move> moves_;
  std::size_t examined_ = 0;
};

}  // namespace

Run AddClusterRecover(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<ClusterRecoverOptions>();
  app.add_option("--beyond", options->beyond,
                 "If nodes are lost: how many IDs of a tag they may have been granted above what is known")
      ->type_name("IDS");
  AddServerFlag(app, context, "Daemons of a version before 0.2, whose marks to ask for");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Daemons that run make known by themselves what they were granted. Name the state directories of "
      "those\n"
      "that are down with --state-dir, as often as needed. All tags that the table has below what is known "
      "move\n"
      "above it, and nodes that are missing are no longer waited for. What has to be confirmed is the "
      "name\n"
      "of the cluster. Example: leafctl cluster recover --state-dir /srv/node2 --confirm pay");
  return [options](CommandContext& run_context) { return Recovery(run_context, *options).Run(); };
}

}  // namespace leaf::cmd
