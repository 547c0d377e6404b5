#include "leaf/sql/schema.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <string_view>

#include "leaf/base/check.h"

namespace leaf::sql {

std::string SchemaText(const Dialect& dialect) {
  std::string text;
  for (const std::string_view statement : dialect.schema) text += fmt::format("{};\n", statement);
  return text;
}

std::vector<std::string> SchemaTables(const Dialect& dialect) {
  std::vector<std::string> tables;
  for (std::string_view statement : dialect.schema) {
    constexpr std::string_view kCreate = "CREATE TABLE IF NOT EXISTS ";
    LEAF_CHECK(statement.starts_with(kCreate));
    statement.remove_prefix(kCreate.size());
    tables.emplace_back(statement.substr(0, statement.find(' ')));
  }
  return tables;
}

Result<void> InitSchema(Database& database) {
  return database.Run("create the tables", [&](soci::session& session) -> Result<void> {
    for (const std::string_view statement : database.dialect().schema) session << std::string(statement);
    return {};
  });
}

}  // namespace leaf::sql
