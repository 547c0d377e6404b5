// leafctl encode
#include <memory>
#include <string>

#include "commands.h"
#include "id_options.h"
#include "leaf/base/limits.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct EncodeOptions {
  std::string time;
  std::string worker = "0";
  std::string sequence = "0";
  IdOptions id;
};

Result<void> RunEncode(CommandContext& context, const EncodeOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, options.id.Layout(context));
  core::IdFields fields;
  LEAF_ASSIGN_OR_RETURN(fields.time, ParseTime(options.time, context.clock.Wall()));
  LEAF_ASSIGN_OR_RETURN(fields.worker, ParseUnsigned("--worker", options.worker, 0, layout.worker_end() - 1));
  LEAF_ASSIGN_OR_RETURN(fields.sequence,
                        ParseUnsigned("--sequence", options.sequence, 0, layout.sequence_end() - 1));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, layout.Compose(fields));
  std::string text;
  const IdFormat format = options.id.FormatOr(IdFormat::kDecimal);
  if (IdFormatRowOf(format).has_time) {
    LEAF_ASSIGN_OR_RETURN(const TimedIdText timed, TimedIdText::Make(format, layout.TimeSplit()));
    timed.Append(text, id);
  } else {
    AppendId(text, id, format);
  }
  if (context.flags.json) {
    WriteJson(context, Json{{"id", text}});
  } else {
    context.out.Write(text + "\n");
  }
  return {};
}

}  // namespace

Run AddEncode(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<EncodeOptions>();
  app.add_option("--time", options->time, kTimeMeaning)->type_name("T")->required();
  app.add_option("--worker", options->worker, "Worker number")->type_name("N")->capture_default_str();
  app.add_option("--sequence", options->sequence, "Sequence number")->type_name("N")->capture_default_str();
  options->id.AddTo(app, IdOptions::Timed::kYes, "Format of the ID, dec if not given");
  app.footer(
      "Examples:\n"
      "  leafctl encode --time 2026-11-20T11:23:16.497Z --worker 0 --sequence 83\n"
      "  leafctl encode --time now");
  return [options](CommandContext& run_context) { return RunEncode(run_context, *options); };
}

}  // namespace leaf::cmd
