#include "leaf/sql/mark_store.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::sql {
namespace {

// "ID" for one of the others, and ".ID=BEAT" if its beat is known; "ID=BEAT" for one that is covered. To a
// version that knows no beats ".ID" is another one that is covered, of which nothing follows.
void ParseOthers(std::string_view text, core::ClusterMemory& memory) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string one(text.substr(begin, end - begin));
    const std::size_t equals = one.find('=');
    begin = end + 1;
    if (equals == std::string::npos) {
      memory.others.push_back(one);
      continue;
    }
    std::uint64_t beat = 0;
    std::from_chars(one.data() + equals + 1, one.data() + one.size(), beat);
    if (one.front() == '.') {
      memory.beats.emplace_back(one.substr(1, equals - 1), beat);
    } else {
      memory.covered.emplace_back(one.substr(0, equals), beat);
    }
  }
}

std::string FormatOthers(const core::ClusterMemory& memory) {
  std::string text;
  for (const std::string& id : memory.others) text += fmt::format(" {}", id);
  for (const auto& [id, beat] : memory.covered) text += fmt::format(" {}={}", id, beat);
  for (const auto& [id, beat] : memory.beats) text += fmt::format(" .{}={}", id, beat);
  return text.empty() ? text : text.substr(1);
}

}  // namespace

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
  // Files before 0.2 know of no witness.
  const auto look = [&] {
    return database_.Run("open the marks of this node", [this](soci::session& session) -> Result<void> {
      int found = 0;
      session << "SELECT count(*) FROM pragma_table_info('marks') WHERE name = 'witness'", soci::into(found);
      has_witness_.store(found > 0);
      return {};
    });
  };
  LEAF_RETURN_IF_ERROR(look());
  if (!has_witness_.load()) {
    // If it fails, another process has just done it, or the file may only be read.
    (void)database_.Run("open the marks of this node", [](soci::session& session) -> Result<void> {
      session << "ALTER TABLE marks ADD COLUMN witness INTEGER NOT NULL DEFAULT 0";
      return {};
    });
    LEAF_RETURN_IF_ERROR(look());
  }
  table_ready_.store(true);
  return {};
}

Result<void> SqliteMarkStore::EnsureMemoryTable() {
  if (memory_ready_.load()) return {};
  LEAF_RETURN_IF_ERROR(database_.Run(
      "open what this node remembers of its cluster", [](soci::session& session) -> Result<void> {
        session
            << "CREATE TABLE IF NOT EXISTS clusters (cluster TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL, "
               "incarnation INTEGER NOT NULL, beat INTEGER NOT NULL, others TEXT NOT NULL, "
               "at INTEGER NOT NULL) WITHOUT ROWID";
        return {};
      }));
  memory_ready_.store(true);
  return {};
}

Result<void> SqliteMarkStore::EnsureOrderTable() {
  if (orders_ready_.load()) return {};
  LEAF_RETURN_IF_ERROR(
      database_.Run("open the orders that this node remembers", [](soci::session& session) -> Result<void> {
        session << "CREATE TABLE IF NOT EXISTS orders (tag TEXT NOT NULL PRIMARY KEY, "
                   "strict INTEGER NOT NULL, since INTEGER, version INTEGER NOT NULL) WITHOUT ROWID";
        return {};
      }));
  orders_ready_.store(true);
  return {};
}

Result<core::ClusterMemory> SqliteMarkStore::LoadMemory(std::string_view cluster) {
  LEAF_RETURN_IF_ERROR(EnsureMemoryTable());
  core::ClusterMemory memory;
  const std::string name(cluster);
  LEAF_RETURN_IF_ERROR(database_.Run(
      "read what this node remembers of its cluster", [&](soci::session& session) -> Result<void> {
        std::string others;
        long long incarnation = 0;
        long long beat = 0;
        long long at = 0;
        session << "SELECT id, incarnation, beat, others, at FROM clusters WHERE cluster = :cluster",
            soci::use(name), soci::into(memory.id), soci::into(incarnation), soci::into(beat),
            soci::into(others), soci::into(at);
        if (!session.got_data()) return {};
        memory.incarnation = static_cast<std::uint64_t>(incarnation);
        memory.beat = static_cast<std::uint64_t>(beat);
        memory.at = WallTimeOf(at);
        ParseOthers(others, memory);
        return {};
      }));
  return memory;
}

