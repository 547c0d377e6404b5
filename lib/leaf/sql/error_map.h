// The one place where database errors become ours, by number.
#pragma once

#include <exception>
#include <string_view>

#include "leaf/base/error.h"

namespace leaf::sql {

// Where the failing statement stood. A lost reply means nothing, unless it was the one to COMMIT, or to a
// statement that commits by itself.
enum class Phase { kStatement, kAutocommit, kCommit };

// `what` is what failed, as "cannot <what>".
Error TranslateException(std::string_view what, const std::exception& exception, Phase phase);
// The same without "cannot <what>: ".
Error TranslateReason(const std::exception& exception, Phase phase);

// By the server's (or the client library's) error number. Of what fails at COMMIT, kUnavailable is a promise
// that everything was rolled back, and made for numbers only of which the servers' own order of steps says
// so; whatever else fails there is kOutcomeUnknown:
//   1213  rolled back: at COMMIT there is no row lock left to wait for, so this is Galera's certification
//   that
//         failed, or its applier that came first
//   3101  rolled back: the same of MySQL's Group Replication
//   1290  rolled back: read_only is looked at before the transaction is prepared
//   1047  unknown: a Galera node that falls out of the primary component can say so before the write set went
//         out or after; 1180 and 1105 (its provider failed during COMMIT), 3100 (a hook of Group Replication
//         did), 1317 and 1927 (killed), 1205 (a lock of the backup stage), 2006 and 2013 (no reply) likewise
// A statement that commits by itself fails in either way: what is about the server, 1317, and what is not
// foreseen leave its outcome unknown, all other numbers are those of a statement that did nothing (1205 is a
// row lock's there, and one of the backup stage rolls back).
ErrorCode MysqlErrorCode(unsigned number, Phase phase);

// Whether the error is about the connection or the server behind it (lost, silent, shutting down, read-only,
// not in Galera's primary component), not about a row, a lock or a statement: then no other connection to it
// is trusted either before the server was asked again.
bool MysqlBlamesServer(unsigned number);
bool BlamesServer(const std::exception& exception);

// Whether the server works, and lets in no more connections: at all, of this user, or of this user within
// this hour.
bool IsTooManyConnections(const std::exception& exception);

// Whether another client holds the row.
bool IsRowLocked(const std::exception& exception);

// Whether the server has undone the transaction in favour of another client's: another node of a Galera
// cluster or a replication group changed the row first, two transactions waited for each other, or a row has
// changed since the transaction read it (MariaDB's innodb_snapshot_isolation, on by default from 11.6 on). It
// can be tried again at once.
bool IsConflict(const std::exception& exception);

// By SQLite's result code, primary or extended.
ErrorCode SqliteErrorCode(int result, Phase phase);

// Whether SQLite could not open, read or write a file: its disk, or the right to it, is to blame.
bool IsAboutFiles(const std::exception& exception);

// True for "no such table" of either database.
bool IsMissingTable(const std::exception& exception);

// True if the user lacks the right to what a statement does: the server has not begun it, and the transaction
// goes on.
bool IsDenied(const std::exception& exception);

// True if a text was compared with a column whose character set cannot express it.
bool IsInexpressible(const std::exception& exception);

}  // namespace leaf::sql
