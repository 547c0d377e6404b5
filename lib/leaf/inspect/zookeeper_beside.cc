// What is wrong beside `forever`: with the records of leafctl, and with the numbers that the fork recycles.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "leaf/base/text.h"
#include "leaf/inspect/zookeeper_checks.h"
#include "leaf/zookeeper/fork_numbers.h"

namespace leaf::inspect {
namespace {

using Change = RepairChange;

// In a ceiling record: no version that Leaf's node ever has, so that its time counts, too.
constexpr std::int32_t kNoLeafVersion = std::numeric_limits<std::int32_t>::max();

class OwnRecordChecks : NamespaceChecks {
 public:
  using NamespaceChecks::NamespaceChecks;

  void Run() {
    CheckOwners();
    CheckHolds();
    CheckTemporaries();
    CheckLeases();
    CheckCeilings();
    CheckRecords();
  }

 private:
  bool HasForever(std::uint64_t worker, const std::string& address) const {
    const auto range = contents_.by_number.equal_range(worker);
    return std::any_of(range.first, range.second, [&](const auto& entry) {
      return contents_.forever[entry.second].parsed.address == address;
    });
  }

  void CheckOwners() {
    for (const auto& [worker, owner] : contents_.owners) {
      if (!owner.record) continue;  // CheckRecords
      const zookeeper::OwnerRecord& record = *owner.record;
      const auto directory = fmt::format("state directory {} on {}", record.uuid, Quoted(record.host));
      if (contents_.by_number.count(worker) == 0) {
        const auto cause =
            fmt::format("number {} belongs to {}, but has no node under forever", worker, directory);
        if (contents_.Live(worker, record.address) != nullptr) {
          Leave("orphaned-owner", owner.path,
                {cause, "its node continues, and is refused at its next start",
                 "stop the node, and start it again with another address"},
                "its node is live");
        } else {
          Leave("orphaned-owner", owner.path,
                {cause, "if the number is given again, its new node is refused",
                 fmt::format("once that node is gone for good: leafctl worker release {}", worker)},
                "its node may be cut off, and still issue IDs");
        }
        continue;
      }
      std::string disagrees;
      if (!HasForever(worker, record.address)) {
        disagrees = fmt::format("number {} belongs to {} with address {}, but forever has another address",
                                worker, directory, Quoted(record.address));
      } else if (const auto hold = contents_.holds.find(record.address); hold == contents_.holds.end()) {
        disagrees = fmt::format("number {} belongs to {}, but no state directory holds its address {}",
                                worker, directory, Quoted(record.address));
      } else if (hold->second.record && (hold->second.record->uuid != record.uuid ||
                                         hold->second.record->worker.value_or(worker) != worker)) {
        disagrees = fmt::format("number {} belongs to {}, but its address {} is held by state directory {}",
                                worker, directory, Quoted(record.address), hold->second.record->uuid);
      }
      if (!disagrees.empty()) {
        Leave("owners-disagree", owner.path,
              {disagrees, "a node of this number or address can be refused at its start",
               fmt::format("stop the nodes concerned, then: leafctl worker release {}", worker)},
              "only an operator can tell which of them is right");
      }
      for (const auto& [address, temporary] : contents_.temporaries) {
        if (temporary.node->stat.ephemeral_owner == 0 || !temporary.record) continue;
        if (temporary.record->worker != worker || temporary.record->uuid == record.uuid) continue;
        LeaveTwoLive(temporary, worker, directory);
      }
    }
  }

  void LeaveTwoLive(const Parsed<zookeeper::TemporaryRecord>& temporary, std::uint64_t worker,
                    const std::string& directory) {
    Leave("live-not-owner", temporary.path,
          {fmt::format("state directory {} is live as number {}, which belongs to {}", temporary.record->uuid,
                       worker, directory),
           "it should have stopped by itself; if both issue, they repeat each other's IDs",
           "stop the node of that address"},
          "it goes away with its session");
  }

