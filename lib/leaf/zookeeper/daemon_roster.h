// Which daemons issue segments of a cluster, and where each of them answers: the repair of a tag asks them
// all.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/ephemeral_node.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// This daemon's entry. Thread-safe.
class DaemonEntry {
 public:
  // Client and log outlive it.
  DaemonEntry(Tree tree, Client& client, Logger& log);

  // `id`: no other process has it. Blocks up to the client's time-out; if that fails, it is tried again at
  // the next session and by each Refresh.
  void Begin(const std::string& id, const DaemonRecord& record);
  void Refresh();
  void End() { node_.End(); }

 private:
  void EnsureFolder();

  const Tree tree_;
  Client& client_;
  Logger& log_;
  EphemeralNode node_;
};

// Those of all daemons. One that died is among them until its session has run out. An entry that cannot be
// read is kRefused: the daemon behind it cannot be asked.
Result<std::vector<DaemonRecord>> ReadDaemonRoster(Client& client, const Tree& tree);

}  // namespace leaf::zookeeper
