#include "leaf/service/order_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::service {
namespace {

// A look that has put rows back, or that a change has overtaken, is followed by another. A command waits for
// what it acknowledges.
constexpr int kLooksAtOnce = 3;

}  // namespace

OrderBook::OrderBook(core::TagOrders* orders, core::MarkStore& memory, core::OrderNode node, Logger& log,
                     std::function<void()> adopted)
    : orders_(orders), memory_(memory), node_(std::move(node)), log_(log), adopted_(std::move(adopted)) {
  known_ = orders_ == nullptr;
}

core::TagOrder OrderBook::Of(std::string_view tag) const {
  const MutexLock lock(mutex_);
  const auto known = rows_.find(tag);
  return known != rows_.end() ? known->second.order : core::TagOrder::kTrend;
}

Result<void> OrderBook::Known() const {
  const MutexLock lock(mutex_);
  if (known_) return {};
  if (problem_) return *problem_;
  return Error{ErrorCode::kUnavailable, "the order of the tags is being read", "retry soon"};
}

bool OrderBook::has_table() const {
  const MutexLock lock(mutex_);
  return has_table_;
}

bool OrderBook::has_granted() const {
  const MutexLock lock(mutex_);
  return has_granted_;
}

Result<void> OrderBook::Ensure() {
  {
    const MutexLock lock(mutex_);
    has_granted_ = true;
    if (known_ && (has_table_ || looked_to_grant_)) return {};
  }
  const auto looked = Look();
  if (looked.ok()) {
    const MutexLock lock(mutex_);
    looked_to_grant_ = true;
  }
  // Another look may have come first.
  return Known().ok() ? Result<void>() : looked;
}

Result<void> OrderBook::Look() {
  if (orders_ == nullptr) return {};
  for (int i = 0; i < kLooksAtOnce; ++i) {
    LEAF_ASSIGN_OR_RETURN(const bool is_settled, LookOnce());
    if (is_settled) break;
  }
  return {};
}

Result<bool> OrderBook::LookOnce() {
  std::uint64_t look = 0;
  bool entered = false;
  bool tells = false;
  std::uint64_t seen = 0;
  std::uint64_t seen_nonce = 0;
  {
    const MutexLock lock(mutex_);
    look = ++looks_;
    entered = entered_;
    tells = std::exchange(learned_, false);
    seen = seen_;
    seen_nonce = seen_nonce_;
  }
  const auto learn = [&]() -> Result<bool> {
    LEAF_RETURN_IF_ERROR(Remember());
    if (entered) {
      LEAF_ASSIGN_OR_RETURN(const auto state, orders_->LookAt(node_.id));
      if (!state) return Adopt(look, std::nullopt);
      const bool is_same = state->version == seen && state->nonce == seen_nonce;
      if (is_same && state->acknowledged == state->version && !tells) return true;
      if (state->acknowledged) {
        LEAF_ASSIGN_OR_RETURN(const auto table, orders_->Read());
        return Adopt(look, table);
      }
      log_.Warning("this node is not on the table's list of nodes any more, and is entered again");
    }
    LEAF_ASSIGN_OR_RETURN(const auto table, orders_->Enter(node_));
    return Adopt(look, table);
  };
  auto learned = learn();
  const MutexLock lock(mutex_);
  if (learned.ok()) {
    problem_.reset();
  } else {
    learned_ = learned_ || tells;
    problem_ = Error{learned.error().code,
                     fmt::format("cannot read the order of the tags: {}", learned.error().message),
                     learned.error().hint};
    if (!known_) return *problem_;
  }
  return learned;
}

