// leafctl code check
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "code_store.h"
#include "commands.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/exhaustion.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

// How much of the codes of the greatest length is in use.
struct CodeUse {
  std::uint64_t ids = 0;              // that have, or may have, a code
  std::optional<double> days_left{};  // until an ID has none
};

Result<CodeUse> UseOf(CommandContext& context, CodeStore& store, const std::string& tag,
                      codes::WideNumber domain) {
  const WallTime now = context.clock.Wall();
  if (tag == codes::kSnowflakeTag) {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
    const auto id = resolved->config.snowflake.layout.Compose({now, 0, 0});
    return CodeUse{.ids = id.ok() ? *id : 0};
  }
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store.store().segments().Describe(tag));
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(context, tag));
  CodeUse use{.ids = static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0))};
  const auto end = static_cast<std::uint64_t>(std::min<codes::WideNumber>(domain, kMaxIdLimit));
  if (row.max_id >= 0 && use.ids >= end) {
    use.days_left = 0;
  } else if (mark.end > 0) {
    use.days_left = core::DaysUntil(end, row.max_id, mark.base, now);
  }
  return use;
}

Result<void> RunCodeCheck(CommandContext& context, const std::string& tag) {
  LEAF_RETURN_IF_ERROR(ValidateTag(tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const auto store,
                        CodeStore::Open(context, Store::Access::kLook, ClusterNameOf(resolved->config)));
  codes::CodeShape shape = store->book().ShapeFor(tag);
  core::CodeRecord record{.tag = tag,
                          .alphabet = std::string(codes::AlphabetName(shape.alphabet)),
                          .check = shape.check,
                          .lengths = {shape.length},
                          .key = store->book().fingerprint()};
  LEAF_ASSIGN_OR_RETURN(const std::optional<core::CodeRecord> kept, store->RecordOf(tag));
  std::optional<Error> refused;
  if (auto wanted = store->RecordFor(tag); !wanted.ok()) {
    refused = std::move(wanted).error();
  } else if (kept) {
    // A cluster that is not known here is not judged.
    if (wanted->cluster.empty()) wanted->cluster = kept->cluster;
    if (auto extended = core::ExtendCodeRecord(*kept, *wanted, core::CodesBegin::kNow); !extended.ok())
      refused = std::move(extended).error();
  }
  if (kept) record = *kept;
  shape.alphabet = codes::ParseAlphabet(record.alphabet).value_or(shape.alphabet);
  shape.length = record.lengths.back();
  const codes::WideNumber domain = codes::DomainOf(shape);
  LEAF_ASSIGN_OR_RETURN(const CodeUse use, UseOf(context, *store, tag, domain));
  // In floating point, which has 53 bits: a code of 24 characters has more than 64.
  const double density =
      use.ids == 0 ? 0 : std::min(1.0, static_cast<double>(use.ids) / static_cast<double>(domain));
  const std::string guesses =
      density == 0 ? "none yet" : fmt::format("one guess in {:.0f} is a code of this tag", 1 / density);
  const bool is_near = use.days_left && *use.days_left < kFewDaysLeft;
  if (context.flags.json) {
    WriteJson(context, {{"tag", tag},
                        {"in_use", kept.has_value()},
                        {"alphabet", record.alphabet},
                        {"check", record.check},
                        {"lengths", record.lengths},
                        {"key", record.key},
                        {"domain", codes::DomainText(shape)},
                        {"ids", std::to_string(use.ids)},
                        {"density", density},
                        {"days_to_exhaustion", use.days_left ? Json(*use.days_left) : Json(nullptr)},
                        {"problem", refused ? Json(refused->message) : Json(nullptr)}});
  } else {
    context.out.Write(fmt::format(
        "tag:          {}\nalphabet:     {}, {} a check character\nlength:       {}{}\nkey:          {}\n"
        "codes:        {}\nused:         {} at most\nguesses:      {}\ndays left:    {}\n",
        Printable(tag), record.alphabet, record.check ? "with" : "without",
        core::CodeLengthsText(record.lengths), kept ? "" : " (no code was made yet)", record.key,
        codes::DomainText(shape), use.ids, guesses, DaysLeftText(use.days_left)));
  }
  if (refused) return Error{ErrorCode::kUnhealthy, refused->message, refused->hint};
  if (is_near) {
    return Error{ErrorCode::kUnhealthy,
                 fmt::format("the codes of tag {} end in {} days", Quoted(tag), DaysLeftText(use.days_left)),
                 "set a longer codes.length: IDs from then on have longer codes"};
  }
  return {};
}

}  // namespace

Run AddCodeCheck(CLI::App& app, CommandContext&) {
  const auto tag = std::make_shared<std::string>();
  app.add_option("TAG", *tag, "The tag; 'snowflake' for snowflake IDs")->required();
  app.footer(
      "A code is no password: who guesses often enough hits one that exists.\n"
      "Examples:\n"
      "  leafctl code check order\n"
      "  leafctl code check snowflake --json");
  return [tag](CommandContext& context) { return RunCodeCheck(context, *tag); };
}

}  // namespace leaf::cmd
