// The ephemeral node that says "this node is live, and answers there", and the list of all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/core/peer_directory.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/ephemeral_node.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// Nothing but people and the comparison of clocks depends on it. Thread-safe.
class Presence {
 public:
  Presence(Client& client, Logger& log);

  // From now on this node is live at `address`.
  void Begin(const Tree& tree, const std::string& address, const TemporaryRecord& record);
  // See EphemeralNode.
  void Refresh() { node_.Refresh(); }
  void End() { node_.End(); }

  // core::PeerDirectory::LivePeers.
  Result<std::vector<core::Peer>> Peers();

 private:
  struct Announced {
    Tree tree;
    std::string address;
  };

  Client& client_;
  Logger& log_;

  Mutex mutex_;
  std::optional<Announced> announced_ LEAF_GUARDED_BY(mutex_);
  EphemeralNode node_;
};

}  // namespace leaf::zookeeper
