// Strict tags: every ID comes from a grant that began after its request had arrived.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "leaf/service/order_book.h"
#include "support/fake_orders.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

using testing::FaultySegmentStore;
using testing::MemoryTagOrders;

constexpr std::chrono::milliseconds kLongerThanALook{2100};

class StrictTagTest : public SegmentServiceTest {
 protected:
  void SetUp() override {
    table_.Put("pay", 1, 1000);
    table_.Put("ship", 1, 1000);
    options_.orders = &orders_;
    options_.order_node = {
        .id = "a1", .process = "leafctl serve, process 1 on a", .place = "a:/state", .since = {}};
  }
  void Start() {
    StartService();
    Run();
  }
  std::uint64_t Acknowledged() { return orders_.nodes.at("a1").acknowledged; }

  MemoryTagOrders orders_;
};

TEST_F(StrictTagTest, NothingIsHeldInReserve) {
  orders_.MakeStrict("pay");
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_EQ(table_.MaxId("pay"), 3);
  EXPECT_EQ(Get("ship")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("ship").reserve, 999U);
  EXPECT_EQ(StatusOf("ship").order, core::TagOrder::kTrend);
}

// One grant is as large as what waits, in the order of arrival.
TEST_F(StrictTagTest, WhatWaitsIsGrantedTogether) {
  orders_.MakeStrict("pay");
  Start();
  const int before = store_.reserves();
  const auto first = Ask("pay", 3);
  const auto second = Ask("pay", {2, true});
  const auto third = Ask("pay");
  Run();
  EXPECT_EQ(first->ids(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(second->ids(), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(third->ids(), (std::vector<std::uint64_t>{6}));
  EXPECT_EQ(store_.reserves(), before + 1);
  EXPECT_EQ(table_.MaxId("pay"), 7);
}

// The size of a strict tag's grant does not depend on the row.
TEST_F(StrictTagTest, TheRowIsNotReadWhereThatSavesARoundTrip) {
  orders_.MakeStrict("pay");
  store_.ReserveUnreadFromNowOn();
  Start();
  const int before = store_.reserves();
  const auto first = Ask("pay", 3);
  const auto second = Ask("pay");
  Run();
  EXPECT_EQ(first->ids(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(second->ids(), (std::vector<std::uint64_t>{4}));
  EXPECT_EQ(store_.reserves(), before);
  EXPECT_EQ(store_.unread_reserves(), 1);
  EXPECT_EQ(StatusOf("pay").table_step, 1000) << "as the last refresh saw it";

  // A row that went back is read, and says so.
  table_.Put("pay", 2, 1000);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
  EXPECT_EQ(table_.MaxId("pay"), 2) << "left for a repair";
  // Others get ranges with a reserve, by their row's step.
  EXPECT_EQ(Get("ship")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("ship").reserve, 999U);
  EXPECT_EQ(store_.unread_reserves(), 2);
}

// Callers that were answered together come back together: the next grant is for all of them.
TEST_F(StrictTagTest, AGrantWaitsForCallersThatComeBackAtOnce) {
  orders_.MakeStrict("pay");
  Start();
  const int before = store_.reserves();
  store_.on_slow = [&] { clock_.Advance(std::chrono::milliseconds{8}); };
  const auto round = [&] {
    store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
    std::vector<std::shared_ptr<Answer>> answers{Ask("pay"), Ask("pay"), Ask("pay")};
    Run();
    for (const auto& answer : answers) EXPECT_TRUE(answer->done());
  };
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(store_.reserves(), before + 5);

  // The first two of them are not served before the third.
  store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
  const auto first = Ask("pay");
  const auto second = Ask("pay");
  Run();
  EXPECT_FALSE(first->done());
  const auto third = Ask("pay");
  Run();
  EXPECT_EQ(first->ids(), std::vector<std::uint64_t>{16});
  EXPECT_EQ(third->ids(), std::vector<std::uint64_t>{18});
  EXPECT_EQ(store_.reserves(), before + 6);

  // One that does not come back costs the others a part of a grant, once.
  const auto alone = Ask("pay");
  Run();
  EXPECT_FALSE(alone->done());
  Pass(std::chrono::milliseconds{10});
  EXPECT_EQ(alone->ids(), std::vector<std::uint64_t>{19});
  const auto again = Ask("pay");
  Run();
  EXPECT_TRUE(again->done());
}

// How long callers are waited for depends on the last grant: a timer of the one before may be due later.
TEST_F(StrictTagTest, AQuickGrantIsNotFollowedByTheWaitOfASlowOne) {
  orders_.MakeStrict("pay");
  Start();
  std::chrono::milliseconds latency{24};
  store_.on_slow = [&] { clock_.Advance(latency); };
  const auto ask = [&](int requests) {
    store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
    std::vector<std::shared_ptr<Answer>> answers;
    for (int i = 0; i < requests; ++i) answers.push_back(Ask("pay"));
    Run();
    return answers;
  };
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ask(2).back()->done());
  // The first caller sets a timer for 18 ms on; the second is back at once, and their grant is quick.
  latency = std::chrono::milliseconds{4};
  const auto first = ask(1);
  EXPECT_FALSE(first[0]->done());
  EXPECT_TRUE(ask(1)[0]->done());
  EXPECT_TRUE(first[0]->done());
  // Only one of them comes back: it waits for 3 ms.
  const auto alone = ask(1);
  EXPECT_FALSE(alone[0]->done());
  Pass(std::chrono::milliseconds{5});
  EXPECT_TRUE(alone[0]->done());
}

// A request waits for others no longer than it waits at all, nor beyond the end of the order or of the
// service.
TEST_F(StrictTagTest, WaitingForOthersEndsWithTheOrderAndTheService) {
  orders_.MakeStrict("pay");
  Start();
  store_.on_slow = [&] { clock_.Advance(std::chrono::milliseconds{8}); };
  const auto gather = [&] {
    for (int i = 0; i < 5; ++i) {
      store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
      const auto one = Ask("pay");
      const auto other = Ask("pay");
      Run();
      EXPECT_TRUE(one->done() && other->done());
    }
    const auto waits = Ask("pay");
    Run();
    EXPECT_FALSE(waits->done());
    return waits;
  };
  const auto leaves = gather();
  leaves->parked.Withdraw();
  EXPECT_EQ(leaves->code(), ErrorCode::kExhausted);
  Pass(std::chrono::milliseconds{30});
  EXPECT_EQ(table_.MaxId("pay"), 11) << "no grant for a request that has left";
  const auto cut_off = gather();
  service_->Stop();
  EXPECT_EQ(cut_off->code(), ErrorCode::kUnavailable);
  Pass(std::chrono::milliseconds{30});
}

// Another node may have been granted, and may have answered, between this grant and the request.
TEST_F(StrictTagTest, AGrantThatHasBegunServesNothingThatComesLater) {
  orders_.MakeStrict("pay");
  Start();
  std::shared_ptr<Answer> late;
  std::uint64_t of_another_node = 0;
  store_.on_slow = [&] {
    const auto grant = table_.Reserve("pay", ExactSizer(10));
    of_another_node = grant->range.end - 1;
    late = Ask("pay");
  };
  store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
  const auto early = Ask("pay");
  const auto leaves = Ask("pay");
  Run();
  EXPECT_EQ(early->ids(), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(leaves->done());
  ASSERT_TRUE(late->done());
  EXPECT_GT(late->ids().front(), of_another_node);
}

// Nor what a request that has left would have got.
TEST_F(StrictTagTest, WhatARequestLeftBehindIsWasted) {
  orders_.MakeStrict("pay");
  Start();
  std::shared_ptr<Answer> late;
  auto leaves = std::make_shared<Answer>();
  store_.on_slow = [&] {
    leaves->parked.Withdraw();
    late = Ask("pay");
  };
  store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
  const auto early = Ask("pay");
  leaves = Ask("pay", 5);
  Run();
  EXPECT_EQ(early->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(leaves->code(), ErrorCode::kExhausted);
  EXPECT_EQ(late->ids(), std::vector<std::uint64_t>{7});
  EXPECT_EQ(StatusOf("pay").wasted, 5U);
}

TEST_F(StrictTagTest, NothingIsGrantedIfAllHaveLeft) {
  orders_.MakeStrict("pay");
  Start();
  const auto answer = Ask("pay");
  answer->parked.Withdraw();
  Run();
  EXPECT_EQ(answer->code(), ErrorCode::kExhausted);
  EXPECT_EQ(table_.MaxId("pay"), 1);
  EXPECT_EQ(StatusOf("pay").failures, 0U);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
}

// A node says that it keeps to the order only when it holds nothing any more.
TEST_F(StrictTagTest, BecomingStrictDropsTheReserve) {
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  const std::uint64_t version = orders_.MakeStrict("pay");
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_LT(Acknowledged(), version);
  Pass(kLongerThanALook);
  EXPECT_GE(Acknowledged(), version);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1001});
  EXPECT_EQ(StatusOf("pay").wasted, 998U);
}

// The grant was asked for while the tag was not strict, and arrives when this node has acknowledged that it
// is.
TEST_F(StrictTagTest, AGrantFromBeforeTheChangeServesNothingThatComesAfterIt) {
  Start();
  std::shared_ptr<Answer> late;
  store_.on_slow = [&] {
    orders_.MakeStrict("pay");
    service_->RefreshNow();
    Run();
    EXPECT_EQ(Acknowledged(), orders_.table.version);
    (void)table_.Reserve("pay", ExactSizer(10));
    late = Ask("pay");
  };
  store_.FailReserves(FaultySegmentStore::Fault::kSlowReply, 1);
  const auto early = Ask("pay");
  Run();
  EXPECT_EQ(early->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(late->ids(), std::vector<std::uint64_t>{1011});
}

TEST_F(StrictTagTest, ATagMayBecomeTrendAgain) {
  orders_.MakeStrict("pay");
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  orders_.MakeTrend("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_GT(StatusOf("pay").reserve, 0U);
}

TEST_F(StrictTagTest, ATagThatIsAddedIsStrictFromItsFirstId) {
  Start();
  orders_.MakeStrict("new");
  Pass(kLongerThanALook);
  table_.Put("new", 1, 1000);
  EXPECT_EQ(Get("new")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("new"), 2);
}

TEST_F(StrictTagTest, WithoutATableNoTagIsStrict) {
  orders_.has_table = false;
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(orders_.nodes.empty());
  EXPECT_GT(StatusOf("pay").reserve, 0U);
}

// Restored behind leaf_alloc, made by leafctl db init, or granted to the user, long before the next refresh.
TEST_F(StrictTagTest, ANodeThatGrantsFindsATableThatWasNotThere) {
  orders_.has_table = false;
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  orders_.has_table = true;
  orders_.MakeStrict("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(Acknowledged(), orders_.table.version);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
}

TEST_F(StrictTagTest, AFirstGrantThatCouldNotLookIsFollowedByLooks) {
  orders_.has_table = false;
  Start();
  orders_.problem = Error{ErrorCode::kUnavailable, "the connection is lost", ""};
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_GT(StatusOf("pay").reserve, 0U);
  orders_.problem.reset();
  orders_.has_table = true;
  orders_.MakeStrict("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
}

TEST_F(StrictTagTest, TheFirstGrantLooksForATableThatWasNotThere) {
  orders_.has_table = false;
  Start();
  orders_.has_table = true;
  orders_.MakeStrict("pay");
  // A node that was asked for nothing does not look.
  Pass(kLongerThanALook);
  EXPECT_TRUE(orders_.nodes.empty());
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
  EXPECT_EQ(Acknowledged(), orders_.table.version);
}

TEST_F(StrictTagTest, ANodeThatNeverReadTheOrdersServesNoTag) {
  orders_.problem = Error{ErrorCode::kUnavailable, "the disk is full", ""};
  Start();
  const auto answer = Get("pay");
  ASSERT_FALSE(answer->result->ok());
  EXPECT_NE(answer->result->error().message.find("the disk is full"), std::string::npos);
  EXPECT_NE(service_->CanIssue().error().message.find("cannot read the order of the tags"),
            std::string::npos);
  EXPECT_EQ(table_.MaxId("pay"), 1);
  orders_.problem.reset();
  Pass(kLongerThanALook);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(service_->CanIssue().ok());
}

TEST_F(StrictTagTest, WhatWasReadLastCounts) {
  orders_.MakeStrict("pay");
  Start();
  orders_.problem = Error{ErrorCode::kUnavailable, "the disk is full", ""};
  Pass(kLongerThanALook);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
}

// A failover has lost the change: the nodes that saw it keep to it, and tell those that start.
TEST_F(StrictTagTest, WhatWasStrictStaysStrictInATableThatWentBack) {
  orders_.MakeStrict("pay");
  Start();
  orders_.table.version = 1;
  orders_.table.rows.clear();
  orders_.nodes.clear();
  Pass(2 * kLongerThanALook);
  EXPECT_EQ(orders_.nodes.size(), 1U) << "it is entered again";
  ASSERT_EQ(orders_.table.rows.size(), 1U);
  EXPECT_EQ(orders_.table.rows[0].order, core::TagOrder::kStrict);
  EXPECT_EQ(Acknowledged(), orders_.table.version);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
}

// All nodes were down when table and witness were restored to a moment before the tag became strict.
TEST_F(StrictTagTest, WhatTheStateDirectoryRemembersOutlivesTheTable) {
  orders_.MakeStrict("ship");
  orders_.MakeStrict("pay");
  Start();
  orders_.MakeTrend("ship");
  Pass(kLongerThanALook);
  service_.reset();
  orders_.table = {};
  orders_.nodes.clear();
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_EQ(StatusOf("ship").order, core::TagOrder::kTrend);
  EXPECT_TRUE(orders_.table.IsStrict("pay")) << "the nodes that start now have to know";
  EXPECT_FALSE(orders_.table.IsStrict("ship"));
  EXPECT_EQ(log_.Count(LogLevel::kWarning,
                       "the table had lost that tag 'pay' is strict: this node has put it back"),
            1U);
}

// The change was made while the node was down.
TEST_F(StrictTagTest, ALaterRowEndsWhatIsRemembered) {
  orders_.MakeStrict("pay");
  Start();
  service_.reset();
  orders_.MakeTrend("pay");
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
  EXPECT_EQ(StatusOf("pay").reserve, 999U);
  EXPECT_FALSE(orders_.table.IsStrict("pay"));
}

// A failover has lost that the tag became trend; then the row is lost, too, with all nodes down.
TEST_F(StrictTagTest, AStrictRowOfAnOlderTableIsRemembered) {
  orders_.MakeStrict("pay");
  const core::TagOrderTable older = orders_.table;
  Start();
  const std::uint64_t trend = orders_.MakeTrend("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
  orders_.table = older;
  orders_.nodes.clear();
  Pass(2 * kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_GT(orders_.table.version, trend) << "changes to come are newer";
  service_.reset();
  orders_.table.rows.clear();
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_TRUE(orders_.table.IsStrict("pay"));
}

// A node that was down meanwhile remembers that the tag is strict: its start must not make it so again.
TEST_F(StrictTagTest, ATrendRowThatTheTableLostIsWrittenAgain) {
  const core::TagOrderTable older = orders_.table;
  const std::uint64_t strict = orders_.MakeStrict("pay");
  Start();
  const std::uint64_t trend = orders_.MakeTrend("pay");
  Pass(kLongerThanALook);
  orders_.table = older;
  orders_.table.version = 100;
  orders_.nodes.clear();
  Pass(2 * kLongerThanALook);
  ASSERT_EQ(orders_.table.rows.size(), 1U);
  EXPECT_EQ(orders_.table.rows[0].order, core::TagOrder::kTrend);
  EXPECT_EQ(orders_.table.rows[0].version, trend) << "it ends no order that is newer";
  EXPECT_EQ(Acknowledged(), orders_.table.version);
  testing::MemoryMarkStore memory(clock_);
  ASSERT_TRUE(memory.KeepOrders({{"pay", core::TagOrder::kStrict, std::nullopt, strict}}).ok());
  OrderBook late(&orders_, memory, {.id = "b1", .process = "", .place = "b:/state", .since = {}}, log_,
                 [] {});
  ASSERT_TRUE(late.Look().ok());
  EXPECT_EQ(late.Of("pay"), core::TagOrder::kTrend);
  EXPECT_FALSE(orders_.table.IsStrict("pay"));
}

TEST_F(StrictTagTest, WhatIsNotRememberedIsNotAcknowledged) {
  Start();
  marks_.SetFull(true);
  const std::uint64_t version = orders_.MakeStrict("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict) << "it keeps to it all the same";
  EXPECT_LT(Acknowledged(), version);
  Pass(2 * kLongerThanALook);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "cannot remember the order of the tags"), 1U);
  marks_.SetFull(false);
  Pass(kLongerThanALook);
  EXPECT_EQ(Acknowledged(), version);
}

// The restored database is of a time before the tables, or its user has lost the right.
TEST_F(StrictTagTest, WithoutATableWhatIsRememberedCounts) {
  orders_.MakeStrict("pay");
  Start();
  service_.reset();
  orders_.has_table = false;
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
  Pass(2 * kLongerThanALook);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "this state directory remembers that tag 'pay' is strict"), 1U);
}

// What is remembered cannot be read: no tag may be taken for trend.
TEST_F(StrictTagTest, ANodeWhoseMemoryCannotBeReadServesNothing) {
  marks_.SetFailing(true);
  Start();
  EXPECT_FALSE(Get("pay")->result->ok());
  EXPECT_TRUE(orders_.nodes.empty());
  marks_.SetFailing(false);
  Pass(std::chrono::seconds{10});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
}

// A row of an order that was changed before.
TEST_F(StrictTagTest, AnOlderRowDoesNotEndTheOrder) {
  orders_.MakeStrict("ship");
  const std::uint64_t strict = orders_.MakeStrict("pay");
  Start();
  orders_.table.rows = {{"pay", core::TagOrder::kTrend, std::nullopt, strict - 1}};
  ++orders_.table.version;
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  ASSERT_EQ(orders_.table.rows.size(), 2U) << "the node writes both rows, also the one that is missing";
  for (const core::OrderRow& row : orders_.table.rows) EXPECT_EQ(row.order, core::TagOrder::kStrict);
  orders_.MakeTrend("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
}

// The tag is strict in it, too, but its changes to come would count for older ones.
TEST_F(StrictTagTest, ATableThatCountsLowerIsRaised) {
  orders_.table.version = 20;
  orders_.MakeStrict("pay");
  Start();
  orders_.table = {};
  orders_.nodes.clear();
  orders_.MakeStrict("pay");
  Pass(2 * kLongerThanALook);
  EXPECT_GT(orders_.table.version, 20U);
  orders_.MakeTrend("pay");
  Pass(kLongerThanALook);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
}

// Its database user may read the orders, and not write to the list.
TEST_F(StrictTagTest, ANodeThatCannotBeListedServesAllTheSame) {
  orders_.MakeStrict("pay");
  orders_.table.listed = false;
  Start();
  EXPECT_EQ(Get("ship")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2);
  Pass(kLongerThanALook);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "is not on the list of nodes"), 1U);
}

// The same number may stand for another table.
// A command waits for the acknowledgement: it does not take as long as the next look is away.
TEST_F(StrictTagTest, ALookThatAChangeOvertakesIsRepeatedAtOnce) {
  Start();
  orders_.MakeStrict("pay");
  orders_.after_read = [](core::TagOrderTable& table) {
    table.rows.push_back({"ship", core::TagOrder::kStrict, std::nullopt, ++table.version});
  };
  Pass(kLongerThanALook);
  EXPECT_FALSE(orders_.after_read);
  EXPECT_EQ(StatusOf("ship").order, core::TagOrder::kStrict);
  EXPECT_EQ(Acknowledged(), orders_.table.version);
}

TEST_F(StrictTagTest, ANodeThatCannotAcknowledgeSaysSoOnce) {
  const std::string_view told = "cannot acknowledge the order of the tags: no right";
  Start();
  const std::uint64_t version = orders_.MakeStrict("pay");
  orders_.unwritable = Error{ErrorCode::kConfig, "no right", ""};
  Pass(3 * kLongerThanALook);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, told), 1U);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict) << "it keeps to what it has read";
  EXPECT_LT(Acknowledged(), version);
  orders_.unwritable = Error{ErrorCode::kUnavailable, "away", ""};
  Pass(kLongerThanALook);
  orders_.unwritable.reset();
  Pass(kLongerThanALook);
  EXPECT_EQ(Acknowledged(), version);
  orders_.MakeTrend("pay");
  orders_.unwritable = Error{ErrorCode::kConfig, "no right", ""};
  Pass(kLongerThanALook);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, told), 2U);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "away"), 0U);
}

