// leafctl tag show
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "leaf/base/text.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagShowOptions {
  std::string tag;
};

Result<void> RunTagShow(CommandContext& context, const TagShowOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store->segments().Describe(options.tag));
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(context, options.tag));
  const auto days = DaysLeft(row, mark, context.clock.Wall());
  if (context.flags.json) {
    Json json = TagJson(row);
    json["days_to_exhaustion"] = days ? Json(*days) : Json(nullptr);
    json["mark"] = std::to_string(mark.end);
    if (mark.end > 0) {
      json["mark_raised_at"] = FormatRfc3339(mark.raised_at);
      json["mark_raised_by"] = mark.raised_by;
    }
    json["held"] = mark.held;
    json["wasted_by_last_restart"] = mark.wasted_last;
    json["wasted_by_restarts"] = mark.wasted;
    json["wasted_by_restarts_exactly"] = mark.wasted_exactly;
    WriteJson(context, json);
    return {};
  }
  context.out.Write(fmt::format(
      "tag:          {}\nmax_id:       {}\nstep:         {}\nupdate_time:  {}\ndays left:    {}\n", row.tag,
      row.max_id, row.step, FormatRfc3339(row.update_time), DaysLeftText(days)));
  if (mark.end == 0) {
    context.out.Write("mark:         none on this node\n");
  } else {
    context.out.Write(fmt::format(
        "mark:         {}, raised {} by {}\nheld:         {}\nwasted:       {}{}\n", mark.end,
        FormatRfc3339(mark.raised_at), mark.raised_by, mark.held, mark.wasted_exactly ? "" : "at most ",
        mark.wasted == 0
            ? "0"
            : fmt::format("{} by restarts, {} of them by the last one", mark.wasted, mark.wasted_last)));
  }
  if (row.description) context.out.Write(fmt::format("description:  {}\n", *row.description));
  return {};
}

}  // namespace

Run AddTagShow(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagShowOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.footer(
      "max_id is where the next grant begins; mark is the end of everything this node was granted. held: IDs "
      "that\n"
      "its daemon has not issued yet, at most, or left behind when it ended; they are wasted by the next "
      "start.\n"
      "Example: leafctl tag show pay --json");
  return [options](CommandContext& context) { return RunTagShow(context, *options); };
}

}  // namespace leaf::cmd
