// The table leafctl_audit: one line for each change of a tag. A removed tag's lines stay.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/core/audit.h"
#include "leaf/sql/dialect.h"

namespace soci {
class session;
}

namespace leaf::sql {

// Within the transaction of the change. Why the line has no place in the database, though the transaction can
// go on: there is no such table, or the user lacks the right to it; "" if it was written. Throws what else
// fails: then the change must not be made either.
std::string WriteAuditLine(soci::session& session, const Dialect& dialect, const core::AuditLine& line);

// Appends the newest `limit` lines of `tag`, the newest first. Errors: kConfig if there is no such table.
Result<void> ReadAuditLines(soci::session& session, std::string_view tag, std::uint64_t limit,
                            std::vector<core::AuditLine>& lines);

}  // namespace leaf::sql