// A command promises it after the nodes have acknowledged, and a restore loses that.
TEST_F(StrictTagTest, SinceWhenATagIsStrictIsKnownAndWrittenAgain) {
  orders_.MakeStrict("pay");
  Start();
  orders_.table.rows[0].since = 1;
  ++orders_.table.version;
  Pass(kLongerThanALook);
  orders_.table.rows[0].since.reset();
  ++orders_.table.version;
  Pass(kLongerThanALook);
  EXPECT_EQ(orders_.table.rows[0].since, 1U);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "had lost changes of the order of tag 'pay', which is strict now"),
            1U);
  EXPECT_EQ(Acknowledged(), orders_.table.version) << "without waiting for the next look";
  // A later order has a promise of its own.
  orders_.MakeTrend("pay");
  orders_.MakeStrict("pay");
  Pass(kLongerThanALook);
  EXPECT_FALSE(orders_.table.rows[0].since);
}

TEST_F(StrictTagTest, AnAcknowledgementThatTheTableLostIsGivenAgain) {
  Start();
  orders_.nodes.at("a1").acknowledged = 0;
  orders_.table.rows.push_back({"pay", core::TagOrder::kStrict, std::nullopt, orders_.table.version});
  Pass(kLongerThanALook);
  EXPECT_EQ(Acknowledged(), orders_.table.version);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
}

