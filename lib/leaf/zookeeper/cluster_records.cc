#include "leaf/zookeeper/cluster_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// A node whose record is gone takes that for a loss of data: all report.
Error Unusable(const std::string& path, const Error& why) {
  return {ErrorCode::kRefused, fmt::format("cannot use {} in ZooKeeper: {}", Quoted(path), why.message),
          "find out which program wrote it. With all daemons running, delete it: they write it again, and "
          "report what they were granted"};
}

}  // namespace

std::string NodeText(const std::string& id, const NodeRecord& record) {
  if (record.process.empty())
    return fmt::format("{} (its host is not known; the table clusters of its marks.db has this id)", id);
  return fmt::format("{} ({} on {}, last there at {})", id, Printable(record.process), Printable(record.host),
                     FormatRfc3339(record.at));
}

std::vector<ClusterRecords::Node> ClusterRecords::Missing() const {
  std::vector<Node> missing;
  if (!incarnation || incarnation->settled) return missing;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(missing), [this](const Node& node) {
    return !node.record.left && node.record.contributed < incarnation->number;
  });
  return missing;
}

Result<ClusterRecords> ReadCluster(Client& client, const Tree& tree) {
  ClusterRecords records;
  LEAF_ASSIGN_OR_RETURN(const auto children, client.Children(tree.Nodes()));
  std::vector<std::string> paths{tree.Incarnation()};
  auto ids = children.value_or(std::vector<std::string>{});
  std::sort(ids.begin(), ids.end());
  for (const std::string& id : ids) paths.push_back(tree.Node(id));
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client.GetAll(paths));
  if (nodes[0]) {
    auto record = ParseIncarnation(nodes[0]->data);
    if (!record.ok()) return Unusable(paths[0], record.error());
    records.incarnation = std::move(*record);
    records.incarnation_version = nodes[0]->stat.version;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i + 1]) continue;
    auto record = ParseNode(nodes[i + 1]->data);
    if (!record.ok()) return Unusable(paths[i + 1], record.error());
    records.nodes.push_back({ids[i], std::move(*record), nodes[i + 1]->stat.version});
  }
  return records;
}

Result<bool> Waive(Client& client, const Tree& tree, const ClusterRecords& records,
                   const std::vector<std::string>& ids, const std::string& by, WallTime now) {
  if (!records.incarnation) return true;
  const std::uint64_t number = records.incarnation->number;
  const Operation same = Operation::Check(tree.Incarnation(), records.incarnation_version);
  const std::set<std::string> waived(ids.begin(), ids.end());
  for (const ClusterRecords::Node& node : records.nodes) {
    if (!waived.contains(node.id)) continue;
    NodeRecord record = node.record;
    record.left = true;
    record.contributed = std::max(record.contributed, number);
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome done,
        client.Write({same, Operation::Set(tree.Node(node.id), FormatNode(record), node.version)}));
    if (!done.done()) return false;
  }
  const auto missing = records.Missing();
  IncarnationRecord settled = *records.incarnation;
  if (!settled.settled && std::all_of(missing.begin(), missing.end(),
                                      [&](const auto& node) { return waived.contains(node.id); })) {
    // A node that is waived, and those that had contributed when they were read, may have put others back
    // until then.
    LEAF_ASSIGN_OR_RETURN(const ClusterRecords again, ReadCluster(client, tree));
    if (again.incarnation_version != records.incarnation_version || !again.Missing().empty()) return false;
    settled.settled = true;
  }
  settled.by = by;
  settled.at = now;
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                        client.Write({Operation::Set(tree.Incarnation(), FormatIncarnation(settled),
                                                     records.incarnation_version)}));
  return done.done();
}

}  // namespace leaf::zookeeper
