// What is wrong with the namespace as a whole, and with Leaf's own nodes under `forever`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/core/java_leaf.h"
#include "leaf/inspect/zookeeper_checks.h"

namespace leaf::inspect {
namespace {

using Change = RepairChange;

// The time of a record of Leaf's that is otherwise malformed. Java reads digits in quotes as well.
std::optional<std::int64_t> FindTimestamp(const std::string& data) {
  const auto json = ParseForeignJson(data);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find("timestamp");
  if (found != json.end() && found->is_string())
    return ParseWhole<std::int64_t>(TrimBlanks(found->get_ref<const std::string&>()));
  if (found == json.end() || !found->is_number()) return std::nullopt;
  if (found->is_number_float()) {
    const double value = found->get<double>();
    if (value >= 0 && value < 9e15) return static_cast<std::int64_t>(value);
    return std::numeric_limits<std::int64_t>::max();
  }
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::numeric_limits<std::int64_t>::max();
  return found->get<std::int64_t>();
}

// Whether there is a time that FindTimestamp cannot tell.
bool HasUnreadTimestamp(const std::string& data) {
  const auto json = ParseForeignJson(data);
  return json.is_object() && json.contains("timestamp") && !json["timestamp"].is_null() &&
         !FindTimestamp(data);
}

class ForeverChecks : NamespaceChecks {
 public:
  using NamespaceChecks::NamespaceChecks;

  void Run() {
    CheckNamespace();
    CheckForeign();
    for (const Forever& node : contents_.forever) CheckNode(node);
    CheckNumbersAndAddresses();
  }

 private:
  void CheckNamespace() {
    if (tree_.cluster().find('-') != std::string::npos) {
      Leave(std::string(kDashedCluster), tree_.Base(),
            {fmt::format("the name of the cluster, {}, has a dash", Quoted(tree_.cluster())),
             "a Java node that starts for the first time cannot parse its number: it fails, and starts at "
             "the second attempt only",
             "start Java nodes twice, or use leafctl nodes, which are not affected"},
            "a cluster cannot be renamed");
    }
    if (snapshot_.Find(tree_.Forever()) == nullptr) CheckMissingForever();
    if (const zookeeper::NodeData* const node = snapshot_.Find(tree_.Properties())) {
      const auto stored = zookeeper::ParseProperties(node->data);
      const Result<void> same =
          stored.ok() ? zookeeper::CheckSameProperties(*stored, shared_.configured, tree_.Properties())
                      : Result<void>(stored.error());
      if (!same.ok()) {
        Leave(stored.ok() ? "cluster-differs" : "malformed-record", tree_.Properties(),
              {same.error().message, "leafctl nodes refuse to start rather than repeat IDs",
               "correct the configuration, here or on the other nodes"},
              "only the operator knows which of the two is right");
      }
    }
  }

  void CheckMissingForever() {
    const Words text{"there is no " + tree_.Forever(),
                     "Java nodes that start together on it all become worker 0", ""};
    if (!contents_.owners.empty() || !contents_.ceilings.empty() || !contents_.holds.empty()) {
      Leave("forever-missing", tree_.Forever(),
            {text.cause, "numbers would begin at 0 again, though leafctl/owners knows of numbers in use",
             "restore it from a backup, or use a new cluster name"},
            "which node has which of the old numbers is not known here");
      return;
    }
    std::vector<std::string> missing;
    for (const std::string& folder : tree_.Folders()) {
      if (snapshot_.Find(folder) == nullptr) missing.push_back(folder);
      if (folder == tree_.Forever()) break;
    }
    std::vector<Change> changes;
    changes.reserve(missing.size());
    for (const std::string& folder : missing) changes.push_back(CreateNode(folder, ""));
    Mend("virgin-namespace", tree_.Forever(), text, "create " + tree_.Forever(), std::move(changes));
  }

