#include "leaf/inspect/zookeeper_workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "leaf/inspect/zookeeper_checks.h"

namespace leaf::inspect {
namespace {

// So many paths stand in a sentence; there is one node for each tag.
constexpr std::size_t kNamedMax = 20;

// "leafctl, leafctl/witness and 7 more"; of the ephemeral ones only, or of all.
std::string NamesOf(const zookeeper::Tree& tree, const OpenNodes& open, bool ephemeral_only) {
  std::vector<std::string> names;
  std::size_t more = 0;
  for (const auto& [path, access] : open) {
    if (ephemeral_only && access.stat.ephemeral_owner == 0) continue;
    if (names.size() == kNamedMax) {
      ++more;
    } else {
      names.push_back(path.substr(tree.Base().size() + 1));
    }
  }
  const std::string text = fmt::format("{}", fmt::join(names, ", "));
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

// The numbers that a namespace knows of.
class Entries : NamespaceChecks {
 public:
  using NamespaceChecks::NamespaceChecks;

  void Run() {
    std::set<std::uint64_t> fixed;
    for (const Forever& node : contents_.forever) {
      WorkerEntry entry;
      entry.worker = node.parsed.worker;
      entry.address = node.parsed.address;
      if (node.record && node.record->timestamp_ms > 0 && node.record->timestamp_ms <= core::kEpochMillisMax)
        entry.reported = WallTimeOf(node.record->timestamp_ms);
      AddRecord(entry, node.path);
      FillFixed(entry);
      if (!WrittenByLeafctl(node)) FillReporting(entry, *node.node);
      fixed.insert(entry.worker);
      result_.entries.push_back(std::move(entry));
    }
    // What is known of numbers whose node is gone.
    const auto add_orphan = [&](std::uint64_t worker) {
      if (!fixed.insert(worker).second) return;
      // The ceiling of a lease that is gone, or the lease's own number.
      WorkerEntry entry;
      entry.worker = worker;
      FillFixed(entry);
      result_.entries.push_back(std::move(entry));
    };
    for (const auto& owner : contents_.owners) add_orphan(owner.first);
    for (const auto& ceiling : contents_.ceilings) add_orphan(ceiling.first);
    for (const auto& [worker, lease] : contents_.leases) {
      WorkerEntry entry;
      entry.kind = NumberKind::kLease;
      entry.worker = worker;
      AddRecord(entry, lease.path);
      if (lease.record) {
        entry.address = lease.record->address;
        entry.owner = lease.record->uuid;
        entry.ceiling = lease.record->ceiling;
        entry.generation = lease.record->generation;
      }
      FillLive(entry);
      result_.entries.push_back(std::move(entry));
    }
    for (const auto& [worker, recycled] : contents_.recycled) {
      WorkerEntry entry;
      entry.kind = NumberKind::kRecycled;
      entry.worker = worker;
      AddRecord(entry, recycled.path);
      if (const auto& record = recycled.record) {
        if (record->ip) entry.address = fmt::format("{}:{}", *record->ip, record->port.value_or(""));
        if (record->timestamp_ms) entry.reported = WallTimeOf(*record->timestamp_ms);
      }
      if (recycled.path.starts_with(tree_.RecycleUsed() + "/")) FillReporting(entry, *recycled.node);
      result_.entries.push_back(std::move(entry));
    }
    std::stable_sort(result_.entries.begin(), result_.entries.end(),
                     [](const WorkerEntry& left, const WorkerEntry& right) {
                       return std::tie(left.kind, left.worker, left.address) <
                              std::tie(right.kind, right.worker, right.address);
                     });
  }

 private:
  void AddRecord(WorkerEntry& entry, const std::string& path) const {
    if (const zookeeper::NodeData* const node = snapshot_.Find(path))
      entry.records.push_back(ToRecord(path, *node));
  }

  void FillLive(WorkerEntry& entry) const {
    const auto* const live = contents_.Holder(entry.worker, entry.address);
    if (live == nullptr) return;
    entry.live = true;
    if (live->record) entry.url = live->record->url;
    AddRecord(entry, live->path);
  }

  // Java Leaf says that it lives by nothing but its reports. The servers' time of the write counts: what the
  // report says is the reporter's, which may be ahead.
  void FillReporting(WorkerEntry& entry, const zookeeper::NodeData& node) const {
    if (entry.live || !entry.reported) return;
    if (std::chrono::abs(options_.now - node.stat.modified_at) < kLiveReport) entry.live = entry.java = true;
  }

  // The last write to the number's node was that of its leafctl, not Java Leaf's.
  bool WrittenByLeafctl(const Forever& node) const {
    const auto found = contents_.ceilings.find(node.parsed.worker);
    return found != contents_.ceilings.end() && found->second.record && node.record &&
           found->second.record->leaf_version == node.node->stat.version &&
           found->second.record->leaf_timestamp_ms == node.record->timestamp_ms;
  }

  void FillFixed(WorkerEntry& entry) const {
    if (const auto found = contents_.owners.find(entry.worker); found != contents_.owners.end()) {
      AddRecord(entry, found->second.path);
      if (const auto& record = found->second.record) {
        entry.owner = record->uuid;
        entry.host = record->host;
        entry.since = record->since;
        if (entry.address.empty()) entry.address = record->address;
      }
    }
    if (contents_.holds.count(entry.address) > 0) AddRecord(entry, tree_.Address(entry.address));
    if (const auto found = contents_.ceilings.find(entry.worker); found != contents_.ceilings.end()) {
      AddRecord(entry, found->second.path);
      if (const auto& record = found->second.record) {
        entry.ceiling = record->ceiling;
        if (record->generation > 0) entry.generation = record->generation;
      }
    }
    FillLive(entry);
  }
};

// Last: what was removed before needs no rules.
void CheckAccess(NamespaceChecks::Shared& shared) {
  const Snapshot& snapshot = shared.snapshot;
  auto finding = InspectAccess(snapshot.tree, snapshot.open);
  if (!finding) return;
  if (finding->repairable) {
    std::vector<RepairChange> changes;
    changes.reserve(snapshot.open.size());
    for (const auto& [path, access] : snapshot.open) {
      RawRecord before{
          path, "", {{"access", access.rules}, {"access_version", std::to_string(access.version)}}};
      changes.push_back({RepairChange::Kind::kProtect, std::move(before), access.version, ""});
    }
    shared.result.steps.push_back(
        {finding->code,
         fmt::format("allow only the credentials of zookeeper.auth_file to change {}, and everyone to read",
                     NamesOf(snapshot.tree, snapshot.open, false)),
         finding->cause, std::move(changes)});
  }
  shared.result.findings.push_back(*std::move(finding));
}

}  // namespace

std::optional<WorkerFinding> InspectAccess(const zookeeper::Tree& tree, const OpenNodes& open) {
  if (open.empty()) return std::nullopt;
  WorkerFinding finding;
  finding.code = kOpenToEveryone;
  finding.subject = tree.Own();
  finding.cause =
      fmt::format("open to everyone, though zookeeper.auth_file is set: {}", NamesOf(tree, open, false));
  finding.consequence = "every client of ZooKeeper can change or delete the data that prevents repeated IDs";
  const std::string live = NamesOf(tree, open, true);
  finding.repairable = live.empty();
  if (finding.repairable) {
    finding.remedy = kRepair;
    return finding;
  }
  // A daemon without the credentials could not renew what it has: it would stop issuing.
  finding.remedy = fmt::format(
      "set zookeeper.auth_file on every leafctl node of the cluster, restart each, then: {}", kRepair);
  finding.left =
      fmt::format("daemons that run now were started without credentials, or by an older version: {}", live);
  return finding;
}

WorkerInspection Inspect(const Snapshot& snapshot, const InspectionOptions& options,
                         const zookeeper::PropertiesRecord& configured) {
  NamespaceChecks::Shared shared{snapshot, options, configured, Contents(snapshot)};
  Entries(shared).Run();
  CheckForever(shared);
  CheckBesideForever(shared);
  CheckAccess(shared);
  return std::move(shared.result);
}

std::vector<std::string> RewrittenByLeaf(const Snapshot& snapshot, const WorkerInspection& inspection) {
  std::vector<std::string> paths;
  const std::string prefix = snapshot.tree.Forever() + "/";
  for (const RepairStep& step : inspection.steps) {
    for (const RepairChange& change : step.changes) {
      if (change.kind == RepairChange::Kind::kWrite && change.before.name.starts_with(prefix))
        paths.push_back(change.before.name);
    }
  }
  return paths;
}

}  // namespace leaf::inspect
