#include "leaf/embed/stores.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "leaf/base/endpoint.h"
#include "leaf/base/mutex.h"
#include "leaf/codes/code_book.h"
#include "leaf/sql/code_records.h"
#include "leaf/sys/file.h"
#include "leaf/sys/grant_lock.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/secret_file.h"
#include "leaf/sys/state_dir.h"

namespace leaf::embed {
namespace {

// For a statement that makes a table.
constexpr std::chrono::milliseconds kTableTimeout{60'000};

// sql::SqliteMarkStore's way to sys::GrantLock, which does not know core's ports.
class HeldGrantLock final : public core::MarkStore::Hold {
 public:
  explicit HeldGrantLock(sys::GrantLock lock) : lock_(std::move(lock)) {}

 private:
  sys::GrantLock lock_;
};

bool IsMissing(const std::string& path) { return access(path.c_str(), F_OK) != 0 && errno == ENOENT; }

sql::MysqlTls TlsOf(const config::Config& config) {
  if (config.mysql.tls == "disabled") return sql::MysqlTls::kDisabled;
  if (config.mysql.tls == "required") return sql::MysqlTls::kRequired;
  if (config.mysql.tls == "verify") return sql::MysqlTls::kVerify;
  return sql::MysqlTls::kPreferred;
}

Result<sql::MysqlOptions> MysqlOptionsOf(const Environment& environment, const config::Config& config,
                                         Store::Access access) {
  const std::chrono::milliseconds query_timeout = access == Store::Access::kMakeTables
                                                      ? std::max(config.mysql.query_timeout, kTableTimeout)
                                                      : config.mysql.query_timeout;
  sql::MysqlOptions options{.endpoints = config.mysql.endpoints,
                            .database = config.mysql.database,
                            .user = config.mysql.user,
                            .connect_timeout = environment.Timeout().value_or(config.mysql.connect_timeout),
                            .query_timeout = environment.Timeout().value_or(query_timeout),
                            .tls = TlsOf(config),
                            .tls_ca = config.mysql.tls_ca,
                            .connections_max = static_cast<std::size_t>(config.mysql.max_connections)};
  if (!config.mysql.password_file.empty()) {
    options.password = [path = config.mysql.password_file] { return sys::ReadSecretFile(path); };
    // One that cannot be used is better told now than at the first connection.
    LEAF_RETURN_IF_ERROR(options.password());
  }
  return options;
}

std::string MarksPath(const config::Config& config) { return config.state_dir + "/marks.db"; }

// A database that root makes in another user's directory is that user's. SQLite gives its further files to
// the owner of the database by itself, and tells what stands in the way.
void MakeSqliteFile(const std::string& path) {
  if (geteuid() != 0 || !IsMissing(path)) return;
  const std::filesystem::path whole = std::filesystem::absolute(path);
  sys::OpenOrMake(whole.parent_path().string(), whole.filename().string(), O_RDWR, 0644);
}

// For Access::kLook; null if there are none.
Result<std::unique_ptr<sql::SqliteMarkStore>> LookAtMarks(Environment& environment) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const std::string path = MarksPath(resolved->config);
  if (IsMissing(path)) return std::unique_ptr<sql::SqliteMarkStore>();
  LEAF_RETURN_IF_ERROR(sys::CheckStateDir(resolved->config.state_dir));
  return std::make_unique<sql::SqliteMarkStore>(sql::SqliteOptions{.path = path, .or_read_only = true},
                                                environment.ClockInUse());
}

}  // namespace

Result<std::unique_ptr<sql::Database>> OpenDatabase(Environment& environment, Store::Access access,
                                                    Logger* log, sql::Use use) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config& config = resolved->config;
  if (config.segment.store == "mysql") {
    const MutexLock lock(environment.mysql_in_use.mutex);
    std::shared_ptr<sql::MysqlConnector> connector = environment.mysql_in_use.connector.lock();
    if (!connector) {
      LEAF_ASSIGN_OR_RETURN(sql::MysqlOptions options, MysqlOptionsOf(environment, config, access));
      connector = std::make_shared<sql::MysqlConnector>(std::move(options), environment.ClockInUse(), log);
      environment.mysql_in_use.connector = connector;
    }
    return std::make_unique<sql::Database>(std::move(connector), use);
  }
  std::string path = config.sqlite.path;
  const bool is_default = path == config.state_dir + "/leaf.db";
  bool read_only = access == Store::Access::kExamine;
  const bool looks = access == Store::Access::kLook || access == Store::Access::kExamine;
  if (looks && IsMissing(path) && (is_default || !IsMissing(std::filesystem::absolute(path).parent_path()))) {
    path = ":memory:";
    read_only = false;
  } else if (is_default && access != Store::Access::kExamine) {
    LEAF_RETURN_IF_ERROR(looks ? sys::CheckStateDir(config.state_dir)
                               : sys::EnsureStateDir(config.state_dir));
  }
  if (!looks) MakeSqliteFile(path);
  sql::SqliteOptions options{.path = path,
                             .create_tables = !read_only,
                             .read_only = read_only,
                             .or_read_only = access == Store::Access::kLook};
  if (environment.Timeout()) options.busy_timeout = *environment.Timeout();
  return std::make_unique<sql::Database>(std::move(options));
}

Result<std::unique_ptr<Store>> Store::Open(Environment& environment, Access access, Logger* log) {
  LEAF_ASSIGN_OR_RETURN(auto database, OpenDatabase(environment, access, log));
  return std::unique_ptr<Store>(new Store(std::move(database)));
}

