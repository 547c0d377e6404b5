#include "sim/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/time.h"

namespace leaf::sim {
namespace {

// More of them say nothing new.
constexpr std::size_t kViolationsMax = 20;

}  // namespace

void History::Broken(std::string what) {
  if (violations_.size() < kViolationsMax)
    violations_.push_back(fmt::format("{:.6f} s: {}", static_cast<double>(world_.now()) / 1e9, what));
}

void History::Append(std::vector<Record>& records, std::map<std::uint64_t, std::size_t>& last,
                     const Record& record) {
  const auto [found, added] = last.try_emplace(record.issuer.process, records.size());
  if (!added) {
    Record& before = records[found->second];
    if (before.range.end == record.range.begin) {
      before.range.end = record.range.end;
      return;
    }
    found->second = records.size();
  }
  records.push_back(record);
}

void History::Granted(const Issuer& issuer, std::string_view tag, const IdRange& range) {
  ++grants_;
  tags_[std::string(tag)].grants.push_back({range, issuer, world_.now()});
}

void History::Issued(const Issuer& issuer, std::string_view tag, const IdRange& range) {
  ids_ += range.size();
  if (range.empty() || range.end > kMaxIdLimit)
    Broken(fmt::format("P2: [{}, {}) of {} are no IDs", range.begin, range.end, tag));
  OfTag& of = tags_[std::string(tag)];
  Append(of.issued, of.last_of, {range, issuer, world_.now()});
}

void History::IssuedSnowflake(const Issuer& issuer, const void* life, const IdRange& range, WallTime wall,
                              std::chrono::milliseconds window) {
  ids_ += range.size();
  const core::IdFields first = layout_.Decompose(range.begin);
  const core::IdFields last = layout_.Decompose(range.end - 1);
  if (last.time > wall + window) {
    Broken(fmt::format("P6: node {} issued an ID of {} when its clock said {}", issuer.node,
                       FormatRfc3339(last.time), FormatRfc3339(wall)));
  }
  Append(snowflakes_, last_snowflake_of_, {range, issuer, world_.now()});
  const auto [found, added] =
      lives_.try_emplace({issuer.process, life}, Life{issuer, first.worker, first.time, last.time});
  if (added) return;
  found->second.first = std::min(found->second.first, first.time);
  found->second.last = std::max(found->second.last, last.time);
}

void History::Answered(const Issuer& issuer, std::string_view tag, std::uint64_t sent, std::uint64_t lowest,
                       std::uint64_t highest) {
  orders_[std::string(tag)].requests.push_back(
      {sent, ++moment_, {lowest, highest + 1}, issuer, world_.now()});
}

void History::OrderBegins(const std::string& tag) {
  Order& order = orders_[tag];
  if (!order.holds.empty() && order.holds.back().second == 0) return;
  order_lost_.erase(tag);
  order.holds.emplace_back(++moment_, 0);
  ++orders_begun_;
}

void History::OrderEnds(const std::string& tag) {
  Order& order = orders_[tag];
  if (!order.holds.empty() && order.holds.back().second == 0) order.holds.back().second = ++moment_;
}

std::vector<std::string> History::StrictTags() const {
  std::vector<std::string> tags;
  for (const auto& [tag, order] : orders_) {
    if (!order.holds.empty() && order.holds.back().second == 0) tags.push_back(tag);
  }
  return tags;
}

void History::EndLostOrders(const std::function<bool(const std::string&)>& remembered) {
  std::erase_if(order_lost_, [&](const std::string& tag) {
    if (remembered(tag)) return false;
    OrderEnds(tag);
    return true;
  });
}

std::string History::Describe(const Record& record) {
  return fmt::format("[{}, {}) of {}node {} (process {}, state {}) at {:.6f} s", record.range.begin,
                     record.range.end, record.issuer.java ? "Java " : "", record.issuer.node,
                     record.issuer.process, record.issuer.state, static_cast<double>(record.at) / 1e9);
}

void History::CheckDisjoint(std::string_view what, const std::string& tag, std::vector<Record> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.range.begin < b.range.begin; });
  const bool went_back = went_back_.contains(tag);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& a = records[i];
    for (std::size_t j = i + 1; j < records.size() && records[j].range.begin < a.range.end; ++j) {
      const Record& b = records[j];
      // Java knows no fence; and the node's own one sees its own state directory.
      const bool excused = went_back && (a.issuer.java || b.issuer.java ||
                                         (scope_ == Scope::kNode && a.issuer.state != b.issuer.state));
      if (excused) continue;
      Broken(fmt::format("P1: {} of {} twice: {} and {}", what, tag, Describe(a), Describe(b)));
      if (violations_.size() >= kViolationsMax) return;
    }
  }
}

