#include "leaf/sql/database.h"

#include <fmt/format.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/sqlite_log.h"

namespace leaf::sql {
namespace {

// A process that has a database in WAL mode open has its -wal beside it. Where there is none, no process
// writes, and a reader need not make one.
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

Error WithWhat(std::string_view what, Error error) {
  error.message = fmt::format("cannot {}: {}", what, error.message);
  return error;
}

// How often a transaction is tried that the server has undone in favour of another one.
constexpr int kTransactAttempts = 4;
constexpr std::chrono::milliseconds kTransactPause{1};  // doubled for each attempt

Error AnotherServer(std::string_view what) {
  return {ErrorCode::kUnavailable,
          fmt::format("cannot {}: another database server came into use meanwhile", what), "retry later"};
}

}  // namespace

Database::Database(std::shared_ptr<MysqlConnector> connector, Use use)
    : dialect_(kMysql), mysql_(std::move(connector)), use_(use), pool_(mysql_, &mysql_->pool()) {
  if (use == Use::kUrgent) pool_->ReserveUrgentPlace();
}
Database::Database(MysqlOptions options, const Clock& clock)
    : Database(std::make_shared<MysqlConnector>(std::move(options), clock, nullptr)) {}
Database::Database(SqliteOptions options)
    : dialect_(kSqlite),
      sqlite_(std::move(options)),
      use_(Use::kOrdinary),
      pool_(std::make_shared<ConnectionPool>(
          ConnectionPool::Options{.connections_max = std::numeric_limits<std::size_t>::max(),
                                  .idle_kept = kIdleSqliteConnectionsKept},
          nullptr, nullptr)) {}
Database::~Database() = default;

Result<void> Database::Run(std::string_view what, const Body& body) {
  LEAF_ASSIGN_OR_RETURN(Place place, Lease(what, use_));
  try {
    Result<void> result = body(*place.connection().session);
    GiveBack(std::move(place));
    return result;
  } catch (const std::exception& exception) {
    // The connection is not used again: the state that it is in is not known.
    return Failed(what, exception, Phase::kStatement);
  }
}

Result<void> Database::RunAutocommit(std::string_view what,
                                     const std::function<Result<void>(Autocommit&)>& body, Use use) {
  if (auto done = TryAutocommit(what, body, use, Check::kByUser)) return *std::move(done);
  return *TryAutocommit(what, body, use, Check::kNow);
}

std::optional<Result<void>> Database::TryAutocommit(std::string_view what,
                                                    const std::function<Result<void>(Autocommit&)>& body,
                                                    Use use, Check check) {
  auto leased = Lease(what, use, check);
  if (!leased.ok()) return std::move(leased).error();
  Place place = std::move(*leased);
  Autocommit autocommit(*this, place.connection().term, what, *place.connection().session);
  try {
    Result<void> result = body(autocommit);
    GiveBack(std::move(place));
    if (check == Check::kByUser && autocommit.doubtful_) return std::nullopt;
    return result;
  } catch (const std::exception& exception) {
    Error error = Failed(what, exception, autocommit.phase_);
    const bool nothing_written = autocommit.phase_ == Phase::kStatement;
    if (check == Check::kByUser && nothing_written && BlamesServer(exception)) return std::nullopt;
    return error;
  }
}

Result<void> Database::Autocommit::BeginWrite() {
  if (!database_.InUse(term_)) return AnotherServer(what_);
  phase_ = Phase::kAutocommit;
  return {};
}

void Database::Trust(std::uint64_t term) {
  const MutexLock lock(mutex_);
  trusted_term_ = term;
  trusted_at_ = pool_->Now();
}

bool Database::Trusts(std::uint64_t term) const {
  const MutexLock lock(mutex_);
  return trusted_at_ && trusted_term_ == term && pool_->Now() - *trusted_at_ <= kTrustTime;
}

Error Database::WithDisk(Error error, const std::exception& exception) const {
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
  Error error = WithDisk(TranslateException(what, exception, phase), exception);
  if (mysql_ && (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown)) {
    {
      const MutexLock lock(mutex_);
      lost_ = true;
    }
    if (BlamesServer(exception)) pool_->DropIdle();
  }
  return error;
}

DatabaseState Database::State() const {
  DatabaseState state;
  {
    const MutexLock lock(mutex_);
    state = state_;
  }
  if (mysql_) {
    MysqlConnector::State server = mysql_->state();
    state.identity = std::move(server.identity);
    state.endpoint = std::move(server.endpoint);
    state.identity_changes = server.identity_changes;
    state.open = pool_->open();
  }
  return state;
}

Result<void> Database::Transact(std::string_view what, Finish finish, const Body& body) {
  for (int attempt = 1;; ++attempt) {
    bool conflict = false;
    Result<void> done = TryTransact(what, finish, body, conflict);
    if (!conflict || attempt == kTransactAttempts) return done;
    pool_->Pause(kTransactPause * (1 << attempt));
  }
}

Result<void> Database::TryTransact(std::string_view what, Finish finish, const Body& body, bool& conflict) {
  LEAF_ASSIGN_OR_RETURN(Place place, Lease(what, use_));
  Phase phase = Phase::kStatement;
  try {
    soci::session& soci = *place.connection().session;
    soci << std::string(dialect_.begin);
    Result<void> result = body(soci);
    if (!result.ok() || finish == Finish::kRollback) {
      soci << std::string(dialect_.rollback);
      GiveBack(std::move(place));
      return result;
    }
    if (!InUse(place.connection().term)) return AnotherServer(what);
    phase = Phase::kCommit;
    soci << std::string(dialect_.commit);
    // A server that was demoted meanwhile takes the COMMIT of a user with all privileges, and its successor
    // has taken over without it.
    if (!IsUsable(place.connection())) {
      return Error{
          ErrorCode::kOutcomeUnknown,
          fmt::format("cannot {}: the database server no longer accepted writes when it was done", what),
          "retry later"};
    }
    GiveBack(std::move(place));
    return {};
  } catch (const std::exception& exception) {
    // Dropping the connection rolls back whatever is open.
    conflict = IsConflict(exception);
    return Failed(what, exception, phase);
  }
}

bool Database::IsUsable(const PooledConnection& connection) const {
  if (sqlite_) return true;
  if (!InUse(connection.term)) return false;
  try {
    // A server that was made read-only still takes the writes of a user with all privileges.
    int read_only = 1;
    *connection.session << fmt::format("SELECT {}", dialect_.read_only), soci::into(read_only);
    return read_only == 0;
  } catch (const std::exception&) {
    return false;  // a connection that cannot even be asked
  }
}

Result<Database::Place> Database::Lease(std::string_view what, Use use, Check check) {
  const MonotonicTime deadline = pool_->Deadline();
  while (true) {
    auto place = pool_->Take(use, deadline);
    // Busy, or what another call was told, which has noted it.
    if (!place.ok()) return WithWhat(what, std::move(place).error());
    LEAF_ASSIGN_OR_RETURN(std::optional<Place> prepared, Prepare(what, std::move(*place), check));
    if (prepared) return std::move(*prepared);
  }
}

Result<std::optional<Database::Place>> Database::Prepare(std::string_view what, Place place, Check check) {
  if (place.connection().session) {
    if (check == Check::kByUser && InUse(place.connection().term)) return std::optional(std::move(place));
    // The server may have closed it, or be another one by now; better found out before a transaction begins.
    if (IsUsable(place.connection())) return std::optional(std::move(place));
    {
      const MutexLock lock(mutex_);
      lost_ = true;
    }
    // One is dead: so, most likely, are the others that were idle with it, and each would cost a time-out to
    // ask.
    pool_->Discard(place);
  }
  bool full = false;
  auto connection = Connect(full);
  if (connection.ok()) {
    pool_->Made(place, std::move(*connection));
    const MutexLock lock(mutex_);
    ++state_.connections;
    if (lost_) ++state_.reconnects;
    lost_ = false;
    if (sqlite_) state_.identity = sqlite_->path;
    return std::optional(std::move(place));
  }
  const Error error = std::move(connection).error();
  if (full) {
    if (pool_->Refused(std::move(place), error)) return std::optional<Place>();
  } else {
    pool_->Failed(std::move(place), error);
  }
  return Unreached(what, error);
}

Error Database::Unreached(std::string_view what, Error error) {
  error = WithWhat(what, std::move(error));
  const MutexLock lock(mutex_);
  ++state_.failures;
  state_.up = false;
  state_.problem = error;
  lost_ = true;
  return error;
}

void Database::GiveBack(Place place) {
  {
    const MutexLock lock(mutex_);
    state_.up = true;
    state_.problem.reset();
  }
  if (InUse(place.connection().term)) pool_->GiveBack(std::move(place));
}

Result<PooledConnection> Database::Connect(bool& full) {
  if (mysql_) return mysql_->Connect(full);
  try {
    return PooledConnection{ConnectSqlite(), 0};
  } catch (const std::exception& exception) {
    Error error = WithDisk(TranslateReason(exception, Phase::kStatement), exception);
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
  // SQLite counts in an int, and takes more for none at all.
  constexpr std::int64_t kBusyMax = std::numeric_limits<int>::max();
  *session << fmt::format("PRAGMA busy_timeout = {}",
                          std::min<std::int64_t>(sqlite_->busy_timeout.count(), kBusyMax));
  if (read_only) return session;
  KeepLogOnClose(*session, true);
  // A writer does not block readers, and a commit is one append and one fsync.
  TurnToWal(*session);
  *session << "PRAGMA synchronous = FULL";
  const bool has_log = HasLog(*session);
  // Asked after HasLog has opened the log: a connection that is up now was up then, or has written the log
  // again since.
  const bool is_first = pool_->up() == 0;
  if (sqlite_->or_read_only) {
    // A look acknowledges nothing, so it need not write the log. It does not move it either.
    *session << "PRAGMA wal_autocheckpoint = 0";
    if (!has_log) KeepLogOnClose(*session, false);
  } else {
    if (has_log && is_first) WriteLogAgain(*session);
    KeepLogOnClose(*session, false);
  }
  if (sqlite_->create_tables) {
    for (const std::string_view statement : dialect_.schema) *session << std::string(statement);
  }
  return session;
}

}  // namespace leaf::sql
