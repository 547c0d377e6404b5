#include "leaf/sql/audit.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/sql/error_map.h"

namespace leaf::sql {
namespace {

constexpr std::size_t kAuditTextCharactersMax = 255;
constexpr std::size_t kAuditDescriptionCharactersMax = 256;

// As much of a text as its column takes: valid UTF-8.
std::string CutAuditText(std::string text, std::size_t characters_max) {
  text.resize(std::min(text.size(), 4 * characters_max));
  while (CountCodePoints(text).value_or(characters_max + 1) > characters_max) text.pop_back();
  return text;
}

std::string FittedAuditText(const std::string& text) {
  return CutAuditText(Printable(text), kAuditTextCharactersMax);
}

struct AuditStateBuffer {
  long long max_id = 0;
  soci::indicator max_id_state = soci::i_null;
  long long step = 0;
  soci::indicator step_state = soci::i_null;
  std::string description;
  soci::indicator description_state = soci::i_null;

  explicit AuditStateBuffer(const std::optional<core::AuditState>& state = std::nullopt) {
    if (!state) return;
    max_id = state->max_id;
    step = state->step;
    // The table of tags may have been given a wider column.
    description = CutAuditText(state->description.value_or(""), kAuditDescriptionCharactersMax);
    max_id_state = soci::i_ok;
    step_state = soci::i_ok;
    description_state = state->description ? soci::i_ok : soci::i_null;
  }
  std::optional<core::AuditState> State() const {
    if (max_id_state != soci::i_ok) return std::nullopt;
    core::AuditState state{.max_id = max_id, .step = step, .description = std::nullopt};
    if (description_state == soci::i_ok) state.description = description;
    return state;
  }
};

}  // namespace

std::string WriteAuditLine(soci::session& session, const Dialect& dialect, const core::AuditLine& line) {
  // SOCI reads what use() names when the statement ends: values need names.
  const std::string who = FittedAuditText(line.author.who);
  const std::string origin = FittedAuditText(line.author.origin);
  AuditStateBuffer before(line.before);
  AuditStateBuffer after(line.after);
  try {
    session << fmt::format(
        "INSERT INTO leafctl_audit (at_ms, biz_tag, action, who, origin, max_id_before, max_id_after, "
        "step_before, step_after, description_before, description_after) VALUES ({}, :tag, :action, :who, "
        ":origin, :max_id_before, :max_id_after, :step_before, :step_after, :description_before, "
        ":description_after)",
        dialect.now_ms),
        soci::use(line.tag, "tag"), soci::use(line.action, "action"), soci::use(who, "who"),
        soci::use(origin, "origin"), soci::use(before.max_id, before.max_id_state, "max_id_before"),
        soci::use(after.max_id, after.max_id_state, "max_id_after"),
        soci::use(before.step, before.step_state, "step_before"),
        soci::use(after.step, after.step_state, "step_after"),
        soci::use(before.description, before.description_state, "description_before"),
        soci::use(after.description, after.description_state, "description_after");
  } catch (const std::exception& exception) {
    if (IsMissingTable(exception))
      return "the database has no table leafctl_audit; leafctl db init creates it";
    if (IsDenied(exception)) return "the database user may not write to table leafctl_audit";
    throw;
  }
  return "";
}

Result<void> ReadAuditLines(soci::session& session, std::string_view tag, std::uint64_t limit,
                            std::vector<core::AuditLine>& lines) {
  lines.clear();
  const std::string name(tag);
  core::AuditLine line;
  long long at_ms = 0;
  AuditStateBuffer before;
  AuditStateBuffer after;
  try {
    soci::statement read =
        (session.prepare << fmt::format(
             "SELECT at_ms, action, who, origin, max_id_before, max_id_after, step_before, step_after, "
             "description_before, description_after FROM leafctl_audit WHERE biz_tag = :tag "
             "ORDER BY id DESC LIMIT {}",
             limit),
         soci::use(name, "tag"), soci::into(at_ms), soci::into(line.action), soci::into(line.author.who),
         soci::into(line.author.origin), soci::into(before.max_id, before.max_id_state),
         soci::into(after.max_id, after.max_id_state), soci::into(before.step, before.step_state),
         soci::into(after.step, after.step_state), soci::into(before.description, before.description_state),
         soci::into(after.description, after.description_state));
    read.execute();
    while (read.fetch()) {
      line.tag = tag;
      line.at = WallTimeOf(at_ms);
      line.before = before.State();
      line.after = after.State();
      lines.push_back(line);
    }
  } catch (const std::exception& exception) {
    if (!IsMissingTable(exception)) throw;
    return Error{ErrorCode::kConfig, "the database has no table leafctl_audit, which has the history of tags",
                 "leafctl db init creates it"};
  }
  return {};
}

}  // namespace leaf::sql
