#include "leaf/zookeeper/lease_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

constexpr int kLeaseWriteAttempts = 4;
constexpr int kRaceRounds = 256;
// A ceiling that is no further ahead is waited for by the node that starts (snowflake.start_wait).
constexpr std::chrono::milliseconds kUsableAhead{10'000};
// The rank of what must not be taken.
constexpr int kLive = 4;
// How far the state directory may be ahead of the record of a lease that is held: a ceiling is durable there
// first, and a node that was killed may not have told it.
constexpr std::chrono::milliseconds kUntoldMax{5000};
// How long after its last contact a node takes its own lease without a watch: as long as a restart takes, and
// no longer than a lease, so that no other node can have found that it ran out.
constexpr std::chrono::milliseconds kRestartMax{30'000};

}  // namespace

LeaseRegistry::LeaseRegistry(RegistryOptions options, Client& client, const Clock& clock, Logger& log)
    : options_(std::move(options)), client_(client), clock_(clock), log_(log), presence_(client, log) {}

// ---- claim

Result<core::WorkerClaim> LeaseRegistry::Claim(const core::NodeIdentity& node,
                                               const core::ClusterProperties& cluster) {
  const MutexLock lock(mutex_);
  met_a_copy_.store(false);
  LEAF_RETURN_IF_ERROR(ValidateAddress(node.address));
  LEAF_ASSIGN_OR_RETURN(const Tree tree, Tree::Make(cluster.name, options_.root));
  PropertiesRecord properties{cluster, true};
  properties.cluster.registry = kRegistryKind;
  // As with a fixed number.
  LEAF_RETURN_IF_ERROR(
      PrepareTree(client_, tree, properties, !options_.watches_claims() || node.held.has_value()));

  const auto patience = options_.lease_time + kLeaseMargin;
  // From when on a lease that nothing renewed since the first look has run out.
  std::optional<BootTime> until;
  bool told_of_fork = false;
  // The fence of I1 holds for records that ZooKeeper has not forgotten.
  bool watched = !options_.watches_claims();
  const std::chrono::milliseconds away = clock_.Wall() - node.last_contact;
  const std::chrono::milliseconds restart_max = std::min(options_.lease_time, kRestartMax);
  const bool was_away = away.count() < 0 || away > restart_max;
  int rounds = 0;
  while (true) {
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t next, NextOfLeaf(tree));
    const std::uint64_t range_end = std::min(options_.worker_end, cluster.layout.worker_end());
    const std::uint64_t range_begin = std::max(options_.worker_begin, next + kClaimMargin);
    if (range_begin >= range_end) {
      return Error{
          ErrorCode::kExhausted,
          fmt::format(
              "no worker number is left to lease in {}..{}: Leaf's own tree is at {}, and leases stay "
              "{} above that",
              options_.worker_begin, options_.worker_end - 1, next, kClaimMargin),
          "widen snowflake.worker_range, or begin a new cluster name"};
    }
    LEAF_ASSIGN_OR_RETURN(const ForkNumbers fork, ReadForkNumbers(client_, tree, clock_.Wall()));
    if (fork.fresh > 0 && !std::exchange(told_of_fork, true)) {
      log_.Warning(
          "{} worker numbers are in use by nodes of the fork in mode zk_recycle: no number that is "
          "under {} is leased",
          fork.fresh, Quoted(tree.RecycleUsed()));
    }
    LEAF_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Look(tree, range_begin, range_end, fork));
    const BootTime looked = clock_.Boot();
    const std::vector<Ranked> ranked = InOrder(candidates, node, fork);
    const bool own_first =
        !ranked.empty() && ranked.front().order.first < kLive && IsOwn(*ranked.front().candidate, node);
    if (!watched && !(own_first && !was_away)) {
      const std::string why =
          own_first ? fmt::format("ZooKeeper has not confirmed worker {} to this node within the last {}",
                                  ranked.front().candidate->worker, FormatDuration(restart_max))
                    : std::string(kNewNumber);
      LEAF_RETURN_IF_ERROR(WatchForOwners(client_, tree, options_, clock_, log_, interrupted_, why));
      watched = true;
      LEAF_RETURN_IF_ERROR(PrepareTree(client_, tree, properties, /*make_properties=*/true));
      continue;
    }
    bool raced = false;
    for (const auto& [order, candidate] : ranked) {
      if (order.first == kLive) break;
      if (!watched && !IsOwn(*candidate, node)) break;
      LEAF_ASSIGN_OR_RETURN(const auto claim, Take(tree, properties, node, *candidate));
      if (claim) {
        lost_.reset();
        observed_.clear();
        presence_.Begin(tree, node.address, {options_.advertise, claim->worker, node.uuid});
        return *claim;
      }
      raced = true;
    }
    // The node that won has changed what there is: with every round one node gets on.
    if (raced && ++rounds < kRaceRounds) continue;
    if (raced) return Error{ErrorCode::kUnavailable, "the leases in ZooKeeper keep changing", "retry"};
    if (until && looked >= *until) {
      return Error{
          ErrorCode::kExhausted,
          fmt::format("all worker numbers in {}..{} are in use by live nodes", range_begin, range_end - 1),
          "widen snowflake.worker_range, or stop a node"};
    }
    if (!until) {
      until = clock_.Boot() + patience;
      log_.Info("all worker numbers in {}..{} are leased: watching for {} whether one has run out",
                range_begin, range_end - 1, FormatDuration(patience));
    }
    WaitTowards(clock_, *until, interrupted_);
    if (interrupted_.load()) return InterruptedClaim();
  }
}

