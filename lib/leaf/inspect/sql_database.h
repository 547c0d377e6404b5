// Whether a database can be relied on: its tables, and whether a COMMIT that was acknowledged stays. That is
// what each server of the cluster is set up for, and what would be lost otherwise.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/embed/stores.h"
#include "leaf/sql/database.h"

namespace leaf::inspect {

struct SchemaFinding {
  bool is_problem = false;  // else a note
  std::string message;
  std::string hint;
};

// What the configuration has the database for, besides tags.
struct DatabaseUses {
  bool worker_numbers = false;  // snowflake.registry is sql
  bool codes = false;           // codes.key_file is set
};
DatabaseUses UsesOf(const config::Config& config);

// Examines an existing schema, on the server in use: columns, a unique biz_tag, a transactional engine, our
// own table. Both published variants of leaf_alloc pass. Whether commits are durable is the servers'
// business. Errors: kUnavailable, kPermission, kConfig (no such database).
Result<std::vector<SchemaFinding>> CheckSchema(sql::Database& database, const DatabaseUses& uses = {});

struct EndpointReport {
  std::string endpoint;
  std::optional<Error> error;  // why it could not be examined; nothing else is known then
  std::string identity;
  bool takes_writes = false;
  std::string galera_cluster;  // the uuid of its cluster's state; "" for a server that is no Galera node
  std::string state;           // "takes writes", or why not
  std::vector<SchemaFinding> findings;
};

// What `db check` and `doctor` say about it.
struct DatabaseReport {
  std::vector<SchemaFinding> findings;    // about the tables, and about all servers together
  std::vector<EndpointReport> endpoints;  // of MySQL; in the order of the configuration
  std::string in_use;                     // the endpoint that is
  std::size_t problems = 0;               // over all
};

// Asks every endpoint, too. What cannot be seen for want of a privilege is a finding, and so is an endpoint
// that cannot be reached. Blocks as long as the time-outs allow, once for each. A problem is what can lose
// acknowledged commits, or hand out a range twice: redo log or binary log not flushed at COMMIT, replicas
// that COMMIT does not wait for, a Galera node outside its primary component, two servers that take writes
// and do not replicate to each other; and that codes are configured and have no table. Everything else is a
// note. Errors: those of CheckSchema, if no endpoint could be reached either.
Result<DatabaseReport> ExamineDatabase(embed::Store& store, const DatabaseUses& uses);

}  // namespace leaf::inspect
