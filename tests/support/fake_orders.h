// The table of orders in memory.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "leaf/core/tag_orders.h"

namespace leaf::testing {

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
    if (there->order == core::TagOrder::kStrict && !there->since) there->since = row.since;
    if (there->order == core::TagOrder::kStrict || there->version > row.version) return;
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
    return std::optional(
        Look{table.version, found == nodes.end() ? std::nullopt : std::optional(found->second.acknowledged)});
  }
  Result<std::optional<core::TagOrderTable>> Read() override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (!has_table) return std::optional<core::TagOrderTable>();
    return std::optional(table);
  }
  Result<void> Restore(const core::OrderRow& row) override {
    const std::lock_guard lock(mutex_);
    RestoreIn(table, row);
    return {};
  }
  Result<void> Acknowledge(const std::string& node, std::uint64_t version) override {
    const std::lock_guard lock(mutex_);
    if (problem) return *problem;
    if (const auto found = nodes.find(node); found != nodes.end() && version <= table.version)
      found->second.acknowledged = std::max(found->second.acknowledged, version);
    return {};
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
