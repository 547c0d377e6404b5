#include "tag_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::cmd {
namespace {

// A move over more steps than this is more often a slip than meant.
constexpr std::uint64_t kStepsMax = 1000;

bool IsInLastPercent(std::uint64_t to) { return to > kMaxIdLimit - kMaxIdLimit / 100; }

}  // namespace

std::string WhyFarAbove(std::uint64_t begin) {
  if (!IsInLastPercent(begin)) return "";
  const std::uint64_t left = kMaxIdLimit - begin;
  return fmt::format(", where {} {} left", left, left == 1 ? "ID is" : "IDs are");
}

std::string WhyFar(const core::TagRow& row, std::uint64_t to) {
  if (std::string few = WhyFarAbove(to); !few.empty()) return few;
  const auto from = static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0));
  const auto step = static_cast<std::uint64_t>(std::clamp<std::int64_t>(row.step, 1, kStepMax));
  if (to <= from || to - from <= kStepsMax * step) return "";
  return fmt::format(", over more than {} steps of {}", kStepsMax, row.step);
}

std::string AdvanceText(const core::TagRow& row, std::uint64_t to) {
  return fmt::format("advance tag {} from {} to {}{}", Quoted(row.tag), row.max_id, to, WhyFar(row, to));
}

void AddOrderFlags(CLI::App& app, std::optional<std::string>& order, std::vector<std::string>& gone) {
  app.add_option("--order", order,
                 "trend: as Leaf, fast; strict: a later request gets a greater ID, from any node, and every "
                 "answer waits for the database")
      ->type_name("trend|strict");
  app.add_option("--gone", gone,
                 "With --order strict: this node, by the name that a refusal shows, has ended for good")
      ->type_name("NODE")
      ->allow_extra_args(false);
}

Result<std::optional<core::TagOrder>> ParseOrder(const std::optional<std::string>& order,
                                                 const std::vector<std::string>& gone) {
  std::optional<core::TagOrder> parsed;
  if (order) {
    parsed = core::TagOrderOf(*order);
    if (!parsed) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --order {}: not trend or strict", Quoted(*order)), ""};
    }
  }
  if (!gone.empty() && parsed != core::TagOrder::kStrict)
    return Error{ErrorCode::kInvalidArgument, "--gone goes with --order strict only", ""};
  return parsed;
}

std::string OrderText(const core::TagRow& row) {
  if (!row.strict) return "order trend";
  return row.strict->since ? fmt::format("order strict from ID {} on", *row.strict->since)
                           : "order strict, not acknowledged by all nodes";
}

Result<void> ValidateTags(const std::vector<std::string>& tags) {
  std::set<std::string_view> seen;
  for (const std::string& tag : tags) {
    LEAF_RETURN_IF_ERROR(ValidateTag(tag));
    if (!seen.insert(tag).second)
      return Error{ErrorCode::kInvalidArgument, fmt::format("tag {} is given twice", Quoted(tag)), ""};
  }
  return {};
}

std::string QuotedList(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += Quoted(names[i]);
  }
  return text;
}

std::string ConfirmName(const std::vector<std::string>& tags) {
  return fmt::format("{}", fmt::join(tags, ","));
}

Result<void> ForEachTag(CommandContext& context, const std::vector<std::string>& tags, std::string_view done,
                        const std::function<Result<Json>(const std::string&)>& one) {
  Json documents = Json::array();
  std::optional<Error> failure;
  for (const std::string& tag : tags) {
    auto document = one(tag);
    if (!document.ok()) {
      failure = std::move(document).error();
      break;
    }
    documents.push_back(*std::move(document));
  }
  if (!failure) {
    if (context.flags.json)
      WriteJson(context, tags.size() == 1 ? documents.front() : Json{{"tags", documents}});
    return {};
  }
  if (!documents.empty() && !done.empty())
    failure->message = fmt::format(
        "{} of {} tags were {}{}, then: {}", documents.size(), tags.size(), done,
        failure->code == ErrorCode::kOutcomeUnknown ? ", and perhaps one more" : "", failure->message);
  return *failure;
}

}  // namespace leaf::cmd
