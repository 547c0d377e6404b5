#include "sim/sql_server.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "leaf/base/check.h"
#include "leaf/sql/dialect.h"

namespace leaf::sim {
namespace {

// Of SQLite; becomes an Outcome.
struct SqlFailure {
  int code = 0;
  std::string message;
};

void Replace(std::string& text, std::string_view from, std::string_view to) {
  LEAF_CHECK(!from.empty());
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Cuts `ending` off, if it is there.
bool CutEnd(std::string& text, std::string_view ending) {
  if (!text.ends_with(ending)) return false;
  text.resize(text.size() - ending.size());
  return true;
}

// The word after `before`; "" if that is not in it.
std::string WordAfter(std::string_view text, std::string_view before) {
  const std::size_t found = text.find(before);
  if (found == std::string_view::npos) return "";
  const std::size_t begin = found + before.size();
  return std::string(text.substr(begin, text.find_first_of(" (", begin) - begin));
}

SqlServer::Outcome Failed(unsigned error, std::string message) {
  SqlServer::Outcome outcome;
  outcome.error = error;
  outcome.message = std::move(message);
  return outcome;
}

}  // namespace

// A statement of MariaDB's, and what it is for SQLite.
struct SqlServer::Statement {
  enum class Kind { kShow, kBegin, kCommit, kRollback, kRead, kInsert, kChange };
  Kind kind = Kind::kRead;
  std::string text;
  std::string table;
  std::string where;  // of what locks rows: with "WHERE"
  bool locks = false;
  bool waits = true;     // for the locks of others
  bool numbers = false;  // INSERT into a table with AUTO_INCREMENT

