#include "leaf/zookeeper/fork_numbers.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/core/java_leaf.h"

namespace leaf::zookeeper {

ForkNumber ParseForkNumber(std::string path, const NodeData& node, bool in_use) {
  ForkNumber number{std::move(path), node.stat.version, in_use, node.stat.modified_at, std::nullopt};
  const auto record = ParseRecycleData(node.data);
  if (!record.ok() || !record->timestamp_ms) return number;
  const WallTime reported = WallTimeOf(*record->timestamp_ms);
  number.reported = reported;
  // A number that the fork has moved back is one that the fork itself would use again at once.
  number.ceiling = reported + (in_use ? kForkSilence : core::kJavaMargin);
  return number;
}

Result<ForkNumbers> ReadForkNumbers(Client& client, const Tree& tree, WallTime now) {
  ForkNumbers result;
  // A number that is moved meanwhile is seen twice, and then the write that leases it fails; or not at all,
  // and then the next renewal finds it.
  for (const bool in_use : {false, true}) {
    LEAF_ASSIGN_OR_RETURN(const auto children,
                          client.Children(in_use ? tree.RecycleUsed() : tree.RecycleUnused()));
    if (!children) continue;
    result.exists = true;
    std::vector<std::uint64_t> workers;
    std::vector<std::string> paths;
    for (const std::string& child : *children) {
      const auto worker = ParseRecycleName(child);
      if (!worker) continue;
      workers.push_back(*worker);
      paths.push_back(in_use ? tree.RecycleUsed(*worker) : tree.RecycleUnused(*worker));
    }
    LEAF_ASSIGN_OR_RETURN(const auto nodes, client.GetAll(paths));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i]) continue;
      ForkNumber number = ParseForkNumber(std::move(paths[i]), *nodes[i], in_use);
      if (number.IsFresh(now)) ++result.fresh;
      result.numbers.insert_or_assign(workers[i], std::move(number));
    }
  }
  return result;
}

}  // namespace leaf::zookeeper
