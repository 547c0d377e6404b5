// Segment mode behind the fence of a cluster.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "leaf/service/cluster_fence.h"
#include "leaf/zookeeper/witness.h"
#include "support/fake_orders.h"
#include "support/zookeeper_fakes.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SegmentClusterTest : public SegmentServiceTest {
 protected:
  SegmentClusterTest() { table_.Put("pay", 1, 100); }

  void StartFenced(bool fallback = false) {
    fence_.emplace(witness_, fallback, clock_, random_, log_);
    options_.fence = &*fence_;
    StartService();
    Run();
  }
  void Refresh() { Pass(options_.refresh_interval + milliseconds{10}); }
  // Another node of the cluster is granted everything up to `end`.
  void OtherNodeUpTo(std::uint64_t end) {
    const auto seen = other_witness_.Load("pay");
    ASSERT_TRUE(*other_witness_.Raise("pay", *seen, end, "theirs"));
  }

  testing::MemoryZooKeeper zookeeper_;
  testing::MemoryClient client_{zookeeper_};
  testing::MemoryClient other_client_{zookeeper_};
  zookeeper::ZookeeperWitness witness_{*zookeeper::Tree::Make("pay"), "this", client_, clock_};
  zookeeper::ZookeeperWitness other_witness_{*zookeeper::Tree::Make("pay"), "other", other_client_, clock_};
  std::optional<ClusterFence> fence_;
};

TEST_F(SegmentClusterTest, ARowBelowTheWitnessFreezesTheTagAtTheNextRefresh) {
  StartFenced();
  ASSERT_TRUE(Get("pay")->result->ok());
  EXPECT_EQ(StatusOf("pay").witness, 101U);
  // Another node got [101, 5001), and then the database lost it. This node's mark is 101.
  OtherNodeUpTo(5001);
  table_.Put("pay", 101, 100);
  Refresh();
  const TagStatus frozen = StatusOf("pay");
  EXPECT_EQ(frozen.state, "frozen");
  EXPECT_EQ(frozen.witness, 5001U);
  ASSERT_TRUE(frozen.problem.has_value());
  EXPECT_NE(
      frozen.problem->message.find("another node of the cluster was already granted everything up to 5001"),
      std::string::npos);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
  table_.Put("pay", 5001, 100);
  Refresh();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{5001});
}

TEST_F(SegmentClusterTest, ANodeThatStartsOnAnOlderDatabaseKnowsAtOnce) {
  OtherNodeUpTo(5001);
  StartFenced();
  EXPECT_EQ(StatusOf("pay").state, "frozen");
}

TEST_F(SegmentClusterTest, AFrozenTagDoesNotThawWhileTheWitnessIsAway) {
  OtherNodeUpTo(5001);
  StartFenced();
  client_.SetDown(true);
  Refresh();
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
  client_.SetDown(false);
  table_.Put("pay", 6000, 100);
  Refresh();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{6000});
}

TEST_F(SegmentClusterTest, WhileTheWitnessIsAwayTheReserveIsServedAndRefillsWait) {
  StartFenced();
  ASSERT_TRUE(Get("pay")->result->ok());
  client_.SetDown(true);
  Refresh();
  const std::int64_t max_id = table_.MaxId("pay");
  const std::uint64_t reserve = StatusOf("pay").reserve;
  ASSERT_GT(reserve, 0U);
  EXPECT_TRUE(service_->CanIssue().ok());
  for (std::uint64_t i = 0; i < reserve; ++i) ASSERT_TRUE(Get("pay")->result->ok()) << i;
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  const auto can_issue = service_->CanIssue();
  ASSERT_FALSE(can_issue.ok());
  EXPECT_NE(can_issue.error().message.find("no tag has a reserve"), std::string::npos);
  Pass(seconds{10});
  EXPECT_EQ(table_.MaxId("pay"), max_id) << "an outage of the witness burns no IDs";
  const auto waiting = Ask("pay");
  client_.SetDown(false);
  Pass(seconds{3});
  ASSERT_TRUE(waiting->done());
  EXPECT_TRUE(Get("pay")->result->ok());
  EXPECT_TRUE(service_->CanIssue().ok());
}

TEST_F(SegmentClusterTest, WithoutAnyTagTheWitnessIsNotMissed) {
  table_.Erase("pay");
  client_.SetDown(true);
  StartFenced();
  EXPECT_TRUE(service_->CanIssue().ok());
  table_.Put("pay", 1, 100);
  Refresh();
  EXPECT_FALSE(service_->CanIssue().ok());
}

// To find out whether it is back costs a question of the witness, and not a refresh each time.
TEST_F(SegmentClusterTest, WhileTheWitnessIsAwayTheTableIsNotReadEachSecond) {
  client_.SetDown(true);
  int reads = 0;
  store_.before_list_reply = [&] { ++reads; };
  StartFenced();
  reads = 0;
  const int calls = client_.calls();
  Pass(seconds{10});
  EXPECT_EQ(reads, 0);
  EXPECT_GE(client_.calls() - calls, 9);
}