  void CheckHolds() {
    for (const auto& [address, hold] : contents_.holds) {
      if (!hold.record) continue;
      const zookeeper::AddressRecord& record = *hold.record;
      // One without a number is a first claim under way; the next one takes over what was left unfinished.
      if (!record.worker || HasForever(*record.worker, address)) continue;
      const std::string cause =
          fmt::format("state directory {} holds address {} with number {}, which has no node under forever",
                      record.uuid, Quoted(address), *record.worker);
      const Words text{cause, "another state directory with this address is refused", ""};
      if (contents_.Live(*record.worker, address) != nullptr) {
        Leave("orphaned-hold", hold.path, {text.cause, text.consequence, "stop the node, and start it again"},
              "its node is live");
      } else if (contents_.owners.count(*record.worker) > 0) {
        Leave("orphaned-hold", hold.path,
              {text.cause, text.consequence,
               fmt::format("once that node is gone for good: leafctl worker release {}", *record.worker)},
              "the number has an owner, whose node may be cut off, and still issue IDs");
      } else {
        Mend("orphaned-hold", hold.path, text, "remove " + hold.path, {RemoveNode(hold.path, *hold.node)});
      }
    }
  }

  void CheckTemporaries() {
    for (const auto& [address, temporary] : contents_.temporaries) {
      if (temporary.node->stat.ephemeral_owner != 0) continue;
      Mend("dead-temporary", temporary.path,
           {"no session holds this node, so that it never goes away by itself",
            "none for leafctl, which ignores and replaces it; other tools may take its node for live", ""},
           "remove " + temporary.path, {RemoveNode(temporary.path, *temporary.node)});
    }
  }

  void CheckLeases() {
    if (contents_.leases.empty()) return;
    // What Leaf has given out, or may be in use all the same.
    const zookeeper::NodeData* const forever = snapshot_.Find(tree_.Forever());
    const std::uint64_t given = forever == nullptr ? 0
                                                   : zookeeper::NextForeverNumber(forever->stat.child_version,
                                                                                  forever->stat.children);
    std::uint64_t end = given;
    for (const Forever& node : contents_.forever) {
      if (node.parsed.worker < options_.layout.worker_end()) end = std::max(end, node.parsed.worker + 1);
    }
    for (const auto& [worker, lease] : contents_.leases) {
      if (!lease.record) continue;
      const zookeeper::LeaseRecord& record = *lease.record;
      for (const auto& [address, temporary] : contents_.temporaries) {
        if (temporary.node->stat.ephemeral_owner == 0 || !temporary.record) continue;
        if (temporary.record->worker == worker && !record.uuid.empty() &&
            temporary.record->uuid != record.uuid)
          LeaveTwoLive(temporary, worker, "state directory " + record.uuid);
      }
      if (worker >= end) continue;
      const Words text{
          fmt::format("lease {} is not above {}, the highest number under forever", worker, end - 1),
          "a Java node can have, or get, the same number: both repeat each other's IDs",
          fmt::format("stop its node, then: leafctl worker release {}, leafctl worker repair", worker)};
      const Parsed<zookeeper::CeilingRecord>* const ceiling = FindCeiling(worker);
      if (contents_.Live(worker, record.address) != nullptr) {
        Leave("lease-below-forever", lease.path, text, "its node is live");
      } else if (!record.uuid.empty()) {
        Leave("lease-below-forever", lease.path, text,
              fmt::format("state directory {} owns it", record.uuid));
      } else if (contents_.owners.count(worker) > 0 && contents_.by_number.count(worker) > 0) {
        Leave("lease-below-forever", lease.path, text,
              "a state directory owns the number under forever: a change of its ceiling could stop its node");
      } else if (worker >= given) {
        Leave("lease-below-forever", lease.path, text,
              "once it was gone the number could be leased again, without its ceiling");
      } else if (ceiling != nullptr && !ceiling->record) {
        Leave("lease-below-forever", lease.path, text, "the ceiling of the number is malformed");
      } else {
        std::vector<Change> changes;
        if (record.ceiling) {
          EnsureFolder(tree_.Ceilings());
          changes.push_back(RaiseCeiling(worker, *record.ceiling, [](zookeeper::CeilingRecord& kept) {
            kept.leaf_version = kNoLeafVersion;
          }));
        }
        changes.push_back(RemoveNode(lease.path, *lease.node));
        Mend("lease-below-forever", lease.path, text,
             record.ceiling ? fmt::format("keep {} as the ceiling of number {}, and remove {}",
                                          FormatRfc3339(*record.ceiling), worker, lease.path)
                            : "remove " + lease.path,
             std::move(changes));
      }
    }
  }

