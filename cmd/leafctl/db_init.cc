// leafctl db init
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "leaf/sql/dialect.h"
#include "leaf/sql/schema.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct DbInitOptions {
  bool print_sql = false;
  ConfirmFlags confirm;
};

Result<void> RunDbInit(CommandContext& context, const DbInitOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const bool mysql = resolved->config.segment.store == "mysql";
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kHarmless, "make the tables",
                               mysql ? resolved->config.mysql.database : resolved->config.sqlite.path));
  const sql::Dialect& dialect = mysql ? sql::kMysql : sql::kSqlite;
  const std::vector<std::string> tables = sql::SchemaTables(dialect);
  const bool only_shows = options.print_sql || options.confirm.dry_run;
  if (!only_shows) {
    LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kMakeTables));
    LEAF_RETURN_IF_ERROR(sql::InitSchema(store->database()));
  }
  if (context.flags.json) {
    Json json{{"ok", true}, {"dry_run", only_shows}, {"tables", tables}};
    if (only_shows) json["sql"] = sql::SchemaText(dialect);
    WriteJson(context, json);
  } else if (only_shows) {
    // The statements themselves are the dry run: they can be read, changed and given to a DBA.
    context.out.Write(
        fmt::format("-- Creates these tables where they are missing: {}.\n", fmt::join(tables, ", ")));
    context.out.Write(sql::SchemaText(dialect));
  } else {
    context.Report(fmt::format("these tables exist: {}", fmt::join(tables, ", ")));
  }
  return {};
}

}  // namespace

Run AddDbInit(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<DbInitOptions>();
  app.add_flag("--print-sql", options->print_sql, "Print the statements instead of running them");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer(
      "Existing tables are left unchanged, so it is safe to run again.\n"
      "Examples:\n"
      "  leafctl db init\n"
      "  leafctl db init --print-sql | mysql leaf");
  return [options](CommandContext& context) { return RunDbInit(context, *options); };
}

}  // namespace leaf::cmd
