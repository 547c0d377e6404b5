// The steps of a plan, as transactions; and the plan that releases a number.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "leaf/base/text.h"
#include "leaf/inspect/zookeeper_checks.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/zookeeper/folders.h"

namespace leaf::inspect {
namespace {

// Whether the nodes that a step changes are those that were read: the operator may have taken long to say
// yes, and a node that a starting daemon has made again since then can have the same version.
Result<bool> AreAsSeen(zookeeper::AccessClient& client, const RepairStep& step) {
  std::vector<std::string> paths;
  std::vector<std::int64_t> created;
  for (const RepairChange& change : step.changes) {
    if (change.created_zxid == 0) continue;
    paths.push_back(change.before.name);
    created.push_back(change.created_zxid);
  }
  for (std::size_t begin = 0; begin < paths.size(); begin += kSnapshotParallel) {
    const std::size_t end = std::min(paths.size(), begin + kSnapshotParallel);
    const std::vector<std::string> some(paths.begin() + static_cast<std::ptrdiff_t>(begin),
                                        paths.begin() + static_cast<std::ptrdiff_t>(end));
    LEAF_ASSIGN_OR_RETURN(const auto nodes, client.GetAll(some));
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (!nodes[i] || nodes[i]->stat.created_zxid != created[begin + i]) return false;
    }
  }
  return true;
}

}  // namespace

Result<std::optional<RepairStep>> PlanRelease(const Snapshot& snapshot, std::uint64_t worker, bool leases) {
  const zookeeper::Tree& tree = snapshot.tree;
  const Contents contents(snapshot);
  const auto owner = contents.owners.find(worker);
  const auto lease = contents.leases.find(worker);
  const auto forever = contents.by_number.find(worker);
  const bool fixed_known = owner != contents.owners.end() || forever != contents.by_number.end();
  const bool lease_known = lease != contents.leases.end();
  if (!fixed_known && !lease_known) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no worker {} in {}", worker, tree.Base()),
                 "leafctl worker list"};
  }
  const bool is_lease = lease_known && (leases || !fixed_known);
  RepairStep step;
  step.code = "release";
  std::set<std::string> addresses;
  if (is_lease) {
    if (!lease->second.record) {
      return Error{ErrorCode::kRefused,
                   fmt::format("cannot release worker {}: {} is malformed: {}", worker, lease->second.path,
                               lease->second.malformed),
                   "its ceiling is not known: rewrite it with zkCli.sh"};
    }
    zookeeper::LeaseRecord record = *lease->second.record;
    if (record.uuid.empty()) return std::optional<RepairStep>{};
    addresses.insert(record.address);
    step.what = fmt::format("free lease {} of state directory {}", worker, record.uuid);
    record.uuid.clear();
    ++record.generation;
    step.changes.push_back(
        WriteNode(lease->second.path, *lease->second.node, zookeeper::FormatLease(record)));
  } else {
    if (owner != contents.owners.end()) {
      step.changes.push_back(RemoveNode(owner->second.path, *owner->second.node));
      if (owner->second.record) addresses.insert(owner->second.record->address);
    }
    const auto range = contents.by_number.equal_range(worker);
    for (auto i = range.first; i != range.second; ++i)
      addresses.insert(contents.forever[i->second].parsed.address);
    for (const auto& [address, hold] : contents.holds) {
      const bool of_number = hold.record && hold.record->worker == worker;
      if (of_number || addresses.count(address) > 0) {
        addresses.insert(address);
        step.changes.push_back(RemoveNode(hold.path, *hold.node));
      }
    }
    if (step.changes.empty()) return std::optional<RepairStep>{};
    step.what = fmt::format("release worker {}", worker);
    if (owner != contents.owners.end() && owner->second.record) {
      const zookeeper::OwnerRecord& record = *owner->second.record;
      step.what +=
          fmt::format(" of state directory {} on {} ({})", record.uuid, Quoted(record.host), record.address);
    }
  }
  addresses.erase("");
  for (const std::string& address : addresses) {
    // The address of a lease is its last holder's, which may have another one by now.
    if (const auto* const live =
            is_lease ? contents.Holder(worker, address) : contents.Live(worker, address)) {
      return Error{ErrorCode::kRefused,
                   fmt::format("cannot release worker {}: its node is live ({})", worker, live->path),
                   "stop it first; a node that was killed stays live until its session has run out"};
    }
  }
  if (addresses.empty() && contents.Live(worker, "") != nullptr) {
    return Error{ErrorCode::kRefused, fmt::format("cannot release worker {}: its node is live", worker),
                 "stop it first"};
  }
  if (snapshot.Find(tree.Temporaries()) != nullptr) {
    for (const std::string& address : addresses) {
      // One that never goes away by itself is no sign of life, and stands in the way of the fence.
      if (contents.temporaries.count(address) == 0 && address.find('/') == std::string::npos)
        step.changes.insert(step.changes.begin(), NodeAbsent(tree.Temporary(address)));
    }
  }
  step.why = "so that another state directory can have it; its ceiling stays";
  return std::optional<RepairStep>(std::move(step));
}

std::vector<zookeeper::Operation> OperationsOf(const zookeeper::Tree& tree, const RepairStep& step) {
  std::vector<zookeeper::Operation> operations;
  for (const RepairChange& change : step.changes) {
    const std::string& path = change.before.name;
    const auto version = static_cast<std::int32_t>(change.version);
    switch (change.kind) {
      case RepairChange::Kind::kAbsent:
        // No client sees it: it goes within the same transaction. That fails if there is such a node.
        operations.push_back(zookeeper::CreateIn(tree, path, ""));
        operations.push_back(zookeeper::Operation::Delete(path, 0));
        break;
      case RepairChange::Kind::kCreate:
        operations.push_back(zookeeper::CreateIn(tree, path, change.after));
        break;
      case RepairChange::Kind::kWrite:
        operations.push_back(zookeeper::Operation::Set(path, change.after, version));
        break;
      case RepairChange::Kind::kRemove:
        operations.push_back(zookeeper::Operation::Delete(path, version));
        break;
      case RepairChange::Kind::kProtect:
        break;
    }
  }
  return operations;
}

Result<bool> ApplyStep(zookeeper::AccessClient& client, const zookeeper::Tree& tree, const RepairStep& step) {
  LEAF_ASSIGN_OR_RETURN(const bool as_read, AreAsSeen(client, step));
  if (!as_read) return false;
  if (const auto operations = OperationsOf(tree, step); !operations.empty()) {
    LEAF_ASSIGN_OR_RETURN(const zookeeper::WriteOutcome outcome, client.Write(operations));
    if (!outcome.done()) return false;
  }
  std::vector<zookeeper::AccessClient::Seen> seen;
  for (const RepairChange& change : step.changes) {
    if (change.kind == RepairChange::Kind::kProtect)
      seen.push_back({change.before.name, static_cast<std::int32_t>(change.version)});
  }
  bool as_seen = true;
  for (std::size_t begin = 0; begin < seen.size(); begin += kSnapshotParallel) {
    const std::size_t end = std::min(seen.size(), begin + kSnapshotParallel);
    const std::vector<zookeeper::AccessClient::Seen> some(seen.begin() + static_cast<std::ptrdiff_t>(begin),
                                                          seen.begin() + static_cast<std::ptrdiff_t>(end));
    LEAF_ASSIGN_OR_RETURN(const bool done, client.Protect(some));
    as_seen = as_seen && done;
  }
  return as_seen;
}

}  // namespace leaf::inspect
