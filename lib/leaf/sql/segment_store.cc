#include "leaf/sql/segment_store.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/sql/audit.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_session.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/sql/whole_number.h"

namespace leaf::sql {
namespace {

Database::Finish FinishOf(core::WriteMode mode) {
  return mode == core::WriteMode::kCommit ? Database::Finish::kCommit : Database::Finish::kRollback;
}

// Variables that a row is read into.
struct RowBuffer {
  std::string tag;
  WholeNumber max_id;
  WholeNumber step;
  std::string description;
  soci::indicator description_state = soci::i_null;
  long long update_time_ms = 0;
  soci::indicator update_time_state = soci::i_null;

  core::TagRow Row() const {
    core::TagRow row{.tag = tag,
                     .max_id = max_id.value(),
                     .step = step.value(),
                     .description = std::nullopt,
                     .update_time = {}};
    if (description_state == soci::i_ok) row.description = description;
    if (update_time_state == soci::i_ok) row.update_time = WallTimeOf(update_time_ms);
    return row;
  }
};

std::string SelectAll(const Dialect& dialect) {
  return fmt::format("SELECT biz_tag, max_id, step, description, {} FROM leaf_alloc", dialect.update_time_ms);
}

// The row of `tag`, locked until the transaction ends if `locking`.
Result<core::TagRow> ReadRow(soci::session& session, const Dialect& dialect, std::string_view tag,
                             bool locking) {
  RowBuffer row;
  // SOCI reads what use() names when the statement ends, after any temporary in it is gone: values need
  // names.
  const std::string name(tag);
  session << fmt::format("{} WHERE {}{}", SelectAll(dialect), dialect.tag_matches,
                         locking ? dialect.for_update : ""),
      soci::use(name, "tag"), soci::into(row.tag), soci::into(row.max_id.text, row.max_id.state),
      soci::into(row.step.text, row.step.state), soci::into(row.description, row.description_state),
      soci::into(row.update_time_ms, row.update_time_state);
  // The statement compares bytes; whatever else the server thinks, the answer counts only if it does too.
  if (!session.got_data() || row.tag != tag) return UnknownTag(tag);
  return row.Row();
}

// Requires that a statement changed exactly the one row it was meant for.
Result<void> ExpectOneRow(long long changed, std::string_view tag) {
  if (changed == 1) return {};
  return Error{
      ErrorCode::kConfig,
      fmt::format("cannot change tag {}: {} rows of leaf_alloc match instead of one", Quoted(tag), changed),
      "leafctl db check"};
}

// 0 where the table of removed tags does not exist.
// `suffix`: the dialect's for_update where the mark must not change until the transaction ends.
std::uint64_t ReadRemovedMark(soci::session& session, std::string_view tag, std::string_view suffix) {
  long long mark = 0;
  const std::string name(tag);
  try {
    session << fmt::format("SELECT max_id FROM leafctl_removed_tags WHERE biz_tag = :tag{}", suffix),
        soci::use(name, "tag"), soci::into(mark);
  } catch (const std::exception& exception) {
    if (!IsMissingTable(exception)) throw;
    return 0;
  }
  return session.got_data() && mark > 0 ? static_cast<std::uint64_t>(mark) : 0;
}

// Whether it was remembered.
bool RememberRemoved(soci::session& session, const Dialect& dialect, const core::TagRow& row) {
  try {
    const long long max_id = row.max_id;
    session << std::string(dialect.remember_removed), soci::use(row.tag, "tag"), soci::use(max_id, "max_id");
    return true;
  } catch (const std::exception& exception) {
    if (!IsMissingTable(exception)) throw;
    return false;
  }
}

// The part of a tag's row that a grant needs, as last committed. A locking read, so that no replica answers
// it. `suffix`: for_update, or for_update_now. Errors: kNotFound; kUnavailable if the server takes no writes.
Result<core::TagRow> ReadForGrant(soci::session& session, const Dialect& dialect, std::string_view tag,
                                  std::string_view suffix) {
  core::TagRow row{
      .tag = std::string(tag), .max_id = 0, .step = 0, .description = std::nullopt, .update_time = {}};
  WholeNumber max_id;
  WholeNumber step;
  int read_only = 1;
  std::string stored_tag;
  session << fmt::format("SELECT biz_tag, max_id, step, {} FROM leaf_alloc WHERE {}{}", dialect.read_only,
                         dialect.tag_matches, suffix),
      soci::use(row.tag, "tag"), soci::into(stored_tag), soci::into(max_id.text, max_id.state),
      soci::into(step.text, step.state), soci::into(read_only);
  if (!session.got_data() || stored_tag != tag) return UnknownTag(tag);
  if (read_only != 0) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot reserve IDs of {}: the database server is read-only", Quoted(tag)),
                 "retry later"};
  }
  row.max_id = max_id.value();
  row.step = step.value();
  return row;
}

