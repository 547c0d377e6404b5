// Creates the tables.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// The statements `InitSchema` runs, each ended by ";\n".
std::string SchemaText(const Dialect& dialect);

// The tables that they create where they are missing, in order.
std::vector<std::string> SchemaTables(const Dialect& dialect);

// Creates what is missing; never touches what is there. Idempotent, also when several processes do it at
// once.
Result<void> InitSchema(Database& database);

}  // namespace leaf::sql
