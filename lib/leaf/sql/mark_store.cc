#include "leaf/sql/mark_store.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::sql {

SqliteMarkStore::SqliteMarkStore(const std::string& path, Locker locker)
    : database_(SqliteOptions{.path = path}), locker_(std::move(locker)) {}

Result<void> SqliteMarkStore::EnsureTable() {
  if (table_ready_.load()) return {};
  LEAF_RETURN_IF_ERROR(
      database_.Run("open the marks of this node", [](soci::session& session) -> Result<void> {
        session << "CREATE TABLE IF NOT EXISTS marks (tag TEXT NOT NULL PRIMARY KEY, end INTEGER NOT NULL, "
                   "raised_at TEXT "
                   "NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID";
        return {};
      }));
  table_ready_.store(true);
  return {};
}

Result<std::vector<core::Mark>> SqliteMarkStore::LoadAll() {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  std::vector<core::Mark> marks;
  LEAF_RETURN_IF_ERROR(
      database_.Run("read the marks of this node", [&](soci::session& session) -> Result<void> {
        std::string tag;
        long long end = 0;
        soci::statement read =
            (session.prepare << "SELECT tag, end FROM marks", soci::into(tag), soci::into(end));
        read.execute();
        while (read.fetch()) marks.push_back({tag, static_cast<std::uint64_t>(end)});
        return {};
      }));
  return marks;
}

Result<std::uint64_t> SqliteMarkStore::Load(std::string_view tag) {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  long long end = 0;
  const std::string what = fmt::format("read the mark of tag {}", Quoted(tag));
  LEAF_RETURN_IF_ERROR(database_.Run(what, [&](soci::session& session) -> Result<void> {
    const std::string name(tag);
    session << "SELECT end FROM marks WHERE tag = :tag", soci::use(name, "tag"), soci::into(end);
    return {};
  }));
  return static_cast<std::uint64_t>(end);
}

Result<void> SqliteMarkStore::Raise(std::string_view tag, std::uint64_t end) {
  LEAF_CHECK(end <= kMaxIdLimit);
  LEAF_RETURN_IF_ERROR(EnsureTable());
  const std::string what = fmt::format("raise the mark of tag {}", Quoted(tag));
  return database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
    const std::string name(tag);
    const auto value = static_cast<long long>(end);
    session
        << "INSERT INTO marks (tag, end) VALUES (:tag, :end) ON CONFLICT (tag) DO UPDATE SET end = max(end, "
           "excluded.end), raised_at = CURRENT_TIMESTAMP",
        soci::use(name, "tag"), soci::use(value, "end");
    return {};
  });
}

}  // namespace leaf::sql
