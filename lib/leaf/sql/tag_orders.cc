#include "leaf/sql/tag_orders.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>

#include "leaf/base/text.h"
#include "leaf/sql/error_map.h"

namespace leaf::sql {
namespace {

// The row of the version; no tag has this name.
const std::string kVersionRow;

bool IsNotForUs(const std::exception& exception) { return IsMissingTable(exception) || IsDenied(exception); }

Error NoOrders() {
  return {ErrorCode::kConfig,
          "the database has no tables leafctl_orders and leafctl_nodes, or its user may not write to them",
          "leafctl db init creates them"};
}

std::uint64_t NonceOf(long long since, soci::indicator state) {
  return state == soci::i_ok ? static_cast<std::uint64_t>(since) : 0;
}

// A state of the table; 0 for one that was made anew.
struct Version {
  std::uint64_t number = 0;
  std::uint64_t nonce = 0;
};

Version ReadVersion(soci::session& session) {
  long long number = 0;
  long long nonce = 0;
  soci::indicator nonce_state = soci::i_null;
  session << "SELECT version, since FROM leafctl_orders WHERE biz_tag = :tag", soci::use(kVersionRow, "tag"),
      soci::into(number), soci::into(nonce, nonce_state);
  if (!session.got_data()) return {};
  return {static_cast<std::uint64_t>(number), NonceOf(nonce, nonce_state)};
}

// Raises the version, to more than `above`, and keeps its row locked until the transaction ends.
std::uint64_t RaiseVersion(soci::session& session, const Dialect& dialect, std::uint64_t above = 0) {
  session << std::string(dialect.raise_orders_version), soci::use(kVersionRow, "tag");
  if (const std::uint64_t raised = ReadVersion(session).number; raised > above) return raised;
  const long long version = static_cast<long long>(above) + 1;
  session << "UPDATE leafctl_orders SET version = :version WHERE biz_tag = :tag",
      soci::use(version, "version"), soci::use(kVersionRow, "tag");
  return static_cast<std::uint64_t>(version);
}

// One statement, so one state of the table.
core::TagOrderTable ReadOrders(soci::session& session) {
  core::TagOrderTable table;
  std::string tag;
  long long version = 0;
  int strict = 0;
  long long since = 0;
  soci::indicator since_state = soci::i_null;
  soci::statement read =
      (session.prepare << "SELECT biz_tag, version, strict, since FROM leafctl_orders", soci::into(tag),
       soci::into(version), soci::into(strict), soci::into(since, since_state));
  read.execute();
  while (read.fetch()) {
    if (tag == kVersionRow) {
      table.version = static_cast<std::uint64_t>(version);
      table.nonce = NonceOf(since, since_state);
      continue;
    }
    core::OrderRow row{tag, strict != 0 ? core::TagOrder::kStrict : core::TagOrder::kTrend, std::nullopt,
                       static_cast<std::uint64_t>(version)};
    if (since_state == soci::i_ok) row.since = static_cast<std::uint64_t>(since);
    table.rows.push_back(std::move(row));
  }
  return table;
}

// The row of the tag, if there is one. With the dialect's `for_update` as `lock` it is the newest row;
// without, the row as this transaction sees it.
std::optional<core::OrderRow> ReadOrder(soci::session& session, const std::string& tag,
                                        std::string_view lock = {}) {
  long long version = 0;
  int strict = 0;
  long long since = 0;
  soci::indicator since_state = soci::i_null;
  session << fmt::format("SELECT version, strict, since FROM leafctl_orders WHERE biz_tag = :tag{}", lock),
      soci::use(tag, "tag"), soci::into(version), soci::into(strict), soci::into(since, since_state);
  if (!session.got_data()) return std::nullopt;
  core::OrderRow row{tag, strict != 0 ? core::TagOrder::kStrict : core::TagOrder::kTrend, std::nullopt,
                     static_cast<std::uint64_t>(version)};
  if (since_state == soci::i_ok) row.since = static_cast<std::uint64_t>(since);
  return row;
}

bool IsStrict(const std::optional<core::OrderRow>& row) {
  return row && row->order == core::TagOrder::kStrict;
}

bool IsStrictIn(soci::session& session, const std::string& tag) { return IsStrict(ReadOrder(session, tag)); }

// Whether SqlTagOrders::Restore has nothing to do for `row`.
bool Stands(soci::session& session, const core::OrderRow& row) {
  if (ReadVersion(session).number <= row.version) return false;
  const auto there = ReadOrder(session, row.tag);
  if (!there || row.order != core::TagOrder::kStrict) return there.has_value();
  return there->version > row.version || (IsStrict(there) && (!row.since || there->since));
}

void WriteSince(soci::session& session, const std::string& tag, std::uint64_t since) {
  const auto number = static_cast<long long>(since);
  session << "UPDATE leafctl_orders SET since = :since WHERE biz_tag = :tag", soci::use(number, "since"),
      soci::use(tag, "tag");
}

void WriteOrder(soci::session& session, const std::string& tag, core::TagOrder order, std::uint64_t version) {
  const auto number = static_cast<long long>(version);
  const int strict = order == core::TagOrder::kStrict ? 1 : 0;
  session << "DELETE FROM leafctl_orders WHERE biz_tag = :tag", soci::use(tag, "tag");
  session << "INSERT INTO leafctl_orders (biz_tag, version, strict) VALUES (:tag, :version, :strict)",
      soci::use(tag, "tag"), soci::use(number, "version"), soci::use(strict, "strict");
}

}  // namespace

void EndOrderIn(soci::session& session, const Dialect& dialect, const std::string& tag) {
  try {
    // A command may have made the tag strict since this transaction began to read.
    if (IsStrict(ReadOrder(session, tag, dialect.for_update)))
      WriteOrder(session, tag, core::TagOrder::kTrend, RaiseVersion(session, dialect));
  } catch (const std::exception& exception) {
    if (!IsNotForUs(exception)) throw;
  }
}

Result<std::optional<core::TagOrderTable>> SqlTagOrders::Enter(const core::OrderNode& node) {
  // Whether there is a table for this user is asked apart: what the transaction reads must be younger than
  // the lock of the version.
  LEAF_ASSIGN_OR_RETURN(std::optional<core::TagOrderTable> table, Read());
  if (!table) return table;
  const int fallback = node.fallback ? 1 : 0;
  const auto entered = Change("enter this node in the list of nodes", 0,
                              [&](soci::session& session, std::uint64_t) -> Result<void> {
                                session << "DELETE FROM leafctl_nodes WHERE place = :place OR id = :id",
                                    soci::use(node.place, "place"), soci::use(node.id, "id");
                                session << fmt::format(
                                    "INSERT INTO leafctl_nodes (id, process, place, fallback, acknowledged, "
                                    "since_ms) VALUES (:id, :process, :place, :fallback, 0, {})",
                                    database_.dialect().now_ms),
                                    soci::use(node.id, "id"), soci::use(node.process, "process"),
                                    soci::use(node.place, "place"), soci::use(fallback, "fallback");
                                table = ReadOrders(session);
                                return {};
                              });
  if (entered.ok()) return table;
  if (entered.error().code != ErrorCode::kConfig) return entered.error();
  // The user may read the table, and not write to it.
  table->listed = false;
  return table;
}

Result<void> SqlTagOrders::Change(std::string_view what, std::uint64_t above,
                                  const std::function<Result<void>(soci::session&, std::uint64_t)>& body) {
  return database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
    try {
      const std::uint64_t version = RaiseVersion(session, database_.dialect(), above);
      return body(session, version);
    } catch (const std::exception& exception) {
      if (!IsNotForUs(exception)) throw;
      return NoOrders();
    }
  });
}