// The node's own first; then what is free; then what has run out. No node can use a number whose ceiling is
// far ahead until then: a clock that was wrong, or is, may only cost that number, not every start.
std::vector<LeaseRegistry::Ranked> LeaseRegistry::InOrder(const std::vector<Candidate>& candidates,
                                                          const core::NodeIdentity& node,
                                                          const ForkNumbers& fork) {
  const BootTime now = clock_.Boot();
  const WallTime usable_until = clock_.Wall() + kUsableAhead;
  using Rank = std::pair<int, std::chrono::milliseconds>;
  const auto rank = [&](const Candidate& candidate) LEAF_REQUIRES(mutex_) -> Rank {
    if (fork.fresh > 0 && candidate.fork && candidate.fork->in_use) return {kLive, {}};
    const auto ahead = std::max(candidate.record.ceiling.value_or(usable_until) - usable_until,
                                std::chrono::milliseconds{0});
    if (candidate.record.uuid == node.uuid || IsOwn(candidate, node))
      return {ahead.count() > 0 ? 3 : 0, ahead};
    // A number in neither of the fork's folders may be on its way from one to the other.
    const bool moving = fork.exists && !candidate.fork && !candidate.node;
    if (candidate.record.uuid.empty()) return {ahead.count() > 0 ? 3 : moving ? 2 : 1, ahead};
    if (!HasRunOut(candidate, now)) return {kLive, {}};
    return {ahead.count() > 0 ? 3 : 2, ahead};
  };
  std::vector<Ranked> ranked;
  ranked.reserve(candidates.size());
  for (const Candidate& candidate : candidates) ranked.push_back({rank(candidate), &candidate});
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.order < b.order; });
  return ranked;
}

Result<std::vector<LeaseRegistry::Candidate>> LeaseRegistry::Look(const Tree& tree, std::uint64_t begin,
                                                                  std::uint64_t end,
                                                                  const ForkNumbers& fork) {
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree.Leases()));
  std::map<std::uint64_t, std::size_t> index;
  std::vector<std::string> paths;
  for (const std::string& child : children.value_or(std::vector<std::string>{})) {
    const auto worker = ParseNumberName(child);
    if (!worker || *worker < begin || *worker >= end) continue;
    index.emplace(*worker, paths.size());
    paths.push_back(tree.Lease(*worker));
  }
  LEAF_ASSIGN_OR_RETURN(auto nodes, client_.GetAll(paths));
  std::vector<Candidate> candidates;
  for (std::uint64_t worker = end; worker-- > begin;) {
    Candidate candidate{worker, std::nullopt, {}, std::nullopt};
    if (const auto found = index.find(worker); found != index.end()) {
      candidate.node = std::move(nodes[found->second]);
      if (candidate.node) {
        auto record = ParseLease(candidate.node->data);
        if (!record.ok()) {
          log_.Warning("{}", UnusableNode(paths[found->second], record.error()).message);
          continue;
        }
        candidate.record = *std::move(record);
      }
    }
    if (const ForkNumber* const taken = fork.Find(worker)) {
      candidate.fork = *taken;
      if (taken->ceiling)
        candidate.record.ceiling =
            std::max(candidate.record.ceiling.value_or(*taken->ceiling), *taken->ceiling);
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

bool LeaseRegistry::IsOwn(const Candidate& candidate, const core::NodeIdentity& node) {
  const LeaseRecord& record = candidate.record;
  if (node.held != candidate.worker || !candidate.node || !record.ceiling) return false;
  if (record.uuid == node.uuid) return *record.ceiling + kUntoldMax >= node.held_ceiling;
  return record.uuid.empty() && *record.ceiling == node.held_ceiling;
}

Result<std::optional<core::WorkerClaim>> LeaseRegistry::Take(const Tree& tree,
                                                             const PropertiesRecord& properties,
                                                             const core::NodeIdentity& node,
                                                             const Candidate& candidate) {
  LeaseRecord record = candidate.record;
  ++record.generation;
  record.uuid = node.uuid;
  record.address = node.address;
  const std::string path = tree.Lease(candidate.worker);
  std::vector<Operation> operations{
      candidate.node ? Operation::Set(path, FormatLease(record), candidate.node->stat.version)
                     : Operation::CreateOwn(path, FormatLease(record))};
  if (candidate.fork) operations.push_back(Operation::Delete(candidate.fork->path, candidate.fork->version));
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome taken, client_.Write(operations));
  if (!taken.done()) return std::optional<core::WorkerClaim>{};
  Held held{tree, properties, candidate.worker, record, 0, std::nullopt};
  if (candidate.node) {
    held.version = taken.parts[0].stat->version;
    held.created_zxid = taken.parts[0].stat->created_zxid;
  }
  held_ = std::move(held);
  return std::optional(core::WorkerClaim{candidate.worker, record.generation, record.ceiling});
}

bool LeaseRegistry::HasRunOut(const Candidate& candidate, BootTime now) {
  const std::int64_t modified = candidate.node->stat.modified_zxid;
  const auto [found, added] = observed_.try_emplace(candidate.worker, Observation{modified, now});
  if (found->second.modified_zxid != modified) found->second = {modified, now};
  return now - found->second.since >= options_.lease_time + kLeaseMargin;
}

Result<std::uint64_t> LeaseRegistry::NextOfLeaf(const Tree& tree) {
  LEAF_ASSIGN_OR_RETURN(const auto forever, client_.Exists(tree.Forever()));
  if (!forever) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("{} is not there: which numbers Leaf gives out is not known", Quoted(tree.Forever())),
        "retry"};
  }
  return NextForeverNumber(forever->child_version, forever->children);
}

