// The table of orders and the list of nodes, on SQLite and on a real MariaDB.
#include "leaf/sql/tag_orders.h"

#include <gtest/gtest.h>
#include <soci/soci.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "contract/mariadb.h"
#include "leaf/sql/database.h"
#include "leaf/sql/schema.h"
#include "leaf/sql/segment_store.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

using core::OrderNode;
using core::TagOrder;

OrderNode NodeAt(const std::string& id, const std::string& place) {
  return {.id = id, .process = "leafctl serve, process 1 on " + place, .place = place};
}

// What each test does with either database.
class TagOrdersChecks {
 public:
  explicit TagOrdersChecks(sql::Database& database)
      : database_(database), orders_(database), segments_(database) {}

  void Prepare() {
    ASSERT_TRUE(sql::InitSchema(database_).ok());
    Execute("DELETE FROM leafctl_orders");
    Execute("DELETE FROM leafctl_nodes");
    Execute("DELETE FROM leaf_alloc");
    ASSERT_TRUE(segments_.Add(Tag(), core::WriteMode::kCommit).ok());
  }

  void ANodeEntersAcknowledgesAndLeaves() {
    const auto first = orders_.Enter(NodeAt("a1", "a"));
    ASSERT_TRUE(first.ok() && first->has_value());
    EXPECT_EQ((*first)->version, 1U);
    EXPECT_TRUE((*first)->rows.empty());
    EXPECT_EQ(Acknowledged("a1"), 0U);
    EXPECT_TRUE(*orders_.Acknowledge("a1", **first));
    EXPECT_EQ(Acknowledged("a1"), 1U);
    // Of another history of the table; a node that is not on the list has nothing to acknowledge.
    Execute("UPDATE leafctl_nodes SET acknowledged = 9");
    EXPECT_TRUE(*orders_.Acknowledge("a1", **first));
    EXPECT_EQ(Acknowledged("a1"), 1U);
    EXPECT_TRUE(*orders_.Acknowledge("other", **first));
    const auto unlisted = orders_.LookAt("other");
    ASSERT_TRUE(unlisted.ok() && unlisted->has_value());
    EXPECT_EQ((*unlisted)->version, 1U);
    EXPECT_FALSE((*unlisted)->acknowledged);
    ASSERT_TRUE(orders_.Enter(NodeAt("b1", "b")).ok());
    EXPECT_EQ((**orders_.LookAt("a1")).version, 2U) << "a node that enters raises the version";
    EXPECT_FALSE(*orders_.Acknowledge("a1", **first)) << "it has to be read again";
    // A later run at its place.
    ASSERT_TRUE(orders_.Enter(NodeAt("a2", "a")).ok());
    ASSERT_TRUE(orders_.Enter(NodeAt("a2", "a")).ok());
    EXPECT_EQ(Ids(), (std::vector<std::string>{"a2", "b1"}));
    ASSERT_TRUE(orders_.Leave("a2").ok());
    ASSERT_TRUE(orders_.Leave("a2").ok());
    EXPECT_EQ(Ids(), std::vector<std::string>{"b1"});
  }