TEST_F(StrictTagTest, TheLastNumbersAreHandedOutInOrder) {
  table_.Put("pay", static_cast<std::int64_t>(kMaxIdLimit - 4), 1000);
  orders_.MakeStrict("pay");
  Start();
  const auto first = Ask("pay", 2);
  const auto second = Ask("pay", 2);
  const auto third = Ask("pay", 2);
  Run();
  EXPECT_EQ(first->ids().front(), kMaxIdLimit - 4);
  EXPECT_EQ(second->ids().front(), kMaxIdLimit - 2);
  EXPECT_EQ(third->code(), ErrorCode::kOverflow);
}

TEST_F(StrictTagTest, ALostReplyIsFollowedByAnotherGrant) {
  orders_.MakeStrict("pay");
  Start();
  store_.FailReserves(FaultySegmentStore::Fault::kLostReply, 1);
  const auto first = Ask("pay", 2);
  const auto second = Ask("pay");
  Run();
  EXPECT_EQ(first->ids(), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(second->ids(), std::vector<std::uint64_t>{6});
}

TEST_F(StrictTagTest, WithoutTheDatabaseItFails) {
  orders_.MakeStrict("pay");
  Start();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  store_.SetDown(true);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  store_.SetDown(false);
  Pass(std::chrono::seconds{3});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
}

TEST_F(StrictTagTest, ANodeThatStopsLeavesTheList) {
  Start();
  EXPECT_EQ(orders_.nodes.size(), 1U);
  service_->Stop();
  service_->LeaveOrders();
  EXPECT_TRUE(orders_.nodes.empty());
}

}  // namespace
}  // namespace leaf::service
