// leafctl config check
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/finding.h"
#include "leaf/sys/secret_file.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kConsequence = "leafctl does not start";

// Of a message about several problems each is in a line of its own, after one that counts them.
std::vector<std::string_view> ProblemsOf(std::string_view message) {
  constexpr std::string_view kNext = "\n  ";
  std::size_t next = message.find(kNext);
  if (next == std::string_view::npos) return {message};
  std::vector<std::string_view> problems;
  while (next != std::string_view::npos) {
    message.remove_prefix(next + kNext.size());
    next = message.find(kNext);
    problems.push_back(message.substr(0, next));
  }
  return problems;
}

// Files with secrets, by the code of what is wrong with one.
Result<void> CheckSecrets(const config::Config& config, std::vector<core::Finding>& findings) {
  Result<void> result;
  for (const auto& [code, path] : {std::pair{"mysql-password", config.mysql.password_file},
                                   std::pair{"zookeeper-auth", config.zookeeper.auth_file}}) {
    if (path.empty()) continue;
    if (const auto secret = sys::ReadSecretFile(path); !secret.ok()) {
      findings.push_back(
          {code, path, secret.error().message, std::string(kConsequence), secret.error().hint});
      if (result.ok()) result = secret.error();
    }
  }
  return result;
}

Result<void> RunConfigCheck(CommandContext& context) {
  std::vector<core::Finding> findings;
  std::string file = context.flags.config_file.value_or("");
  std::vector<std::string> warnings;
  std::string ordinal;
  Json worker;
  Result<void> result;
  if (const auto resolved = context.Config(); resolved.ok()) {
    file = (*resolved)->file;
    ordinal = config::OrdinalText((*resolved)->config);
    if (!ordinal.empty()) {
      worker = {{"worker", (*resolved)->config.snowflake.worker_id},
                {"worker_source", config::WorkerSourceOf((*resolved)->config)}};
    }
    warnings = (*resolved)->warnings;
    for (const std::string& warning : warnings) {
      core::Finding finding{"config", file, warning, "", ""};
      finding.severity = core::Finding::Severity::kWarning;
      findings.push_back(std::move(finding));
    }
    result = CheckSecrets((*resolved)->config, findings);
  } else if (resolved.error().code == ErrorCode::kInvalidArgument) {
    return resolved.error();
  } else {
    for (const std::string_view problem : ProblemsOf(resolved.error().message)) {
      findings.push_back(
          {"config", file, std::string(problem), std::string(kConsequence), resolved.error().hint});
    }
    result = resolved.error();
  }
  if (context.flags.json) {
    Json json{
        {"file", file}, {"ok", result.ok()}, {"warnings", warnings}, {"findings", FindingsJson(findings)}};
    if (!worker.is_null()) json.update(worker);
    WriteJson(context, json);
  } else if (result.ok()) {
    context.Note(file.empty() ? "configuration ok (no file)" : fmt::format("configuration ok ({})", file));
    if (!ordinal.empty()) context.Note(fmt::format("worker number {}", ordinal));
  }
  return result;
}

}  // namespace

Run AddConfigCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Reports every problem at once.\n"
      "Examples:\n"
      "  leafctl --config /etc/leafctl/leafctl.toml config check");
  return [](CommandContext& context) { return RunConfigCheck(context); };
}

}  // namespace leaf::cmd
