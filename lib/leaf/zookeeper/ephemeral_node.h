// An ephemeral node that stands for this process as long as it lives: made anew with each session.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"

namespace leaf::zookeeper {

// Made from the client's event, or at the next Refresh if that failed. Nothing that issues IDs depends on it:
// its failures are logged, not fatal. Thread-safe.
class EphemeralNode {
 public:
  EphemeralNode(Client& client, Logger& log);
  ~EphemeralNode();

  // From now on it stands. The folder is there, or comes.
  void Begin(std::string path, std::string data);
  // Makes the node if the present session has none. Costs nothing otherwise.
  void Refresh();
  // Whether the present session has it, as far as is known.
  bool stands();
  // No more; removes the node.
  void End();

 private:
  struct Standing {
    std::string path;
    std::string data;
    bool live = true;
  };
  Result<void> Make() LEAF_REQUIRES(mutex_);
  void RefreshLocked() LEAF_REQUIRES(mutex_);

  Client& client_;
  Logger& log_;

  Mutex mutex_;  // held across calls to the outside
  std::optional<Standing> standing_ LEAF_GUARDED_BY(mutex_);
  std::int64_t made_in_ LEAF_GUARDED_BY(mutex_) = 0;  // session
  bool failing_ LEAF_GUARDED_BY(mutex_) = false;

  std::unique_ptr<Client::Subscription> subscription_;  // last: its listener uses the rest
};

}  // namespace leaf::zookeeper
