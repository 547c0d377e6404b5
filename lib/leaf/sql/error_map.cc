#include "leaf/sql/error_map.h"

#include <fmt/format.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace leaf::sql {
namespace {

constexpr unsigned kMysqlNoSuchTable = 1146;
constexpr unsigned kMysqlTooManyConnections = 1040;
constexpr unsigned kMysqlTooManyOfUser = 1203;
constexpr unsigned kMysqlUserResource = 1226;  // a user's connections at once or in an hour, among others
constexpr unsigned kMysqlLockWait = 1205;
constexpr unsigned kMysqlLockNoWait = 3572;  // the same of MySQL for NOWAIT
constexpr unsigned kMysqlDeadlock = 1213;
constexpr unsigned kMysqlOvertaken = 1020;      // rolled back by MariaDB's innodb_snapshot_isolation
constexpr unsigned kMysqlGroupConflict = 3101;  // rolled back by MySQL's Group Replication
constexpr unsigned kMysqlIncomparable = 1267;   // illegal mix of collations
constexpr unsigned kMysqlReadOnly = 1290;       // not while the server runs with that option: --read-only

// Of an extended result code, the part that is the primary one.
constexpr int kSqlitePrimary = 0xFF;

// Of MySQL's; 0 for others.
unsigned NumberOf(const std::exception& exception) {
  const auto* const mysql = dynamic_cast<const soci::mysql_soci_error*>(&exception);
  return mysql == nullptr ? 0 : mysql->err_num_;
}

// The client library does not trust what a server says before TLS is up, and makes an error of its own of it:
// the server's number stands in the text. 0 for others. A lie costs a pause.
unsigned UnverifiedNumberOf(const std::exception& exception) {
  constexpr std::string_view kBefore = "cannot be verified: ";
  const std::string_view text = exception.what();
  const std::size_t found = text.find(kBefore);
  unsigned number = 0;
  if (found == std::string_view::npos) return number;
  std::from_chars(text.data() + found + kBefore.size(), text.data() + text.size(), number);
  return number;
}

std::string_view HintFor(ErrorCode code, const std::exception& exception) {
  if (IsMissingTable(exception)) return "leafctl db init creates the tables";
  if (code == ErrorCode::kPermission) return "check the user, its password and its grants";
  return "";
}

// What happened, without the function of SOCI's that it happened in; its statement and parameters, which SOCI
// adds in further lines, are ours to know.
std::string Reason(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t colon = line.find(": ");
  const bool named = line.starts_with("sqlite3_") && colon != std::string::npos;
  return named ? line.substr(colon + 2) : line;
}

}  // namespace

ErrorCode MysqlErrorCode(unsigned number, Phase phase) {
  if (phase == Phase::kCommit) {
    const bool rolled_back =
        number == kMysqlDeadlock || number == kMysqlReadOnly || number == kMysqlGroupConflict;
    return rolled_back ? ErrorCode::kUnavailable : ErrorCode::kOutcomeUnknown;
  }
  // Dropping the connection rolls back whatever was begun.
  const ErrorCode lost = phase == Phase::kAutocommit ? ErrorCode::kOutcomeUnknown : ErrorCode::kUnavailable;
  if (number == kMysqlReadOnly) return ErrorCode::kUnavailable;
  if (MysqlBlamesServer(number)) return lost;
  switch (number) {
    case 1044:  // access denied for user to database
    case 1045:  // access denied (password)
    case 1142:  // command denied on table
    case 1143:  // command denied on column
    case 1227:  // missing privilege
    case 1698:  // access denied without password
    case 1130:  // no user of this host
    case 1820:  // the password has expired
    case 1862:  // the same, before the login
    case 3118:  // the account is locked (MySQL)
    case 4151:  // the account is locked (MariaDB)
    case 3159:  // an encrypted connection is required
    case 1251:  // authentication method not supported
    case 2059:  // authentication plugin
      return ErrorCode::kPermission;
    case 1049:  // unknown database
    case 1054:  // unknown column
    case kMysqlNoSuchTable:
    case 1364:  // a column of the table has no default
      return ErrorCode::kConfig;
    case kMysqlIncomparable:
      // The column's character set cannot even express the tag that is looked for.
      return ErrorCode::kNotFound;
    case 1062:  // duplicate entry
      return ErrorCode::kAlreadyExists;
    case 1264:  // out of range value
    case 1366:  // incorrect string value
    case 1406:  // data too long
      return ErrorCode::kInvalidArgument;
    case kMysqlTooManyConnections:
    case 1129:  // host is blocked
    case kMysqlTooManyOfUser:
    case kMysqlLockWait:
    case kMysqlDeadlock:
    case kMysqlOvertaken:
    case kMysqlUserResource:
    case 1021:  // disk full
    case 1114:  // table is full
    case 1792:  // read-only transaction
    case 1969:  // max_statement_time
    case kMysqlGroupConflict:
    case kMysqlLockNoWait:
      return ErrorCode::kUnavailable;
    case 3:     // error writing a file
    case 20:    // disk full, of a file beside the tables
    case 1026:  // error writing a file
    case 1030:  // error from the storage engine, such as 28: no space left
    case 1317:  // query interrupted
      return lost;
    default:
      return phase == Phase::kAutocommit ? lost : ErrorCode::kInternal;  // not foreseen
  }
}

