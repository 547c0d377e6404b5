#include "leaf/sql/database.h"

#include <fmt/format.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/sql/error_map.h"

namespace leaf::sql {
namespace {

// Whoever has a database in WAL mode open has its -wal beside it: without one nobody writes, and a reader
// need not make one.
std::string ReadOnlyUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) uri += c == '%' ? "%25" : c == '?' ? "%3f" : c == '#' ? "%23" : std::string(1, c);
  return uri + (access((path + "-wal").c_str(), F_OK) == 0 ? "?mode=ro" : "?mode=ro&immutable=1");
}

// What is wrong with the file system that `path` is on, or is to be on; "" for nothing.
std::string_view DiskProblem(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0 &&
      statvfs(std::filesystem::path(path).parent_path().c_str(), &disk) != 0)
    return "";
  if ((disk.f_flag & ST_RDONLY) != 0) return "read-only";
  return disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0) ? "full" : "";
}

Error AnotherServer(std::string_view what) {
  return {ErrorCode::kUnavailable,
          fmt::format("cannot {}: another database server came into use meanwhile", what), "retry later"};
}

}  // namespace

Database::Database(std::shared_ptr<MysqlConnector> connector)
    : dialect_(kMysql), mysql_(std::move(connector)) {}
Database::Database(MysqlOptions options)
    : Database(std::make_shared<MysqlConnector>(std::move(options), nullptr)) {}
Database::Database(SqliteOptions options) : dialect_(kSqlite), sqlite_(std::move(options)) {}
Database::~Database() = default;

Result<void> Database::Run(std::string_view what, const Body& body) {
  LEAF_ASSIGN_OR_RETURN(Session session, Lease(what));
  try {
    Result<void> result = body(*session.soci);
    GiveBack(std::move(session));
    return result;
  } catch (const std::exception& exception) {
    // The connection is not used again: nobody knows what state it is in.
    return Failed(what, exception, Phase::kStatement);
  }
}

Result<void> Database::RunAutocommit(std::string_view what,
                                     const std::function<Result<void>(Autocommit&)>& body) {
  LEAF_ASSIGN_OR_RETURN(Session session, Lease(what));
  Autocommit autocommit(*this, session.term, what, *session.soci);
  try {
    Result<void> result = body(autocommit);
    GiveBack(std::move(session));
    return result;
  } catch (const std::exception& exception) {
    return Failed(what, exception, autocommit.phase_);
  }
}

Result<void> Database::Autocommit::BeginWrite() {
  if (!database_.InUse(term_)) return AnotherServer(what_);
  phase_ = Phase::kAutocommit;
  return {};
}

Error Database::Translate(std::string_view what, const std::exception& exception, Phase phase) const {
  Error error = TranslateException(what, exception, phase);
  if (!sqlite_ || !IsAboutFiles(exception)) return error;
  // SQLite says "unable to open" or "disk I/O error" of a disk that is full or read-only.
  const std::string_view problem = DiskProblem(sqlite_->path);
  if (problem.empty()) return error;
  if (error.code != ErrorCode::kOutcomeUnknown) error.code = ErrorCode::kUnavailable;
  error.message += fmt::format(", the file system is {}", problem);
  error.hint = problem == "full" ? "make room" : "mount it for writing";
  return error;
}

Error Database::Failed(std::string_view what, const std::exception& exception, Phase phase) {
  Error error = Translate(what, exception, phase);
  std::vector<Session> dropped;  // closed outside the lock
  if (mysql_ && (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown)) {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    if (BlamesServer(exception)) dropped.swap(idle_);
  }
  return error;
}

DatabaseState Database::State() const {
  DatabaseState state;
  {
    const std::lock_guard lock(mutex_);
    state = state_;
  }
  if (mysql_) {
    MysqlConnector::State server = mysql_->state();
    state.identity = std::move(server.identity);
    state.endpoint = std::move(server.endpoint);
    state.identity_changes = server.identity_changes;
  }
  return state;
}