  void ATagBecomesStrictAndTrend() {
    ASSERT_TRUE(orders_.Enter(NodeAt("a1", "a")).ok());
    const auto begun = orders_.Begin("pay");
    ASSERT_TRUE(begun.ok());
    EXPECT_FALSE(begun->since);
    const std::uint64_t version = begun->version;
    EXPECT_EQ(version, 2U);
    auto row = RowOf("pay");
    EXPECT_EQ(row.order, TagOrder::kStrict);
    EXPECT_EQ(row.version, 2U);
    EXPECT_FALSE(row.since);
    ASSERT_TRUE(segments_.Advance("pay", 77, core::WriteMode::kCommit).ok());
    EXPECT_EQ(orders_.Complete("pay", version - 1).error().code, ErrorCode::kRefused);
    const std::uint64_t before = (**orders_.LookAt("a1")).version;
    EXPECT_EQ(*orders_.Complete("pay", version), 77U);
    EXPECT_EQ(RowOf("pay").since, 77U);
    EXPECT_EQ(RowOf("pay").version, version);
    EXPECT_EQ((**orders_.LookAt("a1")).version, before + 1) << "nodes read since when";
    EXPECT_EQ(orders_.Complete("other", version).error().code, ErrorCode::kNotFound);
    // Another command changes nothing of it, and cannot take it back.
    const auto again = orders_.Begin("pay");
    EXPECT_EQ(again->since, 77U);
    EXPECT_TRUE(again->was_strict);
    EXPECT_EQ(again->version, version);
    EXPECT_EQ(again->awaited, before + 2) << "nodes have to look again";
    EXPECT_EQ((**orders_.LookAt("a1")).version, again->awaited);
    EXPECT_TRUE(*orders_.Abandon("pay", version));
    EXPECT_EQ(RowOf("pay").order, TagOrder::kStrict);
    EXPECT_TRUE(*orders_.End("pay"));
    EXPECT_FALSE(*orders_.End("pay"));
    row = RowOf("pay");
    EXPECT_EQ(row.order, TagOrder::kTrend);
    EXPECT_GT(row.version, 2U);
    EXPECT_EQ(orders_.Complete("pay", version).error().code, ErrorCode::kRefused);
  }

  void ATagThatIsRemovedIsStrictNoMore() {
    const std::uint64_t version = orders_.Begin("pay")->version;
    ASSERT_TRUE(segments_.Remove("pay", core::WriteMode::kDryRun).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kStrict);
    ASSERT_TRUE(segments_.Remove("pay", core::WriteMode::kCommit).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kTrend);
    EXPECT_GT(RowOf("pay").version, version);
    // Deleted by another program: a tag that is added does not inherit the order.
    ASSERT_TRUE(segments_.Add(Tag(), core::WriteMode::kCommit).ok());
    ASSERT_TRUE(orders_.Begin("pay").ok());
    Execute("DELETE FROM leaf_alloc");
    ASSERT_TRUE(segments_.Add(Tag(), core::WriteMode::kCommit).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kTrend);
  }

  void ARowThatIsLostIsWrittenAgain() {
    const std::uint64_t version = orders_.Begin("pay")->version;
    ASSERT_TRUE(orders_.Complete("pay", version).ok());
    const core::OrderRow row = RowOf("pay");
    ASSERT_TRUE(orders_.Restore(row).ok());
    EXPECT_EQ(RowOf("pay").version, version) << "it is there";
    const std::uint64_t stands = orders_.Read()->value().version;
    ASSERT_TRUE(orders_.Restore(row).ok());
    EXPECT_EQ(orders_.Read()->value().version, stands) << "nodes need not look again";
    Execute("DELETE FROM leafctl_orders WHERE biz_tag = 'pay'");
    ASSERT_TRUE(orders_.Restore(row).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kStrict);
    EXPECT_EQ(RowOf("pay").since, row.since);
    EXPECT_GT(RowOf("pay").version, version);
    // A table that has only an older change of the tag, and counts lower.
    Execute("UPDATE leafctl_orders SET strict = 0, version = 1 WHERE biz_tag = 'pay'");
    core::OrderRow newer = row;
    newer.version = version + 100;
    ASSERT_TRUE(orders_.Restore(newer).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kStrict);
    EXPECT_EQ(RowOf("pay").version, newer.version + 1);
    EXPECT_EQ(orders_.Read()->value().version, newer.version + 1);
    // A newer one stands, and so does one that says the same; what comes is newer in any case.
    const std::uint64_t ended = *orders_.End("pay").value();
    ASSERT_TRUE(orders_.Restore(newer).ok());
    EXPECT_EQ(RowOf("pay").order, TagOrder::kTrend);
    EXPECT_EQ(RowOf("pay").version, ended);
    EXPECT_GT(orders_.Begin("pay")->version, ended);
    EXPECT_EQ(*orders_.End("pay", ended + 100).value(), ended + 101);
    EXPECT_FALSE(orders_.End("pay").value().has_value()) << "it is not strict";
    const std::uint64_t other = *orders_.End("other", 1).value();
    EXPECT_EQ(RowOf("other").version, other) << "no row said that it is";
    // A trend row is written with its own version where there is none, and the table's is above it.
    ASSERT_TRUE(orders_.Restore({"third", TagOrder::kTrend, std::nullopt, other + 10}).ok());
    EXPECT_EQ(orders_.Read()->value().version, other + 11);
    EXPECT_EQ(RowOf("third").order, TagOrder::kTrend);
    EXPECT_EQ(RowOf("third").version, other + 10);
    EXPECT_EQ(orders_.Begin("third")->version, other + 12);
    ASSERT_TRUE(orders_.Restore({"third", TagOrder::kTrend, std::nullopt, other + 20}).ok());
    EXPECT_EQ(RowOf("third").order, TagOrder::kStrict) << "only a command ends an order";
    EXPECT_EQ(orders_.Read()->value().version, other + 21);
  }

