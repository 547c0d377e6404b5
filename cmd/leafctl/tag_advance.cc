// leafctl tag advance
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagAdvanceOptions {
  std::string tag;
  std::string to;
  TagPlace place;
  ConfirmFlags confirm;
};

Result<void> RunTagAdvance(CommandContext& context, const TagAdvanceOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t to, ParseUnsigned("--to", options.to, 0, kMaxIdLimit));
  LEAF_ASSIGN_OR_RETURN(
      const auto book,
      OpenTagBook(context, options.place, Store::AccessFor(options.confirm.dry_run), "tag advance"));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow before, book->Describe(options.tag));
  LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm,
                               WhyFar(before, to).empty() ? Severity::kHarmless : Severity::kSevere,
                               AdvanceText(before, to), options.tag));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, book->Advance(options.tag, to, options.confirm.mode()));
  const std::string what = fmt::format("tag {}: the next grant begins at {}", Quoted(row.tag), row.max_id);
  ReportChange(context, row, options.confirm.dry_run, fmt::format("advanced {}", what),
               fmt::format("advance {}", what));
  return {};
}

}  // namespace

Run AddTagAdvance(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagAdvanceOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.add_option("--to", options->to, "Where the next grant begins; must not be below max_id")
      ->required()
      ->type_name("N");
  AddTagServerFlags(app, options->place);
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Examples:\n"
      "  leafctl tag advance pay --to 1000000");
  return [options](CommandContext& context) { return RunTagAdvance(context, *options); };
}

}  // namespace leaf::cmd
