#include "leaf/sql/mark_store.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::sql {

SqliteMarkStore::SqliteMarkStore(const std::string& path, Locker locker, const Clock& clock,
                                 std::string writer)
    : database_(SqliteOptions{.path = path}),
      locker_(std::move(locker)),
      clock_(clock),
      writer_(std::move(writer)) {}

SqliteMarkStore::SqliteMarkStore(const SqliteOptions& options, const Clock& clock)
    : database_(options), clock_(clock) {}

Result<void> SqliteMarkStore::EnsureTable() {
  if (table_ready_.load()) return {};
  LEAF_RETURN_IF_ERROR(
      database_.Run("open the marks of this node", [](soci::session& session) -> Result<void> {
        // Times are Unix milliseconds. base_* is the baseline in use, next_* the one that will follow it.
        session << "CREATE TABLE IF NOT EXISTS marks (tag TEXT NOT NULL PRIMARY KEY, end INTEGER NOT NULL, "
                   "raised_at INTEGER NOT NULL, raised_by TEXT NOT NULL, "
                   "base_end INTEGER NOT NULL, base_at INTEGER NOT NULL, "
                   "next_end INTEGER NOT NULL, next_at INTEGER NOT NULL, "
                   "held INTEGER NOT NULL, held_exactly INTEGER NOT NULL DEFAULT 0, "
                   "wasted_last INTEGER NOT NULL DEFAULT 0, wasted INTEGER NOT NULL DEFAULT 0, "
                   "wasted_exactly INTEGER NOT NULL DEFAULT 1) WITHOUT ROWID";
        return {};
      }));
  table_ready_.store(true);
  return {};
}

Result<std::vector<core::Mark>> SqliteMarkStore::Read(std::string_view what, std::string_view where,
                                                      const std::string& tag) {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  std::vector<core::Mark> marks;
  LEAF_RETURN_IF_ERROR(database_.Run(what, [&](soci::session& session) -> Result<void> {
    core::Mark mark;
    long long end = 0;
    long long raised_at = 0;
    long long base_end = 0;
    long long base_at = 0;
    long long held = 0;
    long long wasted_last = 0;
    long long wasted = 0;
    int wasted_exactly = 0;
    soci::statement read(session);
    if (!where.empty()) read.exchange(soci::use(tag, "tag"));
    read.exchange(soci::into(mark.tag));
    read.exchange(soci::into(end));
    read.exchange(soci::into(raised_at));
    read.exchange(soci::into(mark.raised_by));
    read.exchange(soci::into(base_end));
    read.exchange(soci::into(base_at));
    read.exchange(soci::into(held));
    read.exchange(soci::into(wasted_last));
    read.exchange(soci::into(wasted));
    read.exchange(soci::into(wasted_exactly));
    read.alloc();
    read.prepare(
        fmt::format("SELECT tag, end, raised_at, raised_by, base_end, base_at, held, wasted_last, wasted, "
                    "wasted_exactly FROM marks{}",
                    where));
    read.define_and_bind();
    read.execute();
    while (read.fetch()) {
      mark.end = static_cast<std::uint64_t>(end);
      mark.raised_at = WallTimeOf(raised_at);
      mark.base = {static_cast<std::uint64_t>(base_end), WallTimeOf(base_at)};
      mark.held = static_cast<std::uint64_t>(held);
      mark.wasted_last = static_cast<std::uint64_t>(wasted_last);
      mark.wasted = static_cast<std::uint64_t>(wasted);
      mark.wasted_exactly = wasted_exactly != 0;
      marks.push_back(mark);
    }
    return {};
  }));
  return marks;
}

Result<std::vector<core::Mark>> SqliteMarkStore::LoadAll() {
  return Read("read the marks of this node", "", "");
}