void History::CheckWithinGrants(const std::string& tag) {
  OfTag& of = tags_[tag];
  std::map<std::uint64_t, std::vector<IdRange>> granted;
  for (const Record& grant : of.grants) granted[grant.issuer.process].push_back(grant.range);
  for (auto& [process, ranges] : granted) {
    std::sort(ranges.begin(), ranges.end(),
              [](const IdRange& a, const IdRange& b) { return a.begin < b.begin; });
    // Joined where they meet, as answers are.
    std::vector<IdRange> joined;
    for (const IdRange& range : ranges) {
      if (!joined.empty() && joined.back().end == range.begin) {
        joined.back().end = range.end;
      } else {
        joined.push_back(range);
      }
    }
    ranges = std::move(joined);
  }
  for (const Record& record : of.issued) {
    if (record.issuer.java) continue;
    const std::vector<IdRange>& ranges = granted[record.issuer.process];
    auto after = std::upper_bound(ranges.begin(), ranges.end(), record.range.begin,
                                  [](std::uint64_t id, const IdRange& range) { return id < range.begin; });
    if (after == ranges.begin() || record.range.end > std::prev(after)->end)
      Broken(fmt::format("P1: {} were never granted to it: {}", tag, Describe(record)));
  }
}

void History::CheckLives() {
  std::map<std::uint64_t, std::vector<const Life*>> of_worker;
  for (const auto& [key, life] : lives_) of_worker[life.worker].push_back(&life);
  for (auto& [worker, lives] : of_worker) {
    std::stable_sort(lives.begin(), lives.end(),
                     [](const Life* a, const Life* b) { return a->first < b->first; });
    for (std::size_t i = 1; i < lives.size(); ++i) {
      const Life& before = *lives[i - 1];
      const Life& after = *lives[i];
      if (after.first > before.last || (before.issuer.java && after.issuer.java)) continue;
      Broken(fmt::format(
          "P1: worker {} had two holders at {}: process {} of node {} until {}, process {} "
          "of node {} from {} on",
          worker, FormatRfc3339(after.first), before.issuer.process, before.issuer.node,
          FormatRfc3339(before.last), after.issuer.process, after.issuer.node, FormatRfc3339(after.first)));
    }
  }
}

// Each request that was sent while the order held, against the highest ID of all that were answered before it
// was sent, whenever they were sent.
void History::CheckOrder(const std::string& tag) {
  const Order& order = orders_[tag];
  std::vector<const Request*> by_sent;
  for (const Request& request : order.requests) by_sent.push_back(&request);
  std::stable_sort(by_sent.begin(), by_sent.end(),
                   [](const Request* a, const Request* b) { return a->sent < b->sent; });
  std::size_t before = 0;
  const Request* highest = nullptr;
  for (const Request* const request : by_sent) {
    for (; before < order.requests.size() && order.requests[before].answered < request->sent; ++before) {
      if (highest == nullptr || order.requests[before].span.end > highest->span.end)
        highest = &order.requests[before];
    }
    const bool holds = std::any_of(order.holds.begin(), order.holds.end(), [&](const auto& period) {
      return period.first < request->sent && (period.second == 0 || request->answered < period.second);
    });
    if (!holds) continue;
    ++strict_requests_;
    strict_pairs_ += before;
    if (highest == nullptr || request->span.begin >= highest->span.end) continue;
    const auto text = [](const Request& of) {
      return Describe({of.span, of.issuer, of.at}) +
             fmt::format(" (sent as {}, answered as {})", of.sent, of.answered);
    };
    Broken(fmt::format("P9: a later request for {} has a lower ID: {} after {}", tag, text(*request),
                       text(*highest)));
    if (violations_.size() >= kViolationsMax) return;
  }
}

void History::Check() {
  for (const auto& [tag, of] : tags_) {
    CheckDisjoint("IDs", tag, of.issued);
    CheckDisjoint("grants", tag, of.grants);
  }
  for (const auto& [tag, of] : tags_) CheckWithinGrants(tag);
  for (const auto& [tag, order] : orders_) CheckOrder(tag);
  CheckDisjoint("IDs", "snowflake", snowflakes_);
  CheckLives();
}

}  // namespace leaf::sim