  void CheckForeign() {
    for (const std::string& name : contents_.foreign) {
      const std::string path = tree_.ForeverNode(name);
      const zookeeper::NodeData& node = *snapshot_.Find(path);
      const auto parsed = zookeeper::ParseForeverName(name);
      const bool harmless = parsed && parsed->address.find('-') == std::string::npos;
      const Words text{
          fmt::format("{} is not one of Leaf's nodes, which are <ip>:<port>-<number>", Quoted(name)),
          harmless ? "it has used up a number, and other tools may trip over it"
                   : "every Java node that starts fails, or falls back to its local file without any check "
                     "of its clock",
          ""};
      std::vector<std::string> paths = snapshot_.Below(path);
      paths.insert(paths.begin(), path);
      const bool held = std::any_of(paths.begin(), paths.end(), [&](const std::string& below) {
        return snapshot_.Find(below)->stat.ephemeral_owner != 0;
      });
      if (held) {
        Leave("foreign-child", path,
              {text.cause, text.consequence,
               fmt::format("stop the client with session {:#x}",
                           static_cast<std::uint64_t>(node.stat.ephemeral_owner))},
              "a client that runs now holds it");
        continue;
      }
      std::vector<Change> changes;
      for (auto below = paths.rbegin(); below != paths.rend(); ++below)
        changes.push_back(RemoveNode(*below, *snapshot_.Find(*below)));
      Mend("foreign-child", path, text, "remove " + path, std::move(changes));
    }
  }

  // Whether a process that runs now writes the node.
  bool IsMoving(const Forever& node) const { return options_.moving.count(node.path) > 0; }
  bool IsLive(const Forever& node) const {
    return contents_.Live(node.parsed.worker, node.parsed.address) != nullptr;
  }

  void CheckNode(const Forever& node) {
    const zookeeper::ForeverName& name = node.parsed;
    const auto address = TakeApart(name.address);
    if (name.address.find('-') != std::string::npos) {
      Leave("dashed-address", node.path,
            {fmt::format("the address {} has a dash", Quoted(name.address)),
             "every Java node that starts fails, or falls back to its local file without any check of its "
             "clock",
             "once the machine that has this number is gone for good, remove the node with zkCli.sh"},
            "the number may be in use");
    } else if (!name.canonical && !address->host.empty()) {
      Leave("malformed-name", node.path,
            {fmt::format("{} is not how Leaf writes a name: <ip>:<port>-<ten digits>", Quoted(node.name)),
             "Java nodes read it as a number; leafctl nodes do not create such names",
             "find out what created it; remove it with zkCli.sh when the number is not in use"},
            "the number may be in use");
    }
    if (IsSharedHost(address->host)) {
      Leave("shared-address", node.path,
            {address->host.empty()
                 ? std::string("the address has no IP: Java found no network interface")
                 : fmt::format("many machines have the address {} (loopback, or docker's bridge)",
                               address->host),
             "two machines with it share one number and repeat each other's IDs, and neither notices",
             "check whether more than one machine uses it; set snowflake.address, or leaf.snowflake.address "
             "of Java, to an address of its own"},
            "only the machines themselves show how many use it");
    }
    if (name.worker >= options_.layout.worker_end()) {
      Leave("number-too-large", node.path,
            {fmt::format("number {} does not fit {} bits", name.worker, options_.layout.worker_bits()),
             "the node of this address cannot start: Java writes the number to its local file and fails, "
             "leafctl refuses",
             "set snowflake.recycle in a new cluster name, or give the node an address that has a number"},
            "only an operator can decide which of the smaller numbers is no longer needed");
    } else if (!shared_.configured.recycle &&
               (name.worker < options_.worker_begin || name.worker >= options_.worker_end)) {
      Leave(
          "number-outside-range", node.path,
          {fmt::format("number {} is outside snowflake.worker_range {}-{}", name.worker,
                       options_.worker_begin, options_.worker_end - 1),
           "a leafctl node of this address refuses to start", "widen the range, if nothing else uses those"},
          "the range is configured");
    }
    CheckForeverData(node);
  }

  void CheckForeverData(const Forever& node) {
    const std::int64_t timestamp =
        node.record ? node.record->timestamp_ms : FindTimestamp(node.node->data).value_or(0);
    if (timestamp > LatestMillis()) {
      CheckFuture(node, timestamp);
      return;
    }
    if (node.record) return;
    const Words text{node.malformed,
                     "the Java node of this address fails at its start, or falls back to its local file "
                     "without any check of its clock",
                     "set the node to {\"ip\":…,\"port\":…,\"timestamp\":…} with zkCli.sh"};
    if (HasUnreadTimestamp(node.node->data)) {
      Leave("malformed-data", node.path, text, "it has a timestamp, which may be in the future");
    } else if (!node.parsed.canonical) {
      Leave("malformed-data", node.path, text, "its name is malformed, too");
    } else if (IsMoving(node) || IsLive(node)) {
      Leave("malformed-data", node.path, text, "a process that runs now writes to it");
    } else {
      Mend("malformed-data", node.path, text,
           fmt::format("write Leaf's three keys and the present time to {}", node.path),
           {WriteNode(node.path, *node.node,
                      zookeeper::FormatForeverData(node.parsed.address, options_.now))});
    }
  }

