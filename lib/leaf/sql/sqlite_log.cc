#include "leaf/sql/sqlite_log.h"

#include <fmt/format.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace leaf::sql {
namespace {

// SOCI includes SQLite's header into a namespace of its own.
using sqlite_api::sqlite3;
using sqlite_api::sqlite3_file;
using sqlite_api::sqlite3_int64;

constexpr std::size_t kChunk = 65'536;

sqlite3* ConnectionOf(soci::session& session) {
  return static_cast<soci::sqlite3_session_backend*>(session.get_backend())->conn_;
}

void Require(int result, std::string_view what) {
  if (result == SQLITE_OK) return;
  throw soci::sqlite3_soci_error(fmt::format("{}: {}", what, sqlite_api::sqlite3_errstr(result)), result);
}

// Null for a database in memory.
sqlite3_file* LogOf(soci::session& session) {
  sqlite3_file* log = nullptr;
  Require(sqlite_api::sqlite3_file_control(ConnectionOf(session), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log),
          "the log is not known");
  return log == nullptr || log->pMethods == nullptr ? nullptr : log;
}

std::size_t SizeOf(sqlite3_file* log) {
  sqlite3_int64 size = 0;
  Require(log->pMethods->xFileSize(log, &size), "cannot tell the size of the log");
  return static_cast<std::size_t>(size);
}

void WriteInPlace(sqlite3_file* log) {
  const std::size_t size = SizeOf(log);
  std::vector<char> bytes(std::min(size, kChunk));
  for (std::size_t at = 0; at < size; at += bytes.size()) {
    const int count = static_cast<int>(std::min(size - at, bytes.size()));
    const auto offset = static_cast<sqlite3_int64>(at);
    Require(log->pMethods->xRead(log, bytes.data(), count, offset), "cannot read the log");
    Require(log->pMethods->xWrite(log, bytes.data(), count, offset), "cannot write the log again");
  }
}

}  // namespace

bool HasLog(soci::session& session) {
  // A connection opens the log when it reads for the first time.
  session << "PRAGMA user_version";
  sqlite3_file* const log = LogOf(session);
  return log != nullptr && SizeOf(log) > 0;
}

void WriteLogAgain(soci::session& session) {
  sqlite3_file* const log = LogOf(session);
  if (log == nullptr) return;
  // Only the holder of this lock writes to the log, or begins it again.
  session << "BEGIN IMMEDIATE";
  WriteInPlace(log);
  session << "ROLLBACK";
  Require(log->pMethods->xSync(log, SQLITE_SYNC_NORMAL), "cannot flush the log");
}

void KeepLogOnClose(soci::session& session, bool keep) {
  Require(sqlite_api::sqlite3_db_config(ConnectionOf(session), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0,
                                        nullptr),
          "cannot tell SQLite what to do with the log");
}

}  // namespace leaf::sql