// No client asks for an ID, and the next refresh is a minute away.
TEST_F(SegmentClusterTest, AnIdleNodeFindsOutThatTheWitnessIsBack) {
  client_.SetDown(true);
  StartFenced();
  EXPECT_FALSE(service_->CanIssue().ok());
  client_.SetDown(false);
  Pass(seconds{3});
  EXPECT_TRUE(service_->CanIssue().ok());
  EXPECT_FALSE(service_->Status().fence->away_since.has_value());
}

TEST_F(SegmentClusterTest, WithFallbackItGoesOnAndTellsTheWitnessLater) {
  StartFenced(/*fallback=*/true);
  ASSERT_TRUE(Get("pay")->result->ok());
  client_.SetDown(true);
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(Get("pay")->result->ok()) << i;
  EXPECT_TRUE(service_->CanIssue().ok());
  EXPECT_FALSE(service_->Status().fence->guards());
  client_.SetDown(false);
  Refresh();
  EXPECT_TRUE(service_->Status().fence->guards());
  EXPECT_EQ(other_witness_.Load("pay")->end, static_cast<std::uint64_t>(table_.MaxId("pay")));
}

// The database loses what others were granted while ZooKeeper is away: this node was told of it before.
TEST_F(SegmentClusterTest, WithFallbackWhatWasSeenOfTheWitnessStaysAFence) {
  StartFenced(/*fallback=*/true);
  ASSERT_TRUE(Get("pay")->result->ok());
  OtherNodeUpTo(5001);
  table_.Put("pay", 5001, 100);
  Refresh();
  ASSERT_EQ(StatusOf("pay").witness, 5001U);
  client_.SetDown(true);
  table_.Put("pay", 1001, 100);
  for (int i = 0; i < 300; ++i) {
    const auto answer = Get("pay");
    if (!answer->result->ok()) {
      EXPECT_EQ(answer->code(), ErrorCode::kFrozen);
      return;
    }
    for (const std::uint64_t id : answer->ids()) ASSERT_LT(id, 101U) << "another node was granted it";
  }
  FAIL() << "never frozen";
}

// One write a tag, and there may be very many: the start does not wait for them.
TEST_F(SegmentClusterTest, TheNodeIsReadyBeforeTheWitnessIsToldOfItsMarks) {
  ASSERT_TRUE(marks_.Raise({"pay", 701, std::nullopt}).ok());
  table_.Put("pay", 701, 100);
  bool ready = false;
  client_.BeforeCall(1, [&] { ready = service_->CanIssue().ok(); });
  StartFenced();
  EXPECT_TRUE(ready);
  EXPECT_EQ(other_witness_.Load("pay")->end, 701U);
}

// There may be very many, and each is a write.
TEST_F(SegmentClusterTest, TellingTheWitnessOfMarksHoldsUpNoOtherRead) {
  constexpr int kTags = 100;
  for (int i = 0; i < kTags; ++i) {
    const std::string tag = "tag" + std::to_string(i);
    table_.Put(tag, 701, 100);
    ASSERT_TRUE(marks_.Raise({tag, 701, std::nullopt}).ok());
  }
  const auto told = [&] {
    int count = 0;
    for (int i = 0; i < kTags; ++i)
      count += other_witness_.Load("tag" + std::to_string(i))->end == 701 ? 1 : 0;
    return count;
  };
  int reads = 0;
  std::optional<int> told_at_second;
  store_.before_list_reply = [&] {
    if (++reads == 1) client_.BeforeCall(5, [&] { service_->RefreshNow(); });
    if (reads == 3) told_at_second = told();
  };
  StartFenced();
  ASSERT_GE(reads, 2);
  EXPECT_EQ(told(), kTags);
  ASSERT_TRUE(told_at_second.has_value());
  EXPECT_LT(*told_at_second, kTags) << "the refresh that was asked for came after all of them";
}

// A cluster that had the node fence until now: the first refresh tells the witness of every mark.
TEST_F(SegmentClusterTest, MarksFromBeforeTheWitnessAreMadeKnown) {
  ASSERT_TRUE(marks_.Raise({"pay", 701, std::nullopt}).ok());
  table_.Put("pay", 701, 100);
  StartFenced();
  EXPECT_EQ(other_witness_.Load("pay")->end, 701U);
}

TEST_F(SegmentClusterTest, ATagThatIsNewOnThisNodeIsJudgedAtItsFirstGrant) {
  StartFenced();
  const auto seen = other_witness_.Load("mail");
  ASSERT_TRUE(*other_witness_.Raise("mail", *seen, 900, "theirs"));
  table_.Put("mail", 1, 100);
  EXPECT_EQ(Get("mail")->code(), ErrorCode::kFrozen);
  table_.Put("mail", 900, 100);
  Refresh();
  EXPECT_EQ(Get("mail")->ids(), std::vector<std::uint64_t>{900});
}

// ---- The order of tags, which a database may lose

