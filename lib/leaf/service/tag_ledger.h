// Where the IDs of one tag went: granted, issued, dropped, left over. And what is counted of its requests.
//
// Taking an ID counts nothing: what was issued is what was granted less what is held or was dropped, reckoned
// when it is asked for. Not thread-safe: the tag's mutex guards it. A tag that was never used has an empty
// one, which is small.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "leaf/base/id_range.h"
#include "leaf/base/time.h"
#include "leaf/core/exhaustion.h"
#include "leaf/core/ports.h"
#include "leaf/core/segment_buffer.h"
#include "leaf/service/tallies.h"

namespace leaf::service {

class TagLedger {
 public:
  struct Account {
    // By earlier daemons of this state directory: all, and the last. Upper bounds unless `wasted_exactly`.
    std::uint64_t wasted_before = 0;
    std::uint64_t wasted_last = 0;
    bool wasted_exactly = true;
    std::uint64_t granted = 0;
    std::uint64_t dropped = 0;   // of `granted`: never issued
    std::uint64_t unissued = 0;  // in reserve when the tag was stopped
    std::uint64_t grants = 0;
    std::optional<std::uint64_t> last_issued;  // of those that the reserve does not tell of any more
    std::optional<core::Baseline> base;        // from where the days left are reckoned
  };

  // What is counted of all tags is counted there, too; it outlives the ledger.
  explicit TagLedger(SegmentCounters& all_tags) : all_tags_(all_tags) {}

  // What the state directory knows of earlier daemons.
  void Adopt(const core::Mark& mark);
  // A grant has arrived, `latency` after it was asked for.
  void AddGrant(const IdRange& range, std::chrono::nanoseconds latency);
  // The days left are reckoned from here on, if no mark has said from where.
  void BeginAt(std::uint64_t end, WallTime now);
  // IDs that were granted and will never be issued.
  void Drop(std::uint64_t count);
  // The same of a grant that was never seen.
  void DropUnseen(std::uint64_t count);
  // The same of what was in reserve when the tag was stopped.
  void LeaveUnissued(std::uint64_t count);
  // `id` was issued, and the reserve does not tell so.
  void NoteIssued(std::uint64_t id);
  void CountWait();
  void CountError(std::size_t cause_slot);
  void CountFailedRefill();

  const Account& account() const;
  // Null while there is nothing in them.
  const TagTallies* tallies() const { return books_ ? books_->tallies.get() : nullptr; }
  // `buffer`: the tag's reserve, null before its first grant. Takers move on meanwhile; the sum is never more
  // than was granted.
  std::uint64_t Issued(const core::SegmentBuffer* buffer) const;
  // The same, and never less than it said before: a counter that went back would be taken for a restart.
  std::uint64_t IssuedToTell(const core::SegmentBuffer* buffer);

 private:
  Account& OpenAccount();
  TagTallies& OpenTallies();

  struct Books {
    Account account;
    std::unique_ptr<TagTallies> tallies;
  };
  Books& OpenBooks();

  SegmentCounters& all_tags_;
  std::unique_ptr<Books> books_;
};

}  // namespace leaf::service
