// The table of orders in memory.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "leaf/core/tag_orders.h"

namespace leaf::testing {

// Tables in memory draw no nonce.
inline bool IsSameState(core::TagOrderTable left, core::TagOrderTable right) {
  const auto by_tag = [](const core::OrderRow& one, const core::OrderRow& other) {
    return one.tag < other.tag;
  };
  std::sort(left.rows.begin(), left.rows.end(), by_tag);
  std::sort(right.rows.begin(), right.rows.end(), by_tag);
  return left.version == right.version && left.rows == right.rows;
}

// What core::TagOrders::Restore does to a table.
inline void RestoreIn(core::TagOrderTable& table, const core::OrderRow& row) {
  table.version = std::max(table.version, row.version) + 1;
  const auto there = std::find_if(table.rows.begin(), table.rows.end(),
                                  [&](const core::OrderRow& one) { return one.tag == row.tag; });
  if (row.order != core::TagOrder::kStrict) {
    if (there == table.rows.end()) table.rows.push_back(row);
    return;
  }
  if (there != table.rows.end()) {
    if (there->version > row.version) return;
    if (there->order == core::TagOrder::kStrict) {
      if (!there->since) there->since = row.since;
      return;
    }
    table.rows.erase(there);
  }
  table.rows.push_back(row);
  table.rows.back().version = table.version;
}

class MemoryTagOrders final : public core::TagOrders {
 public:
  Result<std::optional<core::TagOrderTable>> Enter(const core::OrderNode& node) override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (!has_table) return std::optional<core::TagOrderTable>();
    std::erase_if(nodes, [&](const auto& entry) { return entry.second.place == node.place; });
    nodes[node.id] = node;
    ++table.version;
    return std::optional(table);
  }
  Result<std::optional<Look>> LookAt(const std::string& node) override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (!has_table) return std::optional<Look>();
    const auto found = nodes.find(node);
    return std::optional(Look{
        table.version, 0, found == nodes.end() ? std::nullopt : std::optional(found->second.acknowledged)});
  }
  Result<std::optional<core::TagOrderTable>> Read() override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (!has_table) return std::optional<core::TagOrderTable>();
    auto read = std::optional(table);
    if (const auto change = std::exchange(after_read, nullptr)) change(table);
    return read;
  }
  Result<void> Restore(const core::OrderRow& row) override {
    const std::lock_guard lock(mutex_);
    RestoreIn(table, row);
    return {};
  }
  Result<bool> Acknowledge(const std::string& node, const core::TagOrderTable& read) override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (unwritable) return *unwritable;
    if (!IsSameState(read, table)) return false;
    if (const auto found = nodes.find(node); found != nodes.end()) found->second.acknowledged = read.version;
    return true;
  }
  Result<void> Leave(const std::string& node) override {
    const std::lock_guard lock(mutex_);
    nodes.erase(node);
    return {};
  }

  // What a command does. Returns the version to be acknowledged.
  std::uint64_t MakeStrict(const std::string& tag) { return SetOrder(tag, core::TagOrder::kStrict); }
  std::uint64_t MakeTrend(const std::string& tag) { return SetOrder(tag, core::TagOrder::kTrend); }

  // For one thread.
  bool has_table = true;
  std::optional<Error> problem;
  std::optional<Error> unwritable;                       // what Acknowledge says
  std::function<void(core::TagOrderTable&)> after_read;  // once
  core::TagOrderTable table;
  std::map<std::string, core::OrderNode> nodes;

 private:
  std::uint64_t SetOrder(const std::string& tag, core::TagOrder order) {
    const std::lock_guard lock(mutex_);
    std::erase_if(table.rows, [&](const core::OrderRow& row) { return row.tag == tag; });
    table.rows.push_back({tag, order, std::nullopt, ++table.version});
    return table.version;
  }

  std::mutex mutex_;
};

}  // namespace leaf::testing
