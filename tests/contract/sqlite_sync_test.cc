// What SQLite acknowledges is on the disk. Without that a power cut takes away grants and marks that are in
// use.
#include <gtest/gtest.h>
#include <soci/soci.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/sql/database.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sql/segment_store.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

// Counts the flushes of every file that SQLite opens while it lives, and the bytes that are written to logs.
// Files are opened by one thread.
class SyncCounter {
 public:
  SyncCounter() {
    real_ = sqlite3_vfs_find(nullptr);
    counting_ = *real_;
    counting_.zName = "counting";
    counting_.xOpen = Open;
    sqlite3_vfs_register(&counting_, /*makeDflt=*/1);
  }
  ~SyncCounter() {
    sqlite3_vfs_unregister(&counting_);
    sqlite3_vfs_register(real_, 1);
    to_fail_ = 0;
  }
  SyncCounter(const SyncCounter&) = delete;
  SyncCounter& operator=(const SyncCounter&) = delete;

  // Since the last call.
  int Take() { return syncs_.exchange(0); }
  std::size_t TakeWrittenToLogs() { return written_to_logs_.exchange(0); }
  // So many flushes will fail, from now on.
  void Fail(int flushes) { to_fail_ = flushes; }

 private:
  static int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    const int result = real_->xOpen(real_, name, file, flags, out_flags);
    if (result != SQLITE_OK || file->pMethods == nullptr) return result;
    // Databases are locked, and files beside them are not: there are several sets, and all flush alike.
    sync_ = file->pMethods->xSync;
    write_ = file->pMethods->xWrite;
    const bool is_log = (flags & SQLITE_OPEN_WAL) != 0;
    sqlite3_io_methods& methods =
        methods_.try_emplace({file->pMethods, is_log}, *file->pMethods).first->second;
    methods.xSync = [](sqlite3_file* synced, int sync_flags) {
      ++syncs_;
      if (to_fail_ > 0) {
        --to_fail_;
        return SQLITE_IOERR_FSYNC;
      }
      return sync_(synced, sync_flags);
    };
    if (is_log) {
      methods.xWrite = [](sqlite3_file* written, const void* data, int size, sqlite3_int64 at) {
        written_to_logs_ += static_cast<std::size_t>(size);
        return write_(written, data, size, at);
      };
    }
    file->pMethods = &methods;
    return result;
  }

  static inline sqlite3_vfs* real_ = nullptr;
  static inline sqlite3_vfs counting_{};
  static inline std::map<std::pair<const sqlite3_io_methods*, bool>, sqlite3_io_methods> methods_;
  static inline int (*sync_)(sqlite3_file*, int) = nullptr;
  static inline int (*write_)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
  static inline std::atomic<int> syncs_ = 0;
  static inline std::atomic<std::size_t> written_to_logs_ = 0;
  static inline std::atomic<int> to_fail_ = 0;
};

TEST(SqliteSync, EveryGrantIsFlushedWhateverConnectionItCameFrom) {
  SyncCounter syncs;
  const TempDir dir;
  sql::Database database(sql::SqliteOptions{.path = dir.path() + "/leaf.db", .create_tables = true});
  sql::SqlSegmentStore store(database);
  core::NewTag tag;
  tag.tag = "pay";
  tag.step = 10;
  ASSERT_TRUE(store.Add(tag, core::WriteMode::kCommit).ok());
  EXPECT_GE(syncs.Take(), 1);
  const auto reserve = [&] {
    syncs.Take();
    ASSERT_TRUE(store
                    .Reserve("pay",
                             [](const core::TagRow&) -> Result<core::GrantSize> {
                               return core::GrantSize{1, 1};
                             })
                    .ok());
    EXPECT_GE(syncs.Take(), 1);
  };
  for (int i = 0; i < 5; ++i) reserve();
  // While that connection is in use, the next grant makes another.
  const auto connections = database.State().connections;
  ASSERT_TRUE(database
                  .Run("hold a connection",
                       [&](soci::session&) -> Result<void> {
                         for (int i = 0; i < 5; ++i) reserve();
                         return {};
                       })
                  .ok());
  EXPECT_EQ(database.State().connections, connections + 1);
}

