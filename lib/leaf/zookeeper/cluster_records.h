// The records of the nodes that claim ranges (tree.h, membership.h): read all at once, and changed where the
// cluster goes on without some of the nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// What stands in ZooKeeper of the nodes that claim.
struct ClusterRecords {
  struct Node {
    std::string id;
    NodeRecord record;
    std::int32_t version = 0;
  };
  std::vector<Node> nodes;  // sorted by id
  std::optional<IncarnationRecord> incarnation;
  std::int32_t incarnation_version = 0;

  // Those whose grants are not known again: nothing is claimed without them.
  std::vector<Node> Missing() const;
};
// For people: "ID (PROCESS on HOST, last there at TIME)". Of a node of which the others remember only that it
// was there, the state directory is to be looked for: its marks.db has the ID in the table clusters.
std::string NodeText(const std::string& id, const NodeRecord& record);

// Errors: those of Client; kRefused for a record that cannot be read.
Result<ClusterRecords> ReadCluster(Client& client, const Tree& tree);

// The grants of these nodes are known by now, or allowed for: they are not waited for any more. Where no
// other node is missing, the incarnation is settled. One that comes back has to contribute all the same. All
// daemons look at the table again within kNodeHeartbeat. False if what was read has changed: nothing more is
// done then. Errors: those of Client.
Result<bool> Waive(Client& client, const Tree& tree, const ClusterRecords& records,
                   const std::vector<std::string>& ids, const std::string& by, WallTime now);

}  // namespace leaf::zookeeper
