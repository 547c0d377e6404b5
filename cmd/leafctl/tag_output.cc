#include "tag_output.h"

#include <fmt/format.h>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::cmd {

Json TagJson(const core::TagRow& row) {
  return {{"tag", row.tag},
          {"max_id", std::to_string(row.max_id)},
          {"step", row.step},
          {"description", row.description ? Json(*row.description) : Json(nullptr)},
          {"update_time", FormatRfc3339(row.update_time)},
          {"update_time_ms", UnixMillis(row.update_time)}};
}

std::optional<double> DaysLeft(const core::TagRow& row, const core::Mark& mark, WallTime now) {
  if (mark.end == 0) return std::nullopt;
  return core::DaysToExhaustion(row.max_id, mark.base, now);
}

std::string DaysLeftText(const std::optional<double>& days) {
  constexpr double kDaysOf1000Years = 365'242;
  if (!days) return "-";
  return *days >= kDaysOf1000Years ? "365000+" : fmt::format("{:.1f}", *days);
}

void WriteJson(CommandContext& context, const Json& json) {
  context.out.Write(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void ReportChange(CommandContext& context, const core::TagRow& row, bool dry_run, std::string_view done,
                  std::string_view would) {
  if (context.flags.json) {
    Json json = TagJson(row);
    json["dry_run"] = dry_run;
    WriteJson(context, json);
  } else {
    context.Report(dry_run ? fmt::format("would {}", would) : std::string(done));
  }
}

Result<std::int64_t> ParseStep(std::string_view text) {
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t step,
                        ParseUnsigned("--step", text, 1, static_cast<std::uint64_t>(kStepMax)));
  return static_cast<std::int64_t>(step);
}

Result<void> ValidateDescription(std::string_view text) {
  const auto characters = CountCodePoints(text);
  if (characters && *characters <= kDescriptionCharactersMax) return {};
  return Error{ErrorCode::kInvalidArgument,
               characters ? fmt::format("bad --description: it has {} characters, {} are allowed",
                                        *characters, kDescriptionCharactersMax)
                          : "bad --description: it is not valid UTF-8",
               ""};
}

}  // namespace leaf::cmd