  bool writes() const { return kind == Kind::kInsert || kind == Kind::kChange; }
};

const SqlServer::Statement& SqlServer::Translate(const std::string& statement) {
  using Kind = Statement::Kind;
  static std::unordered_map<std::string, Statement> known;
  const auto [found, added] = known.try_emplace(statement);
  Statement& made = found->second;
  if (!added) return made;
  const sql::Dialect& mysql = sql::kMysql;
  const sql::Dialect& sqlite = sql::kSqlite;
  std::string& text = made.text;
  text = statement;
  if (text == mysql.begin) {
    made.kind = Kind::kBegin;
  } else if (text == mysql.commit || text == sqlite.commit) {
    made.kind = Kind::kCommit;
  } else if (text == mysql.rollback || text == sqlite.rollback) {
    made.kind = Kind::kRollback;
  } else if (text.starts_with("SHOW GLOBAL VARIABLES")) {
    made.kind = Kind::kShow;
  } else if (text == mysql.remember_removed) {
    made.kind = Kind::kInsert;
    made.table = "leafctl_removed_tags";
    text = sqlite.remember_removed;
  } else if (text == mysql.raise_orders_version) {
    // What it locks, each other writer of the table needs, too.
    made.kind = Kind::kInsert;
    made.table = "leafctl_orders";
    text = sqlite.raise_orders_version;
  } else {
    if (CutEnd(text, mysql.for_update_now)) {
      made.locks = true;
      made.waits = false;
    } else if (CutEnd(text, mysql.for_update)) {
      made.locks = true;
    }
    Replace(text, mysql.tag_matches, sqlite.tag_matches);
    Replace(text, mysql.update_time_ms, sqlite.update_time_ms);
    Replace(text, mysql.read_only, "server_is_read_only()");
    Replace(text, mysql.now_ms, ":server_now_ms");
    Replace(text, "LAST_INSERT_ID(", "last_insert_id(");
    if (text.starts_with("SELECT")) {
      made.kind = Kind::kRead;
      made.table = WordAfter(text, " FROM ");
    } else if (text.starts_with("INSERT INTO ")) {
      made.kind = Kind::kInsert;
      made.table = WordAfter(text, "INSERT INTO ");
      if (made.table == "leaf_workerid_alloc" && text.find("(id,") == std::string::npos) {
        made.numbers = true;
        Replace(text, "leaf_workerid_alloc (", "leaf_workerid_alloc (id, ");
        Replace(text, "VALUES (", "VALUES (:auto_increment, ");
      }
    } else {
      made.kind = Kind::kChange;
      made.locks = true;
      made.table = WordAfter(text, text.starts_with("UPDATE ") ? "UPDATE " : "DELETE FROM ");
      LEAF_CHECK(!made.table.empty());  // a statement of a new kind
    }
    if (made.locks) made.where = text.substr(text.find(" WHERE "));
  }
  return made;
}

bool SqlServer::Writes(const std::string& statement) {
  const Statement& known = Translate(statement);
  return known.writes() || known.kind == Statement::Kind::kCommit;
}

SqlServer::SqlServer(std::string name, OnCommit on_commit)
    : name_(std::move(name)), on_commit_(std::move(on_commit)) {
  Open();
  Hand("PRAGMA page_size = 1024", {});
  for (const std::string_view statement : sql::kSqlite.schema) Hand(std::string(statement), {});
}

SqlServer::~SqlServer() { CloseDatabase(); }

void SqlServer::Open() {
  LEAF_CHECK(sqlite3_open(":memory:", &database_) == SQLITE_OK);
  const auto told = [](sqlite3_context* context, int count, sqlite3_value** values) {
    auto* const server = static_cast<SqlServer*>(sqlite3_user_data(context));
    if (count == 1) {
      server->told_insert_id_ = sqlite3_value_int64(values[0]);
      server->tells_insert_id_ = true;
    }
    sqlite3_result_int64(context, server->told_insert_id_);
  };
  const auto read_only_now = [](sqlite3_context* context, int, sqlite3_value**) {
    sqlite3_result_int(context, static_cast<SqlServer*>(sqlite3_user_data(context))->read_only ? 1 : 0);
  };
  for (const int count : {0, 1}) {
    LEAF_CHECK(sqlite3_create_function(database_, "last_insert_id", count, SQLITE_UTF8, this, told, nullptr,
                                       nullptr) == SQLITE_OK);
  }
  LEAF_CHECK(sqlite3_create_function(database_, "server_is_read_only", 0, SQLITE_UTF8, this, read_only_now,
                                     nullptr, nullptr) == SQLITE_OK);
}

void SqlServer::CloseDatabase() {
  for (const auto& [text, statement] : prepared_) sqlite3_finalize(statement);
  prepared_.clear();
  LEAF_CHECK(sqlite3_close(database_) == SQLITE_OK);
  database_ = nullptr;
}

sqlite3_stmt* SqlServer::Prepared(const std::string& text) {
  sqlite3_stmt*& statement = prepared_[text];
  if (statement == nullptr && sqlite3_prepare_v2(database_, text.c_str(), static_cast<int>(text.size()),
                                                 &statement, nullptr) != SQLITE_OK)
    throw SqlFailure{sqlite3_extended_errcode(database_), sqlite3_errmsg(database_)};
  return statement;
}

std::vector<SqlServer::Row> SqlServer::Run(const std::string& text, const Binds& binds) {
  sqlite3_stmt* const statement = Prepared(text);
  for (int i = 1; i <= sqlite3_bind_parameter_count(statement); ++i) {
    const auto found = binds.find(sqlite3_bind_parameter_name(statement, i) + 1);
    LEAF_CHECK(found != binds.end());
    if (const auto* const number = std::get_if<std::int64_t>(&found->second)) {
      sqlite3_bind_int64(statement, i, *number);
    } else if (const auto* const words = std::get_if<std::string>(&found->second)) {
      sqlite3_bind_text(statement, i, words->c_str(), static_cast<int>(words->size()), SQLITE_TRANSIENT);
    } else {
      sqlite3_bind_null(statement, i);
    }
  }
  std::vector<Row> rows;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    Row row;
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
      switch (sqlite3_column_type(statement, i)) {
        case SQLITE_NULL:
          row.emplace_back();
          break;
        case SQLITE_INTEGER:
          row.emplace_back(std::int64_t{sqlite3_column_int64(statement, i)});
          break;
        default:
          row.emplace_back(std::string(reinterpret_cast<const char*>(sqlite3_column_text(statement, i)),
                                       static_cast<std::size_t>(sqlite3_column_bytes(statement, i))));
      }
    }
    rows.push_back(std::move(row));
  }
  const SqlFailure failure{sqlite3_extended_errcode(database_), sqlite3_errmsg(database_)};
  sqlite3_reset(statement);
  if (code != SQLITE_DONE) throw failure;
  return rows;
}

void SqlServer::Hand(const std::string& text, const Binds& binds) {
  ++version_;
  Run(text, binds);
}

