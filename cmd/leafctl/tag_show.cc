// leafctl tag show
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagShowOptions {
  std::vector<std::string> tags;
  TagPlace place;
};

Result<Json> ShowOne(CommandContext& context, TagBook& book, const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(const TagDetails details, book.Show(tag));
  if (context.flags.json) return DetailsJson(details);
  const auto& [row, mark, days, codes] = details;
  context.out.Write(fmt::format(
      "tag:          {}\nmax_id:       {}\nstep:         {}\nupdate_time:  {}\ndays left:    {}\n",
      Printable(row.tag), row.max_id, row.step, FormatRfc3339(row.update_time), DaysLeftText(days)));
  if (codes) {
    context.out.Write(
        fmt::format("codes left:   {}{}{}\n", DaysLeftText(codes->days), codes->days ? " days" : "",
                    codes->end >= kIdEnd ? "" : fmt::format("; IDs from {} on have no code", codes->end)));
  }
  if (mark.end == 0) {
    context.out.Write("mark:         none on this node\n");
  } else {
    context.out.Write(fmt::format("mark:         {}, raised {} by {}\nheld:         {}\nwasted:       {}{}\n",
                                  mark.end, FormatRfc3339(mark.raised_at), Printable(mark.raised_by),
                                  mark.held, mark.wasted_exactly ? "" : "at most ",
                                  mark.wasted == 0 ? "0"
                                                   : fmt::format("{} by restarts, {} of them by the last one",
                                                                 mark.wasted, mark.wasted_last)));
  }
  if (row.strict) {
    context.out.Write(fmt::format("order:        strict{}\n",
                                  row.strict->since
                                      ? fmt::format(" from ID {} on", *row.strict->since)
                                      : ", not acknowledged by all nodes; repeat tag set --order strict"));
  }
  if (row.description) context.out.Write(fmt::format("description:  {}\n", Printable(*row.description)));
  return Json();
}

Result<void> RunTagShow(CommandContext& context, const TagShowOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTags(options.tags));
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, options.place, Store::Access::kLook, "tag show"));
  bool first = true;
  return ForEachTag(context, options.tags, "", [&](const std::string& tag) {
    if (!first && !context.flags.json) context.out.Write("\n");
    first = false;
    return ShowOne(context, *book, tag);
  });
}

}  // namespace

Run AddTagShow(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagShowOptions>();
  app.add_option("TAG", options->tags, "The tag, or several")->required();
  AddTagServerFlag(app, options->place);
  app.footer(
      "max_id is where the next grant begins; mark is the end of all IDs that were granted to this node. "
      "held: at most how many IDs the daemon has not issued yet, or left behind when it ended; the next "
      "start wastes the latter.\n"
      "Examples:\n"
      "  leafctl tag show pay\n"
      "  leafctl tag show pay --json");
  return [options](CommandContext& context) { return RunTagShow(context, *options); };
}

}  // namespace leaf::cmd
