// The claim of a fixed number, step by step: find the number, read its records, watch it, write them.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/zookeeper/fixed_registry.h"

namespace leaf::zookeeper {
namespace {

// How often others may come in between before a claim gives up for now.
constexpr int kClaimAttempts = 16;

}  // namespace

Result<core::WorkerClaim> FixedRegistry::Claim(const core::NodeIdentity& node,
                                               const core::ClusterProperties& cluster) {
  const MutexLock lock(mutex_);
  LEAF_RETURN_IF_ERROR(ValidateAddress(node.address));
  LEAF_ASSIGN_OR_RETURN(const Tree tree, Tree::Make(cluster.name, options_.root));
  PropertiesRecord properties{cluster, false};
  properties.cluster.registry = kRegistryKind;
  // A number that this process lost is no new one, and it gets no other.
  bool has_watched = node.again || !options_.watches_claims();
  // What a new node believes of the cluster binds others once it has waited for those that know.
  LEAF_RETURN_IF_ERROR(PrepareTree(client_, tree, properties, has_watched || node.held));
  seen_before_watch_.clear();
  for (int attempt = 0; attempt < kClaimAttempts; ++attempt) {
    LEAF_ASSIGN_OR_RETURN(const Attempt tried, TryClaim(tree, node, properties, has_watched));
    if (tried.watch_first) {
      LEAF_RETURN_IF_ERROR(WatchForOwners(client_, tree, options_, clock_, log_, interrupted_));
      has_watched = true;
      LEAF_RETURN_IF_ERROR(PrepareTree(client_, tree, properties, /*make_properties=*/true));
    }
    if (!tried.claim) continue;
    lost_.reset();
    presence_.Begin(tree, node.address, {options_.advertise, tried.claim->worker, node.uuid});
    return *tried.claim;
  }
  return KeepsChanging();
}

Result<FixedRegistry::Attempt> FixedRegistry::TryClaim(const Tree& tree, const core::NodeIdentity& node,
                                                       const PropertiesRecord& properties, bool has_watched) {
  Found found;
  LEAF_ASSIGN_OR_RETURN(Step step, FindNumber(tree, node, properties.cluster, has_watched, found));
  if (step == Step::kGoOn) {
    LEAF_ASSIGN_OR_RETURN(step, ReadRecords(tree, node, found));
  }
  if (step == Step::kGoOn && found.own().worker != found.held) {
    node.TellDenied();
    if (!has_watched) {
      for (const LeafNode& leaf : found.numbers.own)
        seen_before_watch_.emplace(tree.ForeverNode(leaf.name), leaf.node.stat.modified_zxid);
      if (found.ceiling_node)
        seen_before_watch_.emplace(tree.Ceiling(found.own().worker), found.ceiling_node->stat.modified_zxid);
      step = Step::kWatchFirst;
    }
  }
  if (step != Step::kGoOn) return Attempt{std::nullopt, step == Step::kWatchFirst};
  LEAF_RETURN_IF_ERROR(WatchForOthers(tree, node, found));
  return WriteClaim(tree, node, properties, std::move(found));
}

Result<FixedRegistry::Step> FixedRegistry::FindNumber(const Tree& tree, const core::NodeIdentity& node,
                                                      const core::ClusterProperties& cluster,
                                                      bool has_watched, Found& found) {
  LEAF_ASSIGN_OR_RETURN(const auto hold, TakeHold(tree, node));
  if (!hold) return Step::kAgain;
  found.hold = *hold;

  LEAF_ASSIGN_OR_RETURN(auto numbers, FindOwn(tree, node.address, *hold));
  if (!numbers) return Step::kAgain;
  std::string& created = found.created;
  // A copy has held nothing: where ZooKeeper went back its original may not have come back yet.
  found.held = node.again ? node.again : node.former_uuid.empty() ? node.held : std::nullopt;
  if (numbers->own.empty() && found.held) {
    LEAF_ASSIGN_OR_RETURN(const auto path, Recreate(tree, node, *hold, *found.held, *numbers, cluster));
    if (!path) return Step::kAgain;
    created = *path;
  }
  if (numbers->own.empty() && created.empty()) {
    if (node.again) {
      return Error{
          ErrorCode::kRefused,
          fmt::format("no node of {} is under {} any more", Quoted(node.address), Quoted(tree.Forever())),
          "run `leafctl worker check`; a restart claims a new number"};
    }
    node.TellDenied();
    if (!has_watched) return Step::kWatchFirst;
    LEAF_ASSIGN_OR_RETURN(const auto path, CreateOwn(tree, node.address, *hold, cluster));
    if (!path) return Step::kAgain;
    created = *path;
  }
  if (!created.empty()) {
    // Again: a Java node of this address may have made one at the same moment (S4).
    LEAF_ASSIGN_OR_RETURN(numbers, FindOwn(tree, node.address, *hold));
    if (!numbers || numbers->own.empty()) return Step::kAgain;
  }
  found.numbers = *std::move(numbers);
  std::vector<LeafNode>& nodes = found.numbers.own;
  // The one we had before; else the one that was written last.
  const auto find = [&](std::optional<std::uint64_t> worker) {
    return std::find_if(nodes.begin(), nodes.end(),
                        [&](const LeafNode& leaf) { return leaf.worker == worker; });
  };
  auto own = find(hold->record.worker);
  if (own == nodes.end()) own = find(found.held);
  if (own == nodes.end()) {
    own = std::max_element(nodes.begin(), nodes.end(), [](const LeafNode& a, const LeafNode& b) {
      return a.node.stat.modified_zxid < b.node.stat.modified_zxid;
    });
  }
  if (node.again && own->worker != *node.again) {
    return Error{ErrorCode::kRefused,
                 fmt::format("{} has the number {} now", Quoted(node.address), own->worker),
                 "run `leafctl worker check`, then restart this node"};
  }
  found.own_index = static_cast<std::size_t>(own - nodes.begin());
  LEAF_RETURN_IF_ERROR(CheckNumber(own->worker, cluster, found.is_new(tree)));
  return Step::kGoOn;
}

Result<FixedRegistry::Step> FixedRegistry::ReadRecords(const Tree& tree, const core::NodeIdentity& node,
                                                       Found& found) {
  const LeafNode& own = found.own();
  const std::string owner_path = tree.Owner(own.worker);
  const std::string ceiling_path = tree.Ceiling(own.worker);
  LEAF_ASSIGN_OR_RETURN(auto beside, client_.GetAll({owner_path, ceiling_path}));
  found.owner_node = std::move(beside[0]);
  found.ceiling_node = std::move(beside[1]);
  if (found.owner_node) {
    const auto owner = ParseOwner(found.owner_node->data);
    if (!owner.ok()) return UnusableNode(owner_path, owner.error());
    found.formerly_ours = owner->uuid != node.uuid;
    if (found.formerly_ours && owner->uuid != node.former_uuid) {
      if (owner->address == node.address || node.again) return OwnedByOther(node.address, own.worker, *owner);
      LEAF_RETURN_IF_ERROR(GiveUp(tree, node.address, found.hold, own));
      return Step::kAgain;
    }
  }
  if (found.is_new(tree) && found.numbers.others.count(own.worker) > 0) {
    // Another node of ours that is claiming it meets our owner, if the number was this node's before.
    LEAF_ASSIGN_OR_RETURN(const bool javas, IsJavas(tree, own.worker, found.numbers));
    if (javas || own.worker != found.held) {
      LEAF_RETURN_IF_ERROR(GiveUp(tree, node.address, found.hold, own));
      return Step::kAgain;
    }
  }
  found.covered = found.is_new(tree);
  if (found.ceiling_node) {
    auto stored = ParseCeiling(found.ceiling_node->data);
    if (!stored.ok()) return UnusableNode(ceiling_path, stored.error());
    found.ceiling = *std::move(stored);
    found.covered = found.covered || (found.ceiling.leaf_version == own.node.stat.version &&
                                      found.ceiling.leaf_timestamp_ms == own.data.timestamp_ms);
  }
  return Step::kGoOn;
}

Result<void> FixedRegistry::WatchForOthers(const Tree& tree, const core::NodeIdentity& node,
                                           const Found& found) {
  const LeafNode& own = found.own();
  if (found.formerly_ours && found.ceiling_node) {
    log_.Info("watching worker {} for {} ms: this state directory may be a copy of one that is in use",
              own.worker, core::kCopyWatch.count());
    LEAF_ASSIGN_OR_RETURN(const bool unmoved,
                          WatchUnmoved({{tree.Ceiling(own.worker), found.ceiling_node->stat},
                                        {tree.ForeverNode(own.name), own.node.stat}},
                                       core::kCopyWatch));
    if (!unmoved) {
      return Error{ErrorCode::kRefused,
                   fmt::format("another process is alive with a copy of this state directory: it reports as "
                               "worker {} of {}",
                               own.worker, Quoted(node.address)),
                   "stop one of the two; a second node needs a state directory and an address of its own"};
    }
  } else if (!found.covered || found.numbers.own.size() > 1) {
    log_.Info("watching {} for {} ms: another program may be using this address", Quoted(own.name),
              core::kJavaWatch.count());
    // Before the wait: ZooKeeper may go away meanwhile, and a node that has seen the traces of another
    // program does not start without it.
    node.TellDenied();
    std::vector<std::pair<std::string, NodeStat>> watched;
    for (const LeafNode& leaf : found.numbers.own)
      watched.emplace_back(tree.ForeverNode(leaf.name), leaf.node.stat);
    LEAF_ASSIGN_OR_RETURN(const bool unmoved, WatchUnmoved(watched, core::kJavaWatch));
    if (!unmoved) {
      return Error{ErrorCode::kRefused,
                   fmt::format("a Java Leaf node is alive with the address {}: it writes to {}",
                               Quoted(node.address), Quoted(tree.ForeverNode(own.name))),
                   "stop it first, or give this node another snowflake.address"};
    }
  }
  return {};
}

Result<FixedRegistry::Attempt> FixedRegistry::WriteClaim(const Tree& tree, const core::NodeIdentity& node,
                                                         const PropertiesRecord& properties, Found found) {
  const LeafNode& own = found.own();
  const std::optional<NodeData>& owner_node = found.owner_node;
  const std::optional<NodeData>& ceiling_node = found.ceiling_node;
  const bool formerly_ours = found.formerly_ours;
  CeilingRecord& ceiling = found.ceiling;
  // One that never told a ceiling has begun when it reported first.
  if (ceiling_node && ceiling.uuid != node.uuid) {
    const WallTime told =
        ceiling.ceiling.value_or(WallTimeOf(std::max<std::int64_t>(own.data.timestamp_ms, 0)));
    ceiling.ceiling = told + core::UntoldMax(options_.window);
  }
  if (!found.covered) {
    for (const LeafNode& leaf : found.numbers.own) {
      const WallTime end = WallTimeOf(std::max<std::int64_t>(leaf.data.timestamp_ms, 0)) + core::kJavaMargin;
      ceiling.ceiling = std::max(ceiling.ceiling.value_or(end), end);
    }
  }

  ceiling.uuid = node.uuid;
  ++ceiling.generation;
  ceiling.leaf_version = own.node.stat.version;
  ceiling.leaf_timestamp_ms = own.data.timestamp_ms;
  const std::string owner_path = tree.Owner(own.worker);
  const std::string ceiling_path = tree.Ceiling(own.worker);
  std::vector<Operation> operations{
      Operation::Set(tree.Address(node.address), FormatAddress({node.uuid, own.worker}), found.hold.version)};
  const std::string owner = FormatOwner({node.uuid, node.address, options_.host, clock_.Wall()});
  operations.push_back(!owner_node     ? Operation::CreateOwn(owner_path, owner)
                       : formerly_ours ? Operation::Set(owner_path, owner, owner_node->stat.version)
                                       : Operation::Check(owner_path, owner_node->stat.version));
  operations.push_back(ceiling_node
                           ? Operation::Set(ceiling_path, FormatCeiling(ceiling), ceiling_node->stat.version)
                           : Operation::CreateOwn(ceiling_path, FormatCeiling(ceiling)));
  for (const LeafNode& leaf : found.numbers.own)
    operations.push_back(Operation::Check(tree.ForeverNode(leaf.name), leaf.node.stat.version));
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome claimed, client_.Write(operations));
  if (!claimed.done()) return Attempt{};