Result<std::optional<core::TagOrders::Look>> SqlTagOrders::LookAt(const std::string& node) {
  std::optional<Look> look;
  LEAF_RETURN_IF_ERROR(database_.Run("read the order of tags", [&](soci::session& session) -> Result<void> {
    look.reset();
    long long version = 0;
    long long nonce = 0;
    soci::indicator nonce_state = soci::i_null;
    long long acknowledged = 0;
    soci::indicator acknowledged_state = soci::i_null;
    try {
      session << "SELECT o.version, o.since, n.acknowledged FROM leafctl_orders o LEFT JOIN leafctl_nodes n "
                 "ON n.id = "
                 ":id WHERE o.biz_tag = :tag",
          soci::use(node, "id"), soci::use(kVersionRow, "tag"), soci::into(version),
          soci::into(nonce, nonce_state), soci::into(acknowledged, acknowledged_state);
    } catch (const std::exception& exception) {
      if (!IsNotForUs(exception)) throw;
      return {};
    }
    look.emplace();
    // No row: the tables were made anew.
    if (!session.got_data()) return {};
    look->version = static_cast<std::uint64_t>(version);
    look->nonce = NonceOf(nonce, nonce_state);
    if (acknowledged_state == soci::i_ok) look->acknowledged = static_cast<std::uint64_t>(acknowledged);
    return {};
  }));
  return look;
}