Result<void> SqliteMarkStore::SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) {
  LEAF_RETURN_IF_ERROR(EnsureMemoryTable());
  const std::string name(cluster);
  return database_.Transact(
      "remember how far this node has got in its cluster", Database::Finish::kCommit,
      [&](soci::session& session) -> Result<void> {
        std::string others = FormatOthers(memory);
        std::string stored;
        long long stored_beat = 0;
        session << "SELECT others, beat FROM clusters WHERE cluster = :cluster", soci::use(name, "cluster"),
            soci::into(stored), soci::into(stored_beat);
        if (session.got_data() && memory.beat < static_cast<std::uint64_t>(stored_beat)) {
          core::ClusterMemory both;
          ParseOthers(stored, both);
          core::AddOthers(both, memory);
          others = FormatOthers(both);
        }
        const auto incarnation = static_cast<long long>(memory.incarnation);
        const auto beat = static_cast<long long>(memory.beat);
        const long long at = UnixMillis(memory.at);
        session << "INSERT INTO clusters (cluster, id, incarnation, beat, others, at) "
                   "VALUES (:cluster, :id, :incarnation, :beat, :others, :at) "
                   "ON CONFLICT (cluster) DO UPDATE SET others = excluded.others, "
                   "beat = max(beat, excluded.beat), incarnation = max(incarnation, excluded.incarnation), "
                   "at = CASE WHEN excluded.beat >= beat THEN excluded.at ELSE at END",
            soci::use(name, "cluster"), soci::use(memory.id, "id"), soci::use(incarnation, "incarnation"),
            soci::use(beat, "beat"), soci::use(others, "others"), soci::use(at, "at");
        return {};
      });
}