  held_.emplace(Held{tree, properties, node.address, node.uuid, own.worker, tree.ForeverNode(own.name),
                     formerly_ours ? claimed.parts[1].stat->version
                     : owner_node  ? owner_node->stat.version
                                   : 0,
                     ceiling_node ? claimed.parts[2].stat->version : 0, ceiling, clock_.Boot()});
  return Attempt{core::WorkerClaim{own.worker, ceiling.generation, ceiling.ceiling}};
}

Result<bool> FixedRegistry::WatchUnmoved(const std::vector<std::pair<std::string, NodeStat>>& nodes,
                                         std::chrono::milliseconds time) {
  std::vector<std::string> paths;
  paths.reserve(nodes.size());
  bool watched = true;
  for (const auto& [path, stat] : nodes) {
    paths.push_back(path);
    const auto seen = seen_before_watch_.find(path);
    watched = watched && seen != seen_before_watch_.end() && seen->second == stat.modified_zxid;
  }
  // The watch for owners took longer than this one would.
  if (watched && options_.WatchTime() >= time) return true;
  const BootTime end = clock_.Boot() + time;
  while (WaitTowards(clock_, end, interrupted_)) {
    LEAF_ASSIGN_OR_RETURN(const auto now, client_.GetAll(paths));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!now[i] || now[i]->stat.modified_zxid != nodes[i].second.modified_zxid) return false;
    }
  }
  // Not watched for long enough: nothing is known.
  if (interrupted_.load()) return InterruptedClaim();
  return true;
}

}  // namespace leaf::zookeeper
