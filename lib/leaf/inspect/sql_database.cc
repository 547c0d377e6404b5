#include "leaf/inspect/sql_database.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/mysql_server.h"

namespace leaf::inspect {
namespace {

constexpr std::string_view kWhatAFailoverLoses =
    "a failover to it can lose grants that were acknowledged; with segment.fence = \"cluster\" every node "
    "notices "
    "that, with the node fence only those that had the grants";

// The first of `names` that the server has; "" if it has none. MySQL renamed what MariaDB did not.
std::string FirstOf(const sql::ServerFacts& facts, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (const auto found = facts.find(name); found != facts.end()) return found->second;
  }
  return "";
}

long long NumberOf(const std::string& text) {
  long long number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool IsOn(const std::string& text) { return text == "ON" || text == "1"; }

// The global privileges of the user.
std::set<std::string> PrivilegesOf(soci::session& session) {
  std::set<std::string> privileges;
  std::string name;
  soci::statement read =
      (session.prepare << "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = "
                          "CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')",
       soci::into(name));
  read.execute();
  while (read.fetch()) privileges.insert(name);
  return privileges;
}

// How many replicas fetch the binary log; nullopt if this user may not see that.
std::optional<long long> CountReplicas(soci::session& session, const std::set<std::string>& privileges) {
  if (privileges.count("PROCESS") > 0) {
    long long count = 0;
    session << "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'",
        soci::into(count);
    return count;
  }
  for (const char* const statement : {"SHOW SLAVE HOSTS", "SHOW REPLICAS"}) {
    try {
      const soci::rowset<soci::row> rows = (session.prepare << statement);
      return std::distance(rows.begin(), rows.end());
    } catch (const soci::mysql_soci_error& error) {
      constexpr unsigned kSyntax = 1064;
      if (sql::BlamesServer(error)) throw;
      if (error.err_num_ != kSyntax) return std::nullopt;
    }
  }
  return std::nullopt;
}

class ServerExamination {
 public:
  ServerExamination(soci::session& session, const sql::MysqlServer& server, std::size_t endpoints)
      : session_(session), server_(server), endpoints_(endpoints) {}

  std::vector<SchemaFinding> Run() {
    variables_ = sql::ShowFacts(
        session_,
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', "
        "'sync_binlog', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_timeout', "
        "'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_timeout')");
    CheckLogs();
    if (server_.galera) CheckGalera();
    privileges_ = PrivilegesOf(session_);
    // A server that takes no writes acknowledges none.
    if (!server_.galera && !sql::WhyNotWritable(server_)) CheckReplication();
    CheckUser();
    return std::move(findings_);
  }

 private:
  void Problem(std::string message, std::string hint) {
    findings_.push_back({true, std::move(message), std::move(hint)});
  }
  void Note(std::string message, std::string hint = "") {
    findings_.push_back({false, std::move(message), std::move(hint)});
  }

  void CheckLogs() {
    const std::string flush_log = variables_["innodb_flush_log_at_trx_commit"];
    // MariaDB knows 3 as well, which flushes once more often.
    if (flush_log != "1" && flush_log != "3") {
      Problem(fmt::format("innodb_flush_log_at_trx_commit is {}: a crash of {} can lose grants that were "
                          "acknowledged",
                          flush_log, server_.galera ? "all nodes at once" : "the server"),
              "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration");
    }
    const std::string sync_binlog = variables_["sync_binlog"];
    if (IsOn(variables_["log_bin"]) && sync_binlog != "1") {
      Problem(fmt::format("sync_binlog is {}: after a crash replicas can lack grants that were acknowledged",
                          sync_binlog),
              "SET GLOBAL sync_binlog = 1, and in the server's configuration");
    }
  }

  void CheckGalera() {
    if (const auto why = sql::WhyNotWritable(server_); why && *why != sql::kReadOnlyText) {
      Problem(*why, "SHOW GLOBAL STATUS LIKE 'wsrep%'");
      return;
    }
    Note(fmt::format("Galera: {} in a primary component, {} node{}: what is committed here, all of them have",
                     server_.state, server_.cluster_size, server_.cluster_size == "1" ? "" : "s"));
    if (server_.cluster_size == "1")
      Note("the Galera cluster has one node: what its disk loses is lost", "join two more nodes");
    if (server_.cluster_size == "2") {
      Note("the Galera cluster has two nodes: if one is lost, the other takes no writes",
           "join a third node, or an arbitrator (garbd)");
    }
  }

  void CheckReplication() {
    const sql::ServerFacts status = sql::ShowFacts(
        session_,
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', "
        "'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_status', 'Rpl_semi_sync_source_clients')");
    const bool enabled =
        IsOn(FirstOf(variables_, {"rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"}));
    const long long acknowledging =
        NumberOf(FirstOf(status, {"rpl_semi_sync_source_clients", "rpl_semi_sync_master_clients"}));
    const bool active = IsOn(FirstOf(status, {"rpl_semi_sync_source_status", "rpl_semi_sync_master_status"}));
    if (!IsOn(variables_["log_bin"])) {
      if (endpoints_ > 1) {
        Problem(
            "log_bin is off, so none of the other endpoints has what is committed here: IDs repeat after a "
            "failover",
            "set up replication");
      }
      return;
    }
    const std::optional<long long> replicas = CountReplicas(session_, privileges_);
    if (enabled && (!active || acknowledging == 0)) {
      Problem(
          fmt::format("semi-synchronous replication is enabled, but no replica acknowledges ({} connected, "
                      "Rpl_semi_sync_master_status {}): a failover can lose grants that were acknowledged",
                      acknowledging, active ? "ON" : "OFF"),
          "check the replicas");
    } else if (enabled) {
      Note(
          fmt::format("semi-synchronous replication: a COMMIT waits for one of {} replica{}, at most {} ms, "
                      "and then completes without it",
                      acknowledging, acknowledging == 1 ? "" : "s",
                      FirstOf(variables_, {"rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout"})));
      if (replicas && *replicas > acknowledging) {
        Note(fmt::format("asynchronous replicas: {}: {}", *replicas - acknowledging, kWhatAFailoverLoses));
      }
    } else if (replicas && *replicas > 0) {
      Problem(fmt::format("asynchronous replicas: {}: {}", *replicas, kWhatAFailoverLoses),
              "set up semi-synchronous replication (rpl_semi_sync_master_enabled)");
    } else if (endpoints_ > 1) {
      Problem(
          fmt::format("semi-synchronous replication is not enabled, and {}: where another endpoint is its "
                      "asynchronous replica, {}",
                      replicas ? "no replica is connected" : "replicas cannot be seen", kWhatAFailoverLoses),
          "set up semi-synchronous replication (rpl_semi_sync_master_enabled)");
    }
    if (!replicas) {
      Note(
          "whether there are replicas cannot be seen: the user has neither PROCESS nor REPLICATION MASTER "
          "ADMIN",
          "run this as a user that has one of them, or grant PROCESS");
    }
  }

  void CheckUser() {
    std::vector<std::string> bypass;
    for (const char* const name : {"READ ONLY ADMIN", "READ_ONLY ADMIN", "SUPER", "CONNECTION_ADMIN"}) {
      if (privileges_.count(name) > 0) bypass.emplace_back(name);
    }
    if (!bypass.empty()) {
      Note(
          fmt::format(
              "the user has {}: read_only does not stop a transaction that has begun when a failover sets it",
              fmt::join(bypass, ", ")),
          "use a user with privileges on this database only");
    }
  }

  soci::session& session_;
  const sql::MysqlServer& server_;
  const std::size_t endpoints_;
  sql::ServerFacts variables_;
  std::set<std::string> privileges_;
  std::vector<SchemaFinding> findings_;
};

EndpointReport ExamineEndpoint(const sql::MysqlOptions& options, const Endpoint& endpoint,
                               std::optional<sql::MysqlServer>& server) {
  EndpointReport report;
  report.endpoint = EndpointText(endpoint);
  auto session = sql::OpenMysql(options, endpoint);
  if (!session.ok()) {
    report.error = std::move(session).error();
    return report;
  }
  try {
    server = sql::AskServer(**session);
    report.identity = server->identity;
    const auto why = sql::WhyNotWritable(*server);
    report.takes_writes = !why;
    if (server->galera) report.galera_cluster = server->cluster_uuid;
    report.state = why.value_or("takes writes");
    report.findings = ServerExamination(**session, *server, options.endpoints.size()).Run();
  } catch (const std::exception& exception) {
    report.error = sql::TranslateReason(exception, sql::Phase::kStatement);
  }
  return report;
}

std::size_t CountProblems(const std::vector<SchemaFinding>& findings) {
  return static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [](const SchemaFinding& finding) { return finding.is_problem; }));
}

