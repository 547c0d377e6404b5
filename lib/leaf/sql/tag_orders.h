// The tables leafctl_orders and leafctl_nodes: which tags are strict, and which nodes keep to that. One code
// for both databases.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/tag_orders.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// Thread-safe. `database` outlives it. Calls block.
class SqlTagOrders final : public core::TagOrders {
 public:
  explicit SqlTagOrders(Database& database) : database_(database) {}

  Result<std::optional<core::TagOrderTable>> Enter(const core::OrderNode& node) override;
  Result<std::optional<Look>> LookAt(const std::string& node) override;
  Result<std::optional<core::TagOrderTable>> Read() override;
  Result<void> Restore(const core::OrderRow& row) override;
  Result<bool> Acknowledge(const std::string& node, const core::TagOrderTable& table) override;
  Result<void> Leave(const std::string& node) override;

  // For commands. Errors further than those of the database: kConfig where there is no table.

  // The tag is to be strict.
  struct Begun {
    std::uint64_t version = 0;           // of the order
    std::uint64_t awaited = 0;           // of the table, which all nodes have to acknowledge
    bool was_strict = false;             // or was to be; then its row was not changed
    std::optional<std::uint64_t> since;  // the row says so already
  };
  // Whether there is such a tag is not looked at. What nodes have acknowledged at or above `awaited` is of
  // another history of the table, and does not count any more.
  Result<Begun> Begin(std::string_view tag);
  // All have: the promise holds from the returned ID on, which is the row's max_id, and at least `least`; or
  // what another command has written already. Nodes learn it at their next look. Errors: kNotFound for a tag
  // that is not there; kRefused if the order was changed since Begin returned `version`.
  Result<std::uint64_t> Complete(std::string_view tag, std::uint64_t version, std::uint64_t least = 0);
  // Not all have: it is not to be strict, unless the order was changed since Begin returned `version`. Not
  // for a tag that was strict, or was to be, before. Returns whether the tag is strict all the same: another
  // command, or a node that knows an order that the table had lost, has written that meanwhile.
  Result<bool> Abandon(std::string_view tag, std::uint64_t version);
  // The tag is not strict any more. `above`: the version in which another place remembers that it is
  // (core::StrictMark), 0 for none; then the change is newer than that, and is written also where no row says
  // that the tag is strict. The version of the change; nothing where there was none to make.
  Result<std::optional<std::uint64_t>> End(std::string_view tag, std::uint64_t above = 0);
  // All nodes on the list, the oldest first.
  Result<std::vector<core::OrderNode>> Nodes();

 private:
  // With the version raised, to more than `above`, and its row locked until the transaction ends.
  Result<void> Change(std::string_view what, std::uint64_t above,
                      const std::function<Result<void>(soci::session&, std::uint64_t)>& body);

  Database& database_;
};

// Within the transaction that removes the tag, or adds one of its name: it is not strict any more, if it was.
void EndOrderIn(soci::session& session, const Dialect& dialect, const std::string& tag);

}  // namespace leaf::sql