// The same without waiting for a client that holds the row: then `locked` is set.
Result<core::TagRow> ReadUnlessLocked(soci::session& session, const Dialect& dialect, std::string_view tag,
                                      bool& locked) {
  try {
    return ReadForGrant(session, dialect, tag, dialect.for_update_now);
  } catch (const std::exception& exception) {
    locked = IsRowLocked(exception);
    if (!locked) throw;
    return Error{ErrorCode::kUnavailable, fmt::format("the row of {} is locked", Quoted(tag)), "retry later"};
  }
}

// That a server which did not tell where a range ends takes writes.
Result<void> ExpectWritable(soci::session& session, const Dialect& dialect, std::string_view what) {
  int read_only = 1;
  session << fmt::format("SELECT {}", dialect.read_only), soci::into(read_only);
  if (read_only == 0) return {};
  return Error{ErrorCode::kOutcomeUnknown,
               fmt::format("cannot {}: the database server was made read-only meanwhile", what),
               "retry later"};
}

// How many IDs a grant from this row has.
Result<std::uint64_t> CountOf(const core::TagRow& row, std::string_view what, const core::GrantSizer& sizer) {
  if (row.step < 1 || row.step > kStepMax) {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot {}: its step is {}, which is not in 1..{}", what, row.step, kStepMax),
                 TagCommand("set", row.tag, fmt::format("--step {}", kStepDefault))};
  }
  if (row.max_id < 0) {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot {}: its max_id is {}, which is below 0", what, row.max_id),
                 TagCommand("advance", row.tag, "--to N")};
  }
  LEAF_ASSIGN_OR_RETURN(const core::GrantSize size, sizer(row));
  LEAF_CHECK(size.least >= 1 && size.least <= size.wanted);
  const std::uint64_t left = kMaxIdLimit - static_cast<std::uint64_t>(row.max_id);
  if (left < size.least) {
    return Error{
        ErrorCode::kOverflow,
        fmt::format("cannot {}: {} are asked for and {} are left below 2^63", what, size.least, left),
        "use a new tag"};
  }
  return std::min(size.wanted, left);
}

// How often a grant is tried: between being read and being raised, the row may have gone back, reached its
// end, or been written by another node.
constexpr int kRaiseAttempts = 8;
constexpr std::chrono::milliseconds kConflictPause{1};  // doubled for each attempt

}  // namespace

Result<core::Grant> SqlSegmentStore::Reserve(std::string_view tag, const core::GrantSizer& sizer) {
  const bool in_one = database_.dialect().raises_in_one_statement && ends_are_told_.load();
  return in_one ? ReserveByOneStatement(tag, sizer) : ReserveInTransaction(tag, sizer);
}

