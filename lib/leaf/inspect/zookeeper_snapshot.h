// Everything that stands in a cluster's namespace, read once.
//
// It is no photograph: nodes change while it is read. Our own records are read before Leaf's `forever`, so
// that an owner or a hold whose number is not there really has none: a claim makes them after, or together
// with, its number. Whatever is done because of a snapshot has to be conditional on the versions in it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/inspect/workers.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::inspect {

// Nodes that everyone may change, by absolute path.
using OpenNodes = std::map<std::string, zookeeper::NodeAccess>;

struct Snapshot {
  zookeeper::Tree tree;
  std::map<std::string, zookeeper::NodeData> nodes;  // by absolute path
  OpenNodes open;                                    // of ours; empty unless it was asked for

  const zookeeper::NodeData* Find(const std::string& path) const;
  // Names of the direct children, in order.
  std::vector<std::string> Children(const std::string& path) const;
  // Paths of everything below, in order.
  std::vector<std::string> Below(const std::string& path) const;
};

// All nodes under `forever`, `leafctl` and `recycle`, the parents of the namespace, and whatever else stands
// in it without what is below, unless it may not be read. What goes away meanwhile is left out. Errors: the
// client's; kRefused for a namespace of more than kSnapshotNodesMax nodes.
Result<Snapshot> ReadSnapshot(zookeeper::Client& client, const zookeeper::Tree& tree);
// Those of our own that everyone may change, witnesses and all: one request for each node. To be asked only
// where there are credentials, without which all of them are open. Errors: the client's.
Result<OpenNodes> ReadOpenNodes(zookeeper::AccessClient& client, const zookeeper::Tree& tree);

inline constexpr std::size_t kSnapshotNodesMax = 100'000;
// Nodes that are asked for at once.
inline constexpr std::size_t kSnapshotParallel = 64;

RawRecord ToRecord(const std::string& path, const zookeeper::NodeData& node);

}  // namespace leaf::inspect
