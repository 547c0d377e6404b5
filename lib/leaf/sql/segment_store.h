// The table leaf_alloc behind core's ports, one code for both databases.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/core/ports.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// Thread-safe. `database` outlives it.
class SqlSegmentStore final : public core::SegmentStore, public core::TagAdmin {
 public:
  explicit SqlSegmentStore(Database& database) : database_(database) {}

  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override;
  Result<std::vector<core::TagRow>> List() override;
  Result<core::TagRow> Describe(std::string_view tag) override;

  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override;
  Result<core::TagRow> Update(std::string_view tag, const core::TagChange& change,
                              core::WriteMode mode) override;
  Result<core::TagRow> Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode) override;
  Result<Removal> Remove(std::string_view tag, core::WriteMode mode) override;
  Result<std::uint64_t> RemovedMark(std::string_view tag) override;
  Result<std::vector<std::pair<std::string, std::uint64_t>>> RemovedMarks() override;

 private:
  Result<core::Grant> ReserveByOneStatement(std::string_view tag, const core::GrantSizer& sizer);
  // One attempt. `locked`: nothing was done, since another client holds the row, and `use` does not wait for
  // that.
  Result<core::Grant> RaiseRow(std::string_view tag, const core::GrantSizer& sizer, Use use, bool& locked);
  // Nothing if the row has changed since it was read. Throws what SOCI throws.
  Result<std::optional<core::Grant>> TryToRaise(Database::Autocommit& connection, std::string_view what,
                                                std::string_view tag, const core::GrantSizer& sizer, Use use,
                                                bool& locked);
  Result<core::Grant> ReserveInTransaction(std::string_view tag, const core::GrantSizer& sizer);

  Database& database_;
  // Whether replies of the server tell where a range ends; until one did not.
  std::atomic<bool> ends_are_told_{true};
};

}  // namespace leaf::sql
