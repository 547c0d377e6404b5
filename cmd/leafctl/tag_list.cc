// leafctl tag list
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "commands.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunTagList(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const auto rows, store->segments().List());
  LEAF_ASSIGN_OR_RETURN(const auto mark_list, LocalMarks(context));
  std::unordered_map<std::string_view, const core::Mark*> marks;
  for (const core::Mark& mark : mark_list) marks.emplace(mark.tag, &mark);
  const WallTime now = context.clock.Wall();
  const auto days_left = [&](const core::TagRow& row) -> std::optional<double> {
    const auto mark = marks.find(row.tag);
    return mark == marks.end() ? std::nullopt : DaysLeft(row, *mark->second, now);
  };
  if (context.flags.json) {
    Json tags = Json::array();
    for (const core::TagRow& row : rows) {
      Json tag = TagJson(row);
      const auto days = days_left(row);
      tag["days_to_exhaustion"] = days ? Json(*days) : Json(nullptr);
      tags.push_back(std::move(tag));
    }
    WriteJson(context, {{"tags", std::move(tags)}});
    return {};
  }
  std::size_t width = 3;
  for (const core::TagRow& row : rows) width = std::max(width, row.tag.size());
  context.out.Write(fmt::format("{:<{}}  {:>19}  {:>10}  {:<24}  {:>9}  {}\n", "TAG", width, "MAX_ID", "STEP",
                                "UPDATED", "DAYS LEFT", "DESCRIPTION"));
  for (const core::TagRow& row : rows) {
    context.out.Write(fmt::format("{:<{}}  {:>19}  {:>10}  {:<24}  {:>9}{}{}\n", row.tag, width, row.max_id,
                                  row.step, FormatRfc3339(row.update_time), DaysLeftText(days_left(row)),
                                  row.description ? "  " : "", row.description.value_or("")));
  }
  return {};
}

}  // namespace

Run AddTagList(CLI::App& app, CommandContext&) {
  app.footer(
      "MAX_ID is where the next grant begins. DAYS LEFT: until the numbers end at 2^63, at the rate at which "
      "MAX_ID\n"
      "moved since this node was first granted the tag, or over the last one to two weeks.\n"
      "Example: leafctl tag list --json");
  return [](CommandContext& context) { return RunTagList(context); };
}

}  // namespace leaf::cmd
