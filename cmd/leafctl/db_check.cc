// leafctl db check
#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "leaf/sql/schema.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunDbCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const auto findings, sql::CheckSchema(store->database()));
  const auto problems =
      std::count_if(findings.begin(), findings.end(), [](const auto& finding) { return finding.is_problem; });
  if (context.flags.json) {
    Json list = Json::array();
    for (const sql::SchemaFinding& finding : findings) {
      list.push_back({{"severity", finding.is_problem ? "problem" : "note"},
                      {"message", finding.message},
                      {"hint", finding.hint}});
    }
    WriteJson(context, {{"ok", problems == 0}, {"findings", std::move(list)}});
  } else {
    for (const sql::SchemaFinding& finding : findings) {
      context.out.Write(fmt::format("{}: {}\n", finding.is_problem ? "problem" : "note", finding.message));
      if (!finding.hint.empty()) context.out.Write(fmt::format("  hint: {}\n", finding.hint));
    }
    if (problems == 0) context.out.Write("ok: leafctl can use this schema\n");
  }
  if (problems == 0) return {};
  return Error{ErrorCode::kUnhealthy,
               fmt::format("the schema has {} problem{}", problems, problems == 1 ? "" : "s"), ""};
}

}  // namespace

Run AddDbCheck(CLI::App& app, CommandContext&) {
  app.footer("Exit code 10 if there is a problem. Both published variants of leaf_alloc pass.");
  return [](CommandContext& context) { return RunDbCheck(context); };
}

}  // namespace leaf::cmd
