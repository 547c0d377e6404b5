// leafctl tag list
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "commands.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunTagList(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const auto rows, store->segments().List());
  if (context.flags.json) {
    Json tags = Json::array();
    for (const core::TagRow& row : rows) tags.push_back(TagJson(row));
    WriteJson(context, {{"tags", std::move(tags)}});
    return {};
  }
  std::size_t width = 3;
  for (const core::TagRow& row : rows) width = std::max(width, row.tag.size());
  context.out.Write(fmt::format("{:<{}}  {:>19}  {:>10}  {:<24}  {}\n", "TAG", width, "MAX_ID", "STEP",
                                "UPDATED", "DESCRIPTION"));
  for (const core::TagRow& row : rows) {
    context.out.Write(fmt::format("{:<{}}  {:>19}  {:>10}  {:<24}{}{}\n", row.tag, width, row.max_id,
                                  row.step, FormatRfc3339(row.update_time), row.description ? "  " : "",
                                  row.description.value_or("")));
  }
  return {};
}

}  // namespace

Run AddTagList(CLI::App& app, CommandContext&) {
  app.footer("MAX_ID is where the next grant begins. Example: leafctl tag list --json");
  return [](CommandContext& context) { return RunTagList(context); };
}

}  // namespace leaf::cmd
