// leafctl worker check
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

// Throws Json::exception if a daemon of leafctl says nothing like it.
std::optional<inspect::WorkerFinding> LostNumberOf(const Json& json, const std::string& cluster,
                                                   const std::string& daemon) {
  if (!json.is_object()) return std::nullopt;
  const Json snowflake = json.value("snowflake", Json::object());
  const Json problem = snowflake.value("problem", Json::object());
  if (snowflake.value("cluster", "") != cluster ||
      problem.value("code", "") != ErrorCodeName(ErrorCode::kNotOwner))
    return std::nullopt;
  inspect::WorkerFinding finding;
  finding.code = "own-number-lost";
  finding.subject = std::to_string(snowflake.value("worker", std::uint64_t{0}));
  finding.cause = problem.value("message", "");
  finding.consequence = fmt::format("the daemon at {} issues no snowflake IDs", daemon);
  finding.remedy = problem.value("hint", "");
  finding.left = "only the daemon can claim it again";
  return finding;
}

// What this node's daemon says of its number. The registry cannot tell that a node has stopped because of it.
Result<std::optional<inspect::WorkerFinding>> OwnNumber(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(FindOwnDaemon(*resolved), context.flags.timeout.value_or(kAskTimeout),
                              TlsOf(*resolved), token);
  const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
  if (!body.ok()) return std::optional<inspect::WorkerFinding>();
  try {
    return LostNumberOf(ParseForeignJson<Json>(*body), resolved->config.snowflake.cluster,
                        daemon.answered_by());
  } catch (const Json::exception&) {
    return std::optional<inspect::WorkerFinding>();
  }
}

Result<void> RunWorkerCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto source, inspect::WorkerSource::Open(context, embed::Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(inspect::WorkerInspection inspection, source->Inspect());
  LEAF_ASSIGN_OR_RETURN(auto own, OwnNumber(context));
  auto& findings = inspection.findings;
  if (own) findings.push_back(*std::move(own));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  inspect::GradeFindings(findings, resolved->config);
  if (context.flags.json) {
    Json json = WorkerHeading(*source);
    json["ok"] = findings.empty();
    json["findings"] = FindingsJson(findings);
    WriteJson(context, json);
  } else {
    for (const inspect::WorkerFinding& finding : findings) context.out.Write(FindingText(finding));
    if (findings.empty()) {
      context.out.Write(fmt::format("ok: nothing is wrong with the {} worker number{} of {}\n",
                                    inspection.entries.size(), inspection.entries.size() == 1 ? "" : "s",
                                    source->cluster().empty() ? "this node" : Printable(source->cluster())));
    }
  }
  if (findings.empty()) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("{} finding{} about the worker numbers of {}", findings.size(),
                           findings.size() == 1 ? "" : "s", Printable(source->cluster())),
               ""};
}

}  // namespace

Run AddWorkerCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Each finding has a code, a cause, a consequence and a remedy. Exit code 10 if there is any.\n"
      "Examples:\n"
      "  leafctl worker check --json");
  return [](CommandContext& context) { return RunWorkerCheck(context); };
}

}  // namespace leaf::cmd
