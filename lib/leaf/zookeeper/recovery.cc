#include "leaf/zookeeper/recovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"

namespace leaf::zookeeper {
namespace {

constexpr int kWaiveAttempts = 10;

// Two heartbeats and a look, and less for nodes that are lost anyway.
constexpr std::chrono::seconds kSilentMax{20};
constexpr std::chrono::seconds kLostMax{8};
constexpr std::chrono::milliseconds kPoll{250};

}  // namespace

std::string Recovery::TextOf(const Node& node) { return NodeText(node.id, node.record); }

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

bool Recovery::HasReported(const std::string& node) const {
  if (!records_.incarnation) return true;
  return std::any_of(records_.nodes.begin(), records_.nodes.end(), [&](const Node& each) {
    return each.id == node && each.record.contributed >= records_.incarnation->number;
  });
}

Result<std::vector<Recovery::Node>> Recovery::Await(bool without, std::chrono::milliseconds watch) {
  const MonotonicTime begin = ports_.clock.Monotonic();
  LEAF_RETURN_IF_ERROR(Read());
  const ClusterRecords first = records_;
  std::uint64_t number = 0;
  MonotonicTime unsettled_since = begin;
  while (true) {
    const MonotonicTime now = ports_.clock.Monotonic();
    auto silent = SilentSince(first);
    if (is_unsettled()) {
      silent.clear();  // the missing ones count
      if (records_.incarnation->number != number) {
        number = records_.incarnation->number;
        unsettled_since = now;
      }
    }
    const bool is_watching = is_unsettled() && now < unsettled_since + watch;
    const bool is_over = now >= begin + (is_unsettled() && without ? kLostMax : kSilentMax);
    if (!is_watching && (is_over || (missing_.empty() && silent.empty()))) return silent;
    ports_.clock.WaitUntil(now + kPoll);
    LEAF_RETURN_IF_ERROR(Read());
  }
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
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot recover cluster {}: ZooKeeper lost data ({}), and what was granted to "
                             "{} is not known: {}",
                             Quoted(ports_.tree.cluster()), records_.incarnation->why,
                             missing_.size() == 1 ? "a node" : fmt::format("{} nodes", missing_.size()),
                             fmt::join(texts, ", ")),
                 "start the nodes that are down, and wait half a minute for those that run; or name their "
                 "state directories with --state-dir; or, if they are lost, allow for the IDs of each tag "
                 "that they may have been granted since: --beyond IDS"};
  }
  LEAF_ASSIGN_OR_RETURN(std::vector<Move> tags, Tags());
  std::vector<std::string> names;
  names.reserve(tags.size());
  for (const Move& tag : tags) names.push_back(tag.row.tag);
  LEAF_ASSIGN_OR_RETURN(auto witnesses, ports_.witness.LoadAll(names));
  LEAF_RETURN_IF_ERROR(ReadRowsAgain(tags));
  examined_ = tags.size();
  skipped_.clear();
  std::vector<Move> moves;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    Move& move = tags[i];
    if (!witnesses[i] && !move.in_table) {
      skipped_.push_back(names[i]);
      continue;
    }
    if (!witnesses[i]) {
      LEAF_ASSIGN_OR_RETURN(witnesses[i], ReadWitness(names[i]));
    }
    move.witness = witnesses[i]->end;
    Know(names[i], move.witness, "witness in " + ports_.witness_name);
    std::tie(move.known, move.where) = known_[names[i]];
    LEAF_RETURN_IF_ERROR(SetTarget(move, beyond));
    if (move.moves_row() || move.moves_witness()) moves.push_back(std::move(move));
  }
  return moves;
}

Result<core::WitnessState> Recovery::ReadWitness(const std::string& tag) const {
  auto state = ports_.witness.Load(tag);
  if (state.ok() || state.error().code != ErrorCode::kRefused) return state;
  return Error{ErrorCode::kRefused,
               fmt::format("cannot recover tag {}: {}", Quoted(tag), state.error().message),
               "find out which program wrote it. With all daemons running, delete it: each creates it again, "
               "above its own mark. Then run this again"};
}

