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

Result<DatabaseReport> ExamineDatabase(Store& store) {
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
  report.endpoints = std::move(servers.endpoints);
  report.problems = CountProblems(report.findings);
  for (const sql::EndpointReport& endpoint : report.endpoints)
    report.problems += CountProblems(endpoint.findings);
  return report;
}

}  // namespace leaf::cmd