  // A dump was loaded: the list of nodes is newer than the table of orders.
  void WhatWasAcknowledgedOfAnotherTableDoesNotCount() {
    ASSERT_TRUE(orders_.Enter(NodeAt("a1", "a")).ok());
    ASSERT_TRUE(orders_.Enter(NodeAt("b1", "b")).ok());
    Acknowledge("b1");
    Execute("UPDATE leafctl_nodes SET acknowledged = 51 WHERE id = 'a1'");
    const auto begun = orders_.Begin("pay");
    ASSERT_TRUE(begun.ok());
    const auto nodes = orders_.Nodes();
    ASSERT_TRUE(nodes.ok());
    for (const core::OrderNode& node : *nodes) EXPECT_EQ(node.acknowledged, node.id == "a1" ? 0U : 2U);
    Acknowledge("a1");
    EXPECT_EQ((**orders_.LookAt("a1")).acknowledged, begun->awaited);
  }

  // The node has read the table of a primary that was lost. The promoted one was behind, and has reached the
  // same version by another change.
  void AVersionOfAnotherHistoryIsNotAcknowledged() {
    ASSERT_TRUE(orders_.Enter(NodeAt("a1", "a")).ok());
    ASSERT_TRUE(orders_.Begin("ship").ok());
    const auto read = orders_.Read();
    ASSERT_TRUE(read.ok() && read->has_value());
    Execute("DELETE FROM leafctl_orders WHERE biz_tag = 'ship'");
    Execute("UPDATE leafctl_orders SET version = version - 1");
    const auto begun = orders_.Begin("pay");
    ASSERT_TRUE(begun.ok());
    ASSERT_EQ(begun->awaited, (**read).version);
    EXPECT_NE((**orders_.LookAt("a1")).nonce, (**read).nonce);
    EXPECT_EQ((**orders_.LookAt("a1")).nonce, (**orders_.Read()).nonce);
    EXPECT_FALSE(*orders_.Acknowledge("a1", **read));
    EXPECT_EQ(Acknowledged("a1"), 0U) << "it does not know that 'pay' is strict";
    Acknowledge("a1");
    EXPECT_EQ(Acknowledged("a1"), begun->awaited);
  }

  void TwoCommandsMakeATagStrict() {
    const auto first = orders_.Begin("pay");
    ASSERT_TRUE(first.ok());
    EXPECT_FALSE(first->was_strict);
    const auto second = orders_.Begin("pay");
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(second->was_strict);
    EXPECT_FALSE(second->since);
    EXPECT_EQ(second->version, first->version);
    EXPECT_GT(second->awaited, first->awaited);
    // The witness has seen grants that the table has lost.
    EXPECT_EQ(*orders_.Complete("pay", first->version, 50), 50U);
    EXPECT_EQ(*orders_.Complete("pay", second->version, 60), 50U) << "it was promised";
    EXPECT_EQ(RowOf("pay").since, 50U);
    ASSERT_TRUE(segments_.Advance("pay", 90, core::WriteMode::kCommit).ok());
    const std::uint64_t third = orders_.Begin("pay")->version;
    EXPECT_EQ(*orders_.Complete("pay", third), 50U);
    Execute("UPDATE leafctl_orders SET since = NULL WHERE biz_tag = 'pay'");
    EXPECT_EQ(*orders_.Complete("pay", third, 80), 90U);
  }

