#include "daemon_book.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/server/http/tag_body.h"

namespace leaf::cmd {
namespace {

// Nothing of an answer is believed.

std::optional<std::string> StringIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// A whole number, as such or as a string.
template <typename Number>
std::optional<Number> NumberIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !(found->is_string() || found->is_number_integer())) return std::nullopt;
  return ParseWhole<Number>(found->is_string() ? found->get<std::string>() : found->dump());
}

std::optional<double> DaysIn(const Json& json, const char* name = "days_to_exhaustion") {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<core::CodesLeft> CodesIn(const Json& json) {
  const auto end = NumberIn<std::uint64_t>(json, "codes_end");
  if (!end) return std::nullopt;
  return core::CodesLeft{*end, DaysIn(json, "codes_days_to_exhaustion")};
}

std::optional<core::AuditState> StateIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_object()) return std::nullopt;
  const auto max_id = NumberIn<std::int64_t>(*found, "max_id");
  const auto step = NumberIn<std::int64_t>(*found, "step");
  if (!max_id || !step) return std::nullopt;
  return core::AuditState{.max_id = *max_id, .step = *step, .description = StringIn(*found, "description")};
}

void AddOrder(Json& body, core::TagOrder order, const std::vector<std::string>& gone,
              std::optional<std::chrono::milliseconds> wait) {
  body["order"] = core::TagOrderName(order);
  if (wait) body["wait_ms"] = std::min(*wait, server::kOrderWaitMax).count();
  if (!gone.empty()) body["gone"] = fmt::format("{}", fmt::join(gone, ","));
}

std::string PathOf(const std::string& tag) { return "/" + client::DaemonClient::PathSegment(tag); }

constexpr std::string_view kDryRun = "?dry_run=1";

std::string WithMode(const std::string& target, core::WriteMode mode) {
  return mode == core::WriteMode::kDryRun ? fmt::format("{}{}", target, kDryRun) : target;
}

}  // namespace

Error DaemonBook::NotOurs() const {
  return {ErrorCode::kInternal,
          fmt::format("{} sent an answer that is not from leafctl", daemon_.answered_by()), ""};
}

Result<Json> DaemonBook::Ask(Method method, const std::string& target, const Json& body, Effect effect) {
  if (target.ends_with(kDryRun)) effect = Effect::kNone;
  LEAF_ASSIGN_OR_RETURN(const std::string text,
                        daemon_.AskTags(method, effect, target, body.is_null() ? "" : body.dump()));
  Json json = ParseForeignJson<Json>(text);
  if (!json.is_object()) return NotOurs();
  if (const auto warnings = json.find("warnings"); warnings != json.end() && warnings->is_array()) {
    for (const Json& warning : *warnings) {
      if (warning.is_string())
        context_.Note(fmt::format("leafctl: warning: {}", Printable(warning.get<std::string>())));
    }
  }
  return json;
}

Result<core::TagRow> DaemonBook::RowOf(const Json& json) const {
  core::TagRow row;
  auto tag = json.is_object() ? StringIn(json, "tag") : std::nullopt;
  const auto max_id = tag ? NumberIn<std::int64_t>(json, "max_id") : std::nullopt;
  const auto step = tag ? NumberIn<std::int64_t>(json, "step") : std::nullopt;
  const auto updated = tag ? NumberIn<std::int64_t>(json, "update_time_ms") : std::nullopt;
  if (!tag || !max_id || !step || !updated) return NotOurs();
  row.tag = *std::move(tag);
  row.max_id = *max_id;
  row.step = *step;
  row.description = StringIn(json, "description");
  row.update_time = WallTimeOf(*updated);
  // A daemon of an earlier version says nothing of it.
  if (StringIn(json, "order") == core::TagOrderName(core::TagOrder::kStrict))
    row.strict =
        core::OrderRow{row.tag, core::TagOrder::kStrict, NumberIn<std::uint64_t>(json, "strict_since"), 0};
  return row;
}

Result<core::TagRow> DaemonBook::AskRow(Method method, const std::string& target, const Json& body) {
  LEAF_ASSIGN_OR_RETURN(const Json json, Ask(method, target, body));
  return RowOf(json);
}

Result<std::vector<ListedTag>> DaemonBook::ListWithDays() {
  LEAF_ASSIGN_OR_RETURN(const Json json, Ask(Method::kGet, ""));
  const auto list = json.find("tags");
  if (list == json.end() || !list->is_array()) return NotOurs();
  std::vector<ListedTag> tags;
  for (const Json& each : *list) {
    LEAF_ASSIGN_OR_RETURN(core::TagRow row, RowOf(each));
    tags.push_back({std::move(row), DaysIn(each), CodesIn(each)});
  }
  return tags;
}

Result<std::vector<core::TagRow>> DaemonBook::List() {
  LEAF_ASSIGN_OR_RETURN(auto tags, ListWithDays());
  std::vector<core::TagRow> rows;
  rows.reserve(tags.size());
  for (ListedTag& tag : tags) rows.push_back(std::move(tag.row));
  return rows;
}

Result<core::TagRow> DaemonBook::Describe(const std::string& tag) {
  return AskRow(Method::kGet, PathOf(tag));
}

