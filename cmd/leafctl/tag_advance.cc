// leafctl tag advance
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands.h"
#include "confirm.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagAdvanceOptions {
  std::string tag;
  std::string to;
  ConfirmFlags confirm;
};

// What is jumped over is lost for good: nothing goes back. Further than this is more often a slip than meant.
constexpr std::uint64_t kStepsMax = 1000;

bool IsInLastPercent(std::uint64_t to) { return to > kMaxIdLimit - kMaxIdLimit / 100; }

// Why going there needs the tag's name typed; "" if it does not.
std::string WhyFar(const core::TagRow& row, std::uint64_t to) {
  if (IsInLastPercent(to)) {
    const std::uint64_t left = kMaxIdLimit - to;
    return fmt::format(", where {} {} left", left, left == 1 ? "ID is" : "IDs are");
  }
  const auto from = static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0));
  const auto step = static_cast<std::uint64_t>(std::clamp<std::int64_t>(row.step, 1, kStepMax));
  if (to <= from || to - from <= kStepsMax * step) return "";
  return fmt::format(", over more than {} steps of {}", kStepsMax, row.step);
}

Result<void> RunTagAdvance(CommandContext& context, const TagAdvanceOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t to, ParseUnsigned("--to", options.to, 0, kMaxIdLimit));
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow before, store->segments().Describe(options.tag));
  const std::string why_far = WhyFar(before, to);
  LEAF_RETURN_IF_ERROR(
      Confirm(context, options.confirm, why_far.empty() ? Severity::kHarmless : Severity::kSevere,
              fmt::format("advance tag {} from {} to {}{}", Quoted(options.tag), before.max_id, to, why_far),
              options.tag));
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row,
                        store->segments().Advance(options.tag, to, options.confirm.mode()));
  const std::string what = fmt::format("tag {}: the next grant begins at {}", Quoted(row.tag), row.max_id);
  ReportChange(context, row, options.confirm.dry_run, fmt::format("advanced {}", what),
               fmt::format("advance {}", what));
  return {};
}

}  // namespace

Run AddTagAdvance(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagAdvanceOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  app.add_option("--to", options->to, "Where the next grant begins; never below where it is")
      ->required()
      ->type_name("N");
  AddConfirmFlags(app, options->confirm);
  app.footer("Example: leafctl tag advance pay --to 1000000");
  return [options](CommandContext& context) { return RunTagAdvance(context, *options); };
}

}  // namespace leaf::cmd