  void WhatIsNotAcknowledgedIsAbandoned() {
    const std::uint64_t version = orders_.Begin("pay")->version;
    EXPECT_TRUE(*orders_.Abandon("pay", version - 1));
    EXPECT_EQ(RowOf("pay").order, TagOrder::kStrict) << "another change";
    EXPECT_FALSE(*orders_.Abandon("pay", version));
    EXPECT_EQ(RowOf("pay").order, TagOrder::kTrend);
    EXPECT_FALSE(*orders_.Abandon("pay", version)) << "it is not strict, as the first time";
    // A node that knows an order that the table had lost has put it back meanwhile.
    const std::uint64_t begun = orders_.Begin("pay")->version;
    ASSERT_TRUE(orders_.Restore({"pay", TagOrder::kStrict, 40, begun}).ok());
    EXPECT_TRUE(*orders_.Abandon("pay", begun));
    EXPECT_EQ(RowOf("pay").since, 40U);
  }

  void WithoutTablesThereIsNothing() {
    Execute("DROP TABLE leafctl_orders");
    EXPECT_FALSE(orders_.Enter(NodeAt("a1", "a"))->has_value());
    EXPECT_FALSE(orders_.LookAt("a1")->has_value());
    EXPECT_FALSE(orders_.Read()->has_value());
    EXPECT_EQ(orders_.Begin("pay").error().code, ErrorCode::kConfig);
    EXPECT_TRUE(segments_.Remove("pay", core::WriteMode::kCommit).ok());
    ASSERT_TRUE(sql::InitSchema(database_).ok());
    // The tables are there, and empty: a node that was entered is not listed.
    const auto look = orders_.LookAt("a1");
    ASSERT_TRUE(look.ok() && look->has_value());
    EXPECT_FALSE((*look)->acknowledged);
  }

  // Whichever comes second waits for the first: the change is seen by the node, or the node by the change.
  void AChangeAndANodeThatStartsMeet() {
    for (int round = 0; round < 30; ++round) {
      const std::string id = "n" + std::to_string(round);
      std::uint64_t seen = 0;
      std::thread node([&] { seen = (**orders_.Enter(NodeAt(id, id))).version; });
      const auto begun = orders_.Begin("pay");
      const auto listed = Ids();
      node.join();
      ASSERT_TRUE(begun.ok());
      EXPECT_TRUE(seen > begun->version || std::find(listed.begin(), listed.end(), id) != listed.end());
    }
  }

