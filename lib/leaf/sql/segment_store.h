// The table leaf_alloc behind core's ports, one code for both databases.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/core/audit.h"
#include "leaf/core/ports.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// Thread-safe. `database` outlives it.
class SqlSegmentStore final : public core::SegmentStore, public core::TagAdmin {
 public:
  explicit SqlSegmentStore(Database& database) : database_(database) {}
  // One whose changes are recorded as this author's, in the same transaction, and told to `listener` once
  // they are made. A database without the table leafctl_audit, or a user without the right to it, does not
  // keep a change from being made.
  SqlSegmentStore(Database& database, core::Author author, core::AuditListener listener)
      : database_(database), author_(std::move(author)), listener_(std::move(listener)) {}

  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override;
  Result<std::optional<core::Grant>> ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                   const UnreadSizer& size) override;
  Result<std::vector<core::TagRow>> List() override;
  Result<core::TagRow> Describe(std::string_view tag) override;

  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override;
  Result<core::TagRow> Update(std::string_view tag, const core::TagChange& change,
                              core::WriteMode mode) override;
  Result<core::TagRow> Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode) override;
  Result<Removal> Remove(std::string_view tag, core::WriteMode mode) override;
  Result<std::uint64_t> RemovedMark(std::string_view tag) override;
  Result<std::vector<std::pair<std::string, std::uint64_t>>> RemovedMarks() override;

  // Advance, or a repair, under this name in the history.
  Result<core::TagRow> Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode,
                               std::string_view action);
  // Records what changed no row: a pause. Errors: none but those of the database; what has no place in it is
  // told to the listener.
  Result<void> Record(std::string_view tag, std::string_view action);
  // The newest `limit` changes of a tag, the newest first; also of one that was removed. Errors: kConfig
  // where the database has no table for them.
  Result<std::vector<core::AuditLine>> History(std::string_view tag, std::uint64_t limit);

 private:
  // What a transaction has recorded, to be told once it is committed.
  struct Recorded {
    std::optional<core::AuditLine> line;
    std::string why_not;
  };
  Recorded RecordIn(soci::session& session, std::string_view action, const core::TagRow* before,
                    const core::TagRow* after) const;
  void Tell(const Recorded& recorded, core::WriteMode mode) const;
  Result<core::TagRow> Change(std::string_view what, std::string_view tag, const core::TagChange& change,
                              core::WriteMode mode, std::string_view action);
  Result<core::Grant> ReserveByOneStatement(std::string_view tag, const core::GrantSizer& sizer);
  // One attempt. `locked`: nothing was done, since another client holds the row, and `use` does not wait for
  // that.
  Result<core::Grant> RaiseRow(std::string_view tag, const core::GrantSizer& sizer, Use use, bool& locked);
  // Moves the row up by `count`, if its max_id is in [seen, 2^63 - count]. Nothing if it is not. Throws what
  // SOCI throws.
  Result<std::optional<IdRange>> Raise(Database::Autocommit& connection, std::string_view what,
                                       const std::string& tag, std::int64_t seen, std::uint64_t count);
  // Nothing if the row has changed since it was read. Throws what SOCI throws.
  Result<std::optional<core::Grant>> TryToRaise(Database::Autocommit& connection, std::string_view what,
                                                std::string_view tag, const core::GrantSizer& sizer, Use use,
                                                bool& locked);
  Result<core::Grant> ReserveInTransaction(std::string_view tag, const core::GrantSizer& sizer);

  Database& database_;
  const std::optional<core::Author> author_;
  const core::AuditListener listener_;
  // Whether replies of the server tell where a range ends; until one did not.
  std::atomic<bool> ends_are_told_{true};
};

}  // namespace leaf::sql