// Asks every endpoint, whether it takes writes or not. Blocks as long as the time-outs allow, once for each.
DatabaseReport ExamineServers(const sql::MysqlOptions& options) {
  DatabaseReport report;
  sql::Writers writers;
  for (const Endpoint& endpoint : options.endpoints) {
    std::optional<sql::MysqlServer> server;
    EndpointReport one = ExamineEndpoint(options, endpoint, server);
    if (server && one.takes_writes) writers.Add(*server, one.endpoint);
    if (one.error) {
      one.findings.push_back(
          {true, fmt::format("cannot be examined: {}", one.error->message), one.error->hint});
    }
    report.endpoints.push_back(std::move(one));
  }
  if (const auto one = writers.Check(); !one.ok())
    report.findings.push_back({true, one.error().message, one.error().hint});
  return report;
}

// Whether the endpoints may be two servers that take writes at once, after a failover that went wrong:
// several that are not nodes of one Galera cluster, as far as `endpoints` have been seen.
bool MaySplit(const std::vector<EndpointReport>& endpoints) {
  std::set<std::string> servers;
  bool galera = false;
  bool all_seen = true;
  for (const EndpointReport& endpoint : endpoints) {
    all_seen = all_seen && !endpoint.error;
    if (endpoint.error) continue;
    galera = galera || !endpoint.galera_cluster.empty();
    servers.insert(endpoint.galera_cluster.empty() ? endpoint.identity : endpoint.galera_cluster);
  }
  // One server may have two names, and one that cannot be reached may be another; a Galera node is not.
  return servers.size() > 1 || (servers.size() == 1 && !galera && !all_seen);
}

}  // namespace