Result<bool> OrderBook::Adopt(std::uint64_t look, const std::optional<core::TagOrderTable>& table) {
  {
    const MutexLock adopting(adopting_);
    if (!AdoptRows(look, table)) return true;
    if (table || !Rows().empty()) adopted_();
    // Not before the generators know: a grant of one that does not would go into its reserve.
    const MutexLock lock(mutex_);
    known_ = true;
  }
  if (!table) {
    TellWithoutTable();
    return true;
  }
  LEAF_RETURN_IF_ERROR(KeepInMemory());
  if (!table->listed) {
    const MutexLock lock(mutex_);
    if (!std::exchange(unlisted_told_, true)) {
      log_.Warning(
          "this node is not on the list of nodes: its database user may not write to leafctl_orders and "
          "leafctl_nodes. A tag that becomes strict does not wait for it");
    }
    return true;
  }
  auto settled = Settle(*table);
  TellUnsettled(settled);
  return settled;
}

Result<bool> OrderBook::Settle(const core::TagOrderTable& table) {
  const std::vector<Lost> lost = LostBy(table);
  for (const Lost& each : lost) {
    const std::string_view order = core::TagOrderName(each.row.order);
    LEAF_RETURN_IF_ERROR(orders_->Restore(each.row));
    if (each.order_stands) {
      log_.Warning("the table had lost changes of the order of tag {}, which is {} now", Quoted(each.row.tag),
                   order);
    } else {
      log_.Warning("the table had lost that tag {} is {}: this node has put it back", Quoted(each.row.tag),
                   order);
    }
  }
  // That has changed the table.
  if (!lost.empty()) return false;
  LEAF_ASSIGN_OR_RETURN(const bool is_current, orders_->Acknowledge(node_.id, table));
  if (!is_current) return false;
  const MutexLock lock(mutex_);
  seen_ = table.version;
  seen_nonce_ = table.nonce;
  return true;
}

void OrderBook::TellUnsettled(const Result<bool>& settled) {
  const MutexLock lock(mutex_);
  std::string problem;
  // The log tells elsewhere that the database cannot be reached.
  if (!settled.ok() && settled.error().code != ErrorCode::kUnavailable &&
      settled.error().code != ErrorCode::kOutcomeUnknown)
    problem = settled.error().message;
  if (std::exchange(unsettled_told_, problem) == problem || problem.empty()) return;
  log_.Warning(
      "cannot acknowledge the order of the tags: {}. This node keeps to it; leafctl tag set --order strict "
      "waits for it",
      problem);
}

Result<void> OrderBook::Remember() {
  {
    const MutexLock lock(mutex_);
    if (remembered_) return {};
  }
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::OrderRow> rows, memory_.LoadOrders());
  const MutexLock lock(mutex_);
  if (std::exchange(remembered_, true)) return {};
  for (const core::OrderRow& row : rows) {
    kept_.insert_or_assign(row.tag, row);
    const auto known = rows_.find(row.tag);
    if (known == rows_.end() || core::IsNewer(row, known->second)) rows_.insert_or_assign(row.tag, row);
  }
  return {};
}

Result<void> OrderBook::KeepInMemory() {
  std::vector<core::OrderRow> news;
  {
    const MutexLock lock(mutex_);
    for (const auto& [tag, row] : rows_) {
      const auto kept = kept_.find(tag);
      if (kept == kept_.end() || kept->second != row) news.push_back(row);
    }
  }
  if (news.empty()) return {};
  auto kept = memory_.KeepOrders(news);
  const MutexLock lock(mutex_);
  const bool was_told = std::exchange(unkept_told_, !kept.ok());
  if (!kept.ok()) {
    if (!was_told) {
      log_.Warning(
          "cannot remember the order of the tags: {}. This node keeps to it, and acknowledges no change: "
          "leafctl tag set --order strict waits for it",
          kept.error().message);
    }
    return kept;
  }
  for (core::OrderRow& row : news) kept_.insert_or_assign(row.tag, std::move(row));
  return {};
}

void OrderBook::TellWithoutTable() {
  std::string strict;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(rows_.begin(), rows_.end(), [](const auto& entry) {
      return entry.second.order == core::TagOrder::kStrict;
    });
    if (found == rows_.end() || std::exchange(missing_told_, true)) return;
    strict = found->first;
  }
  log_.Warning(
      "this state directory remembers that tag {} is strict, and the table of orders is missing or may not "
      "be read: this node keeps to that, others may not know it. leafctl db init creates the table",
      Quoted(strict));
}

