// The table leafctl_codes: what is remembered of a tag's codes. A removed tag's row stays.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "leaf/core/code_records.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// Thread-safe. `database` outlives it.
class SqlCodeRecords final : public core::CodeRecords {
 public:
  explicit SqlCodeRecords(Database& database) : database_(database) {}

  Result<std::optional<core::CodeRecord>> Load(std::string_view tag) override;
  // Of all tags; none where there is no table.
  Result<std::vector<core::CodeRecord>> LoadAll();
  Result<core::CodeRecord> Keep(const core::CodeRecord& wanted, core::CodesBegin begin) override;

 private:
  Database& database_;
};

}  // namespace leaf::sql
