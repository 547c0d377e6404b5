#include "leaf/service/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/core/exhaustion.h"

namespace leaf::service {
namespace {

// In IDs a second. Below this, how long the reserve lasts says nothing.
constexpr double kRateLeast = 0.01;

struct Words {
  std::string_view cause;
  bool urgent;
  std::string_view title;  // {}: the tag, or their number
  std::string_view title_many;
  std::string_view effect;
  std::string_view effect_not_ready;  // "": the same
};

// The gravest first.
constexpr std::array kWords{
    Words{"state_dir_lost", true, "the state directory is lost", "",
          "This daemon issues no more IDs and does not recover by itself: another process may use the "
          "directory.",
          ""},
    Words{"frozen", true, "tag {} is frozen", "{} tags are frozen",
          "The database lost grants that it had committed. A frozen tag issues nothing until it is repaired, "
          "so that no ID repeats. Other tags continue.",
          ""},
    Words{
        "database", true, "database unreachable", "",
        "Tags issue IDs from their reserve. When the database answers again, everything continues by itself.",
        "No tag has a reserve, so requests for IDs of tags fail. When the database answers again, everything "
        "continues by itself."},
    Words{"witness", true, "witness unreachable", "",
          "Each new range of IDs is claimed in ZooKeeper, the witness, so that no two nodes issue the same "
          "IDs. Until it answers, tags issue IDs from their reserve.",
          "Each new range of IDs is claimed in ZooKeeper, the witness, so that no two nodes issue the same "
          "IDs. Until it answers, requests for IDs of tags fail: no tag has a reserve."},
    Words{"segment", true, "no IDs of tags", "", "Requests for IDs of tags fail.", ""},
    Words{"snowflake", true, "snowflake mode fails", "",
          "Snowflake IDs are issued for a few more seconds, up to the ceiling on the disk, and then stop.",
          "Requests for snowflake IDs fail."},
    Words{"disabled", true, "no mode is enabled", "", "This daemon issues no IDs at all.", ""},
    Words{"draining", false, "shutting down", "",
          "Requests are still served for a moment, then the daemon stops.", ""},
    Words{"registry", false, "registry unreachable", "",
          "The registry assigns the worker numbers of snowflake IDs. A worker with a fixed number continues "
          "without it, one with a lease stops within seconds.",
          "The registry assigns the worker numbers of snowflake IDs. Requests for snowflake IDs fail."},
    Words{"table", false, "the table of tags cannot be read", "",
          "Known tags continue. Changes in the table are not noticed.",
          "Requests for IDs of tags fail: no tag is known yet, or none has a reserve."},
    Words{"grants", false, "tag {} gets no new IDs", "{} tags get no new IDs",
          "IDs are issued from the reserve. The daemon keeps trying.", ""},
    Words{"near_exhaustion", false, "tag {} runs out of numbers", "{} tags run out of numbers",
          "No ID can be 2^63 or more. At the end of the numbers, requests fail.", ""},
    Words{"codes_near_end", false, "the codes of tag {} end", "the codes of {} tags end",
          "Beyond the end of the codes, requests for codes fail. Those for IDs do not.", ""},
    Words{"exhaustion_near", false, "snowflake IDs run out", "",
          "The time that fits into an ID ends. After that, requests for snowflake IDs fail.", ""},
    Words{"reload_failed", false, "the new configuration was not applied", "",
          "The old settings stay in force. A restart would be refused.", ""},
    Words{"paused", false, "tag {} is paused", "{} tags are paused",
          "Cut off on this node by an operator: every request for it fails until it is resumed.", ""},
};

// Of grants that fail there is a cause for each code: "grants_refused".
constexpr std::string_view kGrants = "grants";

const Words& WordsOf(std::string_view cause) {
  const auto* const found = std::find_if(kWords.begin(), kWords.end(), [&](const Words& words) {
    return words.cause == cause || (words.cause == kGrants && cause.starts_with("grants_"));
  });
  return found == kWords.end() ? *std::find_if(kWords.begin(), kWords.end(),
                                               [](const Words& words) { return words.cause == "segment"; })
                               : *found;
}

bool Has(const std::vector<Problem>& problems, std::string_view cause) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const Problem& problem) { return problem.cause == cause; });
}

std::string CauseOfGrant(ErrorCode code, const std::vector<Problem>& node) {
  if (code == ErrorCode::kFrozen) return "frozen";
  if (code == ErrorCode::kUnavailable || code == ErrorCode::kOutcomeUnknown) {
    for (const std::string_view away : {"database", "witness"}) {
      if (Has(node, away)) return std::string(away);
    }
  }
  return fmt::format("{}_{}", kGrants, ErrorCodeName(code));
}