class ClusterOrderTest : public SegmentClusterTest {
 protected:
  ClusterOrderTest() {
    options_.orders = &orders_;
    options_.order_node = {
        .id = "a1", .process = "leafctl serve, process 1 on a", .place = "a:/state", .since = {}};
  }
  // Another node, or a command, has noted it.
  void Noted(const core::StrictMark& mark) {
    const auto seen = other_witness_.Load("pay");
    ASSERT_TRUE(*other_witness_.NoteStrict("pay", *seen, mark));
  }
  std::optional<core::StrictMark> Noted() { return other_witness_.Load("pay")->strict; }
  const core::OrderRow& Row() { return orders_.table.rows.at(0); }
  void LookAtOrders() { Pass(milliseconds{2100}); }

  testing::MemoryTagOrders orders_;
};

TEST_F(ClusterOrderTest, ANodeThatStartsKnowsTheOrderThatTheTableHasLost) {
  Noted({7, 1});
  StartFenced();
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table_.MaxId("pay"), 2) << "nothing is held in reserve";
  LookAtOrders();
  ASSERT_EQ(orders_.table.rows.size(), 1U) << "the node writes the row again";
  EXPECT_EQ(Row().order, core::TagOrder::kStrict);
  EXPECT_EQ(Row().since, 1U);
  EXPECT_GT(Row().version, 7U);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "the witness knows that tag 'pay' is strict"), 1U);
}

// Its first refresh could not see the witness, or the tag was new.
TEST_F(ClusterOrderTest, AGrantMeetsTheOrderThatTheTableHasLost) {
  StartFenced();
  ASSERT_TRUE(Get("pay")->result->ok());
  ASSERT_GT(StatusOf("pay").reserve, 0U);
  Noted({7, 1});
  // More than the reserve: none of it is issued with what comes from the next grant.
  const auto asked = Ask("pay", 150);
  Pass(seconds{1});
  ASSERT_TRUE(asked->done());
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(asked->ids().front(), 101U);
  EXPECT_EQ(table_.MaxId("pay"), 251);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{251});
}

// Not only when the node has written the row again: until then it would issue from its reserve.
TEST_F(ClusterOrderTest, ARefreshThatMeetsTheOrderDropsTheReserveAtOnce) {
  StartFenced();
  ASSERT_TRUE(Get("pay")->result->ok());
  ASSERT_GT(StatusOf("pay").reserve, 0U);
  Noted({7, 1});
  service_->RefreshNow();
  Run();
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
}

// The witness was not told that the order has ended: this node has read that, in a later version.
TEST_F(ClusterOrderTest, AGrantKeepsToALaterRowThanTheWitnessKnows) {
  orders_.table.version = 7;
  orders_.MakeTrend("pay");
  StartFenced();
  ASSERT_TRUE(Get("pay")->result->ok());
  Noted({7, 1});
  const auto asked = Ask("pay", 150);
  Pass(seconds{1});
  ASSERT_TRUE(asked->done());
  EXPECT_EQ(asked->ids().front(), 2U) << "the reserve is issued";
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
  EXPECT_GT(StatusOf("pay").reserve, 0U);
}

// It becomes known between the look at the witness and the claim.
TEST_F(ClusterOrderTest, OfARangeThatWasReservedBeforeTheOrderIsKnownNothingIsKept) {
  StartFenced();
  store_.on_slow = [this] { Noted({7, 1}); };
  store_.FailReserves(testing::FaultySegmentStore::Fault::kSlowReply, 1);
  const auto asked = Ask("pay");
  Pass(seconds{1});
  ASSERT_TRUE(asked->done());
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kStrict);
  // It was in line before the row was raised.
  EXPECT_EQ(asked->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("pay").wasted, 99U);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{101});
}

TEST_F(ClusterOrderTest, TheWitnessIsToldOfTheOrder) {
  const std::uint64_t version = orders_.MakeStrict("pay");
  StartFenced();
  EXPECT_EQ(Noted(), (core::StrictMark{version, std::nullopt}));
  ASSERT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(Noted(), (core::StrictMark{version, std::nullopt})) << "claims keep it";
  // The command adds from which ID on.
  orders_.table.rows[0].since = 1;
  ++orders_.table.version;
  LookAtOrders();
  Refresh();
  EXPECT_EQ(Noted(), (core::StrictMark{version, 1}));
  orders_.MakeTrend("pay");
  LookAtOrders();
  Refresh();
  EXPECT_EQ(Noted(), std::nullopt);
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
}

// The nodes have acknowledged, the witness has been told, and the table has lost it.
TEST_F(ClusterOrderTest, TheTableIsToldSinceWhenTheWitnessKnowsATagAsStrict) {
  const std::uint64_t version = orders_.MakeStrict("pay");
  StartFenced();
  Noted({version, 1});
  Refresh();
  LookAtOrders();
  EXPECT_EQ(Row().since, 1U);
  EXPECT_EQ(Row().version, version);
}

TEST_F(ClusterOrderTest, ALaterRowOverrulesTheWitness) {
  Noted({7, 1});
  orders_.table.version = 7;
  orders_.MakeTrend("pay");
  StartFenced();
  EXPECT_EQ(StatusOf("pay").order, core::TagOrder::kTrend);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("pay").reserve, 99U);
  EXPECT_EQ(Noted(), std::nullopt) << "the witness forgets the order";
}

}  // namespace
}  // namespace leaf::service