// The row is locked inside the server only, for as long as the statement takes there. In a transaction it
// would be locked for two round trips, and a node with a slow link would keep all others waiting.
// What the server adds to is what it tells (LAST_INSERT_ID(expr), in the same reply), so that it need not be
// what was read a moment ago: other nodes may have been granted ranges in between. It is never less.
//
// The server may have been demoted since it was read, and a user with all privileges can write to it all the
// same: its successor, which has taken over without that write, grants the range once more. So what it tells
// is 0 once it takes no writes. That stands where it makes no difference to the row, since a replica, which
// takes none either, may execute the statement again.
//
// MariaDB leaves the value out of the reply if the table has a trigger, even one that does nothing. Then
// grants are obtained in transactions.
//
// A row that another client holds is waited for in a second attempt, as Use::kPatient: rows that are locked
// for long, however many, leave connections to the others.
Result<core::Grant> SqlSegmentStore::ReserveByOneStatement(std::string_view tag,
                                                           const core::GrantSizer& sizer) {
  bool locked = false;
  Result<core::Grant> grant = RaiseRow(tag, sizer, Use::kOrdinary, locked);
  if (!locked) return grant;
  locked = false;
  return RaiseRow(tag, sizer, Use::kPatient, locked);
}

Result<core::Grant> SqlSegmentStore::RaiseRow(std::string_view tag, const core::GrantSizer& sizer, Use use,
                                              bool& locked) {
  core::Grant grant;
  const std::string what = fmt::format("reserve IDs of {}", Quoted(tag));
  const auto raise = [&](Database::Autocommit& connection) -> Result<void> {
    for (int attempt = 1; attempt <= kRaiseAttempts; ++attempt) {
      try {
        LEAF_ASSIGN_OR_RETURN(const auto raised, TryToRaise(connection, what, tag, sizer, use, locked));
        if (raised) {
          grant = *raised;
          return {};
        }
      } catch (const std::exception& exception) {
        // Two Galera nodes wrote the row at once, and the second write is refused.
        if (attempt == kRaiseAttempts || !IsConflict(exception)) throw;
        // This node may not have applied the other one's write yet.
        connection.Pause(kConflictPause * (1 << attempt));
      }
      connection.Undone();
    }
    return Error{ErrorCode::kUnavailable, fmt::format("cannot {}: its row keeps changing", what),
                 "retry later"};
  };
  LEAF_RETURN_IF_ERROR(database_.RunAutocommit(what, raise, use));
  return grant;
}

Result<std::optional<core::Grant>> SqlSegmentStore::TryToRaise(Database::Autocommit& connection,
                                                               std::string_view what, std::string_view tag,
                                                               const core::GrantSizer& sizer, Use use,
                                                               bool& locked) {
  const Dialect& dialect = database_.dialect();
  soci::session& session = connection.session();
  const bool waits = use == Use::kPatient || !CanReadWithoutWaiting(session);
  const auto read = waits ? ReadForGrant(session, dialect, tag, dialect.for_update)
                          : ReadUnlessLocked(session, dialect, tag, locked);
  if (!read.ok()) {
    // A server that takes no writes any more may lack a row that the one in use has.
    if (!locked) connection.Doubt();
    return read.error();
  }
  const core::TagRow& row = *read;
  connection.Trust();
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t count, CountOf(row, what, sizer));
  LEAF_ASSIGN_OR_RETURN(const auto range, Raise(connection, what, row.tag, row.max_id, count));
  if (!range) return std::optional<core::Grant>();
  return std::optional(core::Grant{.range = *range, .table_step = row.step});
}