// ---- renewal

Result<void> LeaseRegistry::Renew(const core::WorkerClaim& claim, WallTime ceiling) {
  const MutexLock lock(mutex_);
  LEAF_RETURN_IF_ERROR(Write(claim, ceiling, /*release=*/false));
  // After the write, so that what is seen is no older (S6); until this returns nothing is acknowledged.
  const auto next = NextOfLeaf(held_->tree);
  if (!next.ok()) return next.error();
  if (held_->worker < *next + kRenewMargin) {
    return Lost(
        fmt::format("Leaf's own tree gives out {} next, and leases are not kept less than {} above that",
                    *next, kRenewMargin));
  }
  LEAF_RETURN_IF_ERROR(KeepFromFork());
  presence_.Refresh();
  return {};
}

Result<void> LeaseRegistry::KeepFromFork() {
  const std::string used = held_->tree.RecycleUsed(held_->worker);
  const std::string unused = held_->tree.RecycleUnused(held_->worker);
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll({used, unused}));
  const std::string taken = fmt::format("a node of the fork in mode zk_recycle has it ({})", Quoted(used));
  if (nodes[0]) return Lost(taken);
  if (!nodes[1]) return {};
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome removed,
                        client_.Write({Operation::Delete(unused, nodes[1]->stat.version)}));
  if (removed.conflict == WriteOutcome::Conflict::kMissing) return Lost(taken);
  if (!removed.done())
    return Error{ErrorCode::kUnavailable, fmt::format("{} keeps changing", Quoted(unused)), "retry"};
  log_.Warning("removed {}: worker {} is leased here, and no node of the fork may take it", Quoted(unused),
               held_->worker);
  return {};
}

Result<void> LeaseRegistry::Release(const core::WorkerClaim& claim, WallTime end) {
  const MutexLock lock(mutex_);
  LEAF_RETURN_IF_ERROR(Write(claim, end, /*release=*/true));
  presence_.End();
  return {};
}

