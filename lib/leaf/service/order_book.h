// Which tags are strict, as this node has read it.
//
// Invariant: once this node has acknowledged a version of the table, it issues no ID of a tag that is strict
// in it but from a grant that began after the request had arrived. So what a tag held in reserve is dropped
// before the version is acknowledged, and a node that has never read the table grants nothing.
// Schedules: a generator is made while the orders change (it asks Of() under the lock of its directory's
// shard, and Adopted is told of all that are there: it meets one of the two); two looks at once (one that
// began earlier changes nothing, and only one at a time tells the generators: else the earlier one could take
// back what the later one has told and acknowledged); a refill begins while the first look is adopted (the
// orders are not known before every generator was told); the table lost a change (what was strict stays
// strict, until a row says in a later version that it is not, and is written into the table again); a node
// starts before it is there again (with a witness, each grant shows it: LearnStrict; without one, a node that
// grants looks for a table that was not there); table and witness are both restored to a moment before a tag
// became strict, with all nodes down (what is acknowledged is remembered in the state directory before that,
// and is looked up before the first look).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"
#include "leaf/core/tag_orders.h"

namespace leaf::service {

// Thread-safe.
class OrderBook {
 public:
  // `orders`: null where no tag is ever strict. It, `memory` and `log` outlive this. `adopted` is called when
  // orders may have changed, and before this node says that it keeps to them: from then on every generator
  // must. It may ask Of and Known, and must not look.
  OrderBook(core::TagOrders* orders, core::MarkStore& memory, core::OrderNode node, Logger& log,
            std::function<void()> adopted);

  core::TagOrder Of(std::string_view tag) const;
  // Errors: why the orders were never read.
  Result<void> Known() const;

  // Looks at the table, keeps to what it says, remembers and acknowledges that. Blocks. Errors: those of the
  // ports; what was read last counts on.
  Result<void> Look();
  // Before each grant: the same if they were never read, and before the first grant also if there was no
  // table when this node looked last. Errors: why they were never read.
  Result<void> Ensure();

  // The witness of the cluster says that the tag is strict. Unless this node has read in a version at or
  // above that one that the tag is not strict, it is from now on, and the next look writes that into the
  // table. May call `adopted`. Returns whether the tag is strict.
  bool LearnStrict(std::string_view tag, const core::StrictMark& mark);
  // All rows that are known, also those that the table has lost.
  std::vector<core::OrderRow> Rows() const;
  // The same, with what the state directory remembers: also before the first look. Blocks. Errors: those of
  // MarkStore.
  Result<std::vector<core::OrderRow>> Recall();

  // Blocks. Once nothing is granted any more.
  void Leave();

  // Whether the table has orders at all, as read last.
  bool has_table() const;
  // Whether a grant has begun: this node may hold IDs that a table which is made (a restore, leafctl db init,
  // a GRANT) forbids to issue.
  bool has_granted() const;

 private:
  // Adds what the state directory remembers, once.
  Result<void> Remember();
  // Writes what is new into the state directory, before a version is acknowledged. The log names an error
  // once, until a write succeeds.
  Result<void> KeepInMemory();
  // LookOnce, Adopt and Settle return whether nothing is left to be done; if something is, it takes another
  // look.
  Result<bool> LookOnce();
  Result<bool> Adopt(std::uint64_t look, const std::optional<core::TagOrderTable>& table);
  // Puts back what the table has lost, or acknowledges the table.
  Result<bool> Settle(const core::TagOrderTable& table);
  // The log names an error once, until it passes.
  void TellUnsettled(const Result<bool>& settled);
  // False for a look that has no say any more.
  bool AdoptRows(std::uint64_t look, const std::optional<core::TagOrderTable>& table);
  void TellWithoutTable();
  struct Lost {
    core::OrderRow row;
    bool order_stands = false;  // the table has the order, and not all that is known of it
  };
  // Rows of strict tags that the table has lost, of other tags of which it has none, those whose `since` it
  // has lost, and all whose versions it has not reached.
  std::vector<Lost> LostBy(const core::TagOrderTable& table) const;

  core::TagOrders* const orders_;
  core::MarkStore& memory_;
  const core::OrderNode node_;
  Logger& log_;
  const std::function<void()> adopted_;

  Mutex adopting_;  // taken before mutex_, and before those of generators
  mutable Mutex mutex_;
  std::uint64_t looks_ LEAF_GUARDED_BY(mutex_) = 0;         // begun
  std::uint64_t adopted_look_ LEAF_GUARDED_BY(mutex_) = 0;  // the newest that had a say
  bool known_ LEAF_GUARDED_BY(mutex_) = false;
  bool entered_ LEAF_GUARDED_BY(mutex_) = false;
  bool has_table_ LEAF_GUARDED_BY(mutex_) = false;
  bool has_granted_ LEAF_GUARDED_BY(mutex_) = false;
  bool looked_to_grant_ LEAF_GUARDED_BY(mutex_) = false;
  std::uint64_t seen_ LEAF_GUARDED_BY(mutex_) = 0;  // the version that was acknowledged last
  std::uint64_t seen_nonce_ LEAF_GUARDED_BY(mutex_) = 0;
  bool learned_ LEAF_GUARDED_BY(mutex_) = false;  // something that the table may have lost
  std::map<std::string, core::OrderRow, std::less<>> rows_ LEAF_GUARDED_BY(mutex_);
  bool remembered_ LEAF_GUARDED_BY(mutex_) = false;
  // What the state directory remembers, or knows better.
  std::map<std::string, core::OrderRow, std::less<>> kept_ LEAF_GUARDED_BY(mutex_);
  bool unlisted_told_ LEAF_GUARDED_BY(mutex_) = false;
  bool unkept_told_ LEAF_GUARDED_BY(mutex_) = false;
  bool missing_told_ LEAF_GUARDED_BY(mutex_) = false;
  std::string unsettled_told_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> problem_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
