// How the order of a tag is changed: the promise of a strict tag begins only once every node keeps to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"
#include "leaf/core/tag_orders.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::cmd {

// Not thread-safe. Calls block.
class TagOrderDesk {
 public:
  // All of it outlives the desk.
  struct Ports {
    sql::SqlTagOrders& orders;
    const Clock& clock;
    // The daemons that ZooKeeper knows of; null where there is no cluster.
    std::function<Result<std::vector<zookeeper::DaemonRecord>>()> daemons;
    // Makes the caller's own node look at the orders now; null for none.
    std::function<void()> look;
    // How long nodes are waited for.
    std::chrono::milliseconds patience{};
    bool fallback = false;  // as segment.witness_fallback
    // The process that holds reserves in the caller's state directory, as far as is known; 0 for none.
    pid_t holder = 0;
  };
  explicit TagOrderDesk(Ports ports) : ports_(std::move(ports)) {}

  // The tag is to be strict, and every node keeps to that now: the version that they have acknowledged, or
  // since when it has been so already. Nodes in `gone` have ended for good. Errors: kRefused that names the
  // nodes that have not, and then the tag is as before; kInvalidArgument for a name in `gone` that is not on
  // the list; those of SqlTagOrders.
  Result<sql::SqlTagOrders::Begun> Await(const std::string& tag, const std::vector<std::string>& gone);
  // Whether that can be asked for at all: the same errors, before anything is changed or waited for.
  Result<void> Check(const std::string& tag, const std::vector<std::string>& gone);
  sql::SqlTagOrders& orders() { return ports_.orders; }

 private:
  // Nodes that have not acknowledged `version`, as people read them.
  Result<std::vector<std::string>> Missing(std::uint64_t version);

  const Ports ports_;
};

}  // namespace leaf::cmd
