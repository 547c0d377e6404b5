// What `db check` and `doctor` say about the database.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/sql/durability.h"
#include "leaf/sql/schema.h"
#include "stores.h"

namespace leaf::cmd {

struct DatabaseReport {
  std::vector<sql::SchemaFinding> findings;    // about the tables, and about all servers together
  std::vector<sql::EndpointReport> endpoints;  // of MySQL; in the order of the configuration
  std::string in_use;                          // the endpoint that is
  std::size_t problems = 0;                    // over all
};

// `gives_worker_numbers`: snowflake.registry is sql. Errors: those of sql::CheckSchema, if no endpoint could
// be reached either.
Result<DatabaseReport> ExamineDatabase(Store& store, bool gives_worker_numbers);

}  // namespace leaf::cmd
