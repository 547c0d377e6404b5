#include "leaf/zookeeper/fixed_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// How often others may come in between before a claim gives up for now.
constexpr int kClaimAttempts = 16;
constexpr int kWriteAttempts = 4;

Error KeepsChanging() {
  return {ErrorCode::kUnavailable, "others keep changing the same nodes in ZooKeeper, or the session changes",
          "retry"};
}

Error OwnedByOther(std::string_view address, std::uint64_t worker, const OwnerRecord& owner) {
  return {ErrorCode::kRefused,
          fmt::format(
              "worker {} of {} belongs to another state directory: {} on host {}, with address {}, since {}",
              worker, Quoted(address), Quoted(owner.uuid), Quoted(owner.host), Quoted(owner.address),
              FormatRfc3339(owner.since)),
          fmt::format("give this node an address of its own, or, if that one is gone for good, run `leafctl "
                      "worker release {}`",
                      worker)};
}

}  // namespace

FixedRegistry::FixedRegistry(RegistryOptions options, Client& client, const Clock& clock, Logger& log)
    : options_(std::move(options)), client_(client), clock_(clock), log_(log), presence_(client, log) {}

// ---- claim

Result<core::WorkerClaim> FixedRegistry::Claim(const core::NodeIdentity& node,
                                               const core::ClusterProperties& cluster) {
  const std::lock_guard lock(mutex_);
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
          "look at `leafctl worker check`; a restart claims a new number"};
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
                 "look at `leafctl worker check`, then restart this node"};
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
  const bool may_lag = ceiling_node && ceiling.uuid != node.uuid;
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
  return Attempt{core::WorkerClaim{own.worker, ceiling.generation, ceiling.ceiling, may_lag}};
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
      "its node is made again",
      worker);
  std::vector<Operation> operations{
      // Everything that moves Leaf's counter changes this version: two of them do not move it twice.
      Operation::Set(tree.Properties(), found[2]->data, found[2]->stat.version),
      Operation::Check(tree.Address(node.address), hold.version)};
  for (Operation& operation : RecreateNumber(tree, *forever, node.address, worker, clock_.Wall()))
    operations.push_back(std::move(operation));
  const Operation last = operations.back();
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client_.Write(operations));
  return made.done() && last.kind == Operation::Kind::kCreate ? std::optional(last.path) : again;
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
      // Whose the number is decides; a released one has no owner.
      const std::string owner_path = tree.Owner(*stored->worker);
      LEAF_ASSIGN_OR_RETURN(const auto owner_node, client_.Get(owner_path));
      if (owner_node) {
        const auto owner = ParseOwner(owner_node->data);
        if (!owner.ok()) return UnusableNode(owner_path, owner.error());
        if (owner->uuid != node.uuid && owner->uuid != node.former_uuid)
          return OwnedByOther(node.address, *stored->worker, *owner);
      }
    } else {
      // A first claim that is under way, or was never finished: nothing was issued. One that is under way
      // moves, or has finished by then.
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

// ---- renewal

Result<void> FixedRegistry::Renew(const core::WorkerClaim& claim, WallTime ceiling) {
  const std::lock_guard lock(mutex_);
  LEAF_RETURN_IF_ERROR(WriteCeiling(claim, ceiling, /*exactly=*/false));
  presence_.Refresh();
  return {};
}

Result<void> FixedRegistry::Release(const core::WorkerClaim& claim, WallTime end) {
  const std::lock_guard lock(mutex_);
  LEAF_RETURN_IF_ERROR(WriteCeiling(claim, end, /*exactly=*/true));
  presence_.End();
  return {};
}

Result<void> FixedRegistry::WriteCeiling(const core::WorkerClaim& claim, WallTime ceiling, bool exactly) {
  if (lost_) return *lost_;
  if (!held_)
    return Error{ErrorCode::kUnavailable, "this node has not registered with ZooKeeper yet", "retry"};
  if (claim.worker != held_->worker || claim.generation != held_->ceiling.generation)
    return Error{ErrorCode::kNotOwner, fmt::format("worker {} was claimed again since", claim.worker), ""};
  for (int attempt = 0; attempt < kWriteAttempts; ++attempt) {
    CeilingRecord next = held_->ceiling;
    next.ceiling = exactly ? ceiling : std::max(next.ceiling.value_or(ceiling), ceiling);
    const WallTime now = clock_.Wall();
    // Never earlier than what is there: it is what Java compares its clock with.
    const bool report = (exactly || clock_.Boot() >= held_->next_report) &&
                        UnixMillis(now) > held_->ceiling.leaf_timestamp_ms;
    if (report) {
      ++next.leaf_version;
      next.leaf_timestamp_ms = UnixMillis(now);
    }
    const std::int64_t session = client_.session_id();
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome written,
        client_.Write(
            {Operation::Check(held_->tree.Owner(held_->worker), held_->owner_version),
             Operation::Set(held_->tree.Ceiling(held_->worker), FormatCeiling(next), held_->ceiling_version),
             report ? Operation::Set(held_->leaf_path, FormatForeverData(held_->address, now),
                                     held_->ceiling.leaf_version)
                    : Operation::Check(held_->leaf_path, held_->ceiling.leaf_version)}));
    if (written.done()) {
      held_->ceiling_version = written.parts[1].stat->version;
      held_->ceiling = next;
      if (report) {
        LEAF_CHECK(written.parts[2].stat->version == next.leaf_version);
        held_->next_report = clock_.Boot() + core::kJavaReport;
      }
      return {};
    }
    LEAF_RETURN_IF_ERROR(Reconcile(session));
  }
  return KeepsChanging();
}

