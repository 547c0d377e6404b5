#include "leaf/zookeeper/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"
#include "leaf/core/java_leaf.h"
#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/fork_numbers.h"

namespace leaf::zookeeper {
namespace {

using Change = core::RepairChange;

// In a ceiling record: no version that Leaf's node ever has, so that its time counts, too.
constexpr std::int32_t kNoLeafVersion = std::numeric_limits<std::int32_t>::max();

constexpr std::string_view kRepair = "leafctl worker repair";
// So many paths stand in a sentence; there is one node for each tag.
constexpr std::size_t kNamedMax = 20;

struct Address {
  std::string_view host;
  std::string_view port;
};

// Nothing if it does not end in a port. The host may be empty: Java's is, if it finds no interface.
std::optional<Address> TakeApart(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == address.size()) return std::nullopt;
  const std::string_view port = address.substr(colon + 1);
  if (!std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return Address{address.substr(0, colon), port};
}

// The time of a record of Leaf's that is otherwise malformed.
std::optional<std::int64_t> FindTimestamp(const std::string& data) {
  const auto json = nlohmann::json::parse(data, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find("timestamp");
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

std::string TimeText(std::int64_t unix_millis) {
  if (unix_millis < 0 || unix_millis > core::kEpochMillisMax) return fmt::format("{} ms", unix_millis);
  return FormatRfc3339(WallTimeOf(unix_millis));
}

Change Create(const std::string& path, std::string data) {
  return {Change::Kind::kCreate, {path, "", {}}, 0, std::move(data)};
}
Change Absent(const std::string& path) { return {Change::Kind::kAbsent, {path, "", {}}, 0, ""}; }
Change Write(const std::string& path, const NodeData& node, std::string data) {
  return {Change::Kind::kWrite, ToRecord(path, node), node.stat.version, std::move(data)};
}
Change Remove(const std::string& path, const NodeData& node) {
  return {Change::Kind::kRemove, ToRecord(path, node), node.stat.version, ""};
}

// A node of a kind of ours, parsed.
template <typename Record>
struct Parsed {
  std::string path;
  const NodeData* node = nullptr;
  std::optional<Record> record;
  std::string malformed;  // why there is no record
};

template <typename Record>
Parsed<Record> Parse(const Snapshot& snapshot, const std::string& path,
                     Result<Record> (*parse)(std::string_view)) {
  Parsed<Record> parsed;
  parsed.path = path;
  parsed.node = snapshot.Find(path);
  LEAF_CHECK(parsed.node != nullptr);
  auto result = parse(parsed.node->data);
  if (result.ok()) {
    parsed.record = *std::move(result);
  } else {
    parsed.malformed = result.error().message;
  }
  return parsed;
}

struct Forever : Parsed<ForeverData> {
  std::string name;
  ForeverName parsed;
};

// The tree, sorted out.
struct Contents {
  explicit Contents(const Snapshot& snapshot) {
    const Tree& tree = snapshot.tree;
    for (const std::string& name : snapshot.Children(tree.Forever())) {
      const std::string path = tree.ForeverNode(name);
      const auto parsed = ParseForeverName(name);
      if (!parsed || !TakeApart(parsed->address)) {
        foreign.push_back(name);
        continue;
      }
      Forever node;
      static_cast<Parsed<ForeverData>&>(node) = Parse<ForeverData>(snapshot, path, ParseForeverData);
      node.name = name;
      node.parsed = *parsed;
      by_number.emplace(parsed->worker, forever.size());
      by_address.emplace(parsed->address, forever.size());
      forever.push_back(std::move(node));
    }
    ReadNumbered<OwnerRecord>(snapshot, tree.Owners(), ParseOwner, owners);
    ReadNumbered<CeilingRecord>(snapshot, tree.Ceilings(), ParseCeiling, ceilings);
    ReadNumbered<LeaseRecord>(snapshot, tree.Leases(), ParseLease, leases);
    for (const std::string& name : snapshot.Children(tree.Addresses()))
      holds.emplace(name, Parse<AddressRecord>(snapshot, tree.Address(name), ParseAddress));
    for (const std::string& name : snapshot.Children(tree.Temporaries()))
      temporaries.emplace(name, Parse<TemporaryRecord>(snapshot, tree.Temporary(name), ParseTemporary));
    for (const std::string& folder : {tree.RecycleUnused(), tree.RecycleUsed()}) {
      for (const std::string& name : snapshot.Children(folder)) {
        const std::string path = fmt::format("{}/{}", folder, name);
        if (const auto worker = ParseRecycleName(name)) {
          recycled.emplace(*worker, Parse<RecycleData>(snapshot, path, ParseRecycleData));
        } else {
          bad_names.push_back(path);
        }
      }
    }
  }

  template <typename Record>
  void ReadNumbered(const Snapshot& snapshot, const std::string& folder,
                    Result<Record> (*parse)(std::string_view),
                    std::map<std::uint64_t, Parsed<Record>>& records) {
    for (const std::string& name : snapshot.Children(folder)) {
      const std::string path = fmt::format("{}/{}", folder, name);
      if (const auto worker = ParseNumberName(name)) {
        records.emplace(*worker, Parse<Record>(snapshot, path, parse));
      } else {
        bad_names.push_back(path);
      }
    }
  }

  // The temporary node of whoever says now that it has this number, or this address.
  const Parsed<TemporaryRecord>* Live(std::uint64_t worker, const std::string& address) const {
    for (const auto& [name, temporary] : temporaries) {
      if (temporary.node->stat.ephemeral_owner == 0) continue;
      if ((!address.empty() && name == address) || (temporary.record && temporary.record->worker == worker))
        return &temporary;
    }
    return nullptr;
  }

  std::vector<std::string> foreign;  // children of `forever` that are not Leaf's
  std::vector<Forever> forever;
  std::multimap<std::uint64_t, std::size_t> by_number;  // into forever
  std::multimap<std::string, std::size_t> by_address;
  std::map<std::uint64_t, Parsed<OwnerRecord>> owners;
  std::map<std::uint64_t, Parsed<CeilingRecord>> ceilings;
  std::map<std::uint64_t, Parsed<LeaseRecord>> leases;
  std::map<std::string, Parsed<AddressRecord>> holds;
  std::map<std::string, Parsed<TemporaryRecord>> temporaries;
  std::multimap<std::uint64_t, Parsed<RecycleData>> recycled;  // used and unused
  std::vector<std::string> bad_names;                          // in folders whose children are numbers
};

// "leafctl, leafctl/witness and 7 more"; of the ephemeral ones only, or of all.
std::string NamesOf(const Tree& tree, const OpenNodes& open, bool ephemeral_only) {
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

class Inspector {
 public:
  Inspector(const Snapshot& snapshot, const core::InspectionOptions& options,
            const PropertiesRecord& configured)
      : snapshot_(snapshot),
        tree_(snapshot.tree),
        options_(options),
        configured_(configured),
        contents_(snapshot) {}

  core::WorkerInspection Run() {
    ListEntries();
    CheckNamespace();
    CheckForeign();
    for (const Forever& node : contents_.forever) CheckForever(node);
    CheckNumbersAndAddresses();
    CheckOwners();
    CheckHolds();
    CheckTemporaries();
    CheckLeases();
    CheckCeilings();
    CheckRecords();
    CheckForkIsRunning();
    CheckRecycled();
    CheckAccess();
    return std::move(result_);
  }

 private:
  struct Text {
    std::string cause;
    std::string consequence;
    std::string remedy;
  };

  void Leave(std::string code, std::string subject, Text text, std::string why) {
    result_.findings.push_back({std::move(code), std::move(subject), std::move(text.cause),
                                std::move(text.consequence), std::move(text.remedy), false, std::move(why)});
  }
  void Mend(std::string code, std::string subject, Text text, std::string what, std::vector<Change> changes) {
    result_.steps.push_back({code, std::move(what), text.cause, std::move(changes)});
    text.remedy = kRepair;
    result_.findings.push_back({std::move(code), std::move(subject), std::move(text.cause),
                                std::move(text.consequence), std::move(text.remedy), true, ""});
  }

  // ---- entries

  void AddRecord(core::WorkerEntry& entry, const std::string& path) const {
    if (const NodeData* const node = snapshot_.Find(path)) entry.records.push_back(ToRecord(path, *node));
  }

  void FillLive(core::WorkerEntry& entry) const {
    const auto* const live = contents_.Live(entry.worker, entry.address);
    if (live == nullptr) return;
    entry.live = true;
    if (live->record) entry.url = live->record->url;
    AddRecord(entry, live->path);
  }

  // Java Leaf says that it lives by nothing but its reports. The servers' time of the write counts: what the
  // report says is the reporter's, which may be ahead.
  void FillReporting(core::WorkerEntry& entry, const NodeData& node) const {
    if (entry.live || !entry.reported) return;
    if (std::chrono::abs(options_.now - node.stat.modified_at) < core::kLiveReport)
      entry.live = entry.java = true;
  }

  // The last write to the number's node was that of its leafctl, not Java Leaf's.
  bool WrittenByLeafctl(const Forever& node) const {
    const auto found = contents_.ceilings.find(node.parsed.worker);
    return found != contents_.ceilings.end() && found->second.record && node.record &&
           found->second.record->leaf_version == node.node->stat.version &&
           found->second.record->leaf_timestamp_ms == node.record->timestamp_ms;
  }

  void FillFixed(core::WorkerEntry& entry) const {
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

  void ListEntries() {
    std::set<std::uint64_t> fixed;
    for (const Forever& node : contents_.forever) {
      core::WorkerEntry entry;
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
      core::WorkerEntry entry;
      entry.worker = worker;
      FillFixed(entry);
      result_.entries.push_back(std::move(entry));
    };
    for (const auto& owner : contents_.owners) add_orphan(owner.first);
    for (const auto& ceiling : contents_.ceilings) add_orphan(ceiling.first);
    for (const auto& [worker, lease] : contents_.leases) {
      core::WorkerEntry entry;
      entry.kind = core::NumberKind::kLease;
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
      core::WorkerEntry entry;
      entry.kind = core::NumberKind::kRecycled;
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
                     [](const core::WorkerEntry& left, const core::WorkerEntry& right) {
                       return std::tie(left.kind, left.worker, left.address) <
                              std::tie(right.kind, right.worker, right.address);
                     });
  }

  // ---- findings

  void CheckNamespace() {
    if (tree_.cluster().find('-') != std::string::npos) {
      Leave(
          "dashed-cluster", tree_.Base(),
          {fmt::format("the name of the cluster, {}, has a dash", Quoted(tree_.cluster())),
           "a Java node that starts for the first time cannot parse its number: it fails, and starts at the "
           "second attempt only",
           "start Java nodes twice, or use leafctl nodes, which are not troubled by it"},
          "a cluster cannot be renamed");
    }
    if (snapshot_.Find(tree_.Forever()) == nullptr) CheckMissingForever();
    if (const NodeData* const node = snapshot_.Find(tree_.Properties())) {
      const auto stored = ParseProperties(node->data);
      const Result<void> same = stored.ok() ? CheckSameProperties(*stored, configured_, tree_.Properties())
                                            : Result<void>(stored.error());
      if (!same.ok()) {
        Leave(stored.ok() ? "cluster-differs" : "malformed-record", tree_.Properties(),
              {same.error().message, "leafctl nodes refuse to start rather than repeat IDs",
               "set right what is configured, here or on the other nodes"},
              "nobody but the operator knows which of the two is right");
      }
    }
  }

  void CheckMissingForever() {
    const Text text{"there is no " + tree_.Forever(),
                    "Java nodes that start together on it all become worker 0", ""};
    if (!contents_.owners.empty() || !contents_.ceilings.empty() || !contents_.holds.empty()) {
      Leave("forever-missing", tree_.Forever(),
            {text.cause, "numbers would begin at 0 again, though leafctl/owners knows of numbers in use",
             "bring it back from a backup, or use a new cluster name"},
            "who has which of the old numbers is not known here");
      return;
    }
    std::vector<std::string> missing;
    for (const std::string& folder : tree_.Folders()) {
      if (snapshot_.Find(folder) == nullptr) missing.push_back(folder);
      if (folder == tree_.Forever()) break;
    }
    std::vector<Change> changes;
    changes.reserve(missing.size());
    for (const std::string& folder : missing) changes.push_back(Create(folder, ""));
    Mend("virgin-namespace", tree_.Forever(), text, "create " + tree_.Forever(), std::move(changes));
  }

  void CheckForeign() {
    for (const std::string& name : contents_.foreign) {
      const std::string path = tree_.ForeverNode(name);
      const NodeData& node = *snapshot_.Find(path);
      const auto parsed = ParseForeverName(name);
      const bool harmless = parsed && parsed->address.find('-') == std::string::npos;
      const Text text{fmt::format("{} is none of Leaf's nodes, which are <ip>:<port>-<number>", Quoted(name)),
                      harmless
                          ? "it has used up a number, and other tools may trip over it"
                          : "every Java node that starts fails, or falls back to its local file without any "
                            "check of its clock",
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
        changes.push_back(Remove(*below, *snapshot_.Find(*below)));
      Mend("foreign-child", path, text, "remove " + path, std::move(changes));
    }
  }

  // Whether somebody runs, and writes the node.
  bool IsMoving(const Forever& node) const { return options_.moving.count(node.path) > 0; }
  bool IsLive(const Forever& node) const {
    return contents_.Live(node.parsed.worker, node.parsed.address) != nullptr;
  }
  std::int64_t LatestMillis() const { return UnixMillis(options_.now + options_.ahead_max); }

  void CheckForever(const Forever& node) {
    const ForeverName& name = node.parsed;
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
             "Java nodes take it for a number; leafctl nodes do not make such names",
             "find out who made it; remove it with zkCli.sh once the number is not in use"},
            "the number may be in use");
    }
    if (core::IsSharedHost(address->host)) {
      Leave(
          "shared-address", node.path,
          {address->host.empty()
               ? std::string("the address has no IP: Java found no network interface")
               : fmt::format("many machines have the address {} (loopback, or docker's bridge)",
                             address->host),
           "two machines that come with it share one number and repeat each other's IDs, which nobody "
           "notices",
           "look whether more than one machine uses it; set snowflake.address, or leaf.snowflake.address of "
           "Java, to an address of its own"},
          "only the machines can tell who they are");
    }
    if (name.worker >= options_.layout.worker_end()) {
      Leave("number-too-large", node.path,
            {fmt::format("number {} does not fit {} bits", name.worker, options_.layout.worker_bits()),
             "the node of this address cannot start: Java writes the number to its local file and fails, "
             "leafctl refuses",
             "set snowflake.recycle in a new cluster name, or give the node an address that has a number"},
            "only an operator can decide which of the smaller numbers is no longer needed");
    } else if (name.worker < options_.worker_begin || name.worker >= options_.worker_end) {
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
    const Text text{
        node.malformed,
        "the Java node of this address fails at its start, or falls back to its local file without any "
        "check of its clock",
        "set the node to {\"ip\":…,\"port\":…,\"timestamp\":…} with zkCli.sh"};
    if (!node.parsed.canonical) {
      Leave("malformed-data", node.path, text, "its name is malformed, too");
    } else if (IsMoving(node) || IsLive(node)) {
      Leave("malformed-data", node.path, text, "somebody who runs now writes to it");
    } else {
      Mend("malformed-data", node.path, text,
           fmt::format("write Leaf's three keys and the present time to {}", node.path),
           {Write(node.path, *node.node, FormatForeverData(node.parsed.address, options_.now))});
    }
  }

  void CheckFuture(const Forever& node, std::int64_t timestamp) {
    const Text text{
        fmt::format("{}the time it reported, {}, is in the future",
                    node.malformed.empty() ? "" : node.malformed + "; ", TimeText(timestamp)),
        "a Java node of this address refuses to start until then, or falls back to its local file; IDs up to "
        "then may have been issued",
        "set the clock of its machine right"};
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
      leave("the number stands there twice");
    } else if (contents_.owners.count(worker) > 0) {
      leave("a state directory owns the number: its node reports the right time once its clock is right");
    } else if (ceiling != contents_.ceilings.end() && !ceiling->second.record) {
      leave("the ceiling of the number is malformed");
    } else if (!options_.java_retired) {
      leave(
          "it is all that keeps a Java node from repeating IDs; if no Java node will ever start here again: "
          "leafctl worker repair --java-retired");
    } else {
      PlanTakeBack(node, timestamp, text);
    }
  }

  const Parsed<CeilingRecord>* FindCeiling(std::uint64_t worker) const {
    const auto found = contents_.ceilings.find(worker);
    return found == contents_.ceilings.end() ? nullptr : &found->second;
  }

  // The change that makes the ceiling of a number at least `ceiling`, and whatever else `edit` wants. Two
  // steps can raise one ceiling: the second builds on what the first leaves. Requires: a ceiling that is
  // there is well-formed.
  template <typename Edit>
  Change RaiseCeiling(std::uint64_t worker, WallTime ceiling, const Edit& edit) {
    std::optional<NodeData> node;  // as it is by then
    if (const auto planned = planned_.find(worker); planned != planned_.end()) {
      node = planned->second;
    } else if (const Parsed<CeilingRecord>* const stored = FindCeiling(worker)) {
      node = *stored->node;
    }
    CeilingRecord record;
    if (node) record = ParseCeiling(node->data).value();
    if (!record.ceiling || *record.ceiling < ceiling) record.ceiling = ceiling;
    edit(record);
    std::string data = FormatCeiling(record);
    NodeData& next = planned_[worker];
    next.data = data;
    next.stat = node ? node->stat : NodeStat{};
    if (!node) return Create(tree_.Ceiling(worker), std::move(data));
    ++next.stat.version;
    return Write(tree_.Ceiling(worker), *node, std::move(data));
  }

  // Where there were Java nodes only, our folders are missing.
  void EnsureFolder(const std::string& folder) {
    if (snapshot_.Find(folder) != nullptr || !made_.insert(folder).second) return;
    result_.steps.push_back(
        {"prepare", "create " + folder, "it holds what the next steps remember", {Create(folder, "")}});
  }

  void PlanTakeBack(const Forever& node, std::int64_t timestamp, const Text& text) {
    EnsureFolder(tree_.Own());
    EnsureFolder(tree_.Ceilings());
    const WallTime end = WallTimeOf(timestamp) + core::kJavaMargin;
    const Change ceiling = RaiseCeiling(node.parsed.worker, end, [&](CeilingRecord& record) {
      record.leaf_version = node.node->stat.version + 1;
      record.leaf_timestamp_ms = UnixMillis(options_.now);
    });
    Mend("future-time", node.path, text,
         fmt::format("keep {} as the ceiling of number {}, and write the present time to {}",
                     FormatRfc3339(end), node.parsed.worker, node.path),
         {ceiling, Write(node.path, *node.node, FormatForeverData(node.parsed.address, options_.now))});
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
        Leave(
            "duplicate-address", i->first,
            {"more than one node has this address: " + paths_of(range),
             "Java takes whichever the server lists last, so that its number can change at any start",
             "decode a recent ID of the machine to see which number it uses; when it is stopped, remove the "
             "others with zkCli.sh"},
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
              "only an operator can tell which of them may go on");
      }
      i = range.second;
    }
    const NodeData* const forever = snapshot_.Find(tree_.Forever());
    if (forever != nullptr) {
      const std::uint64_t next = NextForeverNumber(forever->stat.child_version, forever->stat.children);
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

  bool HasForever(std::uint64_t worker, const std::string& address) const {
    const auto range = contents_.by_number.equal_range(worker);
    return std::any_of(range.first, range.second, [&](const auto& entry) {
      return contents_.forever[entry.second].parsed.address == address;
    });
  }

  void CheckOwners() {
    for (const auto& [worker, owner] : contents_.owners) {
      if (!owner.record) continue;  // CheckRecords
      const OwnerRecord& record = *owner.record;
      const auto who = fmt::format("state directory {} on {}", record.uuid, Quoted(record.host));
      if (contents_.by_number.count(worker) == 0) {
        const Text text{fmt::format("number {} belongs to {}, but has no node under forever", worker, who),
                        "if the number is ever given again, its new node is refused", ""};
        if (contents_.Live(worker, record.address) != nullptr) {
          Leave("orphaned-owner", owner.path,
                {text.cause, "its node goes on, and is refused at its next start",
                 "stop the node, and start it again with another address"},
                "its node is live");
        } else {
          Mend("orphaned-owner", owner.path, text, "remove " + owner.path, {Remove(owner.path, *owner.node)});
        }
        continue;
      }
      std::string disagrees;
      if (!HasForever(worker, record.address)) {
        disagrees = fmt::format("number {} belongs to {} with address {}, but forever has another address",
                                worker, who, Quoted(record.address));
      } else if (const auto hold = contents_.holds.find(record.address); hold == contents_.holds.end()) {
        disagrees = fmt::format("number {} belongs to {}, but nobody holds its address {}", worker, who,
                                Quoted(record.address));
      } else if (hold->second.record && (hold->second.record->uuid != record.uuid ||
                                         hold->second.record->worker.value_or(worker) != worker)) {
        disagrees = fmt::format("number {} belongs to {}, but its address {} is held by state directory {}",
                                worker, who, Quoted(record.address), hold->second.record->uuid);
      }
      if (!disagrees.empty()) {
        Leave("owners-disagree", owner.path,
              {disagrees, "a node of this number or address can be refused at its start",
               fmt::format("stop the nodes concerned, then: leafctl worker release {}", worker)},
              "only an operator can tell who is right");
      }
      for (const auto& [address, temporary] : contents_.temporaries) {
        if (temporary.node->stat.ephemeral_owner == 0 || !temporary.record) continue;
        if (temporary.record->worker != worker || temporary.record->uuid == record.uuid) continue;
        LeaveTwoLive(temporary, worker, who);
      }
    }
  }

  void LeaveTwoLive(const Parsed<TemporaryRecord>& temporary, std::uint64_t worker, const std::string& who) {
    Leave("live-not-owner", temporary.path,
          {fmt::format("state directory {} is live as number {}, which belongs to {}", temporary.record->uuid,
                       worker, who),
           "it should have stopped by itself; if both issue, they repeat each other's IDs",
           "stop the node of that address"},
          "it goes away with its session");
  }

  void CheckHolds() {
    for (const auto& [address, hold] : contents_.holds) {
      if (!hold.record) continue;
      const AddressRecord& record = *hold.record;
      // One without a number is a first claim under way; the next one takes over what was left unfinished.
      if (!record.worker || HasForever(*record.worker, address)) continue;
      const std::string cause =
          fmt::format("state directory {} holds address {} with number {}, which has no node under forever",
                      record.uuid, Quoted(address), *record.worker);
      const Text text{cause, "another state directory with this address is refused", ""};
      if (contents_.Live(*record.worker, address) != nullptr) {
        Leave("orphaned-hold", hold.path, {text.cause, text.consequence, "stop the node, and start it again"},
              "its node is live");
      } else {
        Mend("orphaned-hold", hold.path, text, "remove " + hold.path, {Remove(hold.path, *hold.node)});
      }
    }
  }

  void CheckTemporaries() {
    for (const auto& [address, temporary] : contents_.temporaries) {
      if (temporary.node->stat.ephemeral_owner != 0) continue;
      Mend("dead-temporary", temporary.path,
           {"no session holds this node, so that it never goes away by itself",
            "the node of this address looks live for ever, and cannot announce itself", ""},
           "remove " + temporary.path, {Remove(temporary.path, *temporary.node)});
    }
  }

  void CheckLeases() {
    if (contents_.leases.empty()) return;
    // What Leaf has given out, or may be in use all the same.
    const NodeData* const forever = snapshot_.Find(tree_.Forever());
    const std::uint64_t given =
        forever == nullptr ? 0 : NextForeverNumber(forever->stat.child_version, forever->stat.children);
    std::uint64_t end = given;
    for (const Forever& node : contents_.forever) {
      if (node.parsed.worker < options_.layout.worker_end()) end = std::max(end, node.parsed.worker + 1);
    }
    for (const auto& [worker, lease] : contents_.leases) {
      if (!lease.record) continue;
      const LeaseRecord& record = *lease.record;
      for (const auto& [address, temporary] : contents_.temporaries) {
        if (temporary.node->stat.ephemeral_owner == 0 || !temporary.record) continue;
        if (temporary.record->worker == worker && !record.uuid.empty() &&
            temporary.record->uuid != record.uuid)
          LeaveTwoLive(temporary, worker, "state directory " + record.uuid);
      }
      if (worker >= end) continue;
      const Text text{
          fmt::format("lease {} is not above {}, the highest number under forever", worker, end - 1),
          "a Java node can have, or get, the same number: both repeat each other's IDs",
          fmt::format("stop its node, then: leafctl worker release {}, leafctl worker repair", worker)};
      const Parsed<CeilingRecord>* const ceiling = FindCeiling(worker);
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
          changes.push_back(RaiseCeiling(worker, *record.ceiling,
                                         [](CeilingRecord& kept) { kept.leaf_version = kNoLeafVersion; }));
        }
        changes.push_back(Remove(lease.path, *lease.node));
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
             "a leafctl node with this number issues nothing before that",
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
            "what stood there is not known");
      }
    };
    check(contents_.owners, "stop its node, then leafctl worker release");
    check(contents_.holds, "stop its node, then leafctl worker release");
    check(contents_.ceilings, "write it anew with zkCli.sh, with a ceiling above everything that was issued");
    check(contents_.leases, "write it anew with zkCli.sh, with a ceiling above everything that was issued");
    check(contents_.temporaries, "stop the node of that address");
    for (const std::string& path : contents_.bad_names) {
      Leave("malformed-name", path,
            {"its name is no number", "none of leafctl's or the fork's nodes looks at it",
             "find out who made it, and remove it with zkCli.sh"},
            "it is not known whose it is");
    }
  }

