// What SQLite acknowledges is on the disk. Without that a power cut takes away grants and marks that are in
// use.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "leaf/sql/database.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sql/segment_store.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

// Counts the flushes of every file that SQLite opens while it lives. One thread.
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
  int Take() { return std::exchange(syncs_, 0); }

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
  static inline int syncs_ = 0;
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

}  // namespace
}  // namespace leaf::testing