// A row that another client holds is waited for, so this is for kPatient, and only while there is a place for
// it: else Reserve looks first and does not wait. Where the server has not said a moment ago that it takes
// writes, Reserve asks.
Result<std::optional<core::Grant>> SqlSegmentStore::ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                                  const UnreadSizer& size) {
  std::optional<core::Grant> grant;
  if (!database_.dialect().raises_in_one_statement || !ends_are_told_.load() || floor > kMaxIdLimit ||
      !database_.HasPlaceFor(Use::kPatient)) {
    return grant;
  }
  const std::string what = fmt::format("reserve IDs of {}", Quoted(tag));
  const auto raise = [&](Database::Autocommit& connection) -> Result<void> {
    if (!connection.IsTrusted()) return {};
    LEAF_ASSIGN_OR_RETURN(const core::GrantSize wanted, size());
    if (wanted.wanted > kMaxIdLimit) return {};
    try {
      LEAF_ASSIGN_OR_RETURN(const auto range, Raise(connection, what, std::string(tag),
                                                    static_cast<std::int64_t>(floor), wanted.wanted));
      if (!range) return {};
      connection.Trust();
      grant = core::Grant{.range = *range, .table_step = 0};
    } catch (const std::exception& exception) {
      if (!IsConflict(exception)) throw;
      connection.Undone();
    }
    return {};
  };
  LEAF_RETURN_IF_ERROR(database_.RunAutocommit(what, raise, Use::kPatient));
  return grant;
}

Result<std::optional<IdRange>> SqlSegmentStore::Raise(Database::Autocommit& connection, std::string_view what,
                                                      const std::string& tag, std::int64_t floor,
                                                      std::uint64_t count) {
  const Dialect& dialect = database_.dialect();
  soci::session& session = connection.session();
  LEAF_RETURN_IF_ERROR(connection.BeginWrite());
  // By our own number, never by the table's column.
  const auto delta = static_cast<long long>(count);
  const long long seen = floor;
  const long long step_max = kStepMax;
  const auto highest = static_cast<long long>(kMaxIdLimit - count);
  soci::statement update =
      (session.prepare << fmt::format(
           "UPDATE leaf_alloc SET max_id = max_id + :delta WHERE {} AND max_id BETWEEN :seen AND :highest "
           "AND step BETWEEN 1 AND :step_max AND LAST_INSERT_ID((max_id + :delta) * ({} = 0)) >= 0",
           dialect.tag_matches, dialect.read_only),
       soci::use(delta, "delta"), soci::use(tag, "tag"), soci::use(seen, "seen"),
       soci::use(highest, "highest"), soci::use(step_max, "step_max"));
  update.execute(true);
  const long long changed = update.get_affected_rows();
  if (changed == 0) return std::optional<IdRange>();
  LEAF_RETURN_IF_ERROR(ExpectOneRow(changed, tag));
  long long end = 0;
  const bool told = session.get_last_insert_id("leaf_alloc", end);
  if (end == 0) LEAF_RETURN_IF_ERROR(ExpectWritable(session, dialect, what));
  if (!told || end < seen + delta) {
    ends_are_told_.store(false);
    return Error{
        ErrorCode::kOutcomeUnknown,
        fmt::format("cannot {}: the server does not tell where the range ends ({}, and it cannot end "
                    "below {}); grants are obtained in transactions from now on",
                    what, end, seen + delta),
        "a trigger of leaf_alloc, or a proxy, removes that from the reply"};
  }
  const auto range_end = static_cast<std::uint64_t>(end);
  return std::optional(IdRange{range_end - count, range_end});
}

Result<core::Grant> SqlSegmentStore::ReserveInTransaction(std::string_view tag,
                                                          const core::GrantSizer& sizer) {
  const Dialect& dialect = database_.dialect();
  core::Grant grant;
  const std::string what = fmt::format("reserve IDs of {}", Quoted(tag));
  LEAF_RETURN_IF_ERROR(
      database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        LEAF_ASSIGN_OR_RETURN(const core::TagRow row,
                              ReadForGrant(session, dialect, tag, dialect.for_update));
        LEAF_ASSIGN_OR_RETURN(const std::uint64_t count, CountOf(row, what, sizer));
        // By our own number, never by the table's column; and only from where we read it.
        const auto delta = static_cast<long long>(count);
        const long long expected = row.max_id;
        soci::statement update =
            (session.prepare << fmt::format(
                 "UPDATE leaf_alloc SET max_id = max_id + :delta{} WHERE {} AND max_id = :expected",
                 dialect.touch, dialect.tag_matches),
             soci::use(delta, "delta"), soci::use(row.tag, "tag"), soci::use(expected, "expected"));
        update.execute(true);
        LEAF_RETURN_IF_ERROR(ExpectOneRow(update.get_affected_rows(), tag));
        const auto begin = static_cast<std::uint64_t>(row.max_id);
        grant = {.range = {begin, begin + count}, .table_step = row.step};
        return {};
      }));
  return grant;
}

