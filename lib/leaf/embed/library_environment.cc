#include "leaf/embed/library_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "leaf/sys/process_name.h"

namespace leaf::embed {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// A key that a member of the options stands for is said there: were it said twice, one of the two would be
// ignored.
Result<void> CheckSetting(std::string_view key) {
  constexpr std::pair<std::string_view, std::string_view> kMembers[] = {
      {"state_dir", "state_dir"},
      {"segment.enabled", "segment"},
      {"segment.store", "store"},
      {"sqlite.path", "store"},
      {"mysql.endpoints", "store"},
      {"mysql.database", "store"},
      {"mysql.user", "store"},
      {"mysql.password_file", "store"},
      {"snowflake.enabled", "snowflake"},
      {"snowflake.registry", "snowflake"},
      {"snowflake.recycle", "snowflake"},
      {"snowflake.worker_id", "snowflake"},
      {"snowflake.cluster", "snowflake"},
      {"snowflake.address", "snowflake"},
      {"zookeeper.connect", "zookeeper"},
  };
  for (const auto& [name, member] : kMembers) {
    if (key != name) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad options: settings has {}, which GeneratorOptions::{} says", key, member),
                 fmt::format("set GeneratorOptions::{} instead", member)};
  }
  return {};
}

// A relative path is taken from the folder that the process works in now; a later chdir changes nothing. ""
// stays "". Errors: kConfig.
Result<void> MakeAbsolute(std::string& path) {
  if (path.empty()) return {};
  std::error_code failed;
  // Not normalized: behind a link ".." is another folder than it looks.
  const std::string absolute = std::filesystem::absolute(path, failed).string();
  if (failed) return Error{ErrorCode::kConfig, fmt::format("cannot use {}: {}", path, failed.message()), ""};
  path = absolute;
  return {};
}

}  // namespace

Result<config::Resolved> ResolveOptions(const GeneratorOptions& options) {
  if (options.state_dir.empty()) {
    return Error{ErrorCode::kInvalidArgument, "bad options: state_dir is empty",
                 "name a directory that no other process uses, and that outlives this one"};
  }
  if (!options.segment && !options.snowflake) {
    return Error{ErrorCode::kInvalidArgument, "bad options: both modes are off",
                 "leave segment true, or set snowflake"};
  }
  if (options.snowflake && std::holds_alternative<ZookeeperNumber>(*options.snowflake) &&
      options.zookeeper.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "bad options: snowflake is a ZookeeperNumber, but zookeeper is empty",
                 "name the servers in GeneratorOptions::zookeeper"};
  }
  if (const auto* const mysql = std::get_if<MySql>(&options.store)) {
    // The default of the configuration is a server on this machine, which the caller has not named.
    const bool has_empty = std::any_of(mysql->endpoints.begin(), mysql->endpoints.end(),
                                       [](const std::string& endpoint) { return endpoint.empty(); });
    if (mysql->endpoints.empty() || has_empty) {
      return Error{ErrorCode::kInvalidArgument,
                   "bad options: an endpoint of MySql is empty, or there is none",
                   "name the servers in MySql::endpoints"};
    }
  }
  std::string state_dir = options.state_dir;
  LEAF_RETURN_IF_ERROR(MakeAbsolute(state_dir));
  config::LoadInput input;
  input.search_file = false;
  input.host = sys::HostName();
  const auto set = [&](std::string key, std::string text) {
    std::string origin = "GeneratorOptions, " + key;
    input.flags.push_back({std::move(key), std::move(text), std::move(origin)});
  };
  const auto set_if = [&](std::string key, const std::string& text) {
    if (!text.empty()) set(std::move(key), text);
  };
  set("state_dir", state_dir);
  set("segment.enabled", options.segment ? "true" : "false");
  std::visit(Overloaded{[&](const Sqlite& sqlite) {
                          set("segment.store", "sqlite");
                          set_if("sqlite.path", sqlite.path);
                        },
                        [&](const MySql& mysql) {
                          set("segment.store", "mysql");
                          set_if("mysql.endpoints", fmt::format("{}", fmt::join(mysql.endpoints, ",")));
                          set("mysql.database", mysql.database);
                          set("mysql.user", mysql.user);
                          set_if("mysql.password_file", mysql.password_file);
                        }},
             options.store);
  set("snowflake.enabled", options.snowflake ? "true" : "false");
  if (options.snowflake) {
    const auto set_node = [&](const char* registry, const std::string& cluster, const std::string& address) {
      set("snowflake.registry", registry);
      set_if("snowflake.cluster", cluster);
      set_if("snowflake.address", address);
    };
    std::visit(Overloaded{[&](const PrivateNumber&) { set_node("static", "", ""); },
                          [&](const FixedNumber& number) {
                            set_node("static", number.cluster, "");
                            set("snowflake.worker_id", fmt::format("{}", number.worker));
                          },
                          [&](const ZookeeperNumber& number) {
                            set_node("zookeeper", number.cluster, number.address);
                            if (number.lease) set("snowflake.recycle", "true");
                          },
                          [&](const SqlNumber& number) { set_node("sql", number.cluster, number.address); }},
               *options.snowflake);
  }
  set_if("zookeeper.connect", options.zookeeper);
  for (const auto& [key, text] : options.settings) {
    LEAF_RETURN_IF_ERROR(CheckSetting(key));
    input.flags.push_back({key, text, "GeneratorOptions::settings"});
  }
  auto resolved = config::Load(input);
  // There is nothing but what the caller gave.
  if (!resolved.ok())
    return Error{ErrorCode::kInvalidArgument, resolved.error().message, resolved.error().hint};
  config::Config& config = resolved->config;
  if (options.zookeeper.empty() && (resolved->IsSet("zookeeper.") || config.segment.fence == "cluster")) {
    return Error{
        ErrorCode::kInvalidArgument,
        "bad options: settings ask for ZooKeeper (zookeeper.*, or segment.fence), but zookeeper is empty",
        "name the servers in GeneratorOptions::zookeeper"};
  }
  for (std::string* const path :
       {&config.sqlite.path, &config.mysql.password_file, &config.mysql.tls_ca, &config.zookeeper.auth_file,
        &config.codes.key_file, &config.client.ca, &config.client.cert, &config.client.key})
    LEAF_RETURN_IF_ERROR(MakeAbsolute(*path));
  return resolved;
}

void FunctionLogger::Write(LogLevel level, std::string_view message) {
  if (!function_) return;
  switch (level) {
    case LogLevel::kDebug:
      return function_(Severity::kDebug, message);
    case LogLevel::kInfo:
      return function_(Severity::kInfo, message);
    case LogLevel::kWarning:
      return function_(Severity::kWarning, message);
    case LogLevel::kError:
      return function_(Severity::kError, message);
  }
}

}  // namespace leaf::embed