Result<core::Mark> SqliteMarkStore::Load(std::string_view tag) {
  const std::string name(tag);
  LEAF_ASSIGN_OR_RETURN(auto marks,
                        Read(fmt::format("read the mark of tag {}", Quoted(tag)), " WHERE tag = :tag", name));
  if (!marks.empty()) return std::move(marks.front());
  core::Mark none;
  none.tag = name;
  return none;
}

Result<void> SqliteMarkStore::Raise(const core::MarkRaise& raise) {
  LEAF_CHECK(raise.end <= kMaxIdLimit);
  LEAF_RETURN_IF_ERROR(EnsureTable());
  return raises_.Run(raise);
}

Result<void> SqliteMarkStore::RaiseAll(const std::vector<const core::MarkRaise*>& raises) {
  const std::string what = raises.size() == 1
                               ? fmt::format("raise the mark of tag {}", Quoted(raises.front()->tag))
                               : fmt::format("raise the marks of {} tags", raises.size());
  return database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
    std::string name;
    long long end = 0;
    long long held = 0;
    const long long now = UnixMillis(clock_.Wall());
    const long long age = std::chrono::milliseconds(kBaselineAge).count();
    soci::statement insert =
        (session.prepare
             << "INSERT INTO marks (tag, end, raised_at, raised_by, base_end, base_at, next_end, next_at, "
                "held) "
                "VALUES (:tag, :end, :now, :writer, :end, :now, :end, :now, max(:held, 0)) "
                "ON CONFLICT (tag) DO UPDATE SET end = max(end, excluded.end), "
                "raised_at = CASE WHEN excluded.end > end THEN excluded.raised_at ELSE raised_at END, "
                "raised_by = CASE WHEN excluded.end > end THEN excluded.raised_by ELSE raised_by END, "
                "base_end = CASE WHEN :now - next_at >= :age THEN next_end ELSE base_end END, "
                "base_at = CASE WHEN :now - next_at >= :age THEN next_at ELSE base_at END, "
                "next_end = CASE WHEN :now - next_at >= :age THEN excluded.end ELSE next_end END, "
                "next_at = CASE WHEN :now - next_at >= :age THEN excluded.next_at ELSE next_at END, "
                "held = CASE WHEN :held < 0 THEN held ELSE :held END, "
                "held_exactly = CASE WHEN :held < 0 THEN held_exactly ELSE 0 END",
         soci::use(name, "tag"), soci::use(end, "end"), soci::use(now, "now"), soci::use(writer_, "writer"),
         soci::use(held, "held"), soci::use(age, "age"));
    for (const core::MarkRaise* raise : raises) {
      name = raise->tag;
      end = static_cast<long long>(raise->end);
      held = raise->held ? static_cast<long long>(*raise->held) : -1;  // -1: as it is
      insert.execute(true);
    }
    return {};
  });
}

Result<void> SqliteMarkStore::BeginRun() {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  return database_.Transact(
      "open the marks of this node", Database::Finish::kCommit, [](soci::session& session) -> Result<void> {
        session
            << "UPDATE marks SET wasted = wasted + held, wasted_last = held, "
               "wasted_exactly = wasted_exactly AND (held_exactly OR held = 0), held = 0, held_exactly = 0 "
               "WHERE held > 0 OR wasted_last > 0";
        return {};
      });
}

Result<void> SqliteMarkStore::EndRun(const std::vector<core::UnissuedIds>& unissued) {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  return database_.Transact(
      "close the marks of this node", Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        session << "UPDATE marks SET held = 0, held_exactly = 1 WHERE held > 0";
        std::string tag;
        long long count = 0;
        soci::statement keep =
            (session.prepare << "UPDATE marks SET held = :count, held_exactly = 1 WHERE tag = :tag",
             soci::use(count, "count"), soci::use(tag, "tag"));
        for (const core::UnissuedIds& ids : unissued) {
          tag = ids.tag;
          count = static_cast<long long>(ids.count);
          keep.execute(true);
        }
        return {};
      });
}

}  // namespace leaf::sql