Result<std::optional<core::TagOrderTable>> SqlTagOrders::Read() {
  std::optional<core::TagOrderTable> table;
  LEAF_RETURN_IF_ERROR(database_.Run("read the order of tags", [&](soci::session& session) -> Result<void> {
    table.reset();
    try {
      table = ReadOrders(session);
    } catch (const std::exception& exception) {
      if (!IsNotForUs(exception)) throw;
    }
    return {};
  }));
  return table;
}

Result<void> SqlTagOrders::Restore(const core::OrderRow& row) {
  const std::string what =
      fmt::format("tell the table that tag {} is {}", Quoted(row.tag), core::TagOrderName(row.order));
  // Where all nodes know it, the first one to come writes it. The others change nothing: a change has to be
  // acknowledged by all.
  bool stands = false;
  LEAF_RETURN_IF_ERROR(database_.Run(what, [&](soci::session& session) -> Result<void> {
    try {
      stands = Stands(session, row);
    } catch (const std::exception& exception) {
      if (!IsNotForUs(exception)) throw;
      return NoOrders();
    }
    return {};
  }));
  if (stands) return {};
  return Change(what, row.version, [&](soci::session& session, std::uint64_t raised) -> Result<void> {
    const auto there = ReadOrder(session, row.tag);
    if (row.order != core::TagOrder::kStrict) {
      if (!there) WriteOrder(session, row.tag, row.order, row.version);
      return {};
    }
    if (there && there->version > row.version) return {};
    if (!IsStrict(there)) WriteOrder(session, row.tag, core::TagOrder::kStrict, raised);
    if (row.since && !(IsStrict(there) && there->since)) WriteSince(session, row.tag, *row.since);
    return {};
  });
}

Result<bool> SqlTagOrders::Acknowledge(const std::string& node, const core::TagOrderTable& table) {
  const auto number = static_cast<long long>(table.version);
  bool is_current = false;
  LEAF_RETURN_IF_ERROR(
      database_.Transact("acknowledge the order of tags", Database::Finish::kCommit,
                         [&](soci::session& session) -> Result<void> {
                           const Version version = ReadVersion(session);
                           is_current = version.number == table.version && version.nonce == table.nonce;
                           if (!is_current) return {};
                           // Lower, too: what stands there may be of another history of the table.
                           session << "UPDATE leafctl_nodes SET acknowledged = :version WHERE id = :id",
                               soci::use(number, "version"), soci::use(node, "id");
                           return {};
                         }));
  return is_current;
}

Result<void> SqlTagOrders::Leave(const std::string& node) {
  return database_.Transact("take a node off the list of nodes", Database::Finish::kCommit,
                            [&](soci::session& session) -> Result<void> {
                              try {
                                session << "DELETE FROM leafctl_nodes WHERE id = :id", soci::use(node, "id");
                              } catch (const std::exception& exception) {
                                if (!IsNotForUs(exception)) throw;
                                return NoOrders();
                              }
                              return {};
                            });
}

Result<SqlTagOrders::Begun> SqlTagOrders::Begin(std::string_view tag) {
  const std::string name(tag);
  Begun begun;
  LEAF_RETURN_IF_ERROR(Change(fmt::format("make tag {} strict", Quoted(tag)), 0,
                              [&](soci::session& session, std::uint64_t raised) -> Result<void> {
                                begun = {.version = raised, .awaited = raised, .since = {}};
                                // Of another history of the table: the node has not read this one.
                                const auto number = static_cast<long long>(raised);
                                session << "UPDATE leafctl_nodes SET acknowledged = 0 WHERE acknowledged >= "
                                           ":version",
                                    soci::use(number, "version");
                                const auto row = ReadOrder(session, name);
                                begun.was_strict = IsStrict(row);
                                if (begun.was_strict) {
                                  begun.version = row->version;
                                  begun.since = row->since;
                                } else {
                                  WriteOrder(session, name, core::TagOrder::kStrict, raised);
                                }
                                return {};
                              }));
  return begun;
}

