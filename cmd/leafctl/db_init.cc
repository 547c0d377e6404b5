// leafctl db init
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "confirm.h"
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
  if (options.print_sql || options.confirm.dry_run) {
    // The statements themselves are the dry run: they can be read, changed and given to a DBA.
    context.out.Write(sql::SchemaText(mysql ? sql::kMysql : sql::kSqlite));
    return {};
  }
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kMakeTables));
  LEAF_RETURN_IF_ERROR(sql::InitSchema(store->database()));
  if (context.flags.json) {
    WriteJson(context, {{"ok", true}});
  } else {
    context.Note("the tables leaf_alloc and leafctl_removed_tags exist");
  }
  return {};
}

}  // namespace

Run AddDbInit(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<DbInitOptions>();
  app.add_flag("--print-sql", options->print_sql, "Print the statements instead of running them");
  AddConfirmFlags(app, options->confirm, Asks::kNever);
  app.footer("Idempotent: what exists is left as it is. Example: leafctl db init --print-sql | mysql leaf");
  return [options](CommandContext& context) { return RunDbInit(context, *options); };
}

}  // namespace leaf::cmd
