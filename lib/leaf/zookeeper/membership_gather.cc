// After ZooKeeper went back: the incarnation is raised, each node makes known again what it was granted, and
// then the incarnation is settled.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/time.h"
#include "leaf/zookeeper/cluster_records.h"
#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/membership.h"
#include "leaf/zookeeper/registry_options.h"

namespace leaf::zookeeper {

Result<Membership::Next> Membership::RaiseIncarnation(const Look& look, const std::string& why,
                                                      std::vector<Operation> evidence) {
  const std::uint64_t number = std::max(look.number(), memory_.incarnation) + 1;
  const std::string record = FormatNode(OwnRecord(look, 0, false));
  const std::string incarnation = FormatIncarnation(
      {.number = number, .settled = false, .why = why, .by = options_.process, .at = clock_.Wall()});
  std::vector<Operation> operations = std::move(evidence);
  operations.push_back(look.own ? Operation::Set(tree_.Node(memory_.id), record, look.own_version)
                                : Operation::CreateOwn(tree_.Node(memory_.id), record));
  operations.push_back(look.incarnation
                           ? Operation::Set(tree_.Incarnation(), incarnation, look.incarnation_version)
                           : Operation::CreateOwn(tree_.Incarnation(), incarnation));
  Close(State::kJoining, "ZooKeeper may have lost data: " + why);
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome raised, client_.Write(operations));
  if (raised.conflict == WriteOutcome::Conflict::kMissing) {
    LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    return Next::kLookAgain;
  }
  // What was read was old, or another node was faster.
  if (!raised.done()) return Next::kLookAgain;
  log_.Error(
      "ZooKeeper lost data: {}. All nodes of the cluster report their grants again (incarnation {}); no node "
      "claims a range until all have reported",
      why, number);
  // That this node takes part in it is remembered once it has contributed.
  Close(State::kGathering, "ZooKeeper lost data: " + why);
  const MutexLock lock(mutex_);
  ++status_.went_back;
  status_.incarnation = number;
  return Next::kLookAgain;
}

Result<Membership::Next> Membership::GiveBack(const Look& look, const Contribute& contribute) {
  if (look.number() > memory_.incarnation) {
    Close(State::kGathering,
          fmt::format("ZooKeeper lost data, as another node found ({}): all nodes report their grants again",
                      look.incarnation->why));
  }
  if (!look.own) {
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                          client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                                         Operation::CreateOwn(tree_.Node(memory_.id),
                                                              FormatNode(OwnRecord(look, 0, is_new_)))}));
    if (made.conflict == WriteOutcome::Conflict::kMissing)
      LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    return Next::kLookAgain;
  }
  if (!look.incarnation->settled) {
    // The record of one that had left: the others must not go on before this node has contributed.
    if (look.own->left && !is_new_ && look.own->contributed < look.number()) {
      const NodeRecord here = OwnRecord(look, look.own->contributed, false);
      LEAF_ASSIGN_OR_RETURN(
          const WriteOutcome said,
          client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                         Operation::Set(tree_.Node(memory_.id), FormatNode(here), look.own_version)}));
      if (said.done()) memory_.beat = here.beat;
      return Next::kLookAgain;
    }
    LEAF_ASSIGN_OR_RETURN(const Next put, PutBackOthers(look));
    if (put == Next::kLookAgain) return put;
  }
  LEAF_RETURN_IF_ERROR(contribute());
  const NodeRecord record = OwnRecord(look, look.number(), !has_opened_);
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome given,
      client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                     Operation::Set(tree_.Node(memory_.id), FormatNode(record), look.own_version)}));
  if (!given.done()) return Next::kLookAgain;
  touched_at_ = clock_.Boot();  // to make all known may take long
  memory_.incarnation = look.number();
  memory_.beat = record.beat;
  {
    const MutexLock lock(mutex_);
    status_.incarnation = look.number();
  }
  LEAF_RETURN_IF_ERROR(Save());
  return Next::kLookAgain;
}

