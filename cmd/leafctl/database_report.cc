#include "database_report.h"

#include <algorithm>
#include <utility>

#include "leaf/sql/mysql_connector.h"

namespace leaf::cmd {
namespace {

std::size_t CountProblems(const std::vector<sql::SchemaFinding>& findings) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const sql::SchemaFinding& finding) { return finding.is_problem; }));
}

}  // namespace

Result<DatabaseReport> ExamineDatabase(Store& store, bool gives_worker_numbers) {
  auto schema = sql::CheckSchema(store.database());
  DatabaseReport report;
  sql::DurabilityReport servers;
  if (const sql::MysqlConnector* const connector = store.database().connector()) {
    report.in_use = connector->state().endpoint;
    servers = sql::CheckDurability(connector->options());
  }
  const bool any_reached = std::any_of(servers.endpoints.begin(), servers.endpoints.end(),
                                       [](const sql::EndpointReport& endpoint) { return !endpoint.error; });
  if (!schema.ok()) {
    if (!any_reached) return std::move(schema).error();
    report.findings = {{true, schema.error().message, schema.error().hint}};
  } else {
    report.findings = std::move(*schema);
  }
  report.findings.insert(report.findings.end(), servers.findings.begin(), servers.findings.end());
  if (gives_worker_numbers && sql::MaySplit(servers)) {
    report.findings.push_back(
        {true,
         "worker numbers come from this database (snowflake.registry = \"sql\"), and its servers are no "
         "Galera "
         "cluster: if two of them take writes at the same time, each gives its next number to another node, "
         "and "
         "snowflake IDs repeat",
         "let ZooKeeper give out worker numbers (snowflake.registry = \"zookeeper\"), or name one server in "
         "mysql.endpoints"});
  }
  report.endpoints = std::move(servers.endpoints);
  report.problems = CountProblems(report.findings);
  for (const sql::EndpointReport& endpoint : report.endpoints)
    report.problems += CountProblems(endpoint.findings);
  return report;
}

}  // namespace leaf::cmd