Result<std::vector<Recovery::Move>> Recovery::Tags() const {
  LEAF_ASSIGN_OR_RETURN(auto rows, ports_.list());
  std::vector<Move> tags;
  tags.reserve(rows.size());
  std::set<std::string> in_table;
  for (core::TagRow& row : rows) {
    in_table.insert(row.tag);
    tags.emplace_back().row = std::move(row);
  }
  std::map<std::string, std::uint64_t> elsewhere;  // the marks of those that were removed
  for (const auto& known : known_) elsewhere.try_emplace(known.first);
  LEAF_ASSIGN_OR_RETURN(const auto witnesses, ports_.client.Children(ports_.tree.Witnesses()));
  for (const std::string& name : witnesses.value_or(std::vector<std::string>{})) {
    if (auto tag = ParseWitnessName(name)) elsewhere.try_emplace(*std::move(tag));
  }
  LEAF_ASSIGN_OR_RETURN(const auto removed, ports_.removed());
  for (const auto& [tag, mark] : removed) elsewhere[tag] = mark;
  for (const auto& [tag, mark] : elsewhere) {
    if (in_table.contains(tag)) continue;
    Move& move = tags.emplace_back();
    move.row.tag = tag;
    move.in_table = false;
    move.removed = mark;
  }
  return tags;
}

Result<void> Recovery::ReadRowsAgain(std::vector<Move>& tags) const {
  LEAF_ASSIGN_OR_RETURN(auto rows, ports_.list());
  std::map<std::string, core::TagRow> later;
  for (core::TagRow& row : rows) later.emplace(row.tag, std::move(row));
  for (Move& move : tags) {
    const auto row = later.find(move.row.tag);
    if (move.in_table && row != later.end()) move.row = std::move(row->second);
  }
  return {};
}

Result<void> Recovery::SetTarget(Move& move, std::optional<std::uint64_t> beyond) const {
  move.target = move.known;
  if (missing_.empty()) return {};
  const auto max_id = static_cast<std::uint64_t>(std::max<std::int64_t>(move.row.max_id, 0));
  const std::uint64_t base = std::max({move.known, move.removed, max_id});
  if (*beyond > kMaxIdLimit - base && !move.in_table) {
    move.target = kMaxIdLimit;  // no reason to keep the others from going on
    return {};
  }
  if (*beyond > kMaxIdLimit - base) {
    return Error{ErrorCode::kOverflow,
                 fmt::format("tag {} has no {} IDs left above {}", Quoted(move.row.tag), *beyond, base), ""};
  }
  move.target = base + *beyond;
  return {};
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
                   missing_.empty() ? "run it again: it continues where this run stopped"
                                    : "run it again: it allows for the same number of IDs again"};
    }
  }
  const std::vector<Node> planned = missing_;
  std::vector<std::string> waived(vouched_.begin(), vouched_.end());
  for (const Node& node : planned) waived.push_back(node.id);
  for (int attempt = 0; attempt < kWaiveAttempts; ++attempt) {
    const auto done = Waive(ports_.client, ports_.tree, records_, waived, by, ports_.clock.Wall());
    // The records tell whether a write without a reply was done. Such a write has no effect once they have
    // changed.
    if (!done.ok() && done.error().code != ErrorCode::kOutcomeUnknown) return done.error();
    LEAF_RETURN_IF_ERROR(Read());
    if (done.ok() && *done) return {};
    // No node is gone on without that was not in the plan.
    for (const Node& node : missing_) {
      if (std::find(waived.begin(), waived.end(), node.id) == waived.end()) {
        return Error{ErrorCode::kRefused, fmt::format("another node is missing by now: {}", TextOf(node)),
                     "run it again"};
      }
    }
    // What a node makes known after the plan may be of tags that are not in it.
    for (const Node& node : planned) {
      const bool has_moved = std::any_of(records_.nodes.begin(), records_.nodes.end(), [&](const Node& now) {
        return now.id == node.id && now.record.beat != node.record.beat;
      });
      if (has_moved) {
        return Error{ErrorCode::kRefused, fmt::format("a missing node has reported: {}", TextOf(node)),
                     "run it again"};
      }
    }
  }
  return Error{ErrorCode::kUnavailable, "the records of the cluster keep changing", "run it again"};
}

}  // namespace leaf::zookeeper