Result<void> FixedRegistry::Reconcile(std::int64_t session) {
  LEAF_ASSIGN_OR_RETURN(const auto nodes,
                        client_.GetAll({held_->tree.Owner(held_->worker), held_->tree.Ceiling(held_->worker),
                                        held_->leaf_path}));
  // A refused write is ordered like any other: what this session reads after it is no older. What another one
  // reads may be.
  if (session == 0 || client_.session_id() != session) return KeepsChanging();
  if (nodes[0]) {
    const auto owner = ParseOwner(nodes[0]->data);
    if (!owner.ok()) return Lost(owner.error().message);
    if (owner->uuid != held_->uuid)
      return Lost(fmt::format("it belongs to state directory {} on host {} now", Quoted(owner->uuid),
                              Quoted(owner->host)));
  }
  if (!nodes[1]) return PutBack(nodes[0], nodes[1], nodes[2]);
  auto ceiling = ParseCeiling(nodes[1]->data);
  if (!ceiling.ok()) return Lost(ceiling.error().message);
  // A claim that came after ours has another generation or uuid, and began at or above our ceiling. One that
  // came before has a lower generation, and a ceiling that ours began at.
  const bool is_ours = ceiling->uuid == held_->uuid && ceiling->generation == held_->ceiling.generation;
  if (!is_ours &&
      (ceiling->generation >= held_->ceiling.generation || ceiling->ceiling > held_->ceiling.ceiling))
    return Lost("another process has claimed it since");
  if (!is_ours || nodes[1]->stat.version < held_->ceiling_version)
    return PutBack(nodes[0], nodes[1], nodes[2]);
  if (!nodes[0]) return Lost("its owner was removed (`worker release`)");
  if (!nodes[2]) return Lost(fmt::format("{} was removed", Quoted(held_->leaf_path)));
  const auto data = ParseForeverData(nodes[2]->data);
  if (!data.ok() || nodes[2]->stat.version != ceiling->leaf_version ||
      data->timestamp_ms != ceiling->leaf_timestamp_ms) {
    return Displaced(fmt::format("a Java Leaf node is alive with this address: it writes to {}",
                                 Quoted(held_->leaf_path)));
  }
  // A write of ours whose reply was lost.
  held_->owner_version = nodes[0]->stat.version;
  held_->ceiling_version = nodes[1]->stat.version;
  held_->ceiling = *std::move(ceiling);
  return {};
}

