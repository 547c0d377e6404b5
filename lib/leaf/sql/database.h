// Connections to one database, MySQL or SQLite, through SOCI.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/sql/dialect.h"

namespace soci {
class session;
}

namespace leaf::sql {

struct MysqlOptions {
  std::vector<std::string> endpoints;  // HOST:PORT; the first that can be reached and written to is used
  std::string database;
  std::string user;
  std::string password;
  // Rounded up to whole seconds, which is what the client library counts in.
  std::chrono::milliseconds connect_timeout{2000};
  std::chrono::milliseconds query_timeout{2000};
};

struct SqliteOptions {
  std::string path;
  // The embedded default needs no `db init`: each new connection makes what is missing.
  bool create_tables = false;
  std::chrono::milliseconds busy_timeout{5000};
};

// How the database was found, as of the last call.
struct DatabaseState {
  bool up = false;       // it answered
  std::string identity;  // which server, as it says itself, or which file; "" before the first connection
  std::uint64_t connections = 0;
  std::uint64_t reconnects = 0;        // of those, after one was lost or could not be made
  std::uint64_t failures = 0;          // connections that could not be made
  std::uint64_t identity_changes = 0;  // another server answered than before
  std::optional<Error> problem;        // why it is not up
};

// Thread-safe: each call has a connection of its own for as long as it runs; idle ones are kept and checked
// before they are used again. Nothing is connected before the first call.
class Database {
 public:
  explicit Database(MysqlOptions options);
  explicit Database(SqliteOptions options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const Dialect& dialect() const { return dialect_; }

  DatabaseState State() const;

  using Body = std::function<Result<void>(soci::session&)>;

  // Runs `body` with a connection. `what` completes "cannot …" in errors. Exceptions become errors here.
  Result<void> Run(std::string_view what, const Body& body);

  enum class Finish { kCommit, kRollback };
  // Runs `body` in a transaction that `finish` ends if it succeeds; an error rolls back.
  // Errors: those of `body`; kOutcomeUnknown if the reply to COMMIT was lost.
  Result<void> Transact(std::string_view what, Finish finish, const Body& body);

 private:
  using Session = std::unique_ptr<soci::session>;

  Result<Session> Lease(std::string_view what);
  Result<Session> Connect(std::string_view what);
  Result<Session> TryConnect(std::string_view what, std::string& identity);
  Session ConnectSqlite();
  Result<Session> ConnectMysql(std::string_view what, std::string& identity);
  // A statement failed: if the connection did, the next one is a reconnect.
  Error Lost(Error error);
  Session ConnectEndpoint(const std::string& endpoint);
  void GiveBack(Session session);

  const Dialect& dialect_;
  const std::optional<MysqlOptions> mysql_;
  const std::optional<SqliteOptions> sqlite_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Session> idle_;
  DatabaseState state_;
  bool lost_ = false;  // a connection, since the last one was made
};

}  // namespace leaf::sql