  void CheckFuture(const Forever& node, std::int64_t timestamp) {
    const Words text{fmt::format("{}the time it reported, {}, is in the future",
                                 node.malformed.empty() ? "" : node.malformed + "; ", TimeText(timestamp)),
                     "a Java node of this address refuses to start until then, or falls back to its local "
                     "file; IDs up to then may have been issued",
                     "correct the clock of its machine"};
    const std::uint64_t worker = node.parsed.worker;
    const auto leave = [&](std::string why) { Leave("future-time", node.path, text, std::move(why)); };
    const auto ceiling = contents_.ceilings.find(worker);
    if (IsLive(node) || IsMoving(node)) {
      leave("its node runs: it reports the right time once its clock is right");
    } else if (timestamp > core::kEpochMillisMax - core::kJavaMargin.count()) {
      leave("no ceiling can hold such a time");
    } else if (!node.parsed.canonical) {
      leave("its name is malformed, too");
    } else if (contents_.by_number.count(worker) > 1) {
      leave("the number is there twice");
    } else if (contents_.owners.count(worker) > 0) {
      leave("a state directory owns the number: its node reports the right time once its clock is right");
    } else if (ceiling != contents_.ceilings.end() && !ceiling->second.record) {
      leave("the ceiling of the number is malformed");
    } else if (!options_.java_retired) {
      leave(
          "only this record keeps a Java node from repeating IDs; if no Java node will ever start here "
          "again: leafctl worker repair --java-retired");
    } else {
      PlanTakeBack(node, timestamp, text);
    }
  }

  void PlanTakeBack(const Forever& node, std::int64_t timestamp, const Words& text) {
    EnsureFolder(tree_.Own());
    EnsureFolder(tree_.Ceilings());
    const WallTime end = WallTimeOf(timestamp) + core::kJavaMargin;
    const Change ceiling = RaiseCeiling(node.parsed.worker, end, [&](zookeeper::CeilingRecord& record) {
      record.leaf_version = node.node->stat.version + 1;
      record.leaf_timestamp_ms = UnixMillis(options_.now);
    });
    Mend("future-time", node.path, text,
         fmt::format("keep {} as the ceiling of number {}, and write the present time to {}",
                     FormatRfc3339(end), node.parsed.worker, node.path),
         {ceiling,
          WriteNode(node.path, *node.node, zookeeper::FormatForeverData(node.parsed.address, options_.now))});
  }

  void CheckNumbersAndAddresses() {
    const auto paths_of = [&](const auto& range) {
      std::vector<std::string> paths;
      for (auto i = range.first; i != range.second; ++i) paths.push_back(contents_.forever[i->second].name);
      return fmt::format("{}", fmt::join(paths, ", "));
    };
    for (auto i = contents_.by_address.begin(); i != contents_.by_address.end();) {
      const auto range = contents_.by_address.equal_range(i->first);
      if (std::next(range.first) != range.second) {
        Leave("duplicate-address", i->first,
              {"more than one node has this address: " + paths_of(range),
               "Java takes the one that the server lists last, so its number can change at any start",
               "decode a recent ID of the machine to see which number it uses; when it is stopped, remove "
               "the others with zkCli.sh"},
              "only an operator can tell which of the numbers is in use");
      }
      i = range.second;
    }
    for (auto i = contents_.by_number.begin(); i != contents_.by_number.end();) {
      const auto range = contents_.by_number.equal_range(i->first);
      if (std::next(range.first) != range.second) {
        Leave("duplicate-number", std::to_string(i->first),
              {"more than one address has this number: " + paths_of(range),
               "their machines repeat each other's IDs",
               "stop all but one of them, and give the others another address"},
              "only an operator can tell which of them may continue");
      }
      i = range.second;
    }
    const zookeeper::NodeData* const forever = snapshot_.Find(tree_.Forever());
    if (forever != nullptr) {
      const std::uint64_t next =
          zookeeper::NextForeverNumber(forever->stat.child_version, forever->stat.children);
      if (next >= options_.layout.worker_end()) {
        Leave("numbers-exhausted", tree_.Forever(),
              {fmt::format("the next new address gets number {}", next),
               fmt::format("it does not fit {} bits: no further address can start",
                           options_.layout.worker_bits()),
               "use a new cluster name with snowflake.recycle = true"},
              "Leaf's numbers are never given again");
      }
    }
  }
};

}  // namespace

void CheckForever(NamespaceChecks::Shared& shared) { ForeverChecks(shared).Run(); }

}  // namespace leaf::inspect
