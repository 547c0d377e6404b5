#include "leaf/inspect/zookeeper_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/check.h"

namespace leaf::inspect {
namespace {

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

// The children of a folder whose names are numbers.
template <typename Record>
void ReadNumbered(const Snapshot& snapshot, const std::string& folder,
                  Result<Record> (*parse)(std::string_view), std::map<std::uint64_t, Parsed<Record>>& records,
                  std::vector<std::string>& bad_names) {
  for (const std::string& name : snapshot.Children(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (const auto worker = zookeeper::ParseNumberName(name)) {
      records.emplace(*worker, Parse<Record>(snapshot, path, parse));
    } else {
      bad_names.push_back(path);
    }
  }
}

}  // namespace

Contents::Contents(const Snapshot& snapshot) {
  const zookeeper::Tree& tree = snapshot.tree;
  for (const std::string& name : snapshot.Children(tree.Forever())) {
    const std::string path = tree.ForeverNode(name);
    const auto parsed = zookeeper::ParseForeverName(name);
    if (!parsed || !TakeApart(parsed->address)) {
      foreign.push_back(name);
      continue;
    }
    Forever node;
    static_cast<Parsed<zookeeper::ForeverData>&>(node) =
        Parse<zookeeper::ForeverData>(snapshot, path, zookeeper::ParseForeverData);
    node.name = name;
    node.parsed = *parsed;
    by_number.emplace(parsed->worker, forever.size());
    by_address.emplace(parsed->address, forever.size());
    forever.push_back(std::move(node));
  }
  ReadNumbered<zookeeper::OwnerRecord>(snapshot, tree.Owners(), zookeeper::ParseOwner, owners, bad_names);
  ReadNumbered<zookeeper::CeilingRecord>(snapshot, tree.Ceilings(), zookeeper::ParseCeiling, ceilings,
                                         bad_names);
  ReadNumbered<zookeeper::LeaseRecord>(snapshot, tree.Leases(), zookeeper::ParseLease, leases, bad_names);
  for (const std::string& name : snapshot.Children(tree.Addresses()))
    holds.emplace(name,
                  Parse<zookeeper::AddressRecord>(snapshot, tree.Address(name), zookeeper::ParseAddress));
  for (const std::string& name : snapshot.Children(tree.Temporaries()))
    temporaries.emplace(
        name, Parse<zookeeper::TemporaryRecord>(snapshot, tree.Temporary(name), zookeeper::ParseTemporary));
  for (const std::string& folder : {tree.RecycleUnused(), tree.RecycleUsed()}) {
    for (const std::string& name : snapshot.Children(folder)) {
      const std::string path = fmt::format("{}/{}", folder, name);
      if (const auto worker = zookeeper::ParseRecycleName(name)) {
        recycled.emplace(*worker, Parse<zookeeper::RecycleData>(snapshot, path, zookeeper::ParseRecycleData));
      } else {
        bad_names.push_back(path);
      }
    }
  }
}

const Parsed<zookeeper::TemporaryRecord>* Contents::Live(std::uint64_t worker,
                                                         const std::string& address) const {
  for (const auto& [name, temporary] : temporaries) {
    if (temporary.node->stat.ephemeral_owner == 0) continue;
    if ((!address.empty() && name == address) || (temporary.record && temporary.record->worker == worker))
      return &temporary;
  }
  return nullptr;
}

const Parsed<zookeeper::TemporaryRecord>* Contents::Holder(std::uint64_t worker,
                                                           const std::string& address) const {
  const auto* const live = Live(worker, address);
  return live != nullptr && live->record && live->record->worker != worker ? Live(worker, "") : live;
}

std::optional<AddressParts> TakeApart(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == address.size()) return std::nullopt;
  const std::string_view port = address.substr(colon + 1);
  if (!std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return AddressParts{address.substr(0, colon), port};
}

std::string TimeText(std::int64_t unix_millis) {
  if (unix_millis < 0 || unix_millis > core::kEpochMillisMax) return fmt::format("{} ms", unix_millis);
  return FormatRfc3339(WallTimeOf(unix_millis));
}

RepairChange CreateNode(const std::string& path, std::string data) {
  return {RepairChange::Kind::kCreate, {path, "", {}}, 0, std::move(data)};
}
RepairChange NodeAbsent(const std::string& path) {
  return {RepairChange::Kind::kAbsent, {path, "", {}}, 0, ""};
}
RepairChange WriteNode(const std::string& path, const zookeeper::NodeData& node, std::string data) {
  return {RepairChange::Kind::kWrite, ToRecord(path, node), node.stat.version, std::move(data),
          node.stat.created_zxid};
}
RepairChange RemoveNode(const std::string& path, const zookeeper::NodeData& node) {
  return {RepairChange::Kind::kRemove, ToRecord(path, node), node.stat.version, "", node.stat.created_zxid};
}

const Parsed<zookeeper::CeilingRecord>* NamespaceChecks::FindCeiling(std::uint64_t worker) const {
  const auto found = contents_.ceilings.find(worker);
  return found == contents_.ceilings.end() ? nullptr : &found->second;
}

RepairChange NamespaceChecks::RaiseCeiling(std::uint64_t worker, WallTime ceiling,
                                           const std::function<void(zookeeper::CeilingRecord&)>& edit) {
  std::optional<zookeeper::NodeData> node;  // as the steps planned so far leave it
  if (const auto planned = shared_.planned.find(worker); planned != shared_.planned.end()) {
    node = planned->second;
  } else if (const Parsed<zookeeper::CeilingRecord>* const stored = FindCeiling(worker)) {
    node = *stored->node;
  }
  zookeeper::CeilingRecord record;
  if (node) record = zookeeper::ParseCeiling(node->data).value();
  if (!record.ceiling || *record.ceiling < ceiling) record.ceiling = ceiling;
  edit(record);
  std::string data = zookeeper::FormatCeiling(record);
  zookeeper::NodeData& next = shared_.planned[worker];
  next.data = data;
  next.stat = node ? node->stat : zookeeper::NodeStat{};
  if (!node) return CreateNode(tree_.Ceiling(worker), std::move(data));
  ++next.stat.version;
  return WriteNode(tree_.Ceiling(worker), *node, std::move(data));
}

void NamespaceChecks::EnsureFolder(const std::string& folder) {
  if (snapshot_.Find(folder) != nullptr || !shared_.made.insert(folder).second) return;
  result_.steps.push_back(
      {"prepare", "create " + folder, "it holds what the next steps remember", {CreateNode(folder, "")}});
}

}  // namespace leaf::inspect