service::Dependency DependencyOf(const sql::Database& database, std::string name) {
  sql::DatabaseState state = database.State();
  return {.name = std::move(name),
          .kind = std::string(database.dialect().name),
          .up = state.up,
          .identity = state.endpoint.empty() ? std::move(state.identity)
                                             : fmt::format("{}: {}", state.endpoint, state.identity),
          .open = state.open,
          .connections = state.connections,
          .reconnects = state.reconnects,
          .failures = state.failures,
          .identity_changes = state.identity_changes,
          .problem = std::move(state.problem),
          .lease_left = std::nullopt};
}

Result<std::unique_ptr<sql::SqliteMarkStore>> OpenMarks(Environment& environment, std::string_view command) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config& config = resolved->config;
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  MakeSqliteFile(MarksPath(config));
  auto locker = [state_dir = config.state_dir, &clock = environment.ClockInUse(),
                 timeout = ReplyTimeout(environment, config)](
                    std::string_view tag) -> Result<std::unique_ptr<core::MarkStore::Hold>> {
    LEAF_ASSIGN_OR_RETURN(sys::GrantLock lock, sys::GrantLock::Take(state_dir, tag, clock, timeout));
    return std::unique_ptr<core::MarkStore::Hold>(std::make_unique<HeldGrantLock>(std::move(lock)));
  };
  return std::make_unique<sql::SqliteMarkStore>(MarksPath(config), std::move(locker),
                                                environment.ClockInUse(), sys::ProcessName(command));
}

Result<std::unique_ptr<sql::SqliteMarkStore>> OpenMarksOf(Environment& environment,
                                                          const std::string& state_dir,
                                                          std::string_view command) {
  const std::string path = state_dir + "/marks.db";
  if (IsMissing(path)) {
    return Error{ErrorCode::kConfig,
                 fmt::format("state directory {} has no marks: there is no {}", state_dir, path),
                 "name the state directory of a node that has issued segments"};
  }
  LEAF_RETURN_IF_ERROR(sys::CheckStateDir(state_dir));
  return std::make_unique<sql::SqliteMarkStore>(
      path,
      [](std::string_view) -> Result<std::unique_ptr<core::MarkStore::Hold>> {
        return Error{ErrorCode::kInternal, "nothing is granted from here", ""};
      },
      environment.ClockInUse(), sys::ProcessName(command));
}

Result<core::Mark> LocalMark(Environment& environment, std::string_view tag) {
  LEAF_ASSIGN_OR_RETURN(const auto marks, LookAtMarks(environment));
  return marks ? marks->Load(tag) : core::Mark{};
}

Result<std::vector<core::Mark>> LocalMarks(Environment& environment) {
  LEAF_ASSIGN_OR_RETURN(const auto marks, LookAtMarks(environment));
  return marks ? marks->LoadAll() : std::vector<core::Mark>{};
}

Result<std::vector<core::Mark>> ExamineMarks(Environment& environment) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const std::string path = MarksPath(resolved->config);
  if (IsMissing(path)) return std::vector<core::Mark>{};
  sql::SqliteMarkStore marks({.path = path, .read_only = true}, environment.ClockInUse());
  return marks.LoadAll();
}

std::vector<std::string> SqliteFilesOf(const config::Config& config) {
  std::vector<std::string> files{MarksPath(config)};
  if (config.segment.store == "sqlite") files.push_back(config.sqlite.path);
  return files;
}

Result<core::CodeEnds> ReadCodeEnds(sql::Database& database, const config::Config::Codes& config) {
  core::CodeEnds ends;
  if (!config.key_file.empty()) {
    for (const auto& [tag, own] : config.tags) {
      ends[tag] = core::CodesEnd({.tag = tag,
                                  .alphabet = own.alphabet.value_or(config.alphabet),
                                  .check = own.check.value_or(config.check),
                                  .lengths = {static_cast<int>(own.length.value_or(config.length))},
                                  .key = ""});
    }
  }
  // What a tag has stands above what it is to have.
  LEAF_ASSIGN_OR_RETURN(const auto records, sql::SqlCodeRecords(database).LoadAll());
  for (const core::CodeRecord& record : records) ends[record.tag] = core::CodesEnd(record);
  // That is no tag of the table.
  ends.erase(std::string(codes::kSnowflakeTag));
  return ends;
}

std::chrono::milliseconds ReplyTimeout(const Environment& environment, const config::Config& config) {
  // What the adapters' own time-outs add up to: START, SELECT, UPDATE and COMMIT after connecting, to the
  // last of the endpoints if need be; or the wait for SQLite's write lock, and as much again for the rest.
  constexpr int kStatements = 4;
  if (config.segment.store == "mysql") {
    return static_cast<int>(config.mysql.endpoints.size()) *
               environment.Timeout().value_or(config.mysql.connect_timeout) +
           kStatements * environment.Timeout().value_or(config.mysql.query_timeout);
  }
  return 2 * environment.Timeout().value_or(sql::SqliteOptions{}.busy_timeout);
}

service::SegmentOptions SegmentOptionsOf(const Environment& environment, const config::Config& config,
                                         service::PausedTags& paused) {
  return {.refresh_interval = config.segment.refresh_interval,
          .reply_timeout = ReplyTimeout(environment, config),
          .tags_max = static_cast<std::size_t>(config.segment.max_tags),
          .step_policy = config.segment.step_policy == "fixed" ? core::StepPolicy::Kind::kFixed
                                                               : core::StepPolicy::Kind::kLeaf,
          .step_max = config.segment.step_max,
          .reserve_time = config.segment.reserve_time,
          .paused = &paused};
}

}  // namespace leaf::embed
