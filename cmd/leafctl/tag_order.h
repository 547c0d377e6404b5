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
#include "leaf/core/witness.h"
#include "leaf/service/cluster_fence.h"
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
    // The daemons that ZooKeeper knows of, and the witness of the cluster; null where there is no cluster.
    std::function<Result<std::vector<zookeeper::DaemonRecord>>()> daemons;
    service::ClusterFence* fence = nullptr;
    // Makes the caller's own node look at the orders now; null for none.
    std::function<void()> look;
    // How long nodes are waited for, unless the caller's process is to end meanwhile; null: it is not.
    std::chrono::milliseconds patience{};
    std::function<bool()> ending{};
    bool fallback = false;  // as segment.witness_fallback
    // The process that holds reserves in the caller's state directory, as far as is known; 0 for none.
    pid_t holder = 0;
  };
  explicit TagOrderDesk(Ports ports) : ports_(std::move(ports)) {}

  // The tag is to be strict, every node keeps to that now, and the witness remembers it. So also for a tag
  // that is strict already: a node may have started while the table had lost that. Nodes in `gone` have ended
  // for good.
  // `begun`, if there is one, is called once nodes can read the change, and before they are waited for.
  // Errors: kRefused that names the nodes that do not, and then the tag is as before, unless the error says
  // otherwise; kInvalidArgument for a name in `gone` that is not on the list; those of `begun`, of
  // SqlTagOrders and of the fence.
  Result<sql::SqlTagOrders::Begun> Await(const std::string& tag, const std::vector<std::string>& gone,
                                         const std::function<Result<void>()>& begun = {});
  // Takes back what Await has begun, for `error`, which is returned with what became of the tag.
  Error GiveUp(const std::string& tag, const sql::SqlTagOrders::Begun& begun, Error error);
  // After that, once the tag is there: the promise holds from the returned ID on. Errors: those of
  // SqlTagOrders::Complete, also for a tag that was strict already, and is not any more.
  Result<std::uint64_t> Complete(const std::string& tag, const sql::SqlTagOrders::Begun& begun);
  // The tag is not to be strict any more. `listed`: whether the table says that it is. Whether it was, also
  // as far as only the witness knows. Errors: those of SqlTagOrders.
  Result<bool> End(const std::string& tag, bool listed);
  // Whether that can be asked for at all: the same errors, before anything is changed or waited for.
  Result<void> Check(const std::string& tag, const std::vector<std::string>& gone);
  sql::SqlTagOrders& orders() { return ports_.orders; }

 private:
  // What the witness remembers of the tag; nothing where there is none.
  Result<core::WitnessState> Witnessed(const std::string& tag);
  // Lets it remember the order.
  Result<void> Note(const core::OrderRow& row);
  // Whether the table has the order still, as begun.
  Result<bool> Stands(const std::string& tag, const sql::SqlTagOrders::Begun& begun);
  // Writes into the table what it remembers, and the table may have lost.
  Result<void> PutBack(const std::string& tag);
  bool IsEnding() const { return ports_.ending && ports_.ending(); }
  bool IsLate(MonotonicTime deadline) const;
  // Until every node has acknowledged the version `awaited` of the table, and the witness remembers `row`.
  Result<void> AwaitAll(const core::OrderRow& row, std::uint64_t awaited, MonotonicTime deadline);
  // Nodes that have not acknowledged `version`, as people read them.
  Result<std::vector<std::string>> Missing(std::uint64_t version);

  const Ports ports_;
};

}  // namespace leaf::cmd