template <typename Body>
void SqlServer::Inside(const Connection& connection, const Body& body) {
  Run("SAVEPOINT look", {});
  try {
    for (const Write& write : connection.writes) Run(write.text, write.binds);
    body();
  } catch (const SqlFailure&) {
    Run("ROLLBACK TO look", {});
    Run("RELEASE look", {});
    throw;
  }
  Run("ROLLBACK TO look", {});
  Run("RELEASE look", {});
}

// ---- connections

std::uint64_t SqlServer::Connect(Nanos now) {
  connections_[++last_connection_].used_at = now;
  return last_connection_;
}

void SqlServer::EndTransaction(std::uint64_t id, Connection& connection) {
  connection.in_transaction = false;
  connection.writes.clear();
  connection.waits_for.reset();
  std::erase_if(locks_, [id](const auto& lock) { return lock.second == id; });
}

void SqlServer::Close(std::uint64_t connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  EndTransaction(connection, found->second);
  connections_.erase(found);
}

void SqlServer::CloseAll() {
  connections_.clear();
  locks_.clear();
}

void SqlServer::CloseIdleTransactions(Nanos idle_since) {
  std::vector<std::uint64_t> idle;
  for (const auto& [id, connection] : connections_) {
    if (connection.in_transaction && !connection.patient && !connection.waits_for &&
        connection.used_at < idle_since)
      idle.push_back(id);
  }
  for (const std::uint64_t id : idle) Close(id);
}

bool SqlServer::IsDeadlocked(std::uint64_t connection) const {
  std::set<std::uint64_t> seen;
  for (std::uint64_t at = connection; seen.insert(at).second;) {
    const auto found = connections_.find(at);
    if (found == connections_.end() || !found->second.waits_for) return false;
    at = *found->second.waits_for;
    if (at == connection) return true;
  }
  return false;
}

void SqlServer::GiveUp(std::uint64_t connection) {
  if (const auto found = connections_.find(connection); found != connections_.end())
    found->second.waits_for.reset();
}

void SqlServer::Rollback(std::uint64_t connection) {
  if (const auto found = connections_.find(connection); found != connections_.end())
    EndTransaction(connection, found->second);
}

SqlServer::Outcome SqlServer::Execute(std::uint64_t connection, const std::string& statement,
                                      const Binds& binds, Nanos now) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return Failed(kLostConnection, "Lost connection to server during query");
  found->second.used_at = now;
  found->second.waits_for.reset();
  try {
    Binds all = binds;
    all["server_now_ms"] = now / kMilli;
    return Do(connection, found->second, Translate(statement), all);
  } catch (const SqlFailure& failure) {
    if ((failure.code & 0xFF) == SQLITE_CONSTRAINT) return Failed(kDuplicate, failure.message);
    LEAF_CHECK(failure.message.find("no such table") != std::string::npos);  // or the translation is wrong
    return Failed(kNoSuchTable, failure.message);
  }
}

std::optional<std::uint64_t> SqlServer::LockRows(std::uint64_t id, Connection& connection,
                                                 const Statement& statement, const Binds& binds) {
  std::vector<RowLock> wanted;
  if (statement.kind == Statement::Kind::kInsert) {
    wanted.push_back({statement.table, kNewRow});
  } else {
    Inside(connection, [&] {
      for (const Row& row :
           Run(fmt::format("SELECT rowid FROM {}{}", statement.table, statement.where), binds))
        wanted.push_back({statement.table, std::get<std::int64_t>(row.front())});
    });
  }
  for (const RowLock& lock : wanted) {
    const auto held = locks_.find(lock);
    if (held != locks_.end() && held->second != id) return held->second;
  }
  if (connection.in_transaction) {
    for (RowLock& lock : wanted) locks_.emplace(std::move(lock), id);
  }
  return std::nullopt;
}

