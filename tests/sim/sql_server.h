// A database server as MariaDB would be one, for the statements that lib/leaf/sql sends: they are executed by
// a SQLite database in memory, and around it stands what SQLite has not: transactions of many connections at
// once, locks of rows, NOWAIT, deadlocks, numbers that a rollback does not give back, LAST_INSERT_ID(expr),
// and a log of what was committed, for a replica.
//
// No time passes in here, and nothing waits: a statement that would have to wait says so, and the server
// keeps which connection it waits for. No lock of SQLite outlives a call. A transaction keeps its writes as
// statements: they are executed again, and taken back, around each of its later statements, and for good by
// COMMIT. The locks of the rows keep others from making a difference in between. What a transaction reads
// without a lock is what was last committed, plus its own writes: READ COMMITTED.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/world.h"

namespace leaf::sim {

class SqlServer {
 public:
  using Value = std::variant<std::monostate, std::int64_t, std::string>;  // nothing: NULL
  using Binds = std::map<std::string, Value>;                             // by name, without the colon
  using Row = std::vector<Value>;

  // The numbers of MariaDB's errors that it makes.
  enum : unsigned {
    kDuplicate = 1062,
    kNoSuchTable = 1146,
    kLockWait = 1205,
    kDeadlock = 1213,
    kReadOnly = 1290,
    kLostConnection = 2013,
  };

  struct Outcome {
    unsigned error = 0;  // 0: none
    std::string message;
    bool blocked = false;  // nothing has happened: another connection holds a row
    std::vector<Row> rows;
    std::int64_t affected = 0;
    std::int64_t insert_id = 0;  // of the reply
  };

  struct Write {
    std::string text;  // SQLite's
    Binds binds;
  };
  // What one transaction has committed.
  using Commit = std::vector<Write>;
  using OnCommit = std::function<void(const Commit& commit)>;

  // `name`: differs between servers. `on_commit` hears of every commit of a connection, after it.
  SqlServer(std::string name, OnCommit on_commit);
  ~SqlServer();
  SqlServer(const SqlServer&) = delete;
  SqlServer& operator=(const SqlServer&) = delete;

  const std::string& name() const { return name_; }

  // It says of itself that it takes no writes; `privileged` users' writes are taken all the same.
  bool read_only = false;
  bool privileged = false;
  // The replies to UPDATE tell LAST_INSERT_ID(expr); they do not where the table has a trigger.
  bool tells_insert_ids = true;

  // ---- connections
  std::uint64_t Connect(Nanos now);
  // Rolls back what is open.
  void Close(std::uint64_t connection);
  bool Knows(std::uint64_t connection) const { return connections_.contains(connection); }
  // All at once, as a restart does.
  void CloseAll();
  // Ends those that have had a transaction open since before `idle_since` without a statement, but for those
  // that may (`patient`).
  void CloseIdleTransactions(Nanos idle_since);
  void SetPatient(std::uint64_t connection) { connections_.at(connection).patient = true; }
  Outcome Execute(std::uint64_t connection, const std::string& statement, const Binds& binds, Nanos now);
  // Whether the last outcome of `connection` was `blocked`, by a connection that waits for it, too.
  bool IsDeadlocked(std::uint64_t connection) const;
  // The statement that was blocked is not tried again.
  void GiveUp(std::uint64_t connection);
  // What is open is rolled back, as of the victim of a deadlock.
  void Rollback(std::uint64_t connection);

  // Whether `statement`, as it came, may change something once it is executed.
  static bool Writes(const std::string& statement);

  // ---- by hand: SQLite's text, at once, whatever is locked; not told to OnCommit
  void Hand(const std::string& text, const Binds& binds);
  std::vector<Row> Look(const std::string& text, const Binds& binds) { return Run(text, binds); }
  // As a replica does; false, and nothing of it has happened, if it contradicts what is there.
  bool Apply(const Commit& commit);
  // The next AUTO_INCREMENT of `table`, which is never given again.
  std::int64_t NextNumber(const std::string& table);
  // Whether a connection holds a row of `table` whose `column` is `value`.
  bool IsLocked(const std::string& table, const std::string& column, const Value& value);

  // ---- the whole of it
  using Dump = std::shared_ptr<const std::vector<unsigned char>>;
  Dump Save() const;
  // Of this or another server. All connections are closed.
  void Load(const Dump& dump);
  // Grows with every change.
  std::uint64_t version() const { return version_; }

 private:
  struct Statement;
  struct RowLock {
    std::string table;
    std::int64_t row = 0;  // kNewRow: the one that an INSERT takes
    friend auto operator<=>(const RowLock&, const RowLock&) = default;
  };
  static constexpr std::int64_t kNewRow = -1;
  struct Connection {
    bool in_transaction = false;
    bool patient = false;
    Commit writes;  // of the open transaction
    Nanos used_at = 0;
    std::int64_t insert_id = 0;  // LAST_INSERT_ID()
    std::optional<std::uint64_t> waits_for;
  };

  void Open();
  void CloseDatabase();
  static const Statement& Translate(const std::string& statement);
  sqlite3_stmt* Prepared(const std::string& text);
  // Throws SqlFailure.
  std::vector<Row> Run(const std::string& text, const Binds& binds);
  // Runs `body` on the table as the transaction sees it. Nothing of it stays.
  template <typename Body>
  void Inside(const Connection& connection, const Body& body);
  // The rows that it is about; locks them for `id` unless another has one of them: then that one.
  std::optional<std::uint64_t> LockRows(std::uint64_t id, Connection& connection, const Statement& statement,
                                        const Binds& binds);
  Outcome Do(std::uint64_t id, Connection& connection, const Statement& statement, const Binds& binds);
  Outcome DoCommit(std::uint64_t id, Connection& connection);
  Outcome DoWrite(Connection& connection, const Statement& statement, Binds binds);
  void EndTransaction(std::uint64_t id, Connection& connection);

  const std::string name_;
  const OnCommit on_commit_;
  sqlite3* database_ = nullptr;
  std::map<std::string, sqlite3_stmt*> prepared_;
  std::map<std::uint64_t, Connection> connections_;
  std::map<RowLock, std::uint64_t> locks_;
  std::map<std::string, std::int64_t> numbers_;  // by table: the last AUTO_INCREMENT that was taken
  std::uint64_t last_connection_ = 0;
  std::uint64_t version_ = 0;
  // Of the statement that runs: LAST_INSERT_ID(), and whether it is told another one.
  std::int64_t told_insert_id_ = 0;
  bool tells_insert_id_ = false;
};

}  // namespace leaf::sim
