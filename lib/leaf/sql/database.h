// Connections to one database, MySQL or SQLite, through SOCI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/sql/connection_pool.h"
#include "leaf/sql/dialect.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/mysql_session.h"

namespace soci {
class session;
}

namespace leaf::sql {

struct SqliteOptions {
  std::string path;
  // The embedded default needs no `db init`: each new connection makes what is missing.
  bool create_tables = false;
  // Nothing is written, not even the files beside the database that readers of SQLite make. A database that
  // no process has open is read as the file stands. Requires: the file exists.
  bool read_only = false;
  // For a look: read_only where nothing can be written, because the disk is read-only or the user has no
  // right to write.
  bool or_read_only = false;
  std::chrono::milliseconds busy_timeout{5000};
};

// How the database was found, as of the last call.
struct DatabaseState {
  bool up = false;       // it answered
  std::string identity;  // which server, as it says itself, or which file; "" before the first connection
  std::string endpoint;  // of the server in use; "" for a file
  // Open now, or being made: of all that share the server in use. Nothing for a file.
  std::optional<std::size_t> open;
  std::uint64_t connections = 0;       // made
  std::uint64_t reconnects = 0;        // of those, after one was lost or could not be made
  std::uint64_t failures = 0;          // connections that could not be made
  std::uint64_t identity_changes = 0;  // another server answered than before
  std::optional<Error> problem;        // why it is not up
};

// Thread-safe: each call has a connection of its own for as long as it runs; idle ones are kept and checked
// before they are used again: that they live, that their server still takes writes, and that it is the one in
// use (see MysqlConnector). Nothing is connected before the first call.
//
// A call may wait for a connection: how many there may be, see ConnectionPool. So no `body` calls the
// database.
class Database {
 public:
  // Others may share the connector: all of them work with the same server, over the same connections. `use`:
  // of all calls.
  explicit Database(std::shared_ptr<MysqlConnector> connector, Use use = Use::kOrdinary);
  // With a connector of its own. `clock` outlives this.
  Database(MysqlOptions options, const Clock& clock);
  explicit Database(SqliteOptions options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const Dialect& dialect() const { return dialect_; }
  // Null for SQLite.
  const MysqlConnector* connector() const { return mysql_.get(); }

  DatabaseState State() const;
  // Closes connections that have not been used for a while. Every call does so when it ends; this is for the
  // time when there is none.
  void CloseIdle() { pool_->CloseIdle(); }

  using Body = std::function<Result<void>(soci::session&)>;

  // Runs `body` with a connection. `what` completes "cannot …" in errors. Exceptions become errors here.
  Result<void> Run(std::string_view what, const Body& body);

  // A connection on which each statement commits by itself.
  class Autocommit {
   public:
    soci::session& session() { return session_; }
    // To be called before a statement that writes: from here on a failure has an unknown outcome. Errors:
    // kUnavailable, and nothing has happened, if another server came into use meanwhile.
    Result<void> BeginWrite();
    // Blocks for so long, with the connection.
    void Pause(std::chrono::milliseconds time) { database_.pool_->Pause(time); }
    // Nothing was written since BeginWrite, or the server has undone it.
    void Undone() { phase_ = Phase::kStatement; }
    // What was read may be due to a server that takes no writes any more. If the
    // connection was not asked after its rest, `body` is called once more, with one that was.
    void Doubt() { doubtful_ = true; }
    // The server in use takes writes: it has just said so.
    void Trust() { database_.Trust(term_); }
    // Whether it said so within kTrustTime. Then `body` need not ask before it writes: a server that was
    // demoted since tells so in its reply.
    bool IsTrusted() const { return database_.Trusts(term_); }

   private:
    friend class Database;
    Autocommit(Database& database, std::uint64_t term, std::string_view what, soci::session& session)
        : database_(database), term_(term), what_(what), session_(session) {}
    Database& database_;
    const std::uint64_t term_;
    const std::string_view what_;
    soci::session& session_;
    Phase phase_ = Phase::kStatement;
    bool doubtful_ = false;
  };
  static constexpr std::chrono::milliseconds kTrustTime{100};
  // Whether a call for `use` would get a connection without waiting for another one to end, as of now.
  bool HasPlaceFor(Use use) const { return pool_->HasPlaceFor(use); }

  // Runs `body` outside of a transaction, and saves the statement that only checks a connection: `body` reads
  // dialect().read_only before it writes (but see IsTrusted), and calls Doubt if it has to. It may be called
  // twice, the second time after it has written nothing. Errors: those of `body`, and kOutcomeUnknown as of
  // Transact. kPatient: it may wait for a row that another client holds.
  Result<void> RunAutocommit(std::string_view what, const std::function<Result<void>(Autocommit&)>& body,
                             Use use = Use::kOrdinary);

  enum class Finish { kCommit, kRollback };
  // Runs `body` in a transaction that `finish` ends if it succeeds; an error rolls back. Where the server has
  // undone it in favour of another one, a deadlock say, it is tried again, so `body` may be called several
  // times. Otherwise the caller would be told kUnavailable, as if the database was away: a node whose claim
  // of a worker number met the report of a copy that had taken its number over started without the registry.
  // Errors: those of `body`; kOutcomeUnknown if the reply to COMMIT was lost, or the server takes no writes
  // any more after it; kUnavailable, and nothing has happened, if another server came into use meanwhile.
  Result<void> Transact(std::string_view what, Finish finish, const Body& body);

 private:
  using Place = ConnectionPool::Place;

  // Whether a connection that has rested is asked before it is used, or by its user's first statement.
  enum class Check { kNow, kByUser };
  Result<Place> Lease(std::string_view what, Use use, Check check = Check::kNow);
  // With a connection that can be used; without one where another one has to be waited for.
  Result<std::optional<Place>> Prepare(std::string_view what, Place place, Check check);
  // `conflict`: it was undone in favour of another one.
  Result<void> TryTransact(std::string_view what, Finish finish, const Body& body, bool& conflict);
  // Nothing, of kByUser only: nothing was written, and the connection has to be asked.
  std::optional<Result<void>> TryAutocommit(std::string_view what,
                                            const std::function<Result<void>(Autocommit&)>& body, Use use,
                                            Check check);
  Result<PooledConnection> Connect(bool& full);
  // Notes that no connection could be made, and why: `error`, without "cannot …".
  Error Unreached(std::string_view what, Error error);
  std::unique_ptr<soci::session> ConnectSqlite();
  std::unique_ptr<soci::session> OpenSqlite(bool read_only);
  // With the state of the disk, if SQLite's files are to blame.
  Error WithDisk(Error error, const std::exception& exception) const;
  // Whether an idle connection can be used again. Asks the server.
  bool IsUsable(const PooledConnection& connection) const;
  bool InUse(std::uint64_t term) const { return !mysql_ || mysql_->InUse(term); }
  void Trust(std::uint64_t term);
  bool Trusts(std::uint64_t term) const;
  // A statement failed, on a connection that is dropped. If the server is to blame, the idle ones go as well.
  Error Failed(std::string_view what, const std::exception& exception, Phase phase);
  void GiveBack(Place place);

  const Dialect& dialect_;
  const std::shared_ptr<MysqlConnector> mysql_;  // null for SQLite
  const std::optional<SqliteOptions> sqlite_;
  const Use use_;
  const std::shared_ptr<ConnectionPool> pool_;  // the connector's, if there is one
  mutable Mutex mutex_;
  DatabaseState state_ LEAF_GUARDED_BY(mutex_);  // but for what the connector knows
  bool lost_ LEAF_GUARDED_BY(mutex_) = false;    // a connection, since the last one was made
  // The server of that term said at this time that it takes writes.
  std::uint64_t trusted_term_ LEAF_GUARDED_BY(mutex_) = 0;
  std::optional<MonotonicTime> trusted_at_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::sql
