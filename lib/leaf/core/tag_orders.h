// The order in which the IDs of a tag follow each other, which belongs to the tag: all nodes of a table keep
// to the same. And the port through which a node learns it and tells that it has.
//
// The table of orders has one version, which every change of it raises, and every node that starts. A node is
// on the table's list of nodes before its first grant, and no later than that it reads the orders. So a
// change, which writes first and reads the list then, meets each node either on the list or with the change
// already read: whichever of the two is second waits for the row of the version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::core {

enum class TagOrder : std::uint8_t {
  kTrend,  // as Leaf: the IDs of a node rise, those of several nodes rise by and large
  // If one request was answered before another was sent, on any nodes, all IDs of the second are
  // greater.
  kStrict,
};

constexpr std::string_view TagOrderName(TagOrder order) {
  return order == TagOrder::kStrict ? "strict" : "trend";
}

constexpr std::optional<TagOrder> TagOrderOf(std::string_view name) {
  if (name == "trend") return TagOrder::kTrend;
  if (name == "strict") return TagOrder::kStrict;
  return std::nullopt;
}

// What the table has of a tag. A tag that was strict, and is not any more, or was removed, keeps its row: a
// row that is missing was lost, with what a failover or a restore has lost. So was a change whose version is
// above the table's.
struct OrderRow {
  std::string tag;
  TagOrder order = TagOrder::kTrend;
  // The promise holds for IDs from here on. Nothing while not all nodes have acknowledged: each that has read
  // this keeps to the order, others may still have a reserve.
  std::optional<std::uint64_t> since;
  // Of the table, when the order was written; or above that, of a node that takes it for newer than what a
  // table that went back has lost.
  std::uint64_t version = 0;
  friend bool operator==(const OrderRow&, const OrderRow&) = default;
};

// Whether `row` says more of its tag than `known` does. Two histories of a table may have one version: strict
// is the safe side.
constexpr bool IsNewer(const OrderRow& row, const OrderRow& known) {
  if (row.version != known.version) return row.version > known.version;
  if (row.order != known.order) return row.order == TagOrder::kStrict;
  return row.since.has_value() && !known.since.has_value();
}

// That a tag is strict, as the witness of the tag remembers it (witness.h): a failover of the database does
// not lose that.
struct StrictMark {
  std::uint64_t version = 0;           // as OrderRow::version
  std::optional<std::uint64_t> since;  // as OrderRow::since, as far as it was known
  friend bool operator==(const StrictMark&, const StrictMark&) = default;
};

// Whether `row` is newer than what the witness remembers. Of a tag that is not strict any more it remembers
// nothing.
constexpr bool IsNews(const OrderRow& row, const std::optional<StrictMark>& mark) {
  if (row.order != TagOrder::kStrict) return mark && mark->version < row.version;
  if (!mark || mark->version < row.version) return true;
  return mark->version == row.version && row.since && !mark->since;
}

// What stands in the table.
struct TagOrderTable {
  std::uint64_t version = 0;
  // Drawn at random with each version: two histories of a table, after a failover or a restore, may reach the
  // same version.
  std::uint64_t nonce = 0;
  std::vector<OrderRow> rows{};
  bool IsStrict(std::string_view tag) const {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const OrderRow& row) { return row.tag == tag && row.order == TagOrder::kStrict; });
  }
  // Whether the node that read this is on the list. One whose user may read the table, and not write, is not.
  bool listed = true;
};

// A node on the list: one run of one process that holds reserves.
struct OrderNode {
  std::string id;         // no other run has it
  std::string process;    // for people: sys::ProcessName
  std::string place;      // host and state directory: a later run there is proof that this one has ended
  bool fallback = false;  // it goes on without the witness while that is away
  std::uint64_t acknowledged = 0;  // the version that it keeps to
  WallTime since{};                // filled in when it is read
};

// Port, of a node. Thread-safe; blocks. Errors: as of SegmentStore.
class TagOrders {
 public:
  virtual ~TagOrders() = default;

  // Enters `node` and returns what it has to keep to; nothing where there is no table of orders, or the user
  // has no right to it: then no tag is strict. Earlier runs at its place leave the list. To be repeated
  // safely.
  virtual Result<std::optional<TagOrderTable>> Enter(const OrderNode& node) = 0;

  struct Look {
    std::uint64_t version = 0;                  // of the table
    std::uint64_t nonce = 0;                    // of that version
    std::optional<std::uint64_t> acknowledged;  // by this node; nothing if it is not on the list any more
  };
  // Cheap. Nothing as of Enter.
  virtual Result<std::optional<Look>> LookAt(const std::string& node) = 0;
  // Nothing as of Enter.
  virtual Result<std::optional<TagOrderTable>> Read() = 0;
  // The table has lost a change that this node knows by `row`. A strict one is written once more, as a
  // change, unless the tag has a newer one; where it is strict already, only `since` is added. One to trend
  // is written with its own version if the tag has no row: it ends orders that are older, and no others. The
  // table's version is above row.version afterwards in any case, so that every change to come is newer.
  virtual Result<void> Restore(const OrderRow& row) = 0;
  // The node keeps to `table`, as it was read, from now on. Returns whether the table is still in that state;
  // if not, nothing is acknowledged.
  virtual Result<bool> Acknowledge(const std::string& node, const TagOrderTable& table) = 0;
  // The node has ended.
  virtual Result<void> Leave(const std::string& node) = 0;
};

}  // namespace leaf::core