Result<bool> SqlTagOrders::Abandon(std::string_view tag, std::uint64_t version) {
  const std::string name(tag);
  bool is_strict = false;
  LEAF_RETURN_IF_ERROR(Change(fmt::format("leave the order of tag {} as it was", Quoted(tag)), version,
                              [&](soci::session& session, std::uint64_t raised) -> Result<void> {
                                const auto row = ReadOrder(session, name);
                                is_strict = IsStrict(row);
                                if (!is_strict || row->version != version || row->since) return {};
                                WriteOrder(session, name, core::TagOrder::kTrend, raised);
                                is_strict = false;
                                return {};
                              }));
  return is_strict;
}

Result<std::uint64_t> SqlTagOrders::Complete(std::string_view tag, std::uint64_t version,
                                             std::uint64_t least) {
  const std::string what = fmt::format("make tag {} strict", Quoted(tag));
  const std::string name(tag);
  std::uint64_t since = 0;
  LEAF_RETURN_IF_ERROR(
      database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        const Dialect& dialect = database_.dialect();
        long long max_id = 0;
        // Locked before the version, as where a tag is removed.
        session << fmt::format("SELECT max_id FROM leaf_alloc WHERE {}{}", dialect.tag_matches,
                               dialect.for_update),
            soci::use(name, "tag"), soci::into(max_id);
        if (!session.got_data()) return UnknownTag(tag);
        // So that all nodes read, and remember, from which ID on.
        RaiseVersion(session, dialect);
        const auto row = ReadOrder(session, name);
        if (!IsStrict(row) || row->version != version) {
          return Error{ErrorCode::kRefused,
                       fmt::format("cannot {}: another command has changed its order meanwhile", what),
                       TagCommand("show", tag)};
        }
        since = row->since.value_or(std::max(static_cast<std::uint64_t>(std::max(max_id, 0LL)), least));
        if (!row->since) WriteSince(session, name, since);
        return {};
      }));
  return since;
}

Result<std::optional<std::uint64_t>> SqlTagOrders::End(std::string_view tag, std::uint64_t above) {
  const std::string name(tag);
  std::optional<std::uint64_t> changed;
  LEAF_RETURN_IF_ERROR(Change(fmt::format("end the strict order of tag {}", Quoted(tag)), above,
                              [&](soci::session& session, std::uint64_t version) -> Result<void> {
                                changed.reset();
                                if (above == 0 && !IsStrictIn(session, name)) return {};
                                WriteOrder(session, name, core::TagOrder::kTrend, version);
                                changed = version;
                                return {};
                              }));
  return changed;
}

Result<std::vector<core::OrderNode>> SqlTagOrders::Nodes() {
  std::vector<core::OrderNode> nodes;
  LEAF_RETURN_IF_ERROR(database_.Run("read the list of nodes", [&](soci::session& session) -> Result<void> {
    nodes.clear();
    core::OrderNode node;
    int fallback = 0;
    long long acknowledged = 0;
    long long since_ms = 0;
    try {
      soci::statement read =
          (session.prepare
               << "SELECT id, process, place, fallback, acknowledged, since_ms FROM leafctl_nodes "
                  "ORDER BY since_ms, id",
           soci::into(node.id), soci::into(node.process), soci::into(node.place), soci::into(fallback),
           soci::into(acknowledged), soci::into(since_ms));
      read.execute();
      while (read.fetch()) {
        node.fallback = fallback != 0;
        node.acknowledged = static_cast<std::uint64_t>(acknowledged);
        node.since = WallTimeOf(since_ms);
        nodes.push_back(node);
      }
    } catch (const std::exception& exception) {
      if (!IsNotForUs(exception)) throw;
      return NoOrders();
    }
    return {};
  }));
  return nodes;
}

}  // namespace leaf::sql