  bool HasMended(const std::string& path) const {
    return std::any_of(result_.findings.begin(), result_.findings.end(),
                       [&](const auto& finding) { return finding.repairable && finding.subject == path; });
  }

  bool IsLeased(std::uint64_t worker) const {
    const auto lease = contents_.leases.find(worker);
    return lease != contents_.leases.end() && (!lease->second.record || !lease->second.record->uuid.empty());
  }

  // The numbers that running nodes of the fork have now, in one finding.
  void CheckForkIsRunning() {
    std::vector<std::string> numbers;
    for (const auto& [worker, recycled] : contents_.recycled) {
      const bool in_use = recycled.path == tree_.RecycleUsed(worker);
      if (!ParseForkNumber(recycled.path, *recycled.node, in_use).IsFresh(options_.now)) continue;
      const bool known = recycled.record && recycled.record->ip;
      numbers.push_back(
          known ? fmt::format("{} ({}:{})", worker, *recycled.record->ip, recycled.record->port.value_or(""))
                : std::to_string(worker));
    }
    if (numbers.empty()) return;
    const std::string cause =
        fmt::format("in use by nodes of the fork in mode zk_recycle: {}", fmt::join(numbers, ", "));
    if (configured_.recycle) {
      Leave(std::string(core::kForkRunning), tree_.RecycleUsed(),
            {cause, "leafctl leases none of them; a node of the fork takes none that leafctl has leased",
             "none is needed while both run; a number is free 61 min after its last report"},
            "the fork's nodes run");
    } else {
      Leave(std::string(core::kForkRunning), tree_.RecycleUsed(),
            {cause,
             "fixed numbers and the fork's do not know of each other: two nodes can have one number and "
             "repeat each other's IDs",
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
               "two nodes of the fork can get one number", "set workId right with zkCli.sh"},
              std::string(read_only));
      }
      if (recycled.record->timestamp_ms.value_or(0) > LatestMillis()) {
        Leave("future-time", recycled.path,
              {fmt::format("it was last used at {}, which is in the future",
                           TimeText(*recycled.record->timestamp_ms)),
               "a node of the fork that draws it refuses to start", "set the clocks right, and wait"},
              std::string(read_only));
      }
      if (in_use && !recycled.record->timestamp_ms) {
        Leave("recycled-lost", recycled.path,
              {"it is used, but nobody ever reported", "the fork never gives it free again",
               "move it to notuse with zkCli.sh if no node has just started"},
              std::string(read_only));
      }
      if (in_use && (contents_.by_number.count(worker) > 0 || IsLeased(worker))) {
        Leave(
            "two-number-spaces", recycled.path,
            {fmt::format("number {} is used by the fork's recycling nodes and stands in another tree, too",
                         worker),
             "the trees do not know of each other: two nodes can have one number and repeat each other's IDs",
             "use one kind of numbers in a cluster, or two cluster names"},
            std::string(read_only));
      }
    }
  }

