// leafctl tag show
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "leaf/base/text.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct Options {
  std::string tag;
};

Result<void> RunTagShow(CommandContext& context, const Options& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store->segments().Describe(options.tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t mark, LocalMark(context, options.tag));
  if (context.flags.json) {
    Json json = TagJson(row);
    json["mark"] = std::to_string(mark);
    WriteJson(context, json);
    return {};
  }
  context.out.Write(fmt::format(
      "tag:          {}\nmax_id:       {}\nstep:         {}\nupdate_time:  {}\nmark:         {}\n", row.tag,
      row.max_id, row.step, FormatRfc3339(row.update_time),
      mark == 0 ? "none on this node" : std::to_string(mark)));
  if (row.description) context.out.Write(fmt::format("description:  {}\n", *row.description));
  return {};
}

}  // namespace

Run AddTagShow(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<Options>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.footer("max_id is where the next grant begins; mark is the end of everything this node was granted.");
  return [options](CommandContext& context) { return RunTagShow(context, *options); };
}

}  // namespace leaf::cmd
