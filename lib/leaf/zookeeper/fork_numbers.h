// The worker numbers that nodes of Leaf's best-known fork have in its mode zk_recycle.
//
// Such a node takes the first child of recycle/notuse: it deletes it, and makes it under recycle/inuse. There
// it writes its time every 3 s; it stops itself when that has failed for an hour, and the others then move
// the record back (leaf-compat §6.8, "zk_recycle"; measured). A node that is cut off from ZooKeeper therefore
// goes on issuing for an hour after its last report.
//
// Invariant: no number is leased that a node of the fork may issue with. What stands under inuse is left
// alone while any record there is fresh. What is leased is removed from the fork's tree in the same
// transaction, so that no node of the fork can take it later.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// A record under inuse is fresh for this long after its last report: the fork's hour, and what clocks differ.
inline constexpr std::chrono::milliseconds kForkSilence = std::chrono::minutes{61};

// A number as it stands in the fork's tree.
struct ForkNumber {
  std::string path;
  std::int32_t version = 0;
  bool in_use = false;
  WallTime reported;                // by the node's clock; by the servers' clocks if it never did
  std::optional<WallTime> ceiling;  // exclusive: a node that had the number issued below that

  bool IsFresh(WallTime now) const { return in_use && reported + kForkSilence > now; }
};

// The whole tree, at one moment.
struct ForkNumbers {
  bool exists = false;                          // the fork has been here
  std::size_t fresh = 0;                        // records under inuse that are fresh
  std::map<std::uint64_t, ForkNumber> numbers;  // a number under both is the one in use

  const ForkNumber* Find(std::uint64_t worker) const {
    const auto found = numbers.find(worker);
    return found == numbers.end() ? nullptr : &found->second;
  }
};

// Two reads where the fork has never been. A record without a time, or one that cannot be read, counts as
// reported when it was last written. Errors: those of Client.
Result<ForkNumbers> ReadForkNumbers(Client& client, const Tree& tree, WallTime now);

// The same of one record. `node` is what stands at `path`.
ForkNumber ParseForkNumber(std::string path, const NodeData& node, bool in_use);

}  // namespace leaf::zookeeper
