#include "leaf/inspect/tags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::inspect {
namespace {

class TagInspector {
 public:
  TagInspector(std::span<const core::TagRow> rows, std::span<const core::Mark> marks, WallTime now,
               bool redis_port, std::span<const core::CodeRecord> codes)
      : rows_(rows), now_(now), redis_port_(redis_port) {
    for (const core::Mark& mark : marks) marks_.emplace(mark.tag, &mark);
    for (const core::CodeRecord& record : codes) codes_.emplace(record.tag, &record);
  }

  std::vector<Diagnosis> Run() {
    for (const core::TagRow& row : rows_) {
      CheckStep(row);
      CheckNumbers(row);
      CheckCodes(row);
      CheckName(row);
      if (redis_port_) CheckIntegers(row);
    }
    CheckAlike();
    if (result_.empty())
      return {Diagnosis::Ok(
          "tags", fmt::format("{} tag{}, every row sound", rows_.size(), rows_.size() == 1 ? "" : "s"))};
    std::vector<Diagnosis> all;
    for (auto& [check, found] : result_) {
      std::stable_sort(found.begin(), found.end(),
                       [](const Diagnosis& a, const Diagnosis& b) { return a.level > b.level; });
      const std::size_t more = found.size() > kTagDiagnosesMax ? found.size() - kTagDiagnosesMax : 0;
      found.resize(found.size() - more);
      const Level worst = found.front().level;
      for (Diagnosis& diagnosis : found) all.push_back(std::move(diagnosis));
      if (more > 0) all.push_back({check, worst, fmt::format("and {} more tags of this kind", more), "", ""});
    }
    return all;
  }

 private:
  void Add(std::string check, std::string subject, Level level, std::string found, std::string cause,
           std::string remedy) {
    auto& list = result_[check];
    list.push_back(
        {std::move(check), level, std::move(found), std::move(cause), std::move(remedy), std::move(subject)});
  }

  void CheckStep(const core::TagRow& row) {
    if (row.step >= 1 && row.step <= kStepMax) return;
    Add("tag-step", row.tag, Level::kProblem, fmt::format("tag {}: step {}", Quoted(row.tag), row.step),
        row.step == 0  ? "Java Leaf never gets a range with it, and leafctl refuses it"
        : row.step < 0 ? "Java Leaf moves max_id back with it, and IDs repeat; leafctl refuses it"
                       : "Java Leaf doubles the step as a 32-bit number: max_id goes back, and IDs repeat; "
                         "leafctl refuses it",
        fmt::format("{}, with N from 1 to {}", TagCommand("set", row.tag, "--step N"), kStepMax));
  }

  void CheckNumbers(const core::TagRow& row) {
    if (row.max_id < 0) {
      Add("tag-exhaustion", row.tag, Level::kProblem,
          fmt::format("tag {}: max_id {}", Quoted(row.tag), row.max_id),
          "an ID is never negative: leafctl grants nothing from it",
          TagCommand("advance", row.tag, "--to N") + ", above everything that was ever issued");
      return;
    }
    const auto found = marks_.find(row.tag);
    const core::Mark* const mark = found == marks_.end() ? nullptr : found->second;
    // The mark was read before the row.
    if (mark != nullptr && static_cast<std::uint64_t>(row.max_id) < mark->end) {
      Add("tag-went-back", row.tag, Level::kProblem,
          fmt::format("tag {}: max_id {} is below {}, which this node was granted up to", Quoted(row.tag),
                      row.max_id, mark->end),
          "the database lost committed grants (a restore, a failover): the IDs in between were issued "
          "already, and Java Leaf issues them again",
          fmt::format("stop every Java node of the tag, then {}", TagCommand("repair", row.tag)));
    }
    std::optional<double> days;
    if (mark != nullptr && mark->end > 0) days = core::DaysToExhaustion(row.max_id, mark->base, now_);
    if (!core::IsNearExhaustion(row.max_id, days)) return;
    const std::uint64_t left = core::IdsLeft(row.max_id);
    std::string when;
    constexpr double kDaysToDate = 36'525;
    if (days && *days < kDaysToDate) {
      const auto at =
          now_ + std::chrono::milliseconds{static_cast<std::int64_t>(
                     *days * static_cast<double>(std::chrono::milliseconds(std::chrono::hours{24}).count()))};
      when = fmt::format(", none from {} on at the rate seen here", FormatRfc3339(at).substr(0, 10));
    }
    Add("tag-exhaustion", row.tag, left == 0 ? Level::kProblem : Level::kWarning,
        fmt::format("tag {}: {} IDs are left below 2^63{}", Quoted(row.tag), left, when),
        "IDs end there and never wrap",
        "plan another tag; a max_id that high was set by hand, or by a step that was");
  }

