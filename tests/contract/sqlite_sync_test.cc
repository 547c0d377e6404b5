// What SQLite acknowledges is on the disk. Without that a power cut takes away grants and marks that are in
// use.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "leaf/sql/database.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sql/segment_store.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

// Counts the flushes of every file that SQLite opens while it lives. Files are opened by one thread.
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
  }
  SyncCounter(const SyncCounter&) = delete;
  SyncCounter& operator=(const SyncCounter&) = delete;

  // Since the last call.
  int Take() { return syncs_.exchange(0); }

 private:
  static int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    const int result = real_->xOpen(real_, name, file, flags, out_flags);
    if (result != SQLITE_OK || file->pMethods == nullptr) return result;
    // Databases are locked, and files beside them are not: there are several sets, and all flush alike.
    sync_ = file->pMethods->xSync;
    sqlite3_io_methods& methods = methods_.try_emplace(file->pMethods, *file->pMethods).first->second;
    methods.xSync = [](sqlite3_file* synced, int sync_flags) {
      ++syncs_;
      return sync_(synced, sync_flags);
    };
    file->pMethods = &methods;
    return result;
  }

  static inline sqlite3_vfs* real_ = nullptr;
  static inline sqlite3_vfs counting_{};
  static inline std::map<const sqlite3_io_methods*, sqlite3_io_methods> methods_;
  static inline int (*sync_)(sqlite3_file*, int) = nullptr;
  static inline std::atomic<int> syncs_ = 0;
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

}  // namespace
}  // namespace leaf::testing
