#include "leaf/sql/database.h"

#include <fmt/format.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <exception>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/sql/error_map.h"

namespace leaf::sql {
namespace {

// A value of SOCI's MySQL connection string: single-quoted, with backslash escapes.
std::string MysqlValue(std::string_view value) {
  std::string quoted = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

long long WholeSeconds(std::chrono::milliseconds duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

}  // namespace

Database::Database(MysqlOptions options) : dialect_(kMysql), mysql_(std::move(options)) {}
Database::Database(SqliteOptions options) : dialect_(kSqlite), sqlite_(std::move(options)) {}
Database::~Database() = default;

Result<void> Database::Run(std::string_view what, const Body& body) {
  LEAF_ASSIGN_OR_RETURN(Session session, Lease(what));
  try {
    Result<void> result = body(*session);
    GiveBack(std::move(session));
    return result;
  } catch (const std::exception& exception) {
    // The connection is not used again: nobody knows what state it is in.
    return Lost(TranslateException(what, exception, Phase::kStatement));
  }
}

Error Database::Lost(Error error) {
  if (mysql_ && (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown)) {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }
  return error;
}

DatabaseState Database::State() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Result<void> Database::Transact(std::string_view what, Finish finish, const Body& body) {
  LEAF_ASSIGN_OR_RETURN(Session session, Lease(what));
  Phase phase = Phase::kStatement;
  try {
    *session << std::string(dialect_.begin);
    Result<void> result = body(*session);
    if (!result.ok() || finish == Finish::kRollback) {
      *session << "ROLLBACK";
      GiveBack(std::move(session));
      return result;
    }
    phase = Phase::kCommit;
    *session << "COMMIT";
    GiveBack(std::move(session));
    return {};
  } catch (const std::exception& exception) {
    // Dropping the connection rolls back whatever is open.
    return Lost(TranslateException(what, exception, phase));
  }
}

Result<Database::Session> Database::Lease(std::string_view what) {
  std::vector<Session> dead;  // closed outside the lock
  while (true) {
    Session session;
    {
      const std::lock_guard lock(mutex_);
      if (idle_.empty()) break;
      session = std::move(idle_.back());
      idle_.pop_back();
    }
    try {
      // The server may have closed it, or be another one by now; better found out before a transaction
      // begins.
      if (sqlite_ || session->is_connected()) return session;
    } catch (const std::exception&) {
      // A connection that cannot even be asked is dropped.
    }
    // One is dead: so, most likely, are the others that were idle with it, and each would cost a time-out to
    // ask.
    const std::lock_guard lock(mutex_);
    lost_ = true;
    dead.swap(idle_);
  }
  return Connect(what);
}

void Database::GiveBack(Session session) {
  const std::lock_guard lock(mutex_);
  state_.up = true;
  state_.problem.reset();
  if (idle_.size() < kIdleConnectionsMax) idle_.push_back(std::move(session));
}

Result<Database::Session> Database::Connect(std::string_view what) {
  std::string identity;
  auto session = TryConnect(what, identity);
  const std::lock_guard lock(mutex_);
  if (!session.ok()) {
    ++state_.failures;
    state_.up = false;
    state_.problem = session.error();
    lost_ = true;
    return session;
  }
  ++state_.connections;
  if (lost_) ++state_.reconnects;
  lost_ = false;
  if (!state_.identity.empty() && state_.identity != identity) ++state_.identity_changes;
  state_.identity = std::move(identity);
  return session;
}

Result<Database::Session> Database::TryConnect(std::string_view what, std::string& identity) {
  try {
    if (mysql_) return ConnectMysql(what, identity);
    identity = sqlite_->path;
    return ConnectSqlite();
  } catch (const std::exception& exception) {
    Error error = TranslateException(what, exception, Phase::kStatement);
    if (sqlite_) error.message += fmt::format(" ({})", sqlite_->path);
    return error;
  }
}

Database::Session Database::ConnectSqlite() {
  if (sqlite_->path.find('"') != std::string::npos)
    throw std::invalid_argument("a path with a quotation mark");
  auto session =
      std::make_unique<soci::session>(*soci::factory_sqlite3(), fmt::format("db=\"{}\"", sqlite_->path));
  *session << fmt::format("PRAGMA busy_timeout = {}", sqlite_->busy_timeout.count());
  // A writer does not block readers, and a commit is one append and one fsync.
  *session << "PRAGMA journal_mode = WAL";
  *session << "PRAGMA synchronous = FULL";
  if (sqlite_->create_tables) {
    for (const std::string_view statement : dialect_.schema) *session << std::string(statement);
  }
  return session;
}

Result<Database::Session> Database::ConnectMysql(std::string_view what, std::string& identity) {
  Error last{ErrorCode::kConfig, fmt::format("cannot {}: no mysql.endpoints", what), ""};
  for (const std::string& endpoint : mysql_->endpoints) {
    try {
      Session session = ConnectEndpoint(endpoint);
      int read_only = 0;
      *session
          << "SELECT @@global.read_only, CONCAT(@@hostname, ':', @@port, ' server_id ', @@server_id, ' ', "
             "@@version)",
          soci::into(read_only), soci::into(identity);
      if (read_only == 0) return session;
      last = {ErrorCode::kUnavailable, fmt::format("cannot {}: {} is read-only", what, endpoint), ""};
    } catch (const std::exception& exception) {
      last = TranslateException(what, exception, Phase::kStatement);
      last.message += fmt::format(" ({})", endpoint);
    }
  }
  return last;
}

Database::Session Database::ConnectEndpoint(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  // The client library takes "localhost" for its Unix socket, whatever the port says.
  if (host == "localhost") host = "127.0.0.1";
  std::string parameters = fmt::format(
      "host={} port={} dbname={} user={} charset=utf8mb4 connect_timeout={} read_timeout={} write_timeout={}",
      MysqlValue(host), endpoint.substr(colon + 1), MysqlValue(mysql_->database), MysqlValue(mysql_->user),
      WholeSeconds(mysql_->connect_timeout), WholeSeconds(mysql_->query_timeout),
      WholeSeconds(mysql_->query_timeout));
  if (!mysql_->password.empty()) parameters += " password=" + MysqlValue(mysql_->password);
  auto session = std::make_unique<soci::session>(*soci::factory_mysql(), parameters);
  // A server may be set up with autocommit off: a plain SELECT would then pin an old snapshot.
  *session << "SET autocommit = 1";
  // A row somebody else holds must not outlast the statement's own time-out.
  *session << fmt::format("SET SESSION innodb_lock_wait_timeout = {}", WholeSeconds(mysql_->query_timeout));
  return session;
}

}  // namespace leaf::sql