  // Long before an ID has no code.
  void CheckCodes(const core::TagRow& row) {
    const auto record = codes_.find(row.tag);
    if (record == codes_.end() || row.max_id < 0) return;
    const std::uint64_t end = core::CodesEnd(*record->second);
    const auto at = static_cast<std::uint64_t>(row.max_id);
    const auto mark = marks_.find(row.tag);
    std::optional<double> days;
    if (mark != marks_.end() && mark->second->end > 0)
      days = core::DaysUntil(end, row.max_id, mark->second->base, now_);
    if (!core::IsNearCodesEnd(row.max_id, {end, days})) return;
    const bool is_over = at >= end;
    Add("tag-codes", row.tag, is_over ? Level::kProblem : Level::kWarning,
        is_over ? fmt::format("tag {}: IDs from {} on have no code", Quoted(row.tag), end)
                : fmt::format("tag {}: codes are left for {} IDs{}", Quoted(row.tag), end - at,
                              days ? fmt::format(", {:.0f} days at the rate seen here", *days) : ""),
        fmt::format("its codes have length {}", record->second->lengths.back()),
        "set a greater codes.length for it; the codes that there are stay good");
  }

  // JavaScript's numbers are exact up to 2^53.
  void CheckIntegers(const core::TagRow& row) {
    constexpr std::int64_t kExact = std::int64_t{1} << 53;
    if (row.max_id < kExact - static_cast<std::int64_t>(kFewIdsLeft)) return;
    Add("tag-integers", row.tag, Level::kWarning,
        fmt::format("tag {}: max_id {} is {} 2^53", Quoted(row.tag), row.max_id,
                    row.max_id < kExact ? "near" : "above"),
        "INCR on the Redis port answers with an integer, and JavaScript clients round integers above 2^53: "
        "to "
        "them IDs seem to repeat",
        "let such clients use LEAF.NEXT, whose IDs are strings");
  }

  void CheckName(const core::TagRow& row) {
    if (const auto valid = ValidateTag(row.tag); !valid.ok()) {
      Add("tag-name", row.tag, Level::kProblem,
          fmt::format("tag {}: no request can name it", Quoted(row.tag)), valid.error().message,
          "rename it while no client uses it");
      return;
    }
    if (row.tag.find('/') != std::string::npos) {
      Add("tag-name", row.tag, Level::kWarning, fmt::format("tag {} has a '/'", Quoted(row.tag)),
          "no HTTP route can carry it, neither Java Leaf's nor leafctl's",
          "use leafctl next --direct, or rename it");
    }
    const std::size_t dot = row.tag.rfind('.');
    if (dot == std::string::npos) return;
    const std::string cut = row.tag.substr(0, dot);
    const bool both =
        std::any_of(rows_.begin(), rows_.end(), [&](const core::TagRow& other) { return other.tag == cut; });
    Add("tag-dotted", row.tag, Level::kWarning, fmt::format("tag {} has a dot", Quoted(row.tag)),
        fmt::format(
            "Java Leaf cuts a key at its last dot: a caller that asks it for {} gets {}; leafctl takes the "
            "name as a whole, so callers of that URL get another tag's IDs after the change",
            Quoted(row.tag), both ? fmt::format("IDs of {}", Quoted(cut)) : "error -2"),
        "check the callers: to get this tag from Java Leaf they must add a slash after it, which works with "
        "leafctl, too");
  }

  // As the usual collations compare.
  static std::string Folded(std::string_view tag) {
    while (tag.ends_with(' ')) tag.remove_suffix(1);
    return LowerCase(tag);
  }

