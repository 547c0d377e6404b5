// What stands in the log of an SQLite database reaches the disk before a commit is built on it.
//
// A commit appends frames to the log and flushes it. If the flush fails, SQLite undoes the transaction for
// the connections that are open. But the frames are in the kernel's memory, and the kernel takes them as
// written (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). Once all
// connections are closed, the next one reads the log from its beginning, finds these frames whole, and takes
// them as committed. Commits that follow stand behind them in the log. Their flushes succeed, and yet a loss
// of power takes them all: SQLite reads a log up to the first frame that is not there.
//
// So a process writes the log again, byte for byte, before it uses what it found in it. That makes the kernel
// write it. It need not be done while another connection of the process has been open since it was done last:
// a log is read from its beginning only where no connection has it open, or where a process was killed while
// it wrote two words of SQLite's index.
//
// All of it needs Linux 4.13 or later, which tells a failed flush to each process that has the file open.
#pragma once

namespace soci {
class session;
}

namespace leaf::sql {

// Of `session`: a connection to an SQLite database that is open for writing. Each of these throws
// soci::sqlite3_soci_error. None is thread-safe: a session belongs to one thread at a time.

// Whether the log has anything in it. Requires: the database is in WAL mode, or in memory. From now on
// `session` has the log open.
bool HasLog(soci::session& session);

// Writes the log again, and flushes it. Blocks for SQLite's busy time-out at most while others write, keeps
// them from writing while it writes, and lets them write while it flushes. Readers, and other processes that
// move the log into the database, need not wait: no byte changes. After an exception `session` is to be
// closed: it may be in a transaction.
void WriteLogAgain(soci::session& session);

// The last connection that is closed moves the log into the database, and removes it. With `keep` this one
// does not: what it found in the log may be on no disk, and then an older log would come back with the power,
// beside a newer database.
void KeepLogOnClose(soci::session& session, bool keep);

}  // namespace leaf::sql
