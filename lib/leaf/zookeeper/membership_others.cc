// The other nodes: what is remembered of them, which of them are covered, and how long the first claim waits
// for them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/zookeeper/membership.h"

namespace leaf::zookeeper {
namespace {

// Records of so many other nodes are read with each heartbeat; of more of them, once a minute.
constexpr std::size_t kOthersEachTime = 64;
constexpr std::size_t kWitnessesAtOnce = 1000;

}  // namespace

Result<void> Membership::ReadOthers() {
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree_.Nodes()));
  LEAF_ASSIGN_OR_RETURN(const auto daemons, client_.Children(tree_.Daemons()));
  std::vector<std::string> ids;
  std::vector<std::string> paths;
  for (const std::string& id : children.value_or(std::vector<std::string>{})) {
    if (id == memory_.id) continue;
    const auto known = others_.find(id);
    // Of very many, one in twelve each time.
    if (known != others_.end() && others_.size() > kOthersEachTime && !wait_until_ &&
        random_.Below(static_cast<std::uint64_t>(std::chrono::minutes{1} / kNodeHeartbeat)) != 0)
      continue;
    ids.push_back(id);
    paths.push_back(tree_.Node(id));
  }
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  bool changed = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i]) continue;
    // One that cannot be read has to be waited for if it comes to that.
    const auto record = ParseNode(nodes[i]->data);
    // No node misses one that has left, and could never claim.
    if (!record.ok() || (record->left && !record->claims)) continue;
    const auto known = others_.find(ids[i]);
    const bool was_known = known != others_.end();
    const bool was_covered = was_known && known->second.is_covered();
    const bool is_covered = Seen(ids[i], *record, nodes[i]->stat.version).is_covered();
    changed = changed || !was_known || is_covered != was_covered;
  }
  std::set<std::string> known;
  for (const auto& [id, other] : others_) known.insert(other.record.daemon);
  {
    const MutexLock lock(mutex_);
    known.insert(daemon_);
    const auto all = daemons.value_or(std::vector<std::string>{});
    status_.older_daemons = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const std::string& id) { return !known.contains(id); }));
  }
  // Before this node's record says that it was here.
  if (changed) LEAF_RETURN_IF_ERROR(Save());
  return {};
}

Membership::Other& Membership::Seen(const std::string& id, const NodeRecord& record, std::int32_t version) {
  const auto [found, added] = others_.try_emplace(id);
  Other& other = found->second;
  if (added) {
    other.moved_at = clock_.Monotonic();
  } else if (other.is_seen && record.beat > other.beat) {  // an older record is no sign of life
    other.moved = other.moved || other.is_watched;
    other.moved_at = clock_.Monotonic();
  }
  other.is_seen = true;
  other.is_watched = true;
  other.record = record;
  other.beat = std::max(other.beat, record.beat);
  other.version = version;
  return other;
}

std::optional<std::string> Membership::Waits() {
  if (!wait_until_) return std::nullopt;
  const MonotonicTime now = clock_.Monotonic();
  if (now >= *wait_until_) return std::nullopt;
  if (is_new_) {
    return fmt::format(
        "this node is new, and waits for {} before its first claim: if ZooKeeper lost data, other nodes "
        "notice it within that time",
        FormatDuration(options_.watch));
  }
  // It has never met another one.
  if (others_.empty()) return std::nullopt;
  std::vector<std::string> unmoved;
  bool may_claim = false;  // one of them may: it has waited, or was there all the time
  for (const auto& [id, other] : others_) {
    may_claim = may_claim || (other.moved && !other.record.left);
    if (!other.is_covered() && !other.record.left && !other.moved)
      unmoved.push_back(fmt::format("{} on {}", other.record.process, other.record.host));
  }
  if (unmoved.empty() && may_claim) return std::nullopt;
  return fmt::format("this node was cut off, and waits for other nodes to report{}, for {} at most",
                     unmoved.empty() ? "" : fmt::format(" ({})", fmt::join(unmoved, ", ")),
                     FormatDuration(options_.watch));
}

// A node that is gone for good is not to be missed for ever: what it was granted is remembered here.
Result<void> Membership::Cover(const Look& look) {
  const MonotonicTime now = clock_.Monotonic();
  if (covered_at_ && now - *covered_at_ < kCoverInterval) return {};
  std::vector<std::string> gone;
  for (auto& [id, other] : others_) {
    const bool is_gone =
        other.record.left ? now - other.moved_at >= kNodeLeft : now - other.moved_at >= kNodeGone;
    if (other.is_covered() || !is_gone) continue;
    if (!other.record.left) {
      // It cannot claim after this without changing its record.
      NodeRecord left = other.record;
      left.left = true;
      LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                            client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                                           Operation::Set(tree_.Node(id), FormatNode(left), other.version)}));
      // No record: its owner has to join before it claims, and finds out that this has been removed.
      const bool removed = done.conflict == WriteOutcome::Conflict::kMissing && done.at == 1;
      if (!done.done() && !removed) continue;
      if (removed) {
        other.record.left = true;
        gone.push_back(id);
        continue;
      }
      log_.Info("{} on {} has not reported for {}: the cluster no longer waits for it", left.process,
                left.host, FormatDuration(std::chrono::duration_cast<std::chrono::milliseconds>(kNodeGone)));
      other.record = left;
      other.version = done.parts[1].stat ? done.parts[1].stat->version : other.version + 1;
    }
    gone.push_back(id);
  }
  if (!gone.empty()) {
    covered_at_ = now;
    LEAF_RETURN_IF_ERROR(KeepWitnesses());
    // If the servers went back after the records were read, those were older witnesses.
    LEAF_ASSIGN_OR_RETURN(const Look again, Read());
    if (WentBack(again) || again.number() != look.number()) return {};
    for (const std::string& id : gone) others_[id].covered = others_[id].beat;
    LEAF_RETURN_IF_ERROR(Save());
  }
  for (auto other = others_.begin(); other != others_.end();) {
    if (!other->second.is_covered() || !other->second.is_seen || !other->second.record.left ||
        clock_.Wall() - other->second.record.at < kNodeForgotten) {
      ++other;
      continue;
    }
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome removed,
        client_.Write({Operation::Delete(tree_.Node(other->first), other->second.version)}));
    (void)removed;  // if it has moved, the next look says so
    other = others_.erase(other);
  }
  return {};
}

Result<void> Membership::KeepWitnesses() {
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree_.Witnesses()));
  const auto names = children.value_or(std::vector<std::string>{});
  std::vector<std::pair<std::string, std::uint64_t>> ends;
  for (std::size_t begin = 0; begin < names.size(); begin += kWitnessesAtOnce) {
    std::vector<std::string> paths;
    const std::size_t end = std::min(names.size(), begin + kWitnessesAtOnce);
    for (std::size_t i = begin; i < end; ++i) paths.push_back(tree_.Witnesses() + "/" + names[i]);
    LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto tag = ParseWitnessName(names[begin + i]);
      if (!nodes[i] || !tag) continue;
      // No node can claim from one that cannot be read.
      if (const auto record = ParseWitness(nodes[i]->data); record.ok()) ends.emplace_back(*tag, record->end);
    }
  }
  return store_.RaiseWitnesses(ends);
}

}  // namespace leaf::zookeeper