TEST(SqliteSync, EveryMarkIsFlushed) {
  SyncCounter syncs;
  const TempDir dir;
  FakeClock clock;
  sql::SqliteMarkStore marks(dir.path() + "/marks.db", nullptr, clock, "test");
  const auto flushed = [&](const Result<void>& written) { return written.ok() && syncs.Take() >= 1; };
  ASSERT_TRUE(marks.BeginRun().ok());
  syncs.Take();
  for (std::uint64_t end = 1; end < 5; ++end) EXPECT_TRUE(flushed(marks.Raise({"pay", end, 1}))) << end;
  EXPECT_TRUE(flushed(marks.EndRun({{"pay", 1}})));
  EXPECT_TRUE(flushed(marks.BeginRun()));
}

// On a disk that takes half a second for a flush, forty tags would wait longer for one another than SQLite
// does.
TEST(SqliteSync, MarksThatAreRaisedTogetherShareAFlush) {
  constexpr std::size_t kTags = 40;
  SyncCounter syncs;
  const TempDir dir;
  FakeClock clock;
  // However long a busy machine takes to start the threads.
  sql::SqliteMarkStore marks({.path = dir.path() + "/marks.db", .busy_timeout = std::chrono::hours{1}},
                             clock);
  ASSERT_TRUE(marks.Raise({"tag0", 1, 1}).ok());
  // Another process writes: the first of them waits for its lock, and the others for the first.
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open((dir.path() + "/marks.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  syncs.Take();
  std::vector<std::thread> tasks;
  std::atomic<std::size_t> raised{0};
  for (std::size_t i = 0; i < kTags; ++i) {
    tasks.emplace_back([&, i] {
      const std::string tag = "tag" + std::to_string(i);
      if (marks.Raise({tag, 100 + i, i}).ok()) ++raised;
    });
  }
  while (marks.raises_waiting() != kTags - 1) std::this_thread::yield();
  EXPECT_EQ(syncs.Take(), 0);
  ASSERT_EQ(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  for (std::thread& task : tasks) task.join();
  sqlite3_close(other);
  EXPECT_EQ(raised.load(), kTags);
  const int flushes = syncs.Take();
  EXPECT_GE(flushes, 2);
  EXPECT_LE(flushes, 4);
  for (std::size_t i = 0; i < kTags; ++i) {
    const auto mark = marks.Load("tag" + std::to_string(i));
    ASSERT_TRUE(mark.ok());
    EXPECT_EQ(mark->end, 100 + i);
    EXPECT_EQ(mark->held, i);
  }
}

// Another process has the database open, so its log is there.
class SqliteLog : public ::testing::Test {
 protected:
  SqliteLog() {
    EXPECT_EQ(sqlite3_open(path_.c_str(), &other_), SQLITE_OK);
    Write("PRAGMA journal_mode = WAL");
    Write("CREATE TABLE t (x)");
    Write("INSERT INTO t VALUES (randomblob(200000))");  // more than is written at once
    syncs_.Take();
    syncs_.TakeWrittenToLogs();
  }
  ~SqliteLog() override { CloseOther(); }

  void CloseOther() { sqlite3_close(std::exchange(other_, nullptr)); }
  void Write(const char* statement) const {
    EXPECT_EQ(sqlite3_exec(other_, statement, nullptr, nullptr, nullptr), SQLITE_OK) << statement;
  }
  std::size_t LogSize() const {
    return std::filesystem::exists(path_ + "-wal") ? std::filesystem::file_size(path_ + "-wal") : 0;
  }
  static Result<void> Count(sql::Database& database, int& rows) {
    return database.Run("count", [&](soci::session& session) -> Result<void> {
      session << "SELECT count(*) FROM t", soci::into(rows);
      return {};
    });
  }

  SyncCounter syncs_;
  const TempDir dir_;
  const std::string path_ = dir_.path() + "/leaf.db";
  sqlite3* other_ = nullptr;
};

TEST_F(SqliteLog, AProcessWritesAgainWhatItFinds) {
  const std::size_t size = LogSize();
  ASSERT_GT(size, 200'000U);
  sql::Database database(sql::SqliteOptions{.path = path_});
  int rows = 0;
  ASSERT_TRUE(Count(database, rows).ok());
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(syncs_.TakeWrittenToLogs(), size);
  EXPECT_EQ(syncs_.Take(), 1);
  EXPECT_EQ(LogSize(), size);
  // A connection of the process is up: a second one need not.
  ASSERT_TRUE(database.Run("hold", [&](soci::session&) { return Count(database, rows); }).ok());
  EXPECT_EQ(database.State().connections, 2U);
  EXPECT_EQ(syncs_.TakeWrittenToLogs(), 0U);
  EXPECT_EQ(syncs_.Take(), 0);
  Write("INSERT INTO t VALUES (1)");
  ASSERT_TRUE(Count(database, rows).ok());
  EXPECT_EQ(rows, 2);
}

TEST_F(SqliteLog, AnEmptyLogCostsNothing) {
  CloseOther();
  ASSERT_EQ(LogSize(), 0U);
  syncs_.Take();
  sql::Database database(sql::SqliteOptions{.path = path_});
  int rows = 0;
  ASSERT_TRUE(Count(database, rows).ok());
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(syncs_.TakeWrittenToLogs(), 0U);
  EXPECT_EQ(syncs_.Take(), 0);
}

TEST_F(SqliteLog, ALookLeavesItAsItIs) {
  const std::size_t size = LogSize();
  int rows = 0;
  {
    sql::Database database(sql::SqliteOptions{.path = path_, .or_read_only = true});
    ASSERT_TRUE(Count(database, rows).ok());
    // The other process dies: this connection is the last one that is closed.
    ASSERT_EQ(sqlite3_db_config(other_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr), SQLITE_OK);
    CloseOther();
  }
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(syncs_.TakeWrittenToLogs(), 0U);
  EXPECT_EQ(syncs_.Take(), 0);
  EXPECT_EQ(LogSize(), size);
}

// The flush of a commit fails, and with it, as each error, the last connection of the process is closed. The
// next one finds the commit in the log, and the kernel takes it as written.
TEST_F(SqliteLog, IsWrittenAgainAfterAConnectionHasFailed) {
  sql::Database database(sql::SqliteOptions{.path = path_});
  const auto add = [&] {
    return database.Transact("add", sql::Database::Finish::kCommit, [](soci::session& session) {
      session << "INSERT INTO t VALUES (1)";
      return Result<void>();
    });
  };
  ASSERT_TRUE(add().ok());
  const std::size_t size = LogSize();
  syncs_.TakeWrittenToLogs();
  syncs_.Fail(2);
  const auto failed = add();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kOutcomeUnknown);
  syncs_.TakeWrittenToLogs();
  // Nothing is read or written before the log is on the disk.
  int rows = 0;
  const auto read = Count(database, rows);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(read.error().message.find("cannot flush the log"), std::string::npos) << read.error().message;
  EXPECT_NE(read.error().message.find(path_), std::string::npos) << read.error().message;
  EXPECT_GE(syncs_.TakeWrittenToLogs(), size);
  // A connection that could not write it again does not move it into the database, even as the last one.
  ASSERT_EQ(sqlite3_db_config(other_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr), SQLITE_OK);
  CloseOther();
  syncs_.Fail(1);
  ASSERT_FALSE(Count(database, rows).ok());
  EXPECT_GE(LogSize(), size);
  syncs_.TakeWrittenToLogs();
  EXPECT_TRUE(Count(database, rows).ok());
  EXPECT_GE(syncs_.TakeWrittenToLogs(), size);
  EXPECT_TRUE(add().ok());
}

}  // namespace
}  // namespace leaf::testing