  // Last: what was removed before needs no rules.
  void CheckAccess() {
    auto finding = InspectAccess(tree_, snapshot_.open);
    if (!finding) return;
    if (finding->repairable) {
      std::vector<Change> changes;
      changes.reserve(snapshot_.open.size());
      for (const auto& [path, access] : snapshot_.open) {
        core::RawRecord before{
            path, "", {{"access", access.rules}, {"access_version", std::to_string(access.version)}}};
        changes.push_back({Change::Kind::kProtect, std::move(before), access.version, ""});
      }
      result_.steps.push_back({finding->code,
                               fmt::format("let only the credentials of zookeeper.auth_file change {}, and "
                                           "everyone read",
                                           NamesOf(tree_, snapshot_.open, false)),
                               finding->cause, std::move(changes)});
    }
    result_.findings.push_back(*std::move(finding));
  }

  const Snapshot& snapshot_;
  const Tree& tree_;
  const core::InspectionOptions& options_;
  const PropertiesRecord& configured_;
  const Contents contents_;
  std::set<std::string> made_;                 // folders
  std::map<std::uint64_t, NodeData> planned_;  // ceilings, as the steps so far leave them
  core::WorkerInspection result_;
};

}  // namespace

std::optional<core::WorkerFinding> InspectAccess(const Tree& tree, const OpenNodes& open) {
  if (open.empty()) return std::nullopt;
  core::WorkerFinding finding;
  finding.code = core::kOpenToEveryone;
  finding.subject = tree.Own();
  finding.cause =
      fmt::format("open to everyone, though zookeeper.auth_file is set: {}", NamesOf(tree, open, false));
  finding.consequence = "every client of ZooKeeper may change or delete what keeps IDs from being repeated";
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

core::WorkerInspection Inspect(const Snapshot& snapshot, const core::InspectionOptions& options,
                               const PropertiesRecord& configured) {
  return Inspector(snapshot, options, configured).Run();
}

std::vector<std::string> RewrittenByLeaf(const Snapshot& snapshot, const core::WorkerInspection& inspection) {
  std::vector<std::string> paths;
  const std::string prefix = snapshot.tree.Forever() + "/";
  for (const core::RepairStep& step : inspection.steps) {
    for (const Change& change : step.changes) {
      if (change.kind == Change::Kind::kWrite && change.before.name.starts_with(prefix))
        paths.push_back(change.before.name);
    }
  }
  return paths;
}

Result<std::optional<core::RepairStep>> PlanRelease(const Snapshot& snapshot, std::uint64_t worker,
                                                    bool leases) {
  const Tree& tree = snapshot.tree;
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
  core::RepairStep step;
  step.code = "release";
  std::set<std::string> addresses;
  if (lease_known && (leases || !fixed_known)) {
    if (!lease->second.record) {
      return Error{ErrorCode::kRefused,
                   fmt::format("cannot release worker {}: {} is malformed: {}", worker, lease->second.path,
                               lease->second.malformed),
                   "its ceiling is not known: write it anew with zkCli.sh"};
    }
    LeaseRecord record = *lease->second.record;
    if (record.uuid.empty()) return std::optional<core::RepairStep>{};
    addresses.insert(record.address);
    step.what = fmt::format("free lease {} of state directory {}", worker, record.uuid);
    record.uuid.clear();
    ++record.generation;
    step.changes.push_back(Write(lease->second.path, *lease->second.node, FormatLease(record)));
  } else {
    if (owner != contents.owners.end()) {
      step.changes.push_back(Remove(owner->second.path, *owner->second.node));
      if (owner->second.record) addresses.insert(owner->second.record->address);
    }
    const auto range = contents.by_number.equal_range(worker);
    for (auto i = range.first; i != range.second; ++i)
      addresses.insert(contents.forever[i->second].parsed.address);
    for (const auto& [address, hold] : contents.holds) {
      const bool of_number = hold.record && hold.record->worker == worker;
      if (of_number || addresses.count(address) > 0) {
        addresses.insert(address);
        step.changes.push_back(Remove(hold.path, *hold.node));
      }
    }
    if (step.changes.empty()) return std::optional<core::RepairStep>{};
    step.what = fmt::format("release worker {}", worker);
    if (owner != contents.owners.end() && owner->second.record) {
      const OwnerRecord& record = *owner->second.record;
      step.what +=
          fmt::format(" of state directory {} on {} ({})", record.uuid, Quoted(record.host), record.address);
    }
  }
  addresses.erase("");
  for (const std::string& address : addresses) {
    if (const auto* const live = contents.Live(worker, address)) {
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
        step.changes.insert(step.changes.begin(), Absent(tree.Temporary(address)));
    }
  }
  step.why = "so that another state directory can have it; its ceiling stays";
  return std::optional<core::RepairStep>(std::move(step));
}

std::vector<Operation> OperationsOf(const Tree& tree, const core::RepairStep& step) {
  std::vector<Operation> operations;
  for (const Change& change : step.changes) {
    const std::string& path = change.before.name;
    const auto version = static_cast<std::int32_t>(change.version);
    switch (change.kind) {
      case Change::Kind::kAbsent:
        // Within one transaction nobody sees it, and it fails if there is one.
        operations.push_back(CreateIn(tree, path, ""));
        operations.push_back(Operation::Delete(path, 0));
        break;
      case Change::Kind::kCreate:
        operations.push_back(CreateIn(tree, path, change.after));
        break;
      case Change::Kind::kWrite:
        operations.push_back(Operation::Set(path, change.after, version));
        break;
      case Change::Kind::kRemove:
        operations.push_back(Operation::Delete(path, version));
        break;
      case Change::Kind::kProtect:
        break;
    }
  }
  return operations;
}

Result<bool> ApplyStep(AccessClient& client, const Tree& tree, const core::RepairStep& step) {
  if (const auto operations = OperationsOf(tree, step); !operations.empty()) {
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome outcome, client.Write(operations));
    if (!outcome.done()) return false;
  }
  std::vector<AccessClient::Seen> seen;
  for (const Change& change : step.changes) {
    if (change.kind == Change::Kind::kProtect)
      seen.push_back({change.before.name, static_cast<std::int32_t>(change.version)});
  }
  bool as_seen = true;
  for (std::size_t begin = 0; begin < seen.size(); begin += kSnapshotParallel) {
    const std::size_t end = std::min(seen.size(), begin + kSnapshotParallel);
    const std::vector<AccessClient::Seen> some(seen.begin() + static_cast<std::ptrdiff_t>(begin),
                                               seen.begin() + static_cast<std::ptrdiff_t>(end));
    LEAF_ASSIGN_OR_RETURN(const bool done, client.Protect(some));
    as_seen = as_seen && done;
  }
  return as_seen;
}

}  // namespace leaf::zookeeper