// Nodes that this one knows of, and whose grants it may not know: they have to contribute, too.
Result<Membership::Next> Membership::PutBackOthers(const Look& look) {
  std::vector<std::string> ids;
  std::vector<std::string> paths;
  for (const auto& [id, other] : others_) {
    if (other.is_covered()) continue;
    ids.push_back(id);
    paths.push_back(tree_.Node(id));
  }
  if (ids.empty()) return Next::kWait;
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  Next next = Next::kWait;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    NodeRecord record = others_[ids[i]].record;
    Operation put = Operation::CreateOwn(paths[i], "");
    const std::uint64_t beat = others_[ids[i]].beat;
    if (nodes[i]) {
      auto stored = ParseNode(nodes[i]->data);
      if (!stored.ok()) return UnusableNode(paths[i], stored.error());
      if (stored->contributed >= look.number() || (!stored->left && stored->beat >= beat)) continue;
      record = std::move(*stored);
      put = Operation::Set(paths[i], "", nodes[i]->stat.version);
    }
    record.left = false;
    record.claims = true;
    // Another node may have covered it up to an older one.
    record.beat = std::max(record.beat, beat);
    record.contributed = std::min(record.contributed, look.number() - 1);
    put.data = FormatNode(record);
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome done,
        client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version), std::move(put)}));
    if (!done.done()) next = Next::kLookAgain;
  }
  return next;
}

Result<Membership::Next> Membership::Settle(const Look& look) {
  const auto list = [&]() -> Result<std::vector<std::string>> {
    LEAF_ASSIGN_OR_RETURN(auto children, client_.Children(tree_.Nodes()));
    auto ids = children.value_or(std::vector<std::string>{});
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> ids, list());
  std::vector<std::string> paths;
  paths.reserve(ids.size());
  for (const std::string& id : ids) paths.push_back(tree_.Node(id));
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  const MonotonicTime now = clock_.Monotonic();
  // While this node sees nothing, others may be cut off, too.
  if (!gathering_since_ || gathering_ != look.number() || now - gathering_at_ > kLostTouch) {
    gathering_ = look.number();
    gathering_since_ = now;
  }
  gathering_at_ = now;
  std::vector<std::string> waiting_for;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i]) return Next::kLookAgain;
    const auto record = ParseNode(nodes[i]->data);
    if (!record.ok()) {
      waiting_for.push_back(UnusableNode(paths[i], record.error()).message);
      continue;
    }
    if (ids[i] != memory_.id && (record->claims || !record->left)) {
      Other& other = Seen(ids[i], *record, nodes[i]->stat.version);
      // What it was granted is among what this node has made known.
      if (!record->left && record->contributed < look.number() && other.is_covered()) {
        NodeRecord left = *record;
        left.left = true;
        LEAF_ASSIGN_OR_RETURN(
            const WriteOutcome done,
            client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                           Operation::Set(paths[i], FormatNode(left), nodes[i]->stat.version)}));
        (void)done;
        return Next::kLookAgain;
      }
    }
    if (!record->left && record->contributed < look.number())
      waiting_for.push_back(NodeText(ids[i], *record));
  }
  // A node puts back those that it knows of before it says that it has contributed: a list that is the same
  // after all of them have said so is complete.
  LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> again, list());
  if (again != ids) return Next::kLookAgain;
  LEAF_RETURN_IF_ERROR(Save());
  if (!waiting_for.empty()) {
    Close(State::kGathering,
          fmt::format("ZooKeeper lost data ({}), and what was granted to {} is not known yet",
                      look.incarnation->why, fmt::join(waiting_for, ", ")),
          waiting_for);
    return Next::kWait;
  }
  // Within this time each node that is there finds out, and says so.
  if (now < *gathering_since_ + options_.watch) {
    Close(State::kGathering,
          fmt::format("ZooKeeper lost data ({}): nodes that no other node knows have {} to report",
                      look.incarnation->why, FormatDuration(options_.watch)));
    return Next::kWait;
  }
  // The records, too: each was read at a moment of its own, and one that had left may have been put back
  // after that, by a node that had contributed when it was read.
  LEAF_ASSIGN_OR_RETURN(const auto same, client_.GetAll(paths));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!same[i] || same[i]->stat.version != nodes[i]->stat.version) return Next::kLookAgain;
  }
  IncarnationRecord settled = *look.incarnation;
  settled.settled = true;
  settled.by = options_.process;
  settled.at = clock_.Wall();
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                        client_.Write({Operation::Check(tree_.Node(memory_.id), look.own_version),
                                       Operation::Set(tree_.Incarnation(), FormatIncarnation(settled),
                                                      look.incarnation_version)}));
  if (done.done())
    log_.Info("all nodes of the cluster have reported their grants (incarnation {})", settled.number);
  return Next::kLookAgain;
}

}  // namespace leaf::zookeeper