Result<void> Database::Transact(std::string_view what, Finish finish, const Body& body) {
  LEAF_ASSIGN_OR_RETURN(Session session, Lease(what));
  Phase phase = Phase::kStatement;
  try {
    soci::session& soci = *session.soci;
    soci << std::string(dialect_.begin);
    Result<void> result = body(soci);
    if (!result.ok() || finish == Finish::kRollback) {
      soci << "ROLLBACK";
      GiveBack(std::move(session));
      return result;
    }
    if (!InUse(session)) return AnotherServer(what);
    phase = Phase::kCommit;
    soci << "COMMIT";
    GiveBack(std::move(session));
    return {};
  } catch (const std::exception& exception) {
    // Dropping the connection rolls back whatever is open.
    return Failed(what, exception, phase);
  }
}

bool Database::IsUsable(const Session& session) const {
  if (sqlite_) return true;
  if (!InUse(session)) return false;
  try {
    // A server that was made read-only need not refuse this user's writes: who may do everything may do that.
    int read_only = 1;
    *session.soci << "SELECT @@global.read_only", soci::into(read_only);
    return read_only == 0;
  } catch (const std::exception&) {
    return false;  // a connection that cannot even be asked
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
    // The server may have closed it, or be another one by now; better found out before a transaction begins.
    if (IsUsable(session)) return session;
    dead.push_back(std::move(session));
    // One is dead: so, most likely, are the others that were idle with it, and each would cost a time-out to
    // ask.
    const std::lock_guard lock(mutex_);
    lost_ = true;
    for (Session& other : idle_) dead.push_back(std::move(other));
    idle_.clear();
  }
  return Connect(what);
}

void Database::GiveBack(Session session) {
  const bool in_use = InUse(session);  // or it is closed, outside the lock
  const std::lock_guard lock(mutex_);
  state_.up = true;
  state_.problem.reset();
  if (in_use && idle_.size() < kIdleConnectionsMax) idle_.push_back(std::move(session));
}

Result<Database::Session> Database::Connect(std::string_view what) {
  auto session = TryConnect(what);
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
  if (sqlite_) state_.identity = sqlite_->path;
  return session;
}

Result<Database::Session> Database::TryConnect(std::string_view what) {
  if (mysql_) {
    LEAF_ASSIGN_OR_RETURN(MysqlConnector::Connection connection, mysql_->Connect(what));
    return Session{std::move(connection.session), connection.term};
  }
  try {
    return Session{ConnectSqlite(), 0};
  } catch (const std::exception& exception) {
    Error error = Translate(what, exception, Phase::kStatement);
    error.message += fmt::format(" ({})", sqlite_->path);
    return error;
  }
}

namespace {

// A new file is turned by the first connection to it. Of two at once SQLite sends one away without waiting,
// as it does wherever waiting could last for ever (sqlite3_busy_handler); a transaction does wait, and then
// the file is turned.
void TurnToWal(soci::session& session) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    try {
      session << "PRAGMA journal_mode = WAL";
      return;
    } catch (const soci::sqlite3_soci_error& error) {
      if ((error.result() & 0xFF) != SQLITE_BUSY || attempt == kAttempts) throw;
    }
    session << "BEGIN IMMEDIATE";
    session << "ROLLBACK";
  }
}

}  // namespace

std::unique_ptr<soci::session> Database::ConnectSqlite() {
  if (sqlite_->path.find('"') != std::string::npos)
    throw std::invalid_argument("a path with a quotation mark");
  if (!sqlite_->or_read_only) return OpenSqlite(sqlite_->read_only);
  try {
    return OpenSqlite(false);
  } catch (const std::exception& exception) {
    // On a full disk even a look fails: what is there may be half a database.
    if (!IsAboutFiles(exception) || DiskProblem(sqlite_->path) == "full") throw;
  }
  return OpenSqlite(true);
}

std::unique_ptr<soci::session> Database::OpenSqlite(bool read_only) {
  auto session = std::make_unique<soci::session>(
      *soci::factory_sqlite3(),
      fmt::format("db=\"{}\"", read_only ? ReadOnlyUri(sqlite_->path) : sqlite_->path));
  *session << fmt::format("PRAGMA busy_timeout = {}", sqlite_->busy_timeout.count());
  if (read_only) return session;
  // A writer does not block readers, and a commit is one append and one fsync.
  TurnToWal(*session);
  *session << "PRAGMA synchronous = FULL";
  if (sqlite_->create_tables) {
    for (const std::string_view statement : dialect_.schema) *session << std::string(statement);
  }
  return session;
}

}  // namespace leaf::sql
