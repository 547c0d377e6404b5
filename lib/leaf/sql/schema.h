// Creates and examines the tables.
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

struct SchemaFinding {
  bool is_problem = false;  // else a note
  std::string message;
  std::string hint;
};

// Examines an existing schema, on the server in use: columns, a unique biz_tag, a transactional engine, our
// own table. Both published variants of leaf_alloc pass. Whether commits are durable is CheckDurability's
// business. Errors: kUnavailable, kPermission, kConfig (no such database).
Result<std::vector<SchemaFinding>> CheckSchema(Database& database);

}  // namespace leaf::sql
