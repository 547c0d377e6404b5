#include "leaf/zookeeper/fixed_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// How often others may come in between before the write of a ceiling gives up for now.
constexpr int kWriteAttempts = 4;

}  // namespace

FixedRegistry::FixedRegistry(RegistryOptions options, Client& client, const Clock& clock, Logger& log)
    : options_(std::move(options)), client_(client), clock_(clock), log_(log), presence_(client, log) {}

Result<void> FixedRegistry::Renew(const core::WorkerClaim& claim, WallTime ceiling) {
  const MutexLock lock(mutex_);
  LEAF_RETURN_IF_ERROR(WriteCeiling(claim, ceiling, /*exactly=*/false));
  presence_.Refresh();
  return {};
}

Result<void> FixedRegistry::Release(const core::WorkerClaim& claim, WallTime end) {
  const MutexLock lock(mutex_);
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
    const std::string record = FormatCeiling(next);
    const auto answer =
        client_.Write({Operation::Check(held_->tree.Owner(held_->worker), held_->owner_version),
                       Operation::Set(held_->tree.Ceiling(held_->worker), record, held_->ceiling_version),
                       report ? Operation::Set(held_->leaf_path, FormatForeverData(held_->address, now),
                                               held_->ceiling.leaf_version)
                              : Operation::Check(held_->leaf_path, held_->ceiling.leaf_version)});
    held_->sent.Note(record, answer);
    if (!answer.ok()) return answer.error();
    const WriteOutcome& written = *answer;
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
  // A write of ours whose reply was lost, or another process with this one's memory (S13). What ZooKeeper had
  // at an earlier time, and has again, is lower.
  const WallTime acknowledged = held_->ceiling.ceiling.value_or(WallTime{});
  if (ceiling->ceiling.value_or(WallTime{}) > acknowledged && !held_->sent.Has(nodes[1]->data)) {
    return Lost(
        "another process reports with this one's identity: this machine was copied, or set back to a "
        "snapshot, "
        "while leafctl ran");
  }
  held_->owner_version = nodes[0]->stat.version;
  held_->ceiling_version = nodes[1]->stat.version;
  if (ceiling->ceiling.value_or(WallTime{}) < acknowledged) ceiling->ceiling = acknowledged;
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
  const auto displaced_by_java = [&](const Numbers& seen) LEAF_REQUIRES(mutex_) {
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
  const std::string ceiling_data = FormatCeiling(record);
  operations.push_back(ceiling ? Operation::Set(tree.Ceiling(worker), ceiling_data, ceiling->stat.version)
                               : Operation::CreateOwn(tree.Ceiling(worker), ceiling_data));
  const auto answer = client_.Write(operations);
  held_->sent.Note(ceiling_data, answer);
  if (!answer.ok()) return answer.error();
  const WriteOutcome& written = *answer;
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
      "worker {}: ZooKeeper had lost what it had acknowledged (it was restored from a backup, or wiped): "
      "restoring this node's records",
      worker);
  return {};
}

Error FixedRegistry::Lost(std::string why) {
  presence_.End();
  lost_ = Error{ErrorCode::kNotOwner, fmt::format("worker {} is lost: {}", held_->worker, why),
                fmt::format("run `leafctl worker show {}`; a restart of this node claims a number again",
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

Error FixedRegistry::KeepsChanging() {
  return {ErrorCode::kUnavailable, "others keep changing the same nodes in ZooKeeper, or the session changes",
          "retry"};
}

}  // namespace leaf::zookeeper
