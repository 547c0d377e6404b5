// leafctl db check
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "commands.h"
#include "leaf/sql/durability.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/schema.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

using Findings = std::vector<sql::SchemaFinding>;

std::ptrdiff_t CountProblems(const Findings& findings) {
  return std::count_if(findings.begin(), findings.end(),
                       [](const sql::SchemaFinding& finding) { return finding.is_problem; });
}

Json FindingsJson(const Findings& findings) {
  Json list = Json::array();
  for (const sql::SchemaFinding& finding : findings) {
    list.push_back({{"severity", finding.is_problem ? "problem" : "note"},
                    {"message", finding.message},
                    {"hint", finding.hint}});
  }
  return list;
}

void WriteFindings(CommandContext& context, const Findings& findings, std::string_view indent) {
  for (const sql::SchemaFinding& finding : findings) {
    context.out.Write(
        fmt::format("{}{}: {}\n", indent, finding.is_problem ? "problem" : "note", finding.message));
    if (!finding.hint.empty()) context.out.Write(fmt::format("{}  hint: {}\n", indent, finding.hint));
  }
}

Json EndpointJson(const sql::EndpointReport& report, bool in_use) {
  return {{"endpoint", report.endpoint},
          {"reached", !report.error},
          {"identity", report.identity},
          {"takes_writes", report.takes_writes},
          {"in_use", in_use},
          {"state", report.state},
          {"findings", FindingsJson(report.findings)}};
}

void WriteEndpoint(CommandContext& context, const sql::EndpointReport& report, bool in_use) {
  context.out.Write(report.error ? fmt::format("{}\n", report.endpoint)
                                 : fmt::format("{}: {}{}: {}\n", report.endpoint, report.state,
                                               in_use ? ", in use" : "", report.identity));
  WriteFindings(context, report.findings, "  ");
}

Result<void> RunDbCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  auto schema = sql::CheckSchema(store->database());
  sql::DurabilityReport servers;
  std::string in_use;
  if (const sql::MysqlConnector* const connector = store->database().connector()) {
    in_use = connector->state().endpoint;
    servers = sql::CheckDurability(connector->options());
  }
  const bool any_reached = std::any_of(servers.endpoints.begin(), servers.endpoints.end(),
                                       [](const sql::EndpointReport& report) { return !report.error; });
  if (!schema.ok()) {
    if (!any_reached) return std::move(schema).error();
    schema = Findings{{true, schema.error().message, schema.error().hint}};
  }

  Findings findings = std::move(*schema);
  findings.insert(findings.end(), servers.findings.begin(), servers.findings.end());
  std::ptrdiff_t problems = CountProblems(findings);
  for (const sql::EndpointReport& report : servers.endpoints) problems += CountProblems(report.findings);
  if (context.flags.json) {
    Json json{{"ok", problems == 0}, {"findings", FindingsJson(findings)}};
    if (!servers.endpoints.empty()) {
      json["endpoints"] = Json::array();
      for (const sql::EndpointReport& report : servers.endpoints)
        json["endpoints"].push_back(EndpointJson(report, report.endpoint == in_use));
    }
    WriteJson(context, json);
  } else {
    for (const sql::EndpointReport& report : servers.endpoints)
      WriteEndpoint(context, report, report.endpoint == in_use);
    WriteFindings(context, findings, "");
    if (problems == 0) context.out.Write("ok: leafctl can use this schema\n");
  }
  if (problems == 0) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("the database has {} problem{}", problems, problems == 1 ? "" : "s"), ""};
}

}  // namespace

Run AddDbCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Examines the tables, and on MySQL what each of mysql.endpoints does to keep what was committed: logs\n"
      "flushed at COMMIT, semi-synchronous replicas, Galera. Exit code 10 if there is a problem. Both "
      "published\n"
      "variants of leaf_alloc pass.");
  return [](CommandContext& context) { return RunDbCheck(context); };
}

}  // namespace leaf::cmd