  void CheckCeilings() {
    const WallTime latest = options_.now + options_.window + options_.ahead_max;
    const auto check = [&](const std::string& path, std::uint64_t worker,
                           const std::optional<WallTime>& ceiling) {
      if (!ceiling || *ceiling <= latest) return;
      Leave("future-ceiling", path,
            {fmt::format("IDs of number {} may have been issued up to {}", worker, FormatRfc3339(*ceiling)),
             "a leafctl node with this number issues nothing until then",
             "wait, or give the node an address with another number"},
            "no ceiling is ever lowered: that would repeat IDs");
    };
    for (const auto& [worker, ceiling] : contents_.ceilings) {
      if (ceiling.record) check(ceiling.path, worker, ceiling.record->ceiling);
    }
    for (const auto& [worker, lease] : contents_.leases) {
      if (lease.record) check(lease.path, worker, lease.record->ceiling);
    }
  }

  // Our own records are written by us alone: what is malformed was damaged, and is refused rather than
  // guessed at.
  void CheckRecords() {
    const auto check = [&](const auto& records, std::string_view remedy) {
      for (const auto& entry : records) {
        const auto& parsed = entry.second;
        if (parsed.record || HasMended(parsed.path)) continue;
        Leave(
            "malformed-record", parsed.path,
            {parsed.malformed, "leafctl nodes with this number or address refuse to start rather than guess",
             std::string(remedy)},
            "its former content is not known");
      }
    };
    check(contents_.owners, "stop its node, then leafctl worker release");
    check(contents_.holds, "stop its node, then leafctl worker release");
    check(contents_.ceilings, "rewrite it with zkCli.sh, with a ceiling above everything that was issued");
    check(contents_.leases, "rewrite it with zkCli.sh, with a ceiling above everything that was issued");
    check(contents_.temporaries, "stop the node of that address");
    for (const std::string& path : contents_.bad_names) {
      Leave("malformed-name", path,
            {"its name is not a number", "none of leafctl's or the fork's nodes looks at it",
             "find out what created it, and remove it with zkCli.sh"},
            "its owner is not known");
    }
  }

  bool HasMended(const std::string& path) const {
    return std::any_of(result_.findings.begin(), result_.findings.end(),
                       [&](const auto& finding) { return finding.repairable && finding.subject == path; });
  }
};

// Of the numbers that nodes of the fork recycle.
class ForkChecks : NamespaceChecks {
 public:
  using NamespaceChecks::NamespaceChecks;

  void Run() {
    CheckForkIsRunning();
    CheckRecycled();
  }

 private:
  bool IsLeased(std::uint64_t worker) const {
    const auto lease = contents_.leases.find(worker);
    return lease != contents_.leases.end() && (!lease->second.record || !lease->second.record->uuid.empty());
  }