// The shortest of those that `cause` makes live on their reserve.
std::optional<Cause::Reserve> ShortestReserve(const Cause& cause, const std::vector<TagStatus>& tags) {
  const bool all = cause.name == "database" || cause.name == "witness";
  if (!all && !cause.name.starts_with(kGrants)) return std::nullopt;
  std::optional<Cause::Reserve> shortest;
  for (const TagStatus& tag : tags) {
    if (tag.ids_per_second < kRateLeast || tag.state == "frozen" || tag.paused) continue;
    if (!all && !std::binary_search(cause.tags.begin(), cause.tags.end(), tag.tag)) continue;
    const double seconds = static_cast<double>(tag.reserve) / tag.ids_per_second;
    if (!shortest || seconds < shortest->seconds) shortest = {tag.tag, seconds};
  }
  return shortest;
}

void Add(const Problem& problem, Cause& cause) {
  // What the node says of the cause stands for what its tags, or its readiness, say of it.
  const bool is_first = cause.message.empty();
  const bool is_another = problem.tag.empty() && !problem.not_ready && cause.tags.empty() &&
                          cause.message.find(problem.message) == std::string::npos;
  if (is_first) {
    cause.message = problem.message;
  } else if (is_another) {
    cause.message += "; " + problem.message;
  }
  if (cause.hint.empty()) cause.hint = problem.hint;
  if (problem.since && (!cause.since || *problem.since < *cause.since)) cause.since = problem.since;
  if (!problem.tag.empty()) cause.tags.push_back(problem.tag);
  cause.not_ready = cause.not_ready || problem.not_ready;
}

void Finish(Cause& cause, const std::vector<TagStatus>& tags) {
  std::sort(cause.tags.begin(), cause.tags.end());
  const Words& words = WordsOf(cause.name);
  cause.urgent = words.urgent || (cause.not_ready && cause.name != "draining");
  const bool many = cause.tags.size() > 1 && !words.title_many.empty();
  // A title without {} takes no notice of what it is given.
  cause.title = fmt::format(fmt::runtime(many ? words.title_many : words.title),
                            many ? std::to_string(cause.tags.size())
                                 : Quoted(cause.tags.empty() ? std::string_view() : cause.tags.front()));
  cause.effect = cause.not_ready && !words.effect_not_ready.empty() ? words.effect_not_ready : words.effect;
  if (cause.name == "paused") cause.message.clear();  // it says no more than the title
  cause.shortest_reserve = ShortestReserve(cause, tags);
}

}  // namespace

std::string CauseOfReason(std::string_view code, const std::vector<Problem>& others) {
  if (code.starts_with("segment_")) {
    for (const std::string_view behind : {"database", "witness", "table"}) {
      if (Has(others, behind)) return std::string(behind);
    }
    return "segment";
  }
  if (code.starts_with("snowflake_"))
    return !Has(others, "snowflake") && Has(others, "registry") ? "registry" : "snowflake";
  return std::string(code);
}

void AddProblems(const TagStatus& tag, const std::vector<Problem>& node, std::vector<Problem>& problems) {
  if (tag.near_exhaustion) {
    problems.push_back(
        {"near_exhaustion",
         fmt::format("tag {}: {} IDs are left below 2^63{}", Quoted(tag.tag), core::IdsLeft(tag.max_id),
                     tag.days_to_exhaustion
                         ? fmt::format(", {:.1f} days at the rate seen", *tag.days_to_exhaustion)
                         : ""),
         "plan a new tag name, or check whether its max_id was moved by mistake", tag.tag,
         "near_exhaustion"});
  }
  if (tag.codes_left && core::IsNearCodesEnd(tag.max_id, *tag.codes_left)) {
    const std::uint64_t end = tag.codes_left->end;
    const auto at = static_cast<std::uint64_t>(tag.max_id);
    problems.push_back(
        {"codes_near_end",
         at >= end ? fmt::format("tag {}: IDs from {} on have no code", Quoted(tag.tag), end)
                   : fmt::format("tag {}: codes are left for {} IDs{}", Quoted(tag.tag), end - at,
                                 tag.codes_left->days
                                     ? fmt::format(", {:.1f} days at the rate seen", *tag.codes_left->days)
                                     : ""),
         "set a greater codes.length for it; the codes that there are stay good", tag.tag, "codes_near_end"});
  }
  if (!tag.problem) return;
  problems.push_back({std::string(ErrorCodeName(tag.problem->code)), tag.problem->message, tag.problem->hint,
                      tag.tag, CauseOfGrant(tag.problem->code, node), tag.problem_since});
}

std::vector<Cause> GroupByCause(const std::vector<Problem>& problems, const std::vector<TagStatus>& tags) {
  std::vector<Cause> causes;
  for (const Problem& problem : problems) {
    auto cause = std::find_if(causes.begin(), causes.end(),
                              [&](const Cause& known) { return known.name == problem.cause; });
    if (cause == causes.end()) {
      cause = causes.insert(causes.end(), Cause{});
      cause->name = problem.cause;
    }
    Add(problem, *cause);
  }
  for (Cause& cause : causes) Finish(cause, tags);
  // Those that refuse IDs now go first; else in the order of the words.
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    const auto rank = [](const Cause& cause) {
      return std::tuple(!cause.urgent, !cause.not_ready, &WordsOf(cause.name));
    };
    return rank(a) < rank(b);
  });
  return causes;
}

}  // namespace leaf::service
