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
#include "leaf/embed/client_token.h"
#include "leaf/embed/code_store.h"
#include "leaf/embed/registries.h"
#include "leaf/embed/tls_files.h"
#include "leaf/sys/secret_file.h"
#include "leaf/zookeeper/connect_string.h"
#include "tag_output.h"
#include "token_store.h"

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
  // `read`: as the code that needs it reads it, with all that is wrong in the file.
  const auto check = [&](const char* code, const std::string& path, std::string_view consequence,
                         const auto& read) {
    if (path.empty()) return;
    const auto secret = read();
    if (secret.ok()) return;
    findings.push_back({code, path, secret.error().message, std::string(consequence), secret.error().hint});
    if (result.ok()) result = secret.error();
  };
  for (const auto& [code, path] : {std::pair{"mysql-password", config.mysql.password_file},
                                   std::pair{"zookeeper-auth", config.zookeeper.auth_file}})
    check(code, path, kConsequence, [&file = path] { return sys::ReadSecretFile(file); });
  check("tokens", config.auth.tokens_file, kConsequence, [&] { return ReadTokens(config); });
  check("codes-key", config.codes.key_file, kConsequence,
        [&] { return embed::LoadCodeOptions(config.codes); });
  check("client-token", config.client.token_file, "no command can ask a daemon",
        [&] { return embed::ReadClientToken(config.client.token_file); });
  return result;
}

// What can be told of snowflake mode without a server.
Result<void> CheckWorkers(const config::Config& config, std::vector<core::Finding>& findings) {
  Result<void> result;
  const auto check = [&](const char* code, const std::string& subject, const auto& checked) {
    if (checked.ok()) return;
    const Error& error = checked.error();
    findings.push_back({code, subject, error.message, std::string(kConsequence), error.hint});
    if (result.ok()) result = Error{ErrorCode::kConfig, error.message, error.hint};
  };
  if (!config.snowflake.enabled) return result;
  if (config.snowflake.registry == "zookeeper")
    check("zookeeper-connect", config.zookeeper.connect,
          zookeeper::ParseConnectString(config.zookeeper.connect));
  check("worker-number", config.snowflake.address, embed::CheckStaticNumber(config));
  return result;
}

// Certificates and keys, as they would be used.
Result<void> CheckTlsFiles(const CommandContext& context, const config::Config& config,
                           std::vector<core::Finding>& findings) {
  const auto server = embed::LoadServerTls(config.server);
  Result<void> result;
  const auto wrong = [&](const Error& error, const char* code, const std::string& path,
                         std::string consequence) {
    findings.push_back({code, path, error.message, std::move(consequence), error.hint});
    if (result.ok()) result = error;
  };
  if (!server.ok()) {
    wrong(server.error(), "server-tls", config.server.tls_cert, std::string(kConsequence));
  } else if (*server != nullptr && (*server)->expires_at() <= context.clock.Wall()) {
    core::Finding finding{"server-tls", config.server.tls_cert,
                          fmt::format("server.tls_cert: {}: the certificate has ended on {}",
                                      config.server.tls_cert, FormatRfc3339((*server)->expires_at())),
                          "clients refuse it", "renew it"};
    finding.severity = core::Finding::Severity::kWarning;
    findings.push_back(std::move(finding));
  }
  if (config.client.ca.empty() && config.client.cert.empty()) return result;
  if (const auto client = embed::LoadClientTls(config.client); !client.ok())
    wrong(client.error(), "client-tls", config.client.ca, "no server is asked over TLS");
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
    auto tls = CheckTlsFiles(context, (*resolved)->config, findings);
    if (result.ok()) result = std::move(tls);
    auto workers = CheckWorkers((*resolved)->config, findings);
    if (result.ok()) result = std::move(workers);
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