DatabaseUses UsesOf(const config::Config& config) {
  return {.worker_numbers = config.snowflake.enabled && config.snowflake.registry == "sql",
          .codes = !config.codes.key_file.empty()};
}

Result<DatabaseReport> ExamineDatabase(embed::Store& store, const DatabaseUses& uses) {
  auto schema = CheckSchema(store.database(), uses);
  DatabaseReport report;
  if (const sql::MysqlConnector* const connector = store.database().connector()) {
    const std::string in_use = connector->state().endpoint;
    report = ExamineServers(connector->options());
    report.in_use = in_use;
  }
  const bool any_reached = std::any_of(report.endpoints.begin(), report.endpoints.end(),
                                       [](const EndpointReport& endpoint) { return !endpoint.error; });
  if (!schema.ok()) {
    if (!any_reached) return std::move(schema).error();
    schema = std::vector<SchemaFinding>{{true, schema.error().message, schema.error().hint}};
  }
  report.findings.insert(report.findings.begin(), schema->begin(), schema->end());
  if (uses.worker_numbers && MaySplit(report.endpoints)) {
    report.findings.push_back({true,
                               "worker numbers come from this database (snowflake.registry = \"sql\"), and "
                               "its servers are no Galera cluster: if two of them take writes at the same "
                               "time, each gives its next number to another node, and snowflake IDs repeat",
                               "let ZooKeeper give out worker numbers (snowflake.registry = \"zookeeper\"), "
                               "or name one server in mysql.endpoints"});
  }
  report.problems = CountProblems(report.findings);
  for (const EndpointReport& endpoint : report.endpoints) report.problems += CountProblems(endpoint.findings);
  return report;
}

}  // namespace leaf::inspect
