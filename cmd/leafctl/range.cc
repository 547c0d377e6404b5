// leafctl range
#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "id_options.h"
#include "leaf/base/text.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct RangeOptions {
  std::string from;
  std::string to;
  IdOptions id;
};

Result<void> RunRange(CommandContext& context, const RangeOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, options.id.Layout(context));
  const WallTime now = context.clock.Wall();
  LEAF_ASSIGN_OR_RETURN(const WallTime from, ParseTime(options.from, now));
  LEAF_ASSIGN_OR_RETURN(const WallTime to, ParseTime(options.to, now));
  if (to < from) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad --to {}: it is before --from {}", Quoted(options.to), Quoted(options.from)),
                 ""};
  }
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t low, layout.Compose({from, 0, 0}));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t high,
                        layout.Compose({to, layout.worker_end() - 1, layout.sequence_end() - 1}));
  const IdFormat format = options.id.FormatOr(IdFormat::kDecimal);
  std::string low_text;
  std::string high_text;
  AppendId(low_text, low, format);
  AppendId(high_text, high, format);
  if (context.flags.json) {
    WriteJson(context, Json{{"low", low_text}, {"high", high_text}});
  } else {
    if (context.out.is_terminal()) context.Note("LOW (inclusive)  HIGH (inclusive)");
    context.out.Write(fmt::format("{} {}\n", low_text, high_text));
  }
  return {};
}

}  // namespace

Run AddRange(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<RangeOptions>();
  app.add_option("--from", options->from, kTimeMeaning)->type_name("T")->required();
  app.add_option("--to", options->to, kTimeMeaning)->type_name("T")->required();
  options->id.AddTo(app, IdOptions::Timed::kNo, "Format of the IDs, dec if not given");
  app.footer(
      "Prints LOW HIGH: the smallest and the largest ID of any worker from the first to the last "
      "millisecond. Both are inclusive, as for SQL's BETWEEN.\n"
      "Examples:\n"
      "  leafctl range --from 2026-11-01 --to 2026-11-02\n"
      "  leafctl range --from -1h --to now");
  return [options](CommandContext& run_context) { return RunRange(run_context, *options); };
}

}  // namespace leaf::cmd