Result<TagDetails> DaemonBook::Show(const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(const Json json, Ask(Method::kGet, PathOf(tag)));
  TagDetails details;
  LEAF_ASSIGN_OR_RETURN(details.row, RowOf(json));
  details.days_left = DaysIn(json);
  details.codes_left = CodesIn(json);
  core::Mark& mark = details.mark;
  mark.tag = tag;
  mark.end = NumberIn<std::uint64_t>(json, "mark").value_or(0);
  if (const auto raised_at = StringIn(json, "mark_raised_at")) {
    if (const auto time = ParseTime(*raised_at, WallTime{}); time.ok()) mark.raised_at = *time;
  }
  mark.raised_by = StringIn(json, "mark_raised_by").value_or("");
  mark.held = NumberIn<std::uint64_t>(json, "held").value_or(0);
  mark.wasted_last = NumberIn<std::uint64_t>(json, "wasted_by_last_restart").value_or(0);
  mark.wasted = NumberIn<std::uint64_t>(json, "wasted_by_restarts").value_or(0);
  const auto exactly = json.find("wasted_by_restarts_exactly");
  mark.wasted_exactly = exactly == json.end() || !exactly->is_boolean() || exactly->get<bool>();
  return details;
}

Result<std::uint64_t> DaemonBook::KnownMark(const std::string& tag) {
  // What a new tag of this name would have to be above.
  LEAF_ASSIGN_OR_RETURN(const Json json, Ask(Method::kPost, "?dry_run=1", Json{{"tag", tag}}));
  const auto mark = NumberIn<std::uint64_t>(json, "known_mark");
  if (!mark) return NotOurs();
  return *mark;
}

Result<std::vector<core::AuditLine>> DaemonBook::History(const std::string& tag, std::uint64_t limit) {
  LEAF_ASSIGN_OR_RETURN(const Json json,
                        Ask(Method::kGet, fmt::format("{}/history?limit={}", PathOf(tag), limit)));
  const auto changes = json.find("changes");
  if (changes == json.end() || !changes->is_array()) return NotOurs();
  std::vector<core::AuditLine> lines;
  for (const Json& each : *changes) {
    const auto at = each.is_object() ? NumberIn<std::int64_t>(each, "time_ms") : std::nullopt;
    if (!at) return NotOurs();
    lines.push_back({.tag = tag,
                     .action = StringIn(each, "action").value_or(""),
                     .author = {.who = StringIn(each, "who").value_or(""),
                                .origin = StringIn(each, "origin").value_or("")},
                     .before = StateIn(each, "before"),
                     .after = StateIn(each, "after"),
                     .at = WallTimeOf(*at)});
  }
  return lines;
}

Result<core::TagRow> DaemonBook::Add(const core::NewTag& tag, core::WriteMode mode) {
  Json body{{"tag", tag.tag}, {"step", tag.step}};
  if (tag.start) body["start"] = std::to_string(*tag.start);
  if (tag.description) body["description"] = *tag.description;
  if (tag.order == core::TagOrder::kStrict) AddOrder(body, tag.order, tag.gone, tag.wait);
  return AskRow(Method::kPost, WithMode("", mode), body);
}

Result<core::TagRow> DaemonBook::Change(const std::string& tag, const core::TagChange& change,
                                        core::WriteMode mode) {
  Json body{{"confirm", tag}};
  if (change.step) body["step"] = *change.step;
  if (change.description) body["description"] = *change.description;
  if (change.max_id) body["max_id"] = std::to_string(*change.max_id);
  if (change.order) AddOrder(body, *change.order, change.gone, change.wait);
  return AskRow(Method::kPatch, WithMode(PathOf(tag), mode), body);
}

Result<core::TagRow> DaemonBook::Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) {
  core::TagChange change;
  change.max_id = to;
  return Change(tag, change, mode);
}

Result<Evidence> DaemonBook::PlanRepair(const core::TagRow& row) {
  // With "to" the daemon only reports a mark that it does not know; the command decides whether to refuse.
  LEAF_ASSIGN_OR_RETURN(const Json json,
                        Ask(Method::kPost, PathOf(row.tag) + "/repair", Json{{"to", "0"}}, Effect::kNone));
  const auto before = NumberIn<std::int64_t>(json, "max_id_before");
  const auto marks = json.find("marks");
  const auto unknown = json.find("unknown");
  if (!before || marks == json.end() || !marks->is_array() || unknown == json.end() || !unknown->is_array())
    return NotOurs();
  Evidence evidence{row, {}, {}};
  evidence.row.max_id = *before;
  const auto text = [](const Json& object, const char* name) {
    return Printable(StringIn(object, name).value_or(""));
  };
  for (const Json& each : *marks) {
    if (!each.is_object()) return NotOurs();
    evidence.known.push_back({text(each, "where"), NumberIn<std::uint64_t>(each, "end").value_or(0),
                              text(each, "raised_at"), text(each, "raised_by"), text(each, "frozen_since"),
                              text(each, "max_id_seen")});
  }
  for (const Json& each : *unknown) {
    if (!each.is_object()) return NotOurs();
    evidence.missing.push_back({text(each, "whose"), {ErrorCode::kUnreachable, text(each, "message"), ""}});
  }
  return evidence;
}

Result<core::TagRow> DaemonBook::Repair(const std::string& tag, std::uint64_t to, core::WriteMode mode) {
  Json body{{"to", std::to_string(to)}};
  if (mode == core::WriteMode::kCommit) body["confirm"] = tag;
  return AskRow(Method::kPost, WithMode(PathOf(tag) + "/repair", mode), body);
}

Result<core::TagRow> DaemonBook::Remove(const core::TagRow& row, core::WriteMode mode) {
  return AskRow(Method::kDelete, WithMode(PathOf(row.tag), mode), Json{{"confirm", row.tag}});
}

}  // namespace leaf::cmd
