// What a MySQL or MariaDB server says about itself, over any connection to it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/sql/mysql_session.h"

namespace soci {
class session;
}

namespace leaf::sql {

// What a server says about itself. Asked by SHOW only, which a Galera node answers even while it refuses all
// else.
struct MysqlServer {
  // host:port, server_id, and what the server has of server_uuid (MySQL), node name (Galera) and data folder,
  // and its version: differs between any two servers, and stays the same over a restart.
  std::string identity;
  bool read_only = false;
  bool galera = false;         // the rest only if so
  bool ready = false;          // wsrep_ready
  std::string cluster_status;  // "Primary", or else
  std::string cluster_uuid;    // of the cluster's state
  std::string cluster_size;    // nodes in this component
  std::string state;           // "Synced", "Donor/Desynced", …
};

// May throw what SOCI throws.
MysqlServer AskServer(soci::session& session);

// Names in lower case, and values, as a SHOW VARIABLES or SHOW STATUS gives them: it leaves out what this
// server does not have. May throw what SOCI throws.
using ServerFacts = std::map<std::string, std::string>;
ServerFacts ShowFacts(soci::session& session, const std::string& statement);

inline constexpr std::string_view kReadOnlyText = "read-only";
// Why `server` takes no writes; nullopt if it does.
std::optional<std::string> WhyNotWritable(const MysqlServer& server);

// What takes writes by itself: servers, and Galera's clusters.
class Writers {
 public:
  void Add(const MysqlServer& server, std::string endpoint);
  // Errors: kRefused if there is more than one.
  Result<void> Check() const;

 private:
  std::set<std::string> each_;
  std::vector<std::string> endpoints_;
};

// Errors: kRefused if two of the endpoints take writes, each by itself. One that cannot be reached says
// nothing. Blocks as long as the time-outs allow, once for each.
Result<void> CheckOneWriter(const MysqlOptions& options);

}  // namespace leaf::sql