SqlServer::Outcome SqlServer::Do(std::uint64_t id, Connection& connection, const Statement& statement,
                                 const Binds& binds) {
  using Kind = Statement::Kind;
  Outcome outcome;
  switch (statement.kind) {
    case Kind::kShow:
      for (const auto& [variable, value] : std::initializer_list<std::pair<const char*, std::string>>{
               {"hostname", name_},
               {"port", "3306"},
               {"server_id", "1"},
               {"datadir", "/" + name_},
               {"version", "10.11.0-MariaDB"},
               {"read_only", read_only ? "ON" : "OFF"}})
        outcome.rows.push_back({std::string(variable), value});
      return outcome;
    case Kind::kBegin:
      // Of one that is open it makes a commit.
      outcome = DoCommit(id, connection);
      connection.in_transaction = true;
      return outcome;
    case Kind::kCommit:
      return DoCommit(id, connection);
    case Kind::kRollback:
      EndTransaction(id, connection);
      return outcome;
    case Kind::kRead:
    case Kind::kInsert:
    case Kind::kChange:
      break;
  }
  if (statement.writes() && read_only && !privileged)
    return Failed(kReadOnly, "The MariaDB server is running with the --read-only option");
  if (statement.locks || statement.writes()) {
    if (const auto holder = LockRows(id, connection, statement, binds)) {
      if (!statement.waits) return Failed(kLockWait, "Lock wait timeout exceeded");
      connection.waits_for = *holder;
      outcome.blocked = true;
      return outcome;
    }
  }
  told_insert_id_ = connection.insert_id;
  if (statement.writes()) return DoWrite(connection, statement, binds);
  Inside(connection, [&] { outcome.rows = Run(statement.text, binds); });
  return outcome;
}

SqlServer::Outcome SqlServer::DoWrite(Connection& connection, const Statement& statement, Binds binds) {
  Outcome outcome;
  if (statement.numbers) {
    told_insert_id_ = NextNumber(statement.table);
    binds["auto_increment"] = told_insert_id_;
  }
  const auto run = [&] {
    tells_insert_id_ = statement.numbers;
    Run(statement.text, binds);
    outcome.affected = sqlite3_changes(database_);
  };
  if (connection.in_transaction) {
    Inside(connection, run);
    connection.writes.push_back({statement.text, std::move(binds)});
  } else {
    run();
    ++version_;
    if (outcome.affected > 0) on_commit_({{statement.text, std::move(binds)}});
  }
  if (tells_insert_id_ && (statement.numbers || tells_insert_ids))
    outcome.insert_id = connection.insert_id = told_insert_id_;
  return outcome;
}

SqlServer::Outcome SqlServer::DoCommit(std::uint64_t id, Connection& connection) {
  const Commit writes = connection.writes;
  EndTransaction(id, connection);
  if (writes.empty()) return {};
  if (read_only && !privileged)
    return Failed(kReadOnly, "The MariaDB server is running with the --read-only option");
  LEAF_CHECK(Apply(writes));
  on_commit_(writes);
  return {};
}

bool SqlServer::Apply(const Commit& commit) {
  ++version_;
  Run("BEGIN", {});
  try {
    for (const Write& write : commit) Run(write.text, write.binds);
  } catch (const SqlFailure&) {
    Run("ROLLBACK", {});
    return false;
  }
  Run("COMMIT", {});
  return true;
}

std::int64_t SqlServer::NextNumber(const std::string& table) {
  std::int64_t& number = numbers_[table];
  const std::vector<Row> stored =
      Run("SELECT seq FROM sqlite_sequence WHERE name = :name", {{"name", table}});
  if (!stored.empty()) number = std::max(number, std::get<std::int64_t>(stored.front().front()));
  return ++number;
}

bool SqlServer::IsLocked(const std::string& table, const std::string& column, const Value& value) {
  for (const Row& row :
       Run(fmt::format("SELECT rowid FROM {} WHERE {} = :value", table, column), {{"value", value}})) {
    if (locks_.contains({table, std::get<std::int64_t>(row.front())})) return true;
  }
  return locks_.contains({table, kNewRow});
}

// ---- the whole of it

SqlServer::Dump SqlServer::Save() const {
  sqlite3_int64 size = 0;
  unsigned char* const bytes = sqlite3_serialize(database_, "main", &size, 0);
  LEAF_CHECK(bytes != nullptr);
  auto dump = std::make_shared<const std::vector<unsigned char>>(bytes, bytes + size);
  sqlite3_free(bytes);
  return dump;
}

void SqlServer::Load(const Dump& dump) {
  CloseAll();
  numbers_.clear();
  CloseDatabase();
  Open();
  auto* const bytes = static_cast<unsigned char*>(sqlite3_malloc64(dump->size()));
  LEAF_CHECK(bytes != nullptr);
  std::memcpy(bytes, dump->data(), dump->size());
  const auto size = static_cast<sqlite3_int64>(dump->size());
  LEAF_CHECK(sqlite3_deserialize(database_, "main", bytes, size, size,
                                 SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) ==
             SQLITE_OK);
  ++version_;
}

}  // namespace leaf::sim
