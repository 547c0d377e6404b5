#include "leaf/sql/mysql_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <soci/soci.h>

#include <utility>

#include "leaf/base/text.h"

namespace leaf::sql {

ServerFacts ShowFacts(soci::session& session, const std::string& statement) {
  ServerFacts facts;
  std::string name;
  std::string value;
  soci::statement read = (session.prepare << statement, soci::into(name), soci::into(value));
  read.execute();
  while (read.fetch()) facts[LowerCase(name)] = value;
  return facts;
}

MysqlServer AskServer(soci::session& session) {
  // Not every server has all of these: SHOW leaves out what there is not, @@ would fail.
  ServerFacts variables =
      ShowFacts(session,
                "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'server_id', "
                "'server_uuid', 'datadir', 'version', 'read_only', 'wsrep_on', 'wsrep_node_name')");
  MysqlServer server;
  server.read_only = variables["read_only"] != "OFF" && variables["read_only"] != "0";
  server.galera = variables["wsrep_on"] == "ON";
  server.identity =
      fmt::format("{}:{} server_id {}", variables["hostname"], variables["port"], variables["server_id"]);
  if (!variables["server_uuid"].empty()) server.identity += " uuid " + variables["server_uuid"];
  if (server.galera) server.identity += " node " + variables["wsrep_node_name"];
  server.identity += fmt::format(" in {} {}", variables["datadir"], variables["version"]);
  if (!server.galera) return server;

  ServerFacts status =
      ShowFacts(session,
                "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', "
                "'wsrep_cluster_state_uuid', 'wsrep_cluster_size', 'wsrep_local_state_comment')");
  server.ready = status["wsrep_ready"] == "ON";
  server.cluster_status = status["wsrep_cluster_status"];
  server.cluster_uuid = status["wsrep_cluster_state_uuid"];
  server.cluster_size = status["wsrep_cluster_size"];
  server.state = status["wsrep_local_state_comment"];
  return server;
}

std::optional<std::string> WhyNotWritable(const MysqlServer& server) {
  if (server.galera && server.cluster_status != "Primary") {
    return fmt::format("Galera: cluster status {}, state {}", server.cluster_status, server.state);
  }
  if (server.galera && !server.ready) return fmt::format("Galera: not ready, state {}", server.state);
  if (server.read_only) return std::string(kReadOnlyText);
  return std::nullopt;
}

void Writers::Add(const MysqlServer& server, std::string endpoint) {
  each_.insert(server.galera ? "cluster " + server.cluster_uuid : server.identity);
  endpoints_.push_back(std::move(endpoint));
}

Result<void> Writers::Check() const {
  if (each_.size() < 2) return {};
  return Error{
      ErrorCode::kRefused,
      fmt::format("{} take writes, each by itself: nodes that use different ones are granted the same ranges",
                  fmt::join(endpoints_, " and ")),
      "make all but one of them read-only"};
}

Result<void> CheckOneWriter(const MysqlOptions& options) {
  Writers writers;
  for (const Endpoint& endpoint : options.endpoints) {
    auto session = OpenMysql(options, endpoint);
    if (!session.ok()) continue;
    try {
      const MysqlServer server = AskServer(**session);
      if (!WhyNotWritable(server)) writers.Add(server, EndpointText(endpoint));
    } catch (const std::exception&) {
      // It does not answer any more.
    }
  }
  return writers.Check();
}

}  // namespace leaf::sql