Result<void> LeaseRegistry::Write(const core::WorkerClaim& claim, WallTime ceiling, bool release) {
  if (lost_) return *lost_;
  if (!held_) return Error{ErrorCode::kNotOwner, "this node holds no lease", ""};
  if (claim.worker != held_->worker || claim.generation != held_->record.generation)
    return Error{ErrorCode::kNotOwner, fmt::format("worker {} was claimed again since", claim.worker), ""};
  const std::string path = held_->tree.Lease(held_->worker);
  for (int attempt = 0; attempt < kLeaseWriteAttempts; ++attempt) {
    LeaseRecord next = held_->record;
    next.ceiling = release ? ceiling : std::max(next.ceiling.value_or(ceiling), ceiling);
    if (release) next.uuid.clear();
    const std::int64_t session = client_.session_id();
    const std::string data = FormatLease(next);
    const auto answer = client_.Write({Operation::Set(path, data, held_->version)});
    held_->sent.Note(data, answer);
    if (!answer.ok()) return answer.error();
    const WriteOutcome& written = *answer;
    if (written.done()) {
      const NodeStat& stat = *written.parts[0].stat;
      if (held_->created_zxid.value_or(stat.created_zxid) != stat.created_zxid)
        return Lost("its record was removed and created again");
      held_->created_zxid = stat.created_zxid;
      held_->version = stat.version;
      held_->record = next;
      if (release) held_.reset();
      return {};
    }
    LEAF_ASSIGN_OR_RETURN(const bool free, Reconcile(session));
    if (free && !release) return Lost("it was released (`worker release`)");
    if (free) {
      // A release of ours had arrived, or was not needed any more.
      held_.reset();
      return {};
    }
  }
  return Error{ErrorCode::kUnavailable, "the session with ZooKeeper keeps changing", "retry"};
}

Result<bool> LeaseRegistry::Reconcile(std::int64_t session) {
  const std::string path = held_->tree.Lease(held_->worker);
  LEAF_ASSIGN_OR_RETURN(const auto node, client_.Get(path));
  // A refused write is ordered like any other: what this session reads after it is no older. What another one
  // reads may be.
  if (session == 0 || client_.session_id() != session)
    return Error{ErrorCode::kUnavailable, "the session with ZooKeeper has changed", "retry"};
  if (!node) {
    LEAF_RETURN_IF_ERROR(PutBack(node));
    return false;
  }
  auto record = ParseLease(node->data);
  if (!record.ok()) return Lost(record.error().message);
  const bool is_older = record->generation < held_->record.generation &&
                        record->ceiling.value_or(WallTime{}) <= held_->record.ceiling.value_or(WallTime{});
  if (is_older && (record->uuid.empty() || record->uuid == held_->record.uuid)) {
    LEAF_RETURN_IF_ERROR(PutBack(node));
    return false;
  }
  const bool ours = record->generation == held_->record.generation &&
                    (record->uuid == held_->record.uuid || record->uuid.empty());
  // What ZooKeeper had at an earlier time, and has again, is lower. Nothing is written without a later
  // ceiling, or the same one.
  const WallTime acknowledged = held_->record.ceiling.value_or(WallTime{});
  const bool is_newer = ours && !record->uuid.empty() && record->ceiling.value_or(WallTime{}) > acknowledged;
  if ((is_newer && !held_->sent.Has(node->data)) || (!ours && record->uuid == held_->record.uuid)) {
    met_a_copy_.store(true);
    return Lost(
        "another process has it with this one's identity: the state directory was copied, or the whole "
        "machine while leafctl ran");
  }
  if (!ours && record->uuid.empty()) return Lost("it was released (leafctl worker release)");
  if (!ours) return Lost(fmt::format("{} has claimed it since", Quoted(record->address)));
  held_->version = node->stat.version;
  held_->created_zxid = node->stat.created_zxid;
  const bool free = record->uuid.empty();
  record->uuid = held_->record.uuid;
  if (!free && record->ceiling.value_or(WallTime{}) < acknowledged) record->ceiling = acknowledged;
  held_->record = *std::move(record);
  return free;
}

Result<void> LeaseRegistry::PutBack(const std::optional<NodeData>& node) {
  LEAF_RETURN_IF_ERROR(PrepareTree(client_, held_->tree, held_->properties, /*make_properties=*/true));
  const std::string path = held_->tree.Lease(held_->worker);
  const std::string data = FormatLease(held_->record);
  const auto answer = client_.Write(
      {node ? Operation::Set(path, data, node->stat.version) : Operation::CreateOwn(path, data)});
  held_->sent.Note(data, answer);
  if (!answer.ok()) return answer.error();
  const WriteOutcome& written = *answer;
  // Another node came in between: the caller looks again.
  if (!written.done()) return {};
  held_->version = node ? written.parts[0].stat->version : 0;
  held_->created_zxid = node ? std::optional(written.parts[0].stat->created_zxid) : std::nullopt;
  times_put_back_.fetch_add(1);
  log_.Warning(
      "worker {}: ZooKeeper had lost what it had acknowledged of its lease (it was restored from a backup, "
      "or wiped): restoring this node's record",
      held_->worker);
  return {};
}

Error LeaseRegistry::Lost(std::string why) {
  presence_.End();
  lost_ = Error{ErrorCode::kNotOwner, fmt::format("worker {} is lost: {}", held_->worker, why), ""};
  return *lost_;
}

}  // namespace leaf::zookeeper
