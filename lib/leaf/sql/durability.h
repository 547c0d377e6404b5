// Whether a COMMIT that was acknowledged stays: what each server of the cluster is set up for, and what would
// be lost otherwise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "leaf/base/error.h"
#include "leaf/sql/mysql_session.h"
#include "leaf/sql/schema.h"

namespace leaf::sql {

struct EndpointReport {
  std::string endpoint;
  std::optional<Error> error;  // why it could not be examined; nothing else is known then
  std::string identity;
  bool takes_writes = false;
  std::string galera_cluster;  // the uuid of its cluster's state; "" for a server that is no Galera node
  std::string state;           // "takes writes", or why not
  std::vector<SchemaFinding> findings;
};

struct DurabilityReport {
  std::vector<EndpointReport> endpoints;  // as in the list
  std::vector<SchemaFinding> findings;    // about all of them together
};

// Asks every endpoint, whether it takes writes or not. What cannot be seen for want of a privilege is a
// finding, and so is an endpoint that cannot be reached. Blocks as long as the time-outs allow, once for
// each.
//
// A problem is what can lose acknowledged commits, or hand out a range twice: redo log or binary log not
// flushed at COMMIT, replicas that nobody waits for, a Galera node outside its primary component, two servers
// that take writes and do not replicate to each other. Everything else is a note.
DurabilityReport CheckDurability(const MysqlOptions& options);

// Errors: kRefused if two of the endpoints take writes, each by itself. One that cannot be reached says
// nothing. Blocks as CheckDurability does.
Result<void> CheckOneWriter(const MysqlOptions& options);

// Whether the endpoints may be two servers that take writes at once, after a failover that went wrong:
// several that are not nodes of one Galera cluster, as far as `report` has seen.
bool MaySplit(const DurabilityReport& report);

}  // namespace leaf::sql