  void CheckAlike() {
    std::map<std::string, std::vector<std::string>> groups;
    std::map<std::string, int> copies;
    for (const core::TagRow& row : rows_) {
      groups[Folded(row.tag)].push_back(Quoted(row.tag));
      ++copies[row.tag];
    }
    for (const auto& [tag, count] : copies) {
      if (count == 1) continue;
      Add("tag-unique", tag, Level::kProblem, fmt::format("tag {} has {} rows", Quoted(tag), count),
          "biz_tag is not unique: an update moves all of them, and which one counts is chance",
          "stop every node of the tag, keep the row with the highest max_id, and ALTER TABLE leaf_alloc ADD "
          "UNIQUE KEY (biz_tag)");
    }
    for (auto& [folded, names] : groups) {
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      if (names.size() < 2) {
        if (folded.size() + 2 == names.front().size() || !names.front().ends_with(" '")) continue;
        Add("tag-alike", "", Level::kWarning, fmt::format("tag {} ends in a blank", names.front()),
            "MySQL finds it without the blank, leafctl and Java's cache do not",
            "rename it while no client uses it");
        continue;
      }
      Add("tag-alike", "", Level::kWarning,
          fmt::format("tags {} differ only in case or blanks at their end", fmt::join(names, ", ")),
          "under a collation that treats them as equal, Java Leaf's UPDATE moves all of them at once: ranges "
          "are lost, none is issued twice; leafctl matches byte for byte",
          "make their callers use one of them");
    }
  }

  const std::span<const core::TagRow> rows_;
  const WallTime now_;
  const bool redis_port_;
  std::map<std::string, const core::Mark*> marks_;
  std::map<std::string, const core::CodeRecord*, std::less<>> codes_;
  std::map<std::string, std::vector<Diagnosis>> result_;
};

}  // namespace

std::vector<Diagnosis> InspectTags(std::span<const core::TagRow> rows, std::span<const core::Mark> marks,
                                   WallTime now, bool redis_port, std::span<const core::CodeRecord> codes) {
  return TagInspector(rows, marks, now, redis_port, codes).Run();
}

std::vector<Diagnosis> InspectOrders(const core::TagOrderTable& table, std::span<const core::OrderNode> nodes,
                                     bool fallback) {
  constexpr const char* kCheck = "tag-order";
  std::vector<Diagnosis> found;
  std::size_t strict = 0;
  std::uint64_t version = 0;  // the newest that a strict tag needs
  for (const core::OrderRow& row : table.rows) {
    if (row.order != core::TagOrder::kStrict) continue;
    ++strict;
    if (row.since) version = std::max(version, row.version);
    if (!row.since && found.size() < kTagDiagnosesMax) {
      found.push_back(
          {kCheck, Level::kWarning,
           fmt::format("tag {}: to be strict, and not acknowledged by all nodes", Quoted(row.tag)),
           "a command has ended before they had, or the database was restored: some nodes may not keep to it",
           TagCommand("set", row.tag, "--order strict"), row.tag});
    }
  }
  if (strict == 0) return {};
  std::vector<std::string> falling_back;
  if (fallback) falling_back.emplace_back("this node");
  for (const core::OrderNode& node : nodes) {
    if (node.fallback) falling_back.push_back(Printable(node.process));
    if (node.acknowledged >= version) continue;
    found.push_back({kCheck, Level::kWarning,
                     fmt::format("{} has not read the order of all tags", Printable(node.process)),
                     "the database has lost its acknowledgement, or it has just begun",
                     "it reads them within seconds, if it runs"});
  }
  if (!falling_back.empty()) {
    found.push_back(
        {kCheck, Level::kProblem,
         fmt::format("segment.witness_fallback is true on {}, and {} strict", fmt::join(falling_back, ", "),
                     strict == 1 ? "a tag is" : fmt::format("{} tags are", strict)),
         "such a node does not serve a strict tag", "set segment.witness_fallback = false"});
  }
  if (found.empty()) {
    return {Diagnosis::Ok(kCheck, fmt::format("{} strict; {} node{} to that",
                                              strict == 1 ? "a tag is" : fmt::format("{} tags are", strict),
                                              nodes.size(), nodes.size() == 1 ? " keeps" : "s keep"))};
  }
  return found;
}

}  // namespace leaf::inspect
