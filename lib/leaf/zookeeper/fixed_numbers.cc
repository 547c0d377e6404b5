// The numbers of an address: its nodes under `forever`, and the hold that they are made under.
#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/zookeeper/fixed_registry.h"

namespace leaf::zookeeper {

Error FixedRegistry::OwnedByOther(std::string_view address, std::uint64_t worker, const OwnerRecord& owner) {
  return {ErrorCode::kRefused,
          fmt::format(
              "worker {} of {} belongs to another state directory: {} on host {}, with address {}, since {}",
              worker, Quoted(address), Quoted(owner.uuid), Quoted(owner.host), Quoted(owner.address),
              FormatRfc3339(owner.since)),
          fmt::format("give this node an address of its own, or, if that one is gone for good, run `leafctl "
                      "worker release {}`",
                      worker)};
}

Result<std::optional<FixedRegistry::Hold>> FixedRegistry::TakeHold(const Tree& tree,
                                                                   const core::NodeIdentity& node) {
  const std::optional<Hold> again;
  const std::string path = tree.Address(node.address);
  Hold hold;
  hold.session = client_.session_id();
  hold.record.uuid = node.uuid;
  LEAF_ASSIGN_OR_RETURN(const auto found, client_.Get(path));
  if (!found) {
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                          client_.Write({Operation::CreateOwn(path, FormatAddress(hold.record))}));
    return made.done() ? std::optional(hold) : again;
  }

  const auto stored = ParseAddress(found->data);
  if (!stored.ok()) return UnusableNode(path, stored.error());
  if (stored->uuid != node.uuid) {
    if (stored->worker) {
      // The owner of the number decides; a released number has none.
      const std::string owner_path = tree.Owner(*stored->worker);
      LEAF_ASSIGN_OR_RETURN(const auto owner_node, client_.Get(owner_path));
      if (owner_node) {
        const auto owner = ParseOwner(owner_node->data);
        if (!owner.ok()) return UnusableNode(owner_path, owner.error());
        if (owner->uuid != node.uuid && owner->uuid != node.former_uuid)
          return OwnedByOther(node.address, *stored->worker, *owner);
      }
    } else {
      // A first claim that is under way, or was never finished: nothing was issued. A claim that is under way
      // changes the node, or finishes, within this time.
      const BootTime end = clock_.Boot() + core::kJavaWatch;
      while (WaitTowards(clock_, end, interrupted_)) {
      }
      if (interrupted_.load()) return InterruptedClaim();
    }
  }
  hold.record.worker = stored->worker;
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome raised,
      client_.Write({Operation::Set(path, FormatAddress(hold.record), found->stat.version)}));
  if (!raised.done()) return again;
  hold.version = raised.parts[0].stat->version;
  return std::optional(hold);
}

Result<std::optional<FixedRegistry::Numbers>> FixedRegistry::FindOwn(const Tree& tree,
                                                                     const std::string& address,
                                                                     const Hold& hold) {
  const std::optional<Numbers> again;
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree.Forever()));
  Numbers numbers;
  std::vector<LeafNode>& own = numbers.own;
  std::vector<std::string> paths;
  for (const std::string& child : children.value_or(std::vector<std::string>{})) {
    const auto name = ParseForeverName(child);
    if (!name) continue;
    if (name->address != address) {
      numbers.others.emplace(name->worker, child);
      continue;
    }
    own.push_back({child, name->worker, {}, {}});
    paths.push_back(tree.ForeverNode(child));
  }
  LEAF_ASSIGN_OR_RETURN(auto nodes, client_.GetAll(paths));
  // In another session what was seen may be older than our hold (S7).
  if (!children || hold.session == 0 || client_.session_id() != hold.session) return again;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!nodes[i]) return again;
    auto data = ParseForeverData(nodes[i]->data);
    if (!data.ok()) return UnusableNode(paths[i], data.error());
    if (data->timestamp_ms > core::kEpochMillisMax)
      return UnusableNode(paths[i],
                          {ErrorCode::kInvalidArgument, "its timestamp is beyond the year 9999", ""});
    own[i].node = *std::move(nodes[i]);
    own[i].data = *std::move(data);
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::string>> FixedRegistry::CreateOwn(const Tree& tree, const std::string& address,
                                                            const Hold& hold,
                                                            const core::ClusterProperties& cluster) {
  const std::optional<std::string> again;
  // A number that is made is used up: not if it would be of no use.
  LEAF_ASSIGN_OR_RETURN(const auto forever, client_.Exists(tree.Forever()));
  if (!forever) return again;
  LEAF_RETURN_IF_ERROR(
      CheckNumber(NextForeverNumber(forever->child_version, forever->children), cluster, /*fresh=*/true));
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome made,
      client_.Write({Operation::Check(tree.Address(address), hold.version),
                     Operation::CreateSequential(tree.ForeverPrefix(address),
                                                 FormatForeverData(address, clock_.Wall()))}));
  if (!made.done()) return again;
  return std::optional(made.parts[1].path);
}

