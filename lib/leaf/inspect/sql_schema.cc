#include <fmt/format.h>
#include <fmt/ranges.h>
#include <soci/soci.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/inspect/sql_database.h"
#include "leaf/sql/error_map.h"

namespace leaf::inspect {
namespace {

constexpr std::string_view kRequiredColumns[] = {"biz_tag", "max_id", "step", "description", "update_time"};

void CheckColumns(const std::vector<std::string>& columns, std::vector<SchemaFinding>& findings) {
  for (const std::string_view required : kRequiredColumns) {
    if (std::find(columns.begin(), columns.end(), required) == columns.end()) {
      findings.push_back({true, fmt::format("table leaf_alloc has no column {}", required), ""});
    }
  }
}

// Which of leafctl's own tables there are.
struct OwnTables {
  bool removed_tags = false;
  bool removed_tags_denied = false;  // whether there is one cannot be seen
  bool audit = false;
  bool orders = false;  // both
  bool codes = false;
  std::vector<std::string> worker_numbers;  // that are missing, of those of registry sql
};

constexpr std::string_view kWorkerTables[] = {"leaf_workerid_alloc", "leafctl_cluster", "leafctl_workers"};

void CheckOwnTables(const OwnTables& has, const DatabaseUses& uses, std::vector<SchemaFinding>& findings) {
  if (has.removed_tags_denied) {
    findings.push_back(
        {false,
         "the user has no right to table leafctl_removed_tags, if there is one: with this user no tag can "
         "be added, removed or repaired",
         "give the user SELECT, INSERT, UPDATE and DELETE on all tables of the database"});
  } else if (!has.removed_tags) {
    findings.push_back({false,
                        "table leafctl_removed_tags is missing: only the state directories of the nodes that "
                        "served a removed tag then know its last max_id",
                        "leafctl db init"});
  }
  if (!has.audit) {
    findings.push_back(
        {false, "table leafctl_audit is missing: who changed a tag is not recorded", "leafctl db init"});
  }
  if (!has.orders) {
    findings.push_back({false, "tables leafctl_orders and leafctl_nodes are missing: no tag can be strict",
                        "leafctl db init"});
  }
  if (!has.codes && uses.codes) {
    findings.push_back(
        {true,
         "table leafctl_codes is missing, and codes are configured (codes.key_file): no code can "
         "be made or read",
         "leafctl db init"});
  }
  if (uses.worker_numbers && !has.worker_numbers.empty()) {
    findings.push_back(
        {true,
         fmt::format("of the tables of worker numbers (snowflake.registry = \"sql\") are missing: "
                     "{}: no node gets a number",
                     fmt::join(has.worker_numbers, ", ")),
         "leafctl db init"});
  }
}

// MySQL says so of a table that does not exist, too.
bool IsTableDenied(soci::session& session, std::string_view table) {
  try {
    session << fmt::format("SELECT 1 FROM {} LIMIT 0", table);
  } catch (const std::exception& exception) {
    if (sql::IsDenied(exception)) return true;
    if (!sql::IsMissingTable(exception)) throw;
  }
  return false;
}

std::vector<SchemaFinding> CheckSqlite(soci::session& session, const DatabaseUses& uses) {
  std::vector<SchemaFinding> findings;
  std::vector<std::string> columns;
  std::string name;
  soci::statement read =
      (session.prepare << "SELECT name FROM pragma_table_info('leaf_alloc')", soci::into(name));
  read.execute();
  while (read.fetch()) columns.push_back(name);
  if (columns.empty()) {
    findings.push_back({true, "table leaf_alloc is missing", "leafctl db init"});
    return findings;
  }
  CheckColumns(columns, findings);
  int unique = 0;
  session << "SELECT count(*) FROM pragma_index_list('leaf_alloc') l WHERE l.\"unique\" = 1 AND (SELECT "
             "group_concat(name) FROM pragma_index_info(l.name)) = 'biz_tag'",
      soci::into(unique);
  if (unique == 0)
    findings.push_back({true, "biz_tag of leaf_alloc is not unique: a tag could have two rows", ""});
  int removed_tags = 0;
  session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'leafctl_removed_tags'",
      soci::into(removed_tags);
  int audit = 0;
  session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'leafctl_audit'",
      soci::into(audit);
  int orders = 0;
  session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('leafctl_orders', "
             "'leafctl_nodes')",
      soci::into(orders);
  int codes = 0;
  session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'leafctl_codes'",
      soci::into(codes);
  std::vector<std::string> missing;
  for (const std::string_view table : kWorkerTables) {
    const std::string wanted(table);
    int found = 0;
    session << "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :table",
        soci::use(wanted, "table"), soci::into(found);
    if (found == 0) missing.push_back(wanted);
  }
  CheckOwnTables({.removed_tags = removed_tags > 0,
                  .audit = audit > 0,
                  .orders = orders == 2,
                  .codes = codes > 0,
                  .worker_numbers = std::move(missing)},
                 uses, findings);
  return findings;
}

std::vector<SchemaFinding> CheckMysql(soci::session& session, const DatabaseUses& uses) {
  std::vector<SchemaFinding> findings;
  std::vector<std::string> columns;
  std::string name;
  soci::statement read = (session.prepare << "SELECT column_name FROM information_schema.columns WHERE "
                                             "table_schema = DATABASE() AND table_name = 'leaf_alloc'",
                          soci::into(name));
  read.execute();
  while (read.fetch()) columns.push_back(name);
  if (columns.empty()) {
    findings.push_back({true, "table leaf_alloc is missing", "leafctl db init"});
    return findings;
  }
  CheckColumns(columns, findings);

  int unique = 0;
  session << "SELECT COUNT(*) FROM (SELECT index_name FROM information_schema.statistics WHERE table_schema "
             "= DATABASE() AND table_name = 'leaf_alloc' AND non_unique = 0 GROUP BY index_name HAVING "
             "GROUP_CONCAT(column_name) = 'biz_tag') AS indexes_on_biz_tag",
      soci::into(unique);
  if (unique == 0) {
    findings.push_back({true, "biz_tag of leaf_alloc is not unique: a tag could have two rows",
                        "ALTER TABLE leaf_alloc ADD UNIQUE KEY (biz_tag)"});
  }

  std::string engine;
  std::string collation;
  session << "SELECT COALESCE(t.engine, ''), COALESCE(c.collation_name, '') FROM information_schema.tables t "
             "JOIN information_schema.columns c USING (table_schema, table_name) WHERE t.table_schema = "
             "DATABASE() AND t.table_name = 'leaf_alloc' AND c.column_name = 'biz_tag'",
      soci::into(engine), soci::into(collation);
  if (engine != "InnoDB") {
    findings.push_back(
        {true,
         fmt::format(
             "the engine of leaf_alloc is {}: without transactions two nodes can be granted the same range",
             engine),
         "ALTER TABLE leaf_alloc ENGINE=InnoDB"});
  }
  if (!collation.ends_with("_bin")) {
    findings.push_back({false,
                        fmt::format("biz_tag has collation {}, which treats some different tags as equal: "
                                    "leafctl matches byte for byte, but such tags cannot both be added",
                                    collation),
                        ""});
  }

  std::string type;
  session << "SELECT data_type FROM information_schema.columns WHERE table_schema = DATABASE() AND "
             "table_name = 'leaf_alloc' AND column_name = 'max_id'",
      soci::into(type);
  if (!type.empty() && type != "bigint") {
    findings.push_back(
        {true, fmt::format("max_id of leaf_alloc is {}, not bigint: the IDs of its tags end early", type),
         "ALTER TABLE leaf_alloc MODIFY max_id bigint NOT NULL DEFAULT 1"});
  }

  int removed_tags = 0;
  session << "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name "
             "= 'leafctl_removed_tags'",
      soci::into(removed_tags);
  // Also 0 where the user has no right to the table.
  int audit = 0;
  session << "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name "
             "= 'leafctl_audit'",
      soci::into(audit);
  int orders = 0;
  session << "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name "
             "IN ('leafctl_orders', 'leafctl_nodes')",
      soci::into(orders);
  int codes = 0;
  session << "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name "
             "= 'leafctl_codes'",
      soci::into(codes);
  std::vector<std::string> missing;
  for (const std::string_view table : kWorkerTables) {
    const std::string wanted(table);
    std::string its_engine;
    session
        << "SELECT COALESCE(engine, '') FROM information_schema.tables WHERE table_schema = DATABASE() AND "
           "table_name = :table",
        soci::use(wanted, "table"), soci::into(its_engine);
    if (!session.got_data()) {
      missing.push_back(wanted);
    } else if (uses.worker_numbers && its_engine != "InnoDB") {
      findings.push_back(
          {true,
           fmt::format("the engine of {} is {}: without transactions two nodes can get the same "
                       "worker number",
                       wanted, its_engine),
           fmt::format("ALTER TABLE {} ENGINE=InnoDB", wanted)});
    }
  }
  CheckOwnTables({.removed_tags = removed_tags > 0,
                  .removed_tags_denied = removed_tags == 0 && IsTableDenied(session, "leafctl_removed_tags"),
                  .audit = audit > 0,
                  .orders = orders == 2,
                  .codes = codes > 0,
                  .worker_numbers = std::move(missing)},
                 uses, findings);
  return findings;
}

}  // namespace

Result<std::vector<SchemaFinding>> CheckSchema(sql::Database& database, const DatabaseUses& uses) {
  std::vector<SchemaFinding> findings;
  LEAF_RETURN_IF_ERROR(database.Run("examine the schema", [&](soci::session& session) -> Result<void> {
    findings =
        database.dialect().name == sql::kMysql.name ? CheckMysql(session, uses) : CheckSqlite(session, uses);
    return {};
  }));
  return findings;
}

}  // namespace leaf::inspect
