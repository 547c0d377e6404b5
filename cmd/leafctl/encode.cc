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
  LEAF_ASSIGN_OR_RETURN(fields.time, ParseTime(options.time));
  LEAF_ASSIGN_OR_RETURN(fields.worker, ParseUnsigned("--worker", options.worker, 0, layout.worker_end() - 1));
  LEAF_ASSIGN_OR_RETURN(fields.sequence,
                        ParseUnsigned("--sequence", options.sequence, 0, layout.sequence_end() - 1));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, layout.Compose(fields));
  std::string text;
  AppendId(text, id, options.id.FormatOr(IdFormat::kDecimal));
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
  app.add_option("--time", options->time, "RFC 3339, a date (its 00:00:00.000Z), or Unix milliseconds")
      ->type_name("T")
      ->required();
  app.add_option("--worker", options->worker, "Worker number")->type_name("N")->capture_default_str();
  app.add_option("--sequence", options->sequence, "Sequence")->type_name("N")->capture_default_str();
  options->id.AddTo(app, "Form of the ID (default dec)");
  app.footer("Example: leafctl encode --time 2026-11-20T11:23:16.497Z --worker 0 --sequence 83");
  return [options](CommandContext& run_context) { return RunEncode(run_context, *options); };
}

}  // namespace leaf::cmd