Result<std::vector<core::TagRow>> SqlSegmentStore::List() {
  std::vector<core::TagRow> rows;
  LEAF_RETURN_IF_ERROR(database_.Run("list tags", [&](soci::session& session) -> Result<void> {
    RowBuffer row;
    soci::statement read =
        (session.prepare << SelectAll(database_.dialect()) << " ORDER BY biz_tag", soci::into(row.tag),
         soci::into(row.max_id.text, row.max_id.state), soci::into(row.step.text, row.step.state),
         soci::into(row.description, row.description_state),
         soci::into(row.update_time_ms, row.update_time_state));
    read.execute();
    while (read.fetch()) rows.push_back(row.Row());
    return {};
  }));
  return rows;
}

Result<core::TagRow> SqlSegmentStore::Describe(std::string_view tag) {
  core::TagRow row;
  const std::string what = fmt::format("look up tag {}", Quoted(tag));
  LEAF_RETURN_IF_ERROR(database_.Run(what, [&](soci::session& session) -> Result<void> {
    LEAF_ASSIGN_OR_RETURN(row, ReadRow(session, database_.dialect(), tag, false));
    return {};
  }));
  return row;
}

Result<core::TagRow> SqlSegmentStore::Add(const core::NewTag& tag, core::WriteMode mode) {
  const Dialect& dialect = database_.dialect();
  core::TagRow row;
  Recorded recorded;
  const std::string what = fmt::format("add tag {}", Quoted(tag.tag));
  LEAF_RETURN_IF_ERROR(database_.Transact(what, FinishOf(mode), [&](soci::session& session) -> Result<void> {
    const Error exists{ErrorCode::kAlreadyExists, fmt::format("cannot {}: it already exists", what),
                       TagCommand("show", tag.tag)};
    try {
      if (ReadRow(session, dialect, tag.tag, false).ok()) return exists;
    } catch (const std::exception& exception) {
      if (!IsInexpressible(exception)) throw;
      return Error{ErrorCode::kConfig,
                   fmt::format("cannot {}: the character set of column biz_tag cannot express it", what),
                   "ALTER TABLE leaf_alloc CONVERT TO CHARACTER SET utf8mb4"};
    }
    const std::uint64_t mark = std::max(tag.mark, ReadRemovedMark(session, tag.tag, dialect.for_update));
    const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(1, mark));
    if (start < mark) {
      return Error{
          ErrorCode::kRefused,
          fmt::format("cannot {} with --start {}: a tag of this name was removed at {}, and IDs below were "
                      "issued",
                      what, start, mark),
          fmt::format("use --start {} or more, or leave it out", mark)};
    }
    const auto max_id = static_cast<long long>(start);
    const long long step = tag.step;
    const std::string description = tag.description.value_or("");
    soci::indicator description_state = tag.description ? soci::i_ok : soci::i_null;
    try {
      session << "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES (:tag, :max_id, :step, "
                 ":description)",
          soci::use(tag.tag, "tag"), soci::use(max_id, "max_id"), soci::use(step, "step"),
          soci::use(description, description_state, "description");
    } catch (const std::exception& exception) {
      Error error = TranslateException(what, exception, Phase::kStatement);
      if (error.code != ErrorCode::kAlreadyExists) throw;
      error.message =
          fmt::format("cannot {}: the column's collation treats it as equal to a tag that exists", what);
      return error;
    }
    LEAF_ASSIGN_OR_RETURN(row, ReadRow(session, dialect, tag.tag, false));
    // A row of leaf_alloc may have been deleted by another program, which left the order of its tag behind.
    if (tag.order == core::TagOrder::kTrend) EndOrderIn(session, dialect, tag.tag);
    if (mode == core::WriteMode::kCommit) recorded = RecordIn(session, core::kAuditAdd, nullptr, &row);
    return {};
  }));
  Tell(recorded, mode);
  return row;
}

