// leafctl decode
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "id_options.h"
#include "input_file.h"
#include "leaf/base/text.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct DecodeOptions {
  std::vector<std::string> ids;
  IdOptions id;
};

// Writes IDs with their fields, in text as they come, or as one JSON document at the end.
class FieldPrinter {
 public:
  FieldPrinter(CommandContext& context, const core::IdLayout& layout) : context_(context), layout_(layout) {}

  // As it may stand in the input.
  Result<std::uint64_t> Parse(std::string_view text, const std::optional<IdFormat>& format) const {
    return ParseAnyId(text, format, layout_.TimeSplit());
  }

  void Add(std::uint64_t id) {
    const core::IdFields fields = layout_.Decompose(id);
    if (context_.flags.json) {
      items_ += fmt::format(R"({}{{"id":"{}","time":"{}","time_ms":{},"worker":{},"sequence":{}}})",
                            items_.empty() ? "" : ",", id, FormatRfc3339(fields.time),
                            UnixMillis(fields.time), fields.worker, fields.sequence);
    } else {
      context_.out.Write(fmt::format("{} time={} time_ms={} worker={} sequence={}\n", id,
                                     FormatRfc3339(fields.time), UnixMillis(fields.time), fields.worker,
                                     fields.sequence));
    }
  }
  void Finish() {
    if (context_.flags.json) context_.out.Write(fmt::format("{{\"ids\":[{}]}}\n", items_));
  }

 private:
  CommandContext& context_;
  const core::IdLayout layout_;
  std::string items_;
};

// Each line is one ID. A wrong line is an error that names the line; the other IDs are printed.
Result<void> DecodeInput(CommandContext& context, const std::optional<IdFormat>& format,
                         FieldPrinter& printer) {
  LEAF_ASSIGN_OR_RETURN(const std::optional<Error> wrong,
                        ForEachLineOfStdin(context, [&](std::string_view line) -> Result<void> {
                          LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, printer.Parse(line, format));
                          printer.Add(id);
                          return {};
                        }));
  printer.Finish();
  return wrong ? Result<void>(*wrong) : Result<void>();
}

Result<void> RunDecode(CommandContext& context, const DecodeOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, options.id.Layout(context));
  const std::optional<IdFormat> format =
      options.id.format ? std::optional(options.id.FormatOr(IdFormat::kDecimal)) : std::nullopt;
  FieldPrinter printer(context, layout);
  if (options.ids.empty() || (options.ids.size() == 1 && options.ids[0] == "-"))
    return DecodeInput(context, format, printer);
  std::vector<std::uint64_t> ids;
  for (const std::string& text : options.ids) {
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, printer.Parse(text, format));
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) printer.Add(id);
  printer.Finish();
  return {};
}

}  // namespace

Run AddDecode(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<DecodeOptions>();

  app.add_option("ID", options->ids, "Snowflake IDs; without any, or with '-', one per line from stdin");
  options->id.AddTo(app, IdOptions::Timed::kYes,
                    "Format of the IDs; if not given, dec, hex for an ID that begins with 0x, and uuidv7 or "
                    "ulid for what looks like one");
  app.footer(
      "Examples:\n"
      "  leafctl decode 2123738945798799443\n"
      "  mysql -Ne 'SELECT id FROM orders' | leafctl decode --json");
  return [options](CommandContext& run_context) { return RunDecode(run_context, *options); };
}

}  // namespace leaf::cmd
