#include "leaf/inspect/zookeeper_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace leaf::inspect {
namespace {

// Deeper than anything that Leaf, its fork or we make; what others made there is removed as a whole.
constexpr int kDepthMax = 16;

class Reader {
 public:
  Reader(zookeeper::Client& client, Snapshot& snapshot) : client_(client), snapshot_(snapshot) {}

  // The nodes and, `depth` levels down, what is below them.
  Result<void> Read(std::vector<std::string> paths, int depth) {
    for (; !paths.empty(); --depth) {
      LEAF_RETURN_IF_ERROR(ReadNodes(paths));
      if (depth == 0) break;
      std::vector<std::string> below;
      for (const std::string& path : paths) {
        const zookeeper::NodeData* const node = snapshot_.Find(path);
        if (node == nullptr || node->stat.children == 0) continue;
        LEAF_ASSIGN_OR_RETURN(const auto names, client_.Children(path));
        for (const std::string& name : names.value_or(std::vector<std::string>{}))
          below.push_back(fmt::format("{}/{}", path, name));
      }
      paths = std::move(below);
    }
    return {};
  }

 private:
  Result<void> ReadNodes(const std::vector<std::string>& paths) {
    if (snapshot_.nodes.size() + paths.size() > kSnapshotNodesMax) {
      return Error{ErrorCode::kRefused,
                   fmt::format("{} has more than {} nodes", snapshot_.tree.Base(), kSnapshotNodesMax),
                   "something else uses this namespace: check it with zkCli.sh"};
    }
    for (std::size_t begin = 0; begin < paths.size(); begin += kSnapshotParallel) {
      const std::size_t end = std::min(paths.size(), begin + kSnapshotParallel);
      const std::vector<std::string> some(paths.begin() + static_cast<std::ptrdiff_t>(begin),
                                          paths.begin() + static_cast<std::ptrdiff_t>(end));
      LEAF_ASSIGN_OR_RETURN(auto nodes, client_.GetAll(some));
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (nodes[i]) snapshot_.nodes.insert_or_assign(some[i], *std::move(nodes[i]));
      }
    }
    return {};
  }

  zookeeper::Client& client_;
  Snapshot& snapshot_;
};

}  // namespace

const zookeeper::NodeData* Snapshot::Find(const std::string& path) const {
  const auto found = nodes.find(path);
  return found == nodes.end() ? nullptr : &found->second;
}

std::vector<std::string> Snapshot::Children(const std::string& path) const {
  std::vector<std::string> names;
  const std::size_t prefix = path.size() + 1;
  for (const std::string& below : Below(path)) {
    if (below.find('/', prefix) == std::string::npos) names.push_back(below.substr(prefix));
  }
  return names;
}

std::vector<std::string> Snapshot::Below(const std::string& path) const {
  std::vector<std::string> paths;
  const std::string prefix = path + "/";
  for (auto node = nodes.lower_bound(prefix); node != nodes.end() && node->first.starts_with(prefix); ++node)
    paths.push_back(node->first);
  return paths;
}

Result<Snapshot> ReadSnapshot(zookeeper::Client& client, const zookeeper::Tree& tree) {
  Snapshot snapshot{tree, {}, {}};
  Reader reader(client, snapshot);
  // The parents, so that what is missing of them is known; not their other children, which are other
  // clusters.
  std::vector<std::string> parents = tree.Folders();
  parents.erase(std::find(parents.begin(), parents.end(), tree.Forever()), parents.end());
  LEAF_RETURN_IF_ERROR(reader.Read(std::move(parents), 0));
  if (snapshot.Find(tree.Base()) == nullptr) return snapshot;
  LEAF_RETURN_IF_ERROR(reader.Read({tree.Own()}, 0));
  LEAF_ASSIGN_OR_RETURN(const auto own_names, client.Children(tree.Own()));
  std::vector<std::string> own;
  for (const std::string& name : own_names.value_or(std::vector<std::string>{}))
    own.push_back(tree.Own() + "/" + name);
  // Witnesses are as many as there are tags, and have nothing to do with worker numbers.
  std::erase(own, tree.Witnesses());
  LEAF_RETURN_IF_ERROR(reader.Read(std::move(own), kDepthMax));
  LEAF_RETURN_IF_ERROR(reader.Read({tree.Base() + "/recycle"}, kDepthMax));
  LEAF_RETURN_IF_ERROR(reader.Read({tree.Forever()}, kDepthMax));
  LEAF_ASSIGN_OR_RETURN(const auto names, client.Children(tree.Base()));
  std::vector<std::string> others;
  for (const std::string& name : names.value_or(std::vector<std::string>{})) {
    std::string path = tree.Base() + "/" + name;
    if (snapshot.Find(path) == nullptr) others.push_back(std::move(path));
  }
  const auto all = reader.Read(others, 0);
  if (all.ok()) return snapshot;
  if (all.error().code != ErrorCode::kPermission) return all.error();
  // One that another program keeps from everyone is none of ours.
  for (const std::string& path : others) {
    const auto read = reader.Read({path}, 0);
    if (!read.ok() && read.error().code != ErrorCode::kPermission) return read.error();
  }
  return snapshot;
}

Result<OpenNodes> ReadOpenNodes(zookeeper::AccessClient& client, const zookeeper::Tree& tree) {
  OpenNodes open;
  std::vector<std::string> paths{tree.Own()};
  for (int depth = 0; depth < kDepthMax && !paths.empty(); ++depth) {
    std::vector<std::string> parents;
    for (std::size_t begin = 0; begin < paths.size(); begin += kSnapshotParallel) {
      const std::size_t end = std::min(paths.size(), begin + kSnapshotParallel);
      const std::vector<std::string> some(paths.begin() + static_cast<std::ptrdiff_t>(begin),
                                          paths.begin() + static_cast<std::ptrdiff_t>(end));
      LEAF_ASSIGN_OR_RETURN(auto rules, client.GetAccess(some));
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (!rules[i]) continue;
        if (rules[i]->stat.children > 0) parents.push_back(some[i]);
        if (rules[i]->open) open.emplace(some[i], *std::move(rules[i]));
      }
    }
    paths.clear();
    for (const std::string& parent : parents) {
      LEAF_ASSIGN_OR_RETURN(const auto names, client.Children(parent));
      for (const std::string& name : names.value_or(std::vector<std::string>{}))
        paths.push_back(fmt::format("{}/{}", parent, name));
    }
  }
  return open;
}

RawRecord ToRecord(const std::string& path, const zookeeper::NodeData& node) {
  const zookeeper::NodeStat& stat = node.stat;
  RawRecord record{path,
                   node.data,
                   {{"version", std::to_string(stat.version)},
                    {"created_zxid", fmt::format("{:#x}", stat.created_zxid)},
                    {"modified_zxid", fmt::format("{:#x}", stat.modified_zxid)},
                    {"modified_at", FormatRfc3339(stat.modified_at)},
                    {"children", std::to_string(stat.children)},
                    {"child_version", std::to_string(stat.child_version)}}};
  if (stat.ephemeral_owner != 0) {
    record.facts.emplace_back("session",
                              fmt::format("{:#x}", static_cast<std::uint64_t>(stat.ephemeral_owner)));
  }
  return record;
}

}  // namespace leaf::inspect