Result<core::TagRow> SqlSegmentStore::Update(std::string_view tag, const core::TagChange& change,
                                             core::WriteMode mode) {
  return Change(fmt::format("change tag {}", Quoted(tag)), tag, change, mode, core::kAuditSet);
}

Result<core::TagRow> SqlSegmentStore::Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode) {
  return Advance(tag, to, mode, core::kAuditAdvance);
}

Result<core::TagRow> SqlSegmentStore::Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode,
                                              std::string_view action) {
  core::TagChange change;
  change.max_id = to;
  return Change(fmt::format("advance tag {}", Quoted(tag)), tag, change, mode, action);
}

Result<core::TagRow> SqlSegmentStore::Change(std::string_view what, std::string_view tag,
                                             const core::TagChange& change, core::WriteMode mode,
                                             std::string_view action) {
  const Dialect& dialect = database_.dialect();
  core::TagRow row;
  Recorded recorded;
  LEAF_RETURN_IF_ERROR(database_.Transact(what, FinishOf(mode), [&](soci::session& session) -> Result<void> {
    recorded = {};
    LEAF_ASSIGN_OR_RETURN(const core::TagRow before, ReadRow(session, dialect, tag, true));
    row = before;
    if (change.max_id && before.max_id >= 0 && static_cast<std::uint64_t>(before.max_id) > *change.max_id) {
      return Error{
          ErrorCode::kRefused,
          fmt::format(
              "cannot advance tag {} to {}: its max_id is {} already, and going back would repeat IDs",
              Quoted(tag), *change.max_id, before.max_id),
          ""};
    }
    if (change.step || change.description) {
      const long long step = change.step.value_or(before.step);
      const std::optional<std::string>& new_description =
          change.description ? change.description : before.description;
      const std::string description = new_description.value_or("");
      soci::indicator description_state = new_description ? soci::i_ok : soci::i_null;
      session << fmt::format("UPDATE leaf_alloc SET step = :step, description = :description{} WHERE {}",
                             dialect.touch, dialect.tag_matches),
          soci::use(step, "step"), soci::use(description, description_state, "description"),
          soci::use(before.tag, "tag");
    }
    const bool moves = change.max_id && before.max_id != static_cast<std::int64_t>(*change.max_id);
    if (moves) {
      const auto max_id = static_cast<long long>(*change.max_id);
      soci::statement update =
          (session.prepare << fmt::format("UPDATE leaf_alloc SET max_id = :max_id{} WHERE {}", dialect.touch,
                                          dialect.tag_matches),
           soci::use(max_id, "max_id"), soci::use(before.tag, "tag"));
      update.execute(true);
      LEAF_RETURN_IF_ERROR(ExpectOneRow(update.get_affected_rows(), tag));
    }
    if (!change.step && !change.description && !moves) return {};
    LEAF_ASSIGN_OR_RETURN(row, ReadRow(session, dialect, tag, false));
    const bool differs = core::AuditStateOf(before) != core::AuditStateOf(row);
    if (differs && mode == core::WriteMode::kCommit) recorded = RecordIn(session, action, &before, &row);
    return {};
  }));
  Tell(recorded, mode);
  return row;
}

