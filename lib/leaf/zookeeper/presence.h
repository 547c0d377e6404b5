// The ephemeral node that says "this node is live, and answers there", and the list of all of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/core/peer_directory.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// Made anew with each session, from the client's event, or at the next Refresh if that failed. Nothing but
// people and the comparison of clocks depends on it: its failures are logged, not fatal. Thread-safe.
class Presence {
 public:
  Presence(Client& client, Logger& log);
  ~Presence();

  // From now on this node is live at `address`.
  void Begin(const Tree& tree, const std::string& address, TemporaryRecord record);
  // Makes the node if the present session has none. Costs nothing otherwise.
  void Refresh();
  // No more; removes the node.
  void End();

  // core::PeerDirectory::LivePeers.
  Result<std::vector<core::Peer>> Peers();

 private:
  struct Announced {
    Tree tree;
    std::string address;
    std::string data;
    bool live = true;
  };
  // Require mutex_.
  Result<void> Make();
  void RefreshLocked();

  Client& client_;
  Logger& log_;

  std::mutex mutex_;  // held across calls to the outside
  // Guarded by mutex_:
  std::optional<Announced> announced_;
  std::int64_t made_in_ = 0;  // session
  bool failing_ = false;

  std::unique_ptr<Client::Subscription> subscription_;  // last: its listener uses the rest
};

}  // namespace leaf::zookeeper
