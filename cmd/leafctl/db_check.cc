// leafctl db check
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "commands.h"
#include "leaf/inspect/sql_database.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

using Findings = std::vector<inspect::SchemaFinding>;

Json SchemaFindingsJson(const Findings& findings) {
  Json list = Json::array();
  for (const inspect::SchemaFinding& finding : findings) {
    list.push_back({{"severity", finding.is_problem ? "problem" : "note"},
                    {"message", finding.message},
                    {"hint", finding.hint}});
  }
  return list;
}

void WriteFindings(CommandContext& context, const Findings& findings, std::string_view indent) {
  for (const inspect::SchemaFinding& finding : findings) {
    context.out.Write(
        fmt::format("{}{}: {}\n", indent, finding.is_problem ? "problem" : "note", finding.message));
    if (!finding.hint.empty()) context.out.Write(fmt::format("{}  hint: {}\n", indent, finding.hint));
  }
}

Json EndpointJson(const inspect::EndpointReport& report, bool in_use) {
  return {{"endpoint", report.endpoint},
          {"reached", !report.error},
          {"identity", report.identity},
          {"takes_writes", report.takes_writes},
          {"in_use", in_use},
          {"state", report.state},
          {"findings", SchemaFindingsJson(report.findings)}};
}

void WriteEndpoint(CommandContext& context, const inspect::EndpointReport& report, bool in_use) {
  context.out.Write(report.error ? fmt::format("{}\n", report.endpoint)
                                 : fmt::format("{}: {}{}: {}\n", report.endpoint, report.state,
                                               in_use ? ", in use" : "", report.identity));
  WriteFindings(context, report.findings, "  ");
}

Result<void> RunDbCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const inspect::DatabaseReport report,
                        inspect::ExamineDatabase(*store, inspect::UsesOf(resolved->config)));
  if (context.flags.json) {
    Json json{{"ok", report.problems == 0}, {"findings", SchemaFindingsJson(report.findings)}};
    if (!report.endpoints.empty()) {
      json["endpoints"] = Json::array();
      for (const inspect::EndpointReport& endpoint : report.endpoints)
        json["endpoints"].push_back(EndpointJson(endpoint, endpoint.endpoint == report.in_use));
    }
    WriteJson(context, json);
  } else {
    for (const inspect::EndpointReport& endpoint : report.endpoints)
      WriteEndpoint(context, endpoint, endpoint.endpoint == report.in_use);
    WriteFindings(context, report.findings, "");
    if (report.problems == 0) context.out.Write("ok: leafctl can use this schema\n");
  }
  if (report.problems == 0) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("the database has {} problem{}", report.problems, report.problems == 1 ? "" : "s"),
               ""};
}

}  // namespace

Run AddDbCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Checks the tables. On MySQL it also checks whether each of mysql.endpoints keeps committed grants: "
      "logs flushed at COMMIT, semi-synchronous replicas, Galera. Both published variants of leaf_alloc "
      "pass. Exit code 10 if there is a problem.\n"
      "Examples:\n"
      "  leafctl db check --json");
  return [](CommandContext& context) { return RunDbCheck(context); };
}

}  // namespace leaf::cmd