Result<void> SqliteMarkStore::RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) {
  LEAF_RETURN_IF_ERROR(EnsureTable());
  if (ends.empty()) return {};
  return database_.Transact(
      "remember what the cluster was granted", Database::Finish::kCommit,
      [&](soci::session& session) -> Result<void> {
        std::string name;
        long long end = 0;
        const long long now = UnixMillis(clock_.Wall());
        soci::statement keep =
            (session.prepare << "INSERT INTO marks (tag, end, raised_at, raised_by, base_end, base_at, "
                                "next_end, next_at, "
                                "held, witness) VALUES (:tag, 0, :now, '', 0, :now, 0, :now, 0, :end) "
                                "ON CONFLICT (tag) DO UPDATE SET witness = max(witness, excluded.witness)",
             soci::use(name, "tag"), soci::use(now, "now"), soci::use(end, "end"));
        for (const auto& [tag, granted] : ends) {
          name = tag;
          end = static_cast<long long>(granted);
          keep.execute(true);
        }
        return {};
      });
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
    long long witness = 0;
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
    read.exchange(soci::into(witness));
    read.alloc();
    read.prepare(
        fmt::format("SELECT tag, end, raised_at, raised_by, base_end, base_at, held, wasted_last, wasted, "
                    "wasted_exactly, {} FROM marks{}",
                    has_witness_.load() ? "witness" : "0", where));
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
      mark.witness = static_cast<std::uint64_t>(witness);
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
    long long witness = 0;
    const long long now = UnixMillis(clock_.Wall());
    const long long age = std::chrono::milliseconds(kBaselineAge).count();
    soci::statement insert =
        (session.prepare
             << "INSERT INTO marks (tag, end, raised_at, raised_by, base_end, base_at, next_end, next_at, "
                "held, witness) "
                "VALUES (:tag, :end, :now, :writer, :end, :now, :end, :now, max(:held, 0), :witness) "
                "ON CONFLICT (tag) DO UPDATE SET end = max(end, excluded.end), "
                "raised_at = CASE WHEN excluded.end > end THEN excluded.raised_at ELSE raised_at END, "
                "raised_by = CASE WHEN excluded.end > end THEN excluded.raised_by ELSE raised_by END, "
                // The first grant to this node, of a tag that others were granted (RaiseWitnesses).
                "base_end = CASE WHEN end = 0 THEN excluded.end "
                "WHEN :now - next_at >= :age THEN next_end ELSE base_end END, "
                "base_at = CASE WHEN end = 0 THEN excluded.base_at "
                "WHEN :now - next_at >= :age THEN next_at ELSE base_at END, "
                "next_end = CASE WHEN end = 0 OR :now - next_at >= :age THEN excluded.end ELSE next_end END, "
                "next_at = CASE WHEN end = 0 OR :now - next_at >= :age THEN excluded.next_at ELSE next_at "
                "END, "
                "held = CASE WHEN :held < 0 THEN held ELSE :held END, "
                "held_exactly = CASE WHEN :held < 0 THEN held_exactly ELSE 0 END, "
                "witness = max(witness, excluded.witness)",
         soci::use(name, "tag"), soci::use(end, "end"), soci::use(now, "now"), soci::use(writer_, "writer"),
         soci::use(held, "held"), soci::use(age, "age"), soci::use(witness, "witness"));
    for (const core::MarkRaise* raise : raises) {
      name = raise->tag;
      end = static_cast<long long>(raise->end);
      held = raise->held ? static_cast<long long>(*raise->held) : -1;  // -1: as it is
      witness = static_cast<long long>(raise->witness);
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

Result<std::vector<core::OrderRow>> SqliteMarkStore::LoadOrders() {
  std::vector<core::OrderRow> rows;
  LEAF_RETURN_IF_ERROR(
      database_.Run("read the orders that this node remembers", [&](soci::session& session) -> Result<void> {
        rows.clear();
        // A file of an earlier version has none, and may be readable only.
        int found = 0;
        session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'orders'",
            soci::into(found);
        if (found == 0) return {};
        core::OrderRow row;
        int strict = 0;
        long long since = 0;
        long long version = 0;
        soci::indicator has_since = soci::i_null;
        soci::statement read =
            (session.prepare << "SELECT tag, strict, since, version FROM orders", soci::into(row.tag),
             soci::into(strict), soci::into(since, has_since), soci::into(version));
        read.execute();
        while (read.fetch()) {
          row.order = strict != 0 ? core::TagOrder::kStrict : core::TagOrder::kTrend;
          row.since.reset();
          if (has_since == soci::i_ok) row.since = static_cast<std::uint64_t>(since);
          row.version = static_cast<std::uint64_t>(version);
          rows.push_back(row);
        }
        return {};
      }));
  return rows;
}

Result<void> SqliteMarkStore::KeepOrders(const std::vector<core::OrderRow>& rows) {
  if (rows.empty()) return {};
  LEAF_RETURN_IF_ERROR(EnsureOrderTable());
  return database_.Transact(
      "remember the order of tags", Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        std::string tag;
        int strict = 0;
        long long since = 0;
        long long version = 0;
        soci::indicator has_since = soci::i_null;
        // The condition is core::IsNewer.
        soci::statement keep =
            (session.prepare << "INSERT INTO orders (tag, strict, since, version) "
                                "VALUES (:tag, :strict, :since, :version) "
                                "ON CONFLICT (tag) DO UPDATE SET strict = excluded.strict, "
                                "since = excluded.since, version = excluded.version "
                                "WHERE excluded.version > version OR excluded.version = version AND "
                                "(excluded.strict > strict OR excluded.strict = strict AND "
                                "excluded.since IS NOT NULL AND since IS NULL)",
             soci::use(tag, "tag"), soci::use(strict, "strict"), soci::use(since, has_since, "since"),
             soci::use(version, "version"));
        for (const core::OrderRow& row : rows) {
          tag = row.tag;
          strict = row.order == core::TagOrder::kStrict ? 1 : 0;
          since = static_cast<long long>(row.since.value_or(0));
          has_since = row.since ? soci::i_ok : soci::i_null;
          version = static_cast<long long>(row.version);
          keep.execute(true);
        }
        return {};
      });
}

}  // namespace leaf::sql
