// The outside world of the core and the service, as seen from inside. Adapters (sql, sys) implement these;
// every implementation passes the same contract suite (tests/contract).
//
// All calls block up to the adapter's own time-outs and are made from worker threads, never from one that
// serves requests. All implementations are thread-safe. Common errors: kUnavailable (not reachable, timed
// out, busy: nothing happened, retry later), kPermission, kConfig (database or table missing), kInternal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/exhaustion.h"
#include "leaf/core/tag_orders.h"

namespace leaf::core {

// One row of leaf_alloc.
struct TagRow {
  std::string tag;
  std::int64_t max_id = 0;  // the column as it is; the next range begins here
  std::int64_t step = 0;
  std::optional<std::string> description;
  WallTime update_time;
  // Not of the row: filled in where the orders of tags were read, too, and the tag is strict (tag_orders.h).
  std::optional<OrderRow> strict{};

  TagOrder order() const { return strict ? TagOrder::kStrict : TagOrder::kTrend; }
};

// What a grant asks for, decided as late as can be, before the row is raised.
struct GrantSize {
  std::uint64_t wanted = 0;  // asked for; cut to what is left below 2^63
  std::uint64_t least = 0;   // kOverflow if not even this is left. 1 <= least <= wanted
};
// Called with the row (description empty) as it was last committed: pure, must not block, and may be called
// again if the row changed meanwhile. An error leaves the row where it is.
using GrantSizer = std::function<Result<GrantSize>(const TagRow&)>;

struct Grant {
  IdRange range;
  std::int64_t table_step = 0;  // 0: the row was not read
};

// Port: the table that hands out ranges. Tags are matched byte for byte, whatever the column's collation.
class SegmentStore {
 public:
  virtual ~SegmentStore() = default;

  // Moves the tag's row up and returns what it passed over: [max_id before, max_id before + n), which may
  // begin above what `sizer` saw, and never below. On success the move is committed. Concurrent calls, from
  // any process, get disjoint ranges. Errors: kNotFound;
  // kRefused for a row whose step is not in 1..kStepMax or whose max_id is negative; kOverflow; what `sizer`
  // returned; kOutcomeUnknown if the commit's reply was lost: the row may have moved, the range must not be
  // used, asking again is safe.
  virtual Result<Grant> Reserve(std::string_view tag, const GrantSizer& sizer) = 0;

  // The same for a grant whose size does not depend on the row, without a look at it first, which saves a
  // round trip to a server. `size` is called as a sizer is. The row moves only if its max_id is `floor` or
  // more, and only by all that is wanted. Nothing, and nothing has happened, if the row does not fit (Reserve
  // says why), or where there is nothing to save. Errors: what `size` returned; kUnavailable and
  // kOutcomeUnknown as of Reserve.
  using UnreadSizer = std::function<Result<GrantSize>()>;
  virtual Result<std::optional<Grant>> ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                     const UnreadSizer& size) = 0;

  // Every row. An empty table is an empty list, not an error.
  virtual Result<std::vector<TagRow>> List() = 0;

  // Errors: kNotFound.
  virtual Result<TagRow> Describe(std::string_view tag) = 0;
};

// kDryRun does everything and then rolls back: same checks, same result, no change.
enum class WriteMode { kCommit, kDryRun };

struct NewTag {
  std::string tag;
  std::int64_t step = 0;
  std::optional<std::uint64_t> start;  // the first ID to issue; default: above every known mark, at least 1
  std::uint64_t mark = 0;              // what the caller knows was granted under this name before
  std::optional<std::string> description;
  // These are not the row's, and TagAdmin leaves them alone.
  TagOrder order = TagOrder::kTrend;
  std::vector<std::string> gone{};                  // nodes that have ended for good, by OrderNode::id
  std::optional<std::chrono::milliseconds> wait{};  // at most, for nodes that have to acknowledge
};

struct TagChange {
  std::optional<std::int64_t> step;
  std::optional<std::string> description;
  std::optional<std::uint64_t> max_id;  // only upward
  // As of NewTag.
  std::optional<TagOrder> order{};
  std::vector<std::string> gone{};
  std::optional<std::chrono::milliseconds> wait{};

  bool changes_row() const { return step || description || max_id; }
};