Result<bool> FixedRegistry::IsJavas(const Tree& tree, std::uint64_t worker, const Numbers& numbers) {
  const auto other = numbers.others.find(worker);
  if (other == numbers.others.end()) return false;
  // A node of ours holds its address first.
  const auto name = ParseForeverName(other->second);
  LEAF_ASSIGN_OR_RETURN(const auto hold, client_.Exists(tree.Address(name->address)));
  return !hold;
}

Result<std::optional<std::string>> FixedRegistry::Recreate(const Tree& tree, const core::NodeIdentity& node,
                                                           const Hold& hold, std::uint64_t worker,
                                                           const Numbers& numbers,
                                                           const core::ClusterProperties& cluster) {
  const std::optional<std::string> again;
  const std::optional<std::string> not_possible("");
  LEAF_ASSIGN_OR_RETURN(const auto found,
                        client_.GetAll({tree.Owner(worker), tree.Ceiling(worker), tree.Properties()}));
  LEAF_ASSIGN_OR_RETURN(const auto forever, client_.Exists(tree.Forever()));
  // In another session what was seen may be older than our hold (S7).
  if (!found[2] || !forever || client_.session_id() != hold.session) return again;
  // Known, and without a node of this address: the number was released, or the address is another one now.
  if (found[0] || found[1]) return not_possible;
  LEAF_ASSIGN_OR_RETURN(const bool javas, IsJavas(tree, worker, numbers));
  if (javas) return not_possible;
  LEAF_RETURN_IF_ERROR(CheckNumber(worker, cluster, /*fresh=*/false));
  log_.Warning(
      "ZooKeeper has forgotten worker {} of this state directory (restored from a backup, or wiped): "
      "creating its node again",
      worker);
  std::vector<Operation> operations{
      // Everything that moves Leaf's counter changes this version: two of them do not move it twice.
      Operation::Set(tree.Properties(), found[2]->data, found[2]->stat.version),
      Operation::Check(tree.Address(node.address), hold.version)};
  for (Operation& operation : RecreateNumber(tree, *forever, node.address, worker, clock_.Wall()))
    operations.push_back(std::move(operation));
  const Operation last = operations.back();
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client_.Write(operations));
  if (!made.done() || last.kind != Operation::Kind::kCreate) return again;
  times_put_back_.fetch_add(1);
  return std::optional(last.path);
}

Result<void> FixedRegistry::GiveUp(const Tree& tree, const std::string& address, const Hold& hold,
                                   const LeafNode& leaf) {
  log_.Warning("worker {} belongs to another node: {} is given up, and another number is claimed",
               leaf.worker, Quoted(leaf.name));
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome removed,
      client_.Write({Operation::Set(tree.Address(address), FormatAddress({hold.record.uuid, std::nullopt}),
                                    hold.version),
                     Operation::Delete(tree.ForeverNode(leaf.name), leaf.node.stat.version)}));
  // If it was not done, the next look tells why.
  (void)removed;
  return {};
}

Result<void> FixedRegistry::CheckNumber(std::uint64_t worker, const core::ClusterProperties& cluster,
                                        bool fresh) const {
  const std::uint64_t layout_end = cluster.layout.worker_end();
  if (worker >= layout_end) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("the number for this node is {}, and layout {} has room for 0..{}: all worker numbers "
                    "of the cluster are used up",
                    worker, cluster.layout.Bits(), layout_end - 1),
        "numbers under `forever` never come back: give this node the address of one that is gone (and "
        "`leafctl worker release` its number), or begin a new cluster name with snowflake.recycle = true"};
  }
  if (worker < options_.worker_begin || worker >= options_.worker_end) {
    // New numbers only grow.
    return Error{
        fresh && worker >= options_.worker_end ? ErrorCode::kExhausted : ErrorCode::kRefused,
        fmt::format("the number for this node is {}, which is not in {}..{} (snowflake.worker_range)", worker,
                    options_.worker_begin, options_.worker_end - 1),
        "widen snowflake.worker_range, or give this node the address of one that is gone"};
  }
  return {};
}

}  // namespace leaf::zookeeper
