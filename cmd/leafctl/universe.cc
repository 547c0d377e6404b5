#include "universe.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/client/daemon_client.h"

namespace leaf::cmd {
namespace {

constexpr const char* kSystemConfig = "/etc/leafctl/leafctl.toml";

bool IsSameFolder(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || (std::filesystem::equivalent(a, b, failed) && !failed);
}

}  // namespace

Result<void> CheckUniverse(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  for (const char* const store : {"segment.store", "sqlite.", "mysql.", "snowflake.registry"}) {
    if (resolved->IsSet(store)) return {};
  }
  client::DaemonClient daemon({std::string(kDefaultSocket)}, context.flags.timeout.value_or(kAskTimeout), {});
  const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
  if (!body.ok()) {
    const bool none_is_there = body.error().code == ErrorCode::kUnreachable && !daemon.met_a_server();
    return none_is_there ? Result<void>() : body.error();
  }
  const auto status = ParseForeignJson(*body);
  const bool says_where =
      status.is_object() && status.contains("state_dir") && status["state_dir"].is_string();
  const std::string theirs = says_where ? status["state_dir"].get<std::string>() : "";
  const std::string& ours = resolved->config.state_dir;
  if (theirs.empty() || IsSameFolder(theirs, ours)) return {};
  std::error_code failed;
  return Error{
      ErrorCode::kRefused,
      fmt::format("a daemon answers at {} with the state directory {}; this command would work on {}, and no "
                  "store is configured",
                  kDefaultSocket, theirs, ours),
      std::filesystem::exists(kSystemConfig, failed)
          ? fmt::format("name that daemon's configuration, as root: --config {} --state-dir {}",
                        kSystemConfig, theirs)
          : fmt::format(
                "name that daemon's configuration (--config FILE), or its state directory (--state-dir {})",
                theirs)};
}

}  // namespace leaf::cmd
