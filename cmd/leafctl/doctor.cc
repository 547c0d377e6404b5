// leafctl doctor
#include "leaf/inspect/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/core/finding.h"
#include "stores.h"
#include "tag_output.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

using inspect::Diagnosis;
using inspect::Level;

std::string DiagnosisText(const Diagnosis& diagnosis) {
  std::string out = fmt::format("{:<8} {}: {}\n", inspect::DiagnosisLevelName(diagnosis.level),
                                diagnosis.check, Printable(diagnosis.found));
  if (!diagnosis.cause.empty()) out += fmt::format("  cause: {}\n", Printable(diagnosis.cause));
  if (!diagnosis.remedy.empty()) out += fmt::format("  remedy: {}\n", Printable(diagnosis.remedy));
  return out;
}

// Of those, what is not sound.
std::vector<core::Finding> FindingsOf(const std::vector<Diagnosis>& diagnoses) {
  using Severity = core::Finding::Severity;
  std::vector<core::Finding> findings;
  for (const Diagnosis& one : diagnoses) {
    if (one.level == Level::kOk) continue;
    core::Finding finding{one.check, one.subject, one.found, one.cause, one.remedy};
    if (one.level == Level::kWarning) finding.severity = Severity::kWarning;
    findings.push_back(std::move(finding));
  }
  return findings;
}

Result<void> RunDoctor(CommandContext& context) {
  std::vector<Diagnosis> found;
  auto resolved = context.Config();
  if (resolved.ok()) {
    // A file that cannot be read is a finding of its own.
    const auto token = ClientToken(**resolved);
    client::DaemonClient daemon(FindOwnDaemon(**resolved), context.flags.timeout.value_or(kAskTimeout),
                                TlsOf(**resolved), token.ok() ? *token : std::string());
    ContextLogger log(context);
    found = inspect::Examine(context, log, **resolved,
                             {daemon, FindDaemons(**resolved).configured, LEAFCTL_VERSION});
  } else {
    if (resolved.error().code == ErrorCode::kInvalidArgument) return std::move(resolved).error();
    found = {{"config", Level::kProblem, resolved.error().message,
              "nothing else can be checked, and leafctl does not start", resolved.error().hint}};
  }
  const auto count = [&](Level level) {
    return std::count_if(found.begin(), found.end(),
                         [&](const Diagnosis& one) { return one.level == level; });
  };
  const auto problems = count(Level::kProblem);
  const auto warnings = count(Level::kWarning);
  if (context.flags.json) {
    Json checks = Json::array();
    for (const Diagnosis& one : found) {
      checks.push_back({{"check", one.check},
                        {"status", inspect::DiagnosisLevelName(one.level)},
                        {"found", one.found},
                        {"cause", one.cause},
                        {"remedy", one.remedy}});
    }
    WriteJson(context, {{"ok", problems == 0},
                        {"problems", problems},
                        {"warnings", warnings},
                        {"checks", std::move(checks)},
                        {"findings", FindingsJson(FindingsOf(found))}});
  } else {
    for (const Diagnosis& one : found) context.out.Write(DiagnosisText(one));
    context.out.Write(fmt::format("{} problem{}, {} warning{}\n", problems, problems == 1 ? "" : "s",
                                  warnings, warnings == 1 ? "" : "s"));
  }
  if (problems == 0) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("the doctor found {} problem{}", problems, problems == 1 ? "" : "s"), ""};
}

}  // namespace

Run AddDoctor(CLI::App& app, CommandContext&) {
  app.footer(
      "Checks configuration, secrets, state directory, database, tags, worker numbers, clocks, fence, "
      "daemon and limits. Changes nothing. A part that does not answer is one finding; the other checks "
      "still run. Run it before you replace the first Java Leaf node: see leaf-migration(7). Exit code 10 "
      "if there is a problem, 0 if there are only warnings.\n"
      "Examples:\n"
      "  leafctl doctor\n"
      "  leafctl doctor --json");
  return [](CommandContext& context) { return RunDoctor(context); };
}

}  // namespace leaf::cmd