// Port: provisioning of tags. Each call is one transaction and returns the row as it stands (or would stand)
// after it. kOutcomeUnknown: look before repeating.
class TagAdmin {
 public:
  virtual ~TagAdmin() = default;

  // Errors: kAlreadyExists; kRefused if `start` is below a mark of a removed tag of this name, which is
  // named.
  virtual Result<TagRow> Add(const NewTag& tag, WriteMode mode) = 0;
  // All of it or nothing. Errors: kNotFound; kRefused as of Advance.
  virtual Result<TagRow> Update(std::string_view tag, const TagChange& change, WriteMode mode) = 0;
  // Moves max_id up to `to`; already there is success. Errors: kNotFound; kRefused if max_id is above `to`.
  virtual Result<TagRow> Advance(std::string_view tag, std::uint64_t to, WriteMode mode) = 0;

  struct Removal {
    TagRow row;  // as it was
    // False where the schema has no place for it (`db init` makes one): then only marks of state directories
    // know.
    bool mark_remembered = false;
  };
  // Deletes the row and remembers its max_id as the mark of a removed tag. Errors: kNotFound.
  virtual Result<Removal> Remove(std::string_view tag, WriteMode mode) = 0;

  // Where a removed tag of this name had got to; 0 if none is remembered.
  virtual Result<std::uint64_t> RemovedMark(std::string_view tag) = 0;
  // Of all tags that were removed, each above 0, in no particular order.
  virtual Result<std::vector<std::pair<std::string, std::uint64_t>>> RemovedMarks() = 0;
};

// What a state directory remembers of a tag.
struct Mark {
  std::string tag;
  std::uint64_t end = 0;  // exclusive end of everything this node was ever granted; 0: nothing yet
  // Exclusive end of what any node of the cluster was ever granted, as far as this one saw it; 0: nothing.
  std::uint64_t witness = 0;
  WallTime raised_at;  // when, and by which process, it was raised last
  std::string raised_by;
  Baseline base;           // where max_id stood one to two kBaselineAge ago, or when this node first saw it
  std::uint64_t held = 0;  // IDs that the daemon of this directory holds unissued at most, or left behind
  std::uint64_t wasted_last = 0;  // IDs that the daemon before it left behind
  std::uint64_t wasted = 0;       // IDs that all daemons before it left behind
  // False after a crash, whose reserve is not known: what was wasted is an upper bound then.
  bool wasted_exactly = true;
};

// A mark to be raised.
struct MarkRaise {
  std::string_view tag;
  std::uint64_t end = 0;
  // IDs this process may hold unissued from now on; nullopt for one that holds none back.
  std::optional<std::uint64_t> held;
  // What the witness of the cluster was raised to; 0 where there is none, or it was away.
  std::uint64_t witness = 0;
};

// IDs of a tag that a daemon did not issue before it ended.
struct UnissuedIds {
  std::string tag;
  std::uint64_t count = 0;
};

// Port: what one state directory remembers of tags: the durable marks, and the orders.
class MarkStore {
 public:
  virtual ~MarkStore() = default;

  // Held from before a reserve until its mark is durable, so that parallel processes with one state directory
  // do not mistake each other's grants for a database that went back.
  class Hold {
   public:
    virtual ~Hold() = default;
  };
  // Waits for other holders of the same tag, in any process. Errors: kUnavailable after the adapter's
  // time-out.
  virtual Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) = 0;

  virtual Result<std::vector<Mark>> LoadAll() = 0;
  // `end` is 0 if the tag has none.
  virtual Result<Mark> Load(std::string_view tag) = 0;
  // Durable when it returns. Never lowers a mark.
  virtual Result<void> Raise(const MarkRaise& raise) = 0;

  // A daemon begins with this directory: what the last one held is wasted. Before its first Raise.
  virtual Result<void> BeginRun() = 0;
  // A daemon ends gracefully, with so many IDs unissued; tags not named have none.
  virtual Result<void> EndRun(const std::vector<UnissuedIds>& unissued) = 0;

  // The newest orders that a node of this directory has kept to, by tag.
  virtual Result<std::vector<OrderRow>> LoadOrders() = 0;
  // Durable when it returns. A row is kept if IsNewer(row, the one that is remembered).
  virtual Result<void> KeepOrders(const std::vector<OrderRow>& rows) = 0;
};

}  // namespace leaf::core