 private:
  static core::NewTag Tag() {
    return {.tag = "pay", .step = 10, .start = std::nullopt, .description = std::nullopt};
  }
  void Execute(const std::string& sql) {
    ASSERT_TRUE(database_
                    .Run("prepare the test",
                         [&](soci::session& session) -> Result<void> {
                           session << sql;
                           return {};
                         })
                    .ok());
  }
  std::vector<std::string> Ids() {
    std::vector<std::string> ids;
    const auto nodes = orders_.Nodes();
    EXPECT_TRUE(nodes.ok());
    for (const OrderNode& node : *nodes) ids.push_back(node.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  // What it reads now.
  void Acknowledge(const std::string& id) {
    const auto table = orders_.Read();
    ASSERT_TRUE(table.ok() && table->has_value());
    EXPECT_TRUE(*orders_.Acknowledge(id, **table));
  }
  std::uint64_t Acknowledged(const std::string& id) {
    return (**orders_.LookAt(id)).acknowledged.value_or(99);
  }
  core::OrderRow RowOf(const std::string& tag) {
    const auto table = orders_.Read();
    EXPECT_TRUE(table.ok() && table->has_value());
    for (const core::OrderRow& row : (*table)->rows) {
      if (row.tag == tag) return row;
    }
    ADD_FAILURE() << "no row of " << tag;
    return {};
  }

  sql::Database& database_;
  sql::SqlTagOrders orders_;
  sql::SqlSegmentStore segments_;
};

using Check = void (TagOrdersChecks::*)();

void OnSqlite(Check check) {
  const TempDir dir;
  sql::Database database(sql::SqliteOptions{.path = dir.path() + "/leaf.db"});
  TagOrdersChecks checks(database);
  checks.Prepare();
  (checks.*check)();
}

void OnMariaDb(Check check) {
  sql::Database database(MysqlFromEnvironment(), kSystemClock);
  TagOrdersChecks checks(database);
  checks.Prepare();
  (checks.*check)();
}

TEST(SqliteTagOrders, ANodeEntersAcknowledgesAndLeaves) {
  OnSqlite(&TagOrdersChecks::ANodeEntersAcknowledgesAndLeaves);
}
TEST(SqliteTagOrders, ATagBecomesStrictAndTrend) { OnSqlite(&TagOrdersChecks::ATagBecomesStrictAndTrend); }
TEST(SqliteTagOrders, ATagThatIsRemovedIsStrictNoMore) {
  OnSqlite(&TagOrdersChecks::ATagThatIsRemovedIsStrictNoMore);
}
TEST(SqliteTagOrders, WithoutTablesThereIsNothing) {
  OnSqlite(&TagOrdersChecks::WithoutTablesThereIsNothing);
}
TEST(SqliteTagOrders, AChangeAndANodeThatStartsMeet) {
  OnSqlite(&TagOrdersChecks::AChangeAndANodeThatStartsMeet);
}
TEST(SqliteTagOrders, ARowThatIsLostIsWrittenAgain) {
  OnSqlite(&TagOrdersChecks::ARowThatIsLostIsWrittenAgain);
}
TEST(SqliteTagOrders, WhatWasAcknowledgedOfAnotherTableDoesNotCount) {
  OnSqlite(&TagOrdersChecks::WhatWasAcknowledgedOfAnotherTableDoesNotCount);
}
TEST(SqliteTagOrders, AVersionOfAnotherHistoryIsNotAcknowledged) {
  OnSqlite(&TagOrdersChecks::AVersionOfAnotherHistoryIsNotAcknowledged);
}
TEST(SqliteTagOrders, TwoCommandsMakeATagStrict) { OnSqlite(&TagOrdersChecks::TwoCommandsMakeATagStrict); }
TEST(SqliteTagOrders, WhatIsNotAcknowledgedIsAbandoned) {
  OnSqlite(&TagOrdersChecks::WhatIsNotAcknowledgedIsAbandoned);
}
TEST(MariaDbTagOrders, ANodeEntersAcknowledgesAndLeaves) {
  OnMariaDb(&TagOrdersChecks::ANodeEntersAcknowledgesAndLeaves);
}
TEST(MariaDbTagOrders, ATagBecomesStrictAndTrend) { OnMariaDb(&TagOrdersChecks::ATagBecomesStrictAndTrend); }
TEST(MariaDbTagOrders, ATagThatIsRemovedIsStrictNoMore) {
  OnMariaDb(&TagOrdersChecks::ATagThatIsRemovedIsStrictNoMore);
}
TEST(MariaDbTagOrders, WithoutTablesThereIsNothing) {
  OnMariaDb(&TagOrdersChecks::WithoutTablesThereIsNothing);
}
TEST(MariaDbTagOrders, AChangeAndANodeThatStartsMeet) {
  OnMariaDb(&TagOrdersChecks::AChangeAndANodeThatStartsMeet);
}
TEST(MariaDbTagOrders, ARowThatIsLostIsWrittenAgain) {
  OnMariaDb(&TagOrdersChecks::ARowThatIsLostIsWrittenAgain);
}
TEST(MariaDbTagOrders, WhatWasAcknowledgedOfAnotherTableDoesNotCount) {
  OnMariaDb(&TagOrdersChecks::WhatWasAcknowledgedOfAnotherTableDoesNotCount);
}
TEST(MariaDbTagOrders, AVersionOfAnotherHistoryIsNotAcknowledged) {
  OnMariaDb(&TagOrdersChecks::AVersionOfAnotherHistoryIsNotAcknowledged);
}
TEST(MariaDbTagOrders, TwoCommandsMakeATagStrict) { OnMariaDb(&TagOrdersChecks::TwoCommandsMakeATagStrict); }
TEST(MariaDbTagOrders, WhatIsNotAcknowledgedIsAbandoned) {
  OnMariaDb(&TagOrdersChecks::WhatIsNotAcknowledgedIsAbandoned);
}

}  // namespace
}  // namespace leaf::testing