std::vector<OrderBook::Lost> OrderBook::LostBy(const core::TagOrderTable& table) const {
  std::map<std::string_view, const core::OrderRow*> there;
  for (const core::OrderRow& row : table.rows) there.emplace(row.tag, &row);
  std::vector<Lost> lost;
  for (core::OrderRow& row : Rows()) {
    const auto found = there.find(row.tag);
    const core::OrderRow* const stands = found == there.end() ? nullptr : found->second;
    const bool order_stands = stands != nullptr && stands->order == row.order;
    const bool is_missing = stands == nullptr || (row.order == core::TagOrder::kStrict && !order_stands);
    const bool since_is_missing =
        order_stands && stands->version == row.version && row.since && !stands->since;
    if (is_missing || since_is_missing || row.version > table.version)
      lost.push_back({std::move(row), order_stands});
  }
  return lost;
}

std::vector<core::OrderRow> OrderBook::Rows() const {
  const MutexLock lock(mutex_);
  std::vector<core::OrderRow> rows;
  rows.reserve(rows_.size());
  for (const auto& [tag, row] : rows_) rows.push_back(row);
  return rows;
}

Result<std::vector<core::OrderRow>> OrderBook::Recall() {
  if (orders_ == nullptr) return std::vector<core::OrderRow>();
  LEAF_RETURN_IF_ERROR(Remember());
  return Rows();
}

bool OrderBook::LearnStrict(std::string_view tag, const core::StrictMark& mark) {
  const MutexLock adopting(adopting_);
  {
    const MutexLock lock(mutex_);
    const auto known = rows_.find(tag);
    const bool was_strict = known != rows_.end() && known->second.order == core::TagOrder::kStrict;
    if (known != rows_.end() && known->second.version >= mark.version) {
      if (was_strict && known->second.version == mark.version && mark.since && !known->second.since) {
        known->second.since = mark.since;
        learned_ = true;
      }
      return was_strict;
    }
    core::OrderRow row{std::string(tag), core::TagOrder::kStrict, mark.since, mark.version};
    if (was_strict && !row.since) row.since = known->second.since;
    rows_.insert_or_assign(row.tag, row);
    learned_ = true;
    if (was_strict) return true;
  }
  log_.Warning("the witness knows that tag {} is strict, and the table did not say so: it is from now on",
               Quoted(tag));
  adopted_();
  return true;
}

bool OrderBook::AdoptRows(std::uint64_t look, const std::optional<core::TagOrderTable>& table) {
  const MutexLock lock(mutex_);
  if (look < adopted_look_) return false;
  adopted_look_ = look;
  has_table_ = table.has_value();
  entered_ = table.has_value() && table->listed;
  // A table that was here and cannot be seen now: what was read last counts.
  if (!table) return true;
  for (const core::OrderRow& row : table->rows) {
    const auto known = rows_.find(row.tag);
    const bool is_strict = row.order == core::TagOrder::kStrict;
    // What a table that went back says of a tag counts only if it is that the tag is strict.
    const bool counts =
        known == rows_.end() || row.version > known->second.version ||
        (is_strict && (known->second.order != row.order || known->second.version == row.version));
    if (!counts) continue;
    core::OrderRow kept = row;
    // Strict in an older version of the table: newer than what this node knew, for its memory and the
    // witness.
    if (known != rows_.end()) {
      kept.version = std::max(row.version, known->second.version);
      if (known->second.order == row.order && known->second.version == row.version && !kept.since)
        kept.since = known->second.since;
    }
    rows_.insert_or_assign(row.tag, std::move(kept));
  }
  return true;
}

void OrderBook::Leave() {
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(entered_, false)) return;
  }
  if (const auto left = orders_->Leave(node_.id); !left.ok())
    log_.Warning("this node is still on the table's list of nodes: {}", left.error().message);
}

}  // namespace leaf::service
