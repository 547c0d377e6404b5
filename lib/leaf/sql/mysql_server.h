// What a MySQL or MariaDB server says about itself, over any connection to it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/endpoint.h"

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

}  // namespace leaf::sql