  // The numbers that running nodes of the fork have now, in one finding.
  void CheckForkIsRunning() {
    std::vector<std::string> numbers;
    for (const auto& [worker, recycled] : contents_.recycled) {
      const bool in_use = recycled.path == tree_.RecycleUsed(worker);
      if (!zookeeper::ParseForkNumber(recycled.path, *recycled.node, in_use).IsFresh(options_.now)) continue;
      const bool known = recycled.record && recycled.record->ip;
      numbers.push_back(
          known ? fmt::format("{} ({}:{})", worker, *recycled.record->ip, recycled.record->port.value_or(""))
                : std::to_string(worker));
    }
    if (numbers.empty()) return;
    const std::string cause =
        fmt::format("in use by nodes of the fork in mode zk_recycle: {}", fmt::join(numbers, ", "));
    if (shared_.configured.recycle) {
      Leave(std::string(kForkRunning), tree_.RecycleUsed(),
            {cause, "leafctl leases none of them; a node of the fork takes none that leafctl has leased",
             "none is needed while both run; a number is free 61 min after its last report"},
            "the fork's nodes run");
    } else {
      Leave(std::string(kForkRunning), tree_.RecycleUsed(),
            {cause,
             "fixed numbers and the fork's are independent: two nodes can have one number and repeat each "
             "other's IDs",
             "use one kind of numbers in a cluster, or two cluster names"},
            "the fork's nodes run");
    }
  }

  void CheckRecycled() {
    const std::string_view read_only = "the fork's tree is only read";
    const std::string used = tree_.RecycleUsed() + "/";
    for (auto i = contents_.recycled.begin(); i != contents_.recycled.end(); ++i) {
      const auto& [worker, recycled] = *i;
      const bool in_use = recycled.path.starts_with(used);
      if (worker >= options_.layout.worker_end()) {
        Leave("recycled-too-large", recycled.path,
              {fmt::format("number {} does not fit {} bits", worker, options_.layout.worker_bits()),
               "a node of the fork that draws it cannot start: the fork makes 1025 numbers, one too many",
               "remove it with zkCli.sh while no node of the fork is starting"},
              std::string(read_only));
      }
      if (const auto next = std::next(i); next != contents_.recycled.end() && next->first == worker) {
        Leave("recycled-twice", std::to_string(worker),
              {fmt::format("number {} is both used and unused", worker),
               "a second node can draw it while the first one issues",
               "remove workId:N from notuse with zkCli.sh"},
              std::string(read_only));
      }
      if (!recycled.record) {
        Leave("malformed-data", recycled.path,
              {recycled.malformed, "a node of the fork that draws it fails",
               "write {\"workId\":N,\"lastUsedIp\":null,…} with zkCli.sh"},
              std::string(read_only));
        continue;
      }
      if (recycled.record->worker != worker) {
        Leave("malformed-data", recycled.path,
              {fmt::format("its name says {}, its workId {}", worker, recycled.record->worker),
               "two nodes of the fork can get one number", "correct workId with zkCli.sh"},
              std::string(read_only));
      }
      if (recycled.record->timestamp_ms.value_or(0) > LatestMillis()) {
        Leave("future-time", recycled.path,
              {fmt::format("it was last used at {}, which is in the future",
                           TimeText(*recycled.record->timestamp_ms)),
               "a node of the fork that draws it refuses to start", "correct the clocks, and wait"},
              std::string(read_only));
      }
      if (in_use && !recycled.record->timestamp_ms) {
        Leave("recycled-lost", recycled.path,
              {"it is used, but no node ever reported under it", "the fork never frees it",
               "move it to notuse with zkCli.sh if no node has just started"},
              std::string(read_only));
      }
      if (in_use && (contents_.by_number.count(worker) > 0 || IsLeased(worker))) {
        Leave("two-number-spaces", recycled.path,
              {fmt::format("number {} is used by the fork's recycling nodes and is in another tree, too",
                           worker),
               "the trees are independent: two nodes can have one number and repeat each other's IDs",
               "use one kind of numbers in a cluster, or two cluster names"},
              std::string(read_only));
      }
    }
  }
};

}  // namespace

void CheckBesideForever(NamespaceChecks::Shared& shared) {
  OwnRecordChecks(shared).Run();
  ForkChecks(shared).Run();
}

}  // namespace leaf::inspect