Result<core::TagAdmin::Removal> SqlSegmentStore::Remove(std::string_view tag, core::WriteMode mode) {
  const Dialect& dialect = database_.dialect();
  Removal removal;
  Recorded recorded;
  const std::string what = fmt::format("remove tag {}", Quoted(tag));
  LEAF_RETURN_IF_ERROR(database_.Transact(what, FinishOf(mode), [&](soci::session& session) -> Result<void> {
    LEAF_ASSIGN_OR_RETURN(removal.row, ReadRow(session, dialect, tag, true));
    removal.mark_remembered = RememberRemoved(session, dialect, removal.row);
    soci::statement erase =
        (session.prepare << fmt::format("DELETE FROM leaf_alloc WHERE {}", dialect.tag_matches),
         soci::use(removal.row.tag, "tag"));
    erase.execute(true);
    LEAF_RETURN_IF_ERROR(ExpectOneRow(erase.get_affected_rows(), tag));
    EndOrderIn(session, dialect, removal.row.tag);
    if (mode == core::WriteMode::kCommit)
      recorded = RecordIn(session, core::kAuditRemove, &removal.row, nullptr);
    return {};
  }));
  Tell(recorded, mode);
  return removal;
}

SqlSegmentStore::Recorded SqlSegmentStore::RecordIn(soci::session& session, std::string_view action,
                                                    const core::TagRow* before,
                                                    const core::TagRow* after) const {
  if (!author_) return {};
  Recorded recorded;
  core::AuditLine& line = recorded.line.emplace();
  line.tag = before != nullptr ? before->tag : after->tag;
  line.action = action;
  line.author = *author_;
  if (before != nullptr) line.before = core::AuditStateOf(*before);
  if (after != nullptr) line.after = core::AuditStateOf(*after);
  recorded.why_not = WriteAuditLine(session, database_.dialect(), line);
  return recorded;
}

void SqlSegmentStore::Tell(const Recorded& recorded, core::WriteMode mode) const {
  if (mode == core::WriteMode::kCommit && recorded.line && listener_)
    listener_(*recorded.line, recorded.why_not);
}

Result<void> SqlSegmentStore::Record(std::string_view tag, std::string_view action) {
  if (!author_) return {};
  Recorded recorded;
  core::AuditLine& line = recorded.line.emplace();
  line.tag = tag;
  line.action = action;
  line.author = *author_;
  LEAF_RETURN_IF_ERROR(
      database_.Transact(fmt::format("record the {} of tag {}", action, Quoted(tag)),
                         Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
                           recorded.why_not = WriteAuditLine(session, database_.dialect(), line);
                           return {};
                         }));
  Tell(recorded, core::WriteMode::kCommit);
  return {};
}

Result<std::vector<core::AuditLine>> SqlSegmentStore::History(std::string_view tag, std::uint64_t limit) {
  std::vector<core::AuditLine> lines;
  LEAF_RETURN_IF_ERROR(
      database_.Run(fmt::format("read the history of tag {}", Quoted(tag)),
                    [&](soci::session& session) { return ReadAuditLines(session, tag, limit, lines); }));
  return lines;
}

Result<std::uint64_t> SqlSegmentStore::RemovedMark(std::string_view tag) {
  std::uint64_t mark = 0;
  LEAF_RETURN_IF_ERROR(database_.Run("look up a removed tag", [&](soci::session& session) -> Result<void> {
    mark = ReadRemovedMark(session, tag, "");
    return {};
  }));
  return mark;
}

Result<std::vector<std::pair<std::string, std::uint64_t>>> SqlSegmentStore::RemovedMarks() {
  std::vector<std::pair<std::string, std::uint64_t>> marks;
  LEAF_RETURN_IF_ERROR(database_.Run("list removed tags", [&](soci::session& session) -> Result<void> {
    marks.clear();
    std::string tag;
    long long mark = 0;
    try {
      soci::statement list = (session.prepare << "SELECT biz_tag, max_id FROM leafctl_removed_tags",
                              soci::into(tag), soci::into(mark));
      list.execute();
      while (list.fetch()) {
        if (mark > 0) marks.emplace_back(tag, static_cast<std::uint64_t>(mark));
      }
    } catch (const std::exception& exception) {
      if (!IsMissingTable(exception)) throw;
    }
    return {};
  }));
  return marks;
}

}  // namespace leaf::sql