bool MysqlBlamesServer(unsigned number) {
  switch (number) {
    case 1047:  // wsrep has not yet prepared node
    case 1053:  // server shutdown in progress
    case 1105:  // unknown error (wsrep)
    case 1180:  // error during COMMIT (wsrep)
    case kMysqlReadOnly:
    case 1836:  // read-only mode
    case 1927:  // connection was killed
    case 3032:  // offline mode
    case 3100:  // a hook of Group Replication failed
    case 4031:  // the connection had been idle for too long
      return true;
    case 2059:  // authentication plugin: about the user
      return false;
    default:
      // The client library's own errors are about the connection.
      return number >= 2000 && number < 2100;
  }
}

bool BlamesServer(const std::exception& exception) { return MysqlBlamesServer(NumberOf(exception)); }

bool IsTooManyConnections(const std::exception& exception) {
  const unsigned unverified = UnverifiedNumberOf(exception);
  const unsigned number = unverified == 0 ? NumberOf(exception) : unverified;
  return number == kMysqlTooManyConnections || number == kMysqlTooManyOfUser || number == kMysqlUserResource;
}

bool IsRowLocked(const std::exception& exception) {
  const unsigned number = NumberOf(exception);
  return number == kMysqlLockWait || number == kMysqlLockNoWait;
}

bool IsConflict(const std::exception& exception) {
  const unsigned number = NumberOf(exception);
  return number == kMysqlDeadlock || number == kMysqlOvertaken || number == kMysqlGroupConflict;
}

ErrorCode SqliteErrorCode(int result, Phase phase) {
  switch (result & kSqlitePrimary) {
    case 3:   // SQLITE_PERM
    case 8:   // SQLITE_READONLY
    case 23:  // SQLITE_AUTH
      return ErrorCode::kPermission;
    case 1:   // SQLITE_ERROR: no such table or column
    case 11:  // SQLITE_CORRUPT
    case 14:  // SQLITE_CANTOPEN
    case 26:  // SQLITE_NOTADB
      return ErrorCode::kConfig;
    case 19:  // SQLITE_CONSTRAINT
      return ErrorCode::kAlreadyExists;
    case 5:   // SQLITE_BUSY: a COMMIT that meets it has not happened
    case 6:   // SQLITE_LOCKED
    case 9:   // SQLITE_INTERRUPT
    case 13:  // SQLITE_FULL
      return ErrorCode::kUnavailable;
    case 10:  // SQLITE_IOERR
      return phase == Phase::kCommit ? ErrorCode::kOutcomeUnknown : ErrorCode::kUnavailable;
    default:
      return phase == Phase::kCommit ? ErrorCode::kOutcomeUnknown : ErrorCode::kInternal;
  }
}

Error TranslateException(std::string_view what, const std::exception& exception, Phase phase) {
  Error error = TranslateReason(exception, phase);
  error.message = fmt::format("cannot {}: {}", what, error.message);
  return error;
}

Error TranslateReason(const std::exception& exception, Phase phase) {
  ErrorCode code = phase == Phase::kStatement ? ErrorCode::kInternal : ErrorCode::kOutcomeUnknown;
  std::string reason = Reason(exception.what());
  if (const auto* mysql = dynamic_cast<const soci::mysql_soci_error*>(&exception)) {
    code = MysqlErrorCode(mysql->err_num_, phase);
    reason = fmt::format("{} (MySQL error {})", Reason(mysql->get_error_message()), mysql->err_num_);
  } else if (const auto* sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&exception)) {
    code = SqliteErrorCode(sqlite->result(), phase);
    reason = Reason(sqlite->get_error_message());
  }
  return {code, std::move(reason), std::string(HintFor(code, exception))};
}

bool IsAboutFiles(const std::exception& exception) {
  const auto* const sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&exception);
  if (sqlite == nullptr) return false;
  switch (sqlite->result() & kSqlitePrimary) {
    case 3:   // SQLITE_PERM
    case 8:   // SQLITE_READONLY
    case 10:  // SQLITE_IOERR
    case 13:  // SQLITE_FULL
    case 14:  // SQLITE_CANTOPEN
      return true;
    default:
      return false;
  }
}

bool IsMissingTable(const std::exception& exception) {
  if (const auto* mysql = dynamic_cast<const soci::mysql_soci_error*>(&exception)) {
    return mysql->err_num_ == kMysqlNoSuchTable;
  }
  if (const auto* sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&exception)) {
    return sqlite->get_error_message().find("no such table") != std::string::npos;
  }
  return false;
}

bool IsDenied(const std::exception& exception) {
  // SQLite's users have rights to files, not to tables.
  if (dynamic_cast<const soci::mysql_soci_error*>(&exception) == nullptr) return false;
  return TranslateReason(exception, Phase::kStatement).code == ErrorCode::kPermission;
}

bool IsInexpressible(const std::exception& exception) { return NumberOf(exception) == kMysqlIncomparable; }

}  // namespace leaf::sql
