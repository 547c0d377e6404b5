#include "tag_output.h"

#include <fmt/format.h>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/tag_rules.h"
#include "tag_book.h"

namespace leaf::cmd {

Json TagJson(const core::TagRow& row) {
  return {{"tag", row.tag},
          {"max_id", std::to_string(row.max_id)},
          {"step", row.step},
          {"description", row.description ? Json(*row.description) : Json(nullptr)},
          {"order", core::TagOrderName(row.order())},
          {"strict_since",
           row.strict && row.strict->since ? Json(std::to_string(*row.strict->since)) : Json(nullptr)},
          {"update_time", FormatRfc3339(row.update_time)},
          {"update_time_ms", UnixMillis(row.update_time)}};
}

namespace {

void AddCodesLeft(Json& json, const std::optional<core::CodesLeft>& codes) {
  if (!codes) return;
  json["codes_end"] = std::to_string(codes->end);
  json["codes_days_to_exhaustion"] = codes->days ? Json(*codes->days) : Json(nullptr);
}

}  // namespace

Json ListedJson(const ListedTag& listed) {
  Json json = TagJson(listed.row);
  json["days_to_exhaustion"] = listed.days_left ? Json(*listed.days_left) : Json(nullptr);
  AddCodesLeft(json, listed.codes_left);
  return json;
}

Json DetailsJson(const TagDetails& details) {
  const auto& [row, mark, days, codes] = details;
  Json json = TagJson(row);
  json["days_to_exhaustion"] = days ? Json(*days) : Json(nullptr);
  AddCodesLeft(json, codes);
  json["mark"] = std::to_string(mark.end);
  if (mark.end > 0) {
    json["mark_raised_at"] = FormatRfc3339(mark.raised_at);
    json["mark_raised_by"] = mark.raised_by;
  }
  json["held"] = mark.held;
  json["wasted_by_last_restart"] = mark.wasted_last;
  json["wasted_by_restarts"] = mark.wasted;
  json["wasted_by_restarts_exactly"] = mark.wasted_exactly;
  return json;
}

Json HistoryJson(const std::string& tag, const std::vector<core::AuditLine>& lines) {
  const auto state = [](const std::optional<core::AuditState>& of) {
    if (!of) return Json(nullptr);
    return Json{{"max_id", std::to_string(of->max_id)},
                {"step", of->step},
                {"description", of->description ? Json(*of->description) : Json(nullptr)}};
  };
  Json changes = Json::array();
  for (const core::AuditLine& line : lines) {
    changes.push_back({{"time", FormatRfc3339(line.at)},
                       {"time_ms", UnixMillis(line.at)},
                       {"action", line.action},
                       {"who", line.author.who},
                       {"origin", line.author.origin},
                       {"before", state(line.before)},
                       {"after", state(line.after)}});
  }
  return {{"tag", tag}, {"changes", std::move(changes)}};
}

namespace {

std::string_view PastOf(std::string_view action) {
  constexpr std::pair<std::string_view, std::string_view> kPast[] = {
      {core::kAuditAdd, "added"},          {core::kAuditSet, "changed"},
      {core::kAuditAdvance, "advanced"},   {core::kAuditRepair, "repaired"},
      {core::kAuditRecover, "recovered"},  {core::kAuditRemove, "removed"},
      {core::kAuditPause, "paused"},       {core::kAuditResume, "resumed"},
      {core::kAuditStrict, "made strict"}, {core::kAuditTrend, "made trend"}};
  for (const auto& [name, past] : kPast) {
    if (name == action) return past;
  }
  return action;
}

std::string DescriptionText(const std::optional<std::string>& description) {
  return description ? Quoted(*description) : "none";
}

// What a tag has, or, with `before`, what it has otherwise than before.
std::string StateText(const core::AuditState& state, const std::optional<core::AuditState>& before) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? ": " : ", ") + part; };
  const auto number = [&](std::string_view name, std::int64_t now, std::int64_t was) {
    if (!before) add(fmt::format("{} {}", name, now));
    if (before && now != was) add(fmt::format("{} {} (was {})", name, now, was));
  };
  number("max_id", state.max_id, before ? before->max_id : 0);
  number("step", state.step, before ? before->step : 0);
  if (before ? state.description != before->description : state.description.has_value()) {
    add("description " + DescriptionText(state.description));
    if (before) text += fmt::format(" (was {})", DescriptionText(before->description));
  }
  return text;
}

}  // namespace

std::string AuditText(const core::AuditLine& line) {
  const std::optional<core::AuditState>& state = line.after ? line.after : line.before;
  return fmt::format("tag {} was {} by {}{}", Quoted(line.tag), Printable(PastOf(line.action)),
                     Printable(line.author.who),
                     state ? StateText(*state, line.after ? line.before : std::nullopt) : "");
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

Result<void> ValidateDescription(std::string_view text, std::string_view name) {
  return core::CheckDescription(name, text);
}

}  // namespace leaf::cmd
