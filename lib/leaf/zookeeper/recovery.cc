#include "leaf/zookeeper/recovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"

namespace leaf::zookeeper {
namespace {

constexpr int kWaiveAttempts = 10;

}  // namespace

std::string Recovery::TextOf(const Node& node) {
  return fmt::format("{} ({} on {}, last there at {})", node.id,
                     node.record.process.empty() ? "unknown" : node.record.process,
                     node.record.host.empty() ? "an unknown host" : node.record.host,
                     FormatRfc3339(node.record.at));
}

void Recovery::Know(const std::string& tag, std::uint64_t end, const std::string& where) {
  auto& known = known_[tag];
  if (end > known.first) known = {end, where};
}

Result<void> Recovery::Read() {
  LEAF_ASSIGN_OR_RETURN(records_, ReadCluster(ports_.client, ports_.tree));
  missing_ = records_.Missing();
  std::erase_if(missing_, [this](const Node& node) { return vouched_.contains(node.id); });
  return {};
}

std::vector<Recovery::Node> Recovery::SilentSince(const ClusterRecords& before) const {
  std::vector<Node> silent;
  for (const Node& node : records_.nodes) {
    if (node.record.left || vouched_.contains(node.id)) continue;
    const auto same = std::find_if(before.nodes.begin(), before.nodes.end(),
                                   [&](const Node& other) { return other.id == node.id; });
    if (same != before.nodes.end() && same->version == node.version) silent.push_back(node);
  }
  return silent;
}

Result<std::vector<Recovery::Move>> Recovery::Plan(std::optional<std::uint64_t> beyond) {
  if (!missing_.empty() && !beyond) {
    std::vector<std::string> texts;
    texts.reserve(missing_.size());
    for (const Node& node : missing_) texts.push_back(TextOf(node));
    return Error{
        ErrorCode::kRefused,
        fmt::format("cannot recover cluster {}: ZooKeeper went back ({}), and what was granted to {} is not "
                    "known: {}",
                    Quoted(ports_.tree.cluster()), records_.incarnation->why,
                    missing_.size() == 1 ? "a node" : fmt::format("{} nodes", missing_.size()),
                    fmt::join(texts, ", ")),
        "start those that are down, and wait half a minute for those that run; or name their state "
        "directories "
        "with --state-dir, or, if they are lost, allow for what each tag may have given them since: --beyond "
        "IDS"};
  }
  LEAF_ASSIGN_OR_RETURN(const auto rows, ports_.list());
  std::vector<std::string> tags;
  tags.reserve(rows.size());
  for (const core::TagRow& row : rows) tags.push_back(row.tag);
  LEAF_ASSIGN_OR_RETURN(const auto witnesses, ports_.witness.LoadAll(tags));
  examined_ = rows.size();
  std::vector<Move> moves;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const core::TagRow& row = rows[i];
    if (!witnesses[i]) {
      return Error{ErrorCode::kRefused, fmt::format("the witness of tag {} cannot be read", Quoted(row.tag)),
                   "leafctl doctor"};
    }
    Know(row.tag, witnesses[i]->end, "witness in " + ports_.witness_name);
    const auto& [known, where] = known_[row.tag];
    Move move{row, witnesses[i]->end, known, where, known};
    if (!missing_.empty()) {
      const std::uint64_t base =
          std::max(known, static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0)));
      if (*beyond > kMaxIdLimit - base) {
        return Error{ErrorCode::kOverflow,
                     fmt::format("tag {} has no {} IDs left above {}", Quoted(row.tag), *beyond, base), ""};
      }
      move.target = base + *beyond;
    }
    if (move.moves_row() || move.moves_witness()) moves.push_back(std::move(move));
  }
  return moves;
}

Result<void> Recovery::Apply(const std::vector<Move>& moves, const std::string& by) {
  // The row last: nothing is granted from it before the witness is up.
  const auto apply = [this](const Move& move) -> Result<void> {
    if (move.moves_witness()) LEAF_RETURN_IF_ERROR(ports_.raise(move.row.tag, move.target));
    return move.moves_row() ? ports_.advance(move.row.tag, move.target) : Result<void>();
  };
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (const auto done = apply(moves[i]); !done.ok()) {
      return Error{done.error().code,
                   fmt::format("recovery stopped at tag {}, {} of {}: {}", Quoted(moves[i].row.tag), i + 1,
                               moves.size(), done.error().message),
                   "run it again: it goes on where this has got to"};
    }
  }
  std::vector<std::string> waived(vouched_.begin(), vouched_.end());
  for (const Node& node : missing_) waived.push_back(node.id);
  for (int attempt = 0; attempt < kWaiveAttempts; ++attempt) {
    LEAF_ASSIGN_OR_RETURN(const bool done,
                          Waive(ports_.client, ports_.tree, records_, waived, by, ports_.clock.Wall()));
    LEAF_RETURN_IF_ERROR(Read());
    if (done) return {};
    // No node is gone on without that was not in the plan.
    for (const Node& node : missing_) {
      if (std::find(waived.begin(), waived.end(), node.id) == waived.end()) {
        return Error{ErrorCode::kRefused, fmt::format("another node is missing by now: {}", TextOf(node)),
                     "run it again"};
      }
    }
  }
  return Error{ErrorCode::kUnavailable, "the records of the cluster keep changing", "run it again"};
}

}  // namespace leaf::zookeeper