Result<void> FixedRegistry::PutBack(const std::optional<NodeData>& owner,
                                    const std::optional<NodeData>& ceiling,
                                    const std::optional<NodeData>& leaf) {
  const Tree& tree = held_->tree;
  const std::uint64_t worker = held_->worker;
  LEAF_RETURN_IF_ERROR(PrepareTree(client_, tree, held_->properties, /*make_properties=*/true));
  const std::int64_t session = client_.session_id();
  LEAF_ASSIGN_OR_RETURN(const auto beside, client_.GetAll({tree.Properties(), tree.Address(held_->address)}));
  LEAF_ASSIGN_OR_RETURN(const auto forever, client_.Exists(tree.Forever()));
  Hold hold;
  hold.session = session;
  LEAF_ASSIGN_OR_RETURN(const auto numbers, FindOwn(tree, held_->address, hold));
  if (!beside[0] || !forever || !numbers) return KeepsChanging();
  LEAF_ASSIGN_OR_RETURN(const bool javas, IsJavas(tree, worker, *numbers));
  const auto displaced_by_java = [&](const Numbers& seen) {
    Error error = Displaced(fmt::format("ZooKeeper had forgotten it, and a Java Leaf node has it now: {}",
                                        Quoted(seen.others.at(worker))));
    error.hint = "restart this node: it then claims another number";
    lost_ = error;
    return error;
  };
  if (javas) return displaced_by_java(*numbers);

  CeilingRecord record = held_->ceiling;
  const WallTime now = clock_.Wall();
  std::vector<Operation> operations;
  const std::string address_data = FormatAddress({held_->uuid, worker});
  // An address that another state directory holds by now is left to it.
  if (!beside[1]) operations.push_back(Operation::CreateOwn(tree.Address(held_->address), address_data));
  operations.push_back(
      owner ? Operation::Check(tree.Owner(worker), owner->stat.version)
            : Operation::CreateOwn(tree.Owner(worker),
                                   FormatOwner({held_->uuid, held_->address, options_.host, now})));
  if (leaf) {
    auto data = ParseForeverData(leaf->data);
    if (!data.ok()) return UnusableNode(held_->leaf_path, data.error());
    record.leaf_version = leaf->stat.version;
    record.leaf_timestamp_ms = data->timestamp_ms;
    operations.push_back(Operation::Check(held_->leaf_path, leaf->stat.version));
  } else {
    record.leaf_version = 0;
    record.leaf_timestamp_ms = UnixMillis(now);
    std::vector<Operation> recreated = RecreateNumber(tree, *forever, held_->address, worker, now);
    const bool whole = recreated.back().kind == Operation::Kind::kCreate;
    // As in Recreate.
    recreated.insert(recreated.begin(),
                     Operation::Set(tree.Properties(), beside[0]->data, beside[0]->stat.version));
    if (!whole) {
      LEAF_RETURN_IF_ERROR(client_.Write(recreated));
      return {};
    }
    operations.insert(operations.end(), recreated.begin(), recreated.end());
  }
  operations.push_back(
      ceiling ? Operation::Set(tree.Ceiling(worker), FormatCeiling(record), ceiling->stat.version)
              : Operation::CreateOwn(tree.Ceiling(worker), FormatCeiling(record)));
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome written, client_.Write(operations));
  // Another node came in between: the caller looks again.
  if (!written.done()) return {};
  if (!leaf) held_->leaf_path = tree.ForeverNode(FormatForeverName(held_->address, worker));
  held_->owner_version = owner ? owner->stat.version : 0;
  held_->ceiling_version = ceiling ? written.parts.back().stat->version : 0;
  held_->ceiling = std::move(record);
  times_put_back_.fetch_add(1);
  // Java knows no owner, and may have made a node of the number between the look and the write.
  LEAF_ASSIGN_OR_RETURN(const auto after, FindOwn(tree, held_->address, hold));
  if (!after) return KeepsChanging();
  LEAF_ASSIGN_OR_RETURN(const bool java_came, IsJavas(tree, worker, *after));
  if (java_came) return displaced_by_java(*after);
  log_.Warning(
      "worker {}: ZooKeeper knew less of it than it had acknowledged (it was restored from a backup, or "
      "wiped): "
      "this node's records are put back",
      worker);
  return {};
}

Error FixedRegistry::Lost(std::string why) {
  presence_.End();
  lost_ = Error{ErrorCode::kNotOwner, fmt::format("worker {} is lost: {}", held_->worker, why),
                fmt::format("look at `leafctl worker show {}`; a restart of this node claims a number again",
                            held_->worker)};
  return *lost_;
}

Error FixedRegistry::Displaced(std::string why) {
  Error error = Lost(std::move(why));
  error.code = ErrorCode::kRefused;
  error.hint = "stop that node: this one then claims its number again by itself";
  lost_ = error;
  return error;
}

}  // namespace leaf::zookeeper
