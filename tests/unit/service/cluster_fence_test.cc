#include "leaf/service/cluster_fence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "leaf/service/granter.h"
#include "leaf/zookeeper/daemon_roster.h"
#include "leaf/zookeeper/witness.h"
#include "support/fakes.h"
#include "support/zookeeper_fakes.h"

namespace leaf::service {
namespace {

using Fault = testing::MemoryClient::Fault;
using FenceVerdict = ClusterFence::Verdict;

zookeeper::Tree PayTree() { return *zookeeper::Tree::Make("pay"); }

// One node: its session, its marks, and the database it believes in.
class FencedNode {
 public:
  FencedNode(testing::MemoryZooKeeper& zookeeper, testing::MemorySegmentStore& store, bool fallback = false,
             std::uint64_t seed = 1)
      : client(zookeeper),
        random(seed),
        marks(clock),
        witness(PayTree(), "node " + std::to_string(seed), client, clock),
        fence(witness, fallback, clock, random, log) {
    Use(store);
  }
  // From now on it uses another database.
  void Use(core::SegmentStore& store) {
    granter = std::make_unique<Granter>(store, marks, &fence, clock, log, std::chrono::milliseconds{1000});
  }
  Obtained Obtain(std::uint64_t count = 10) { return granter->Obtain("pay", ExactSizer(count)); }

  testing::MemoryClient client;
  testing::FakeClock clock;
  testing::FakeRandom random;
  testing::RecordingLogger log;
  testing::MemoryMarkStore marks;
  zookeeper::ZookeeperWitness witness;
  ClusterFence fence;
  std::unique_ptr<Granter> granter;
};

class ClusterFenceTest : public ::testing::Test {
 protected:
  ClusterFenceTest() { store_.Put("pay", 1, 10); }

  std::uint64_t WitnessEnd() {
    const auto data = zookeeper_.Data(PayTree().Witness("pay"));
    if (!data) return 0;
    return zookeeper::ParseWitness(*data)->end;
  }

  testing::MemoryZooKeeper zookeeper_;
  testing::MemorySegmentStore store_;
};

TEST_F(ClusterFenceTest, AGrantRaisesTheWitnessBeforeItIsHandedOut) {
  FencedNode node(zookeeper_, store_);
  const Obtained first = node.Obtain();
  ASSERT_TRUE(first.grant.ok()) << first.grant.error().message;
  EXPECT_EQ(first.grant->range.end, 11U);
  EXPECT_EQ(first.witness, 11U);
  EXPECT_EQ(WitnessEnd(), 11U);
  // From then on one write a grant.
  const int before = node.client.writes();
  ASSERT_TRUE(node.Obtain().grant.ok());
  EXPECT_EQ(node.client.writes(), before + 1);
  EXPECT_EQ(WitnessEnd(), 21U);
  EXPECT_EQ(node.fence.Status().claims, 2U);
}

TEST_F(ClusterFenceTest, ADatabaseThatWentBackFreezesTheTagOnEveryNode) {
  FencedNode one(zookeeper_, store_);
  FencedNode two(zookeeper_, store_, false, 2);
  ASSERT_TRUE(one.Obtain(1000).grant.ok());
  store_.Put("pay", 500, 10);
  // The other node was granted nothing yet, and has no mark that could tell.
  const Obtained refused = two.Obtain();
  ASSERT_FALSE(refused.grant.ok());
  EXPECT_EQ(refused.grant.error().code, ErrorCode::kFrozen);
  EXPECT_NE(refused.grant.error().message.find(
                "another node of the cluster was already granted everything up to 1001"),
            std::string::npos)
      << refused.grant.error().message;
  EXPECT_EQ(refused.witness, 1001U);
  EXPECT_EQ(store_.MaxId("pay"), 500) << "the row stays where it is, for the operator that repairs it";
  EXPECT_EQ(one.Obtain().grant.error().code, ErrorCode::kFrozen);
  store_.Put("pay", 1001, 10);
  EXPECT_TRUE(two.Obtain().grant.ok());
}

TEST_F(ClusterFenceTest, OfTwoDatabasesThatGrantTheSameRangeOneIsHeard) {
  testing::MemorySegmentStore other;
  other.Put("pay", 1, 10);
  FencedNode one(zookeeper_, store_);
  FencedNode two(zookeeper_, other, false, 2);
  // Both have looked at the witness and reserved [1, 11) before either of them claims.
  auto look_one = one.fence.See("pay");
  auto look_two = two.fence.See("pay");
  ASSERT_TRUE(look_one.ok() && look_two.ok());
  EXPECT_EQ(*one.fence.Claim("pay", *look_one, {1, 11}), FenceVerdict::kClaimed);
  EXPECT_EQ(*two.fence.Claim("pay", *look_two, {1, 11}), FenceVerdict::kOutbid);
  EXPECT_EQ(two.fence.Status().outbid, 1U);
  EXPECT_EQ(look_two->state.end, 11U);
}

TEST_F(ClusterFenceTest, ANodeThatIsOvertakenReservesAgainAndSaysWhatIsLost) {
  FencedNode one(zookeeper_, store_);
  FencedNode two(zookeeper_, store_, false, 2);
  ASSERT_TRUE(one.Obtain().grant.ok());  // makes the folders and the record
  // Between the grant of the first and its claim the second gets one, and claims it.
  one.client.BeforeCall(1, [&] { ASSERT_TRUE(two.Obtain().grant.ok()); });
  const Obtained overtaken = one.Obtain();
  ASSERT_TRUE(overtaken.grant.ok()) << overtaken.grant.error().message;
  EXPECT_EQ(overtaken.grant->range.begin, 31U);
  EXPECT_EQ(overtaken.dropped, 10U);
}

// The other node is faster each time: its grant ends above this one's, and is claimed first.
TEST_F(ClusterFenceTest, ANodeThatIsAlwaysOvertakenGivesUpInTime) {
  constexpr std::chrono::seconds kOneGrant{1};
  for (const bool is_strict : {false, true}) {
    FencedNode node(zookeeper_, store_);
    FencedNode faster(zookeeper_, store_, false, 2);
    ASSERT_TRUE(faster.Obtain().grant.ok());
    int granted = 0;
    const auto overtaken = [&]() -> Result<core::GrantSize> {
      ++granted;
      node.client.BeforeCall(0, [&] {
        node.clock.Advance(kOneGrant);
        ASSERT_TRUE(faster.Obtain().grant.ok());
      });
      return core::GrantSize{10, 10};
    };
    const StrictGrant strict{.size = overtaken, .until = node.clock.Monotonic() + 20 * kOneGrant};
    const MonotonicTime begin = node.clock.Monotonic();
    const Obtained refused = node.granter->Obtain(
        "pay", [&](const core::TagRow&) { return overtaken(); }, {}, 0, is_strict ? &strict : nullptr);
    ASSERT_FALSE(refused.grant.ok());
    EXPECT_EQ(refused.grant.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(refused.grant.error().message.find("other nodes were faster each time"), std::string::npos);
    // A strict tag's request has a deadline of its own, and is served if it can be until then.
    EXPECT_EQ(granted, is_strict ? 20 : 8);
    EXPECT_EQ(node.clock.Monotonic() - begin, granted * kOneGrant);
    EXPECT_EQ(refused.dropped, 10U * static_cast<std::uint64_t>(granted));
  }
}

TEST_F(ClusterFenceTest, AReplyThatIsLostIsFoundByItsClaim) {
  FencedNode node(zookeeper_, store_);
  ASSERT_TRUE(node.Obtain().grant.ok());
  node.client.FailWrite(0, Fault::kLostReply);
  const Obtained grant = node.Obtain();
  ASSERT_TRUE(grant.grant.ok()) << grant.grant.error().message;
  EXPECT_EQ(grant.grant->range.begin, 11U);
  EXPECT_EQ(grant.dropped, 0U);
}

// The write is under way, its node has given it up, and the next one is acknowledged. When the first one
// lands after all, it meets another version.
TEST_F(ClusterFenceTest, AWriteThatLandsLateChangesNothing) {
  FencedNode node(zookeeper_, store_);
  FencedNode other(zookeeper_, store_, false, 2);
  ASSERT_TRUE(node.Obtain().grant.ok());
  node.client.FailWrite(0, Fault::kLate);
  ASSERT_TRUE(node.Obtain().grant.ok());
  ASSERT_TRUE(other.Obtain().grant.ok());
  EXPECT_EQ(WitnessEnd(), 31U);
  node.client.LandLate();
  EXPECT_EQ(WitnessEnd(), 31U);
  EXPECT_EQ(node.Obtain().grant->range.begin, 31U);
}

TEST_F(ClusterFenceTest, WhileTheWitnessIsAwayNothingIsReserved) {
  FencedNode node(zookeeper_, store_);
  ASSERT_TRUE(node.Obtain().grant.ok());
  node.client.SetDown(true);
  const Obtained refused = node.Obtain();
  ASSERT_FALSE(refused.grant.ok());
  EXPECT_EQ(refused.grant.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.grant.error().message.find("witness of tag 'pay'"), std::string::npos);
  EXPECT_EQ(store_.MaxId("pay"), 11) << "an outage burns no IDs";
  EXPECT_TRUE(node.fence.Blocking().has_value());
  EXPECT_TRUE(node.fence.Status().guards());
  node.client.SetDown(false);
  ASSERT_TRUE(node.fence.See("pay").ok());
  EXPECT_FALSE(node.fence.Blocking().has_value()) << "a look is an answer, though nothing is claimed";
  EXPECT_FALSE(node.fence.Status().away_since.has_value());
  EXPECT_TRUE(node.Obtain().grant.ok());
}

// A record with access rules of its own.
class WitnessWithADeniedTag final : public core::Witness {
 public:
  explicit WitnessWithADeniedTag(core::Witness& inner) : inner_(inner) {}
  Result<core::WitnessState> Load(std::string_view tag) override {
    if (tag == "denied") return Error{ErrorCode::kPermission, "access is denied", ""};
    return inner_.Load(tag);
  }
  Result<core::WitnessStates> LoadAll(const std::vector<std::string>& tags) override {
    return inner_.LoadAll(tags);
  }
  Result<bool> Raise(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                     std::string_view claim) override {
    return inner_.Raise(tag, seen, end, claim);
  }
  Result<bool> Claim(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                     std::string_view claim) override {
    if (denies_claims) return Error{ErrorCode::kPermission, "access is denied", ""};
    return inner_.Claim(tag, seen, end, claim);
  }
  Result<bool> NoteStrict(std::string_view tag, const core::WitnessState& seen,
                          const std::optional<core::StrictMark>& strict) override {
    return inner_.NoteStrict(tag, seen, strict);
  }
  bool denies_claims = false;

 private:
  core::Witness& inner_;
};

TEST_F(ClusterFenceTest, ARecordThatIsDeniedIsTroubleOfItsTagAlone) {
  FencedNode node(zookeeper_, store_);
  WitnessWithADeniedTag witness(node.witness);
  ClusterFence fence(witness, /*fallback=*/false, node.clock, node.random, node.log);
  const auto denied = fence.See("denied");
  ASSERT_FALSE(denied.ok());
  EXPECT_EQ(denied.error().code, ErrorCode::kPermission);
  EXPECT_FALSE(fence.Blocking().has_value());
  EXPECT_FALSE(fence.Status().away_since.has_value());
  auto look = fence.See("pay");
  ASSERT_TRUE(look.ok());
  EXPECT_EQ(*fence.Claim("pay", *look, {1, 11}), FenceVerdict::kClaimed);
  // Others can be claimed.
  witness.denies_claims = true;
  EXPECT_FALSE(fence.Claim("pay", *look, {11, 21}).ok());
  EXPECT_FALSE(fence.Blocking().has_value());
}

// This node has other credentials than the one that made the records.
TEST_F(ClusterFenceTest, ANodeThatMayClaimNothingIsNotReady) {
  FencedNode node(zookeeper_, store_);
  WitnessWithADeniedTag witness(node.witness);
  ClusterFence fence(witness, /*fallback=*/false, node.clock, node.random, node.log);
  witness.denies_claims = true;
  auto look = fence.See("pay");
  ASSERT_TRUE(look.ok());
  EXPECT_FALSE(fence.Claim("pay", *look, {1, 11}).ok());
  ASSERT_TRUE(fence.Blocking().has_value());
  EXPECT_EQ(fence.Blocking()->code, ErrorCode::kPermission);
  ASSERT_TRUE(fence.See("pay").ok());
  EXPECT_TRUE(fence.Blocking().has_value()) << "a look changes nothing";
  witness.denies_claims = false;
  EXPECT_EQ(*fence.Claim("pay", *look, {1, 11}), FenceVerdict::kClaimed);
  EXPECT_FALSE(fence.Blocking().has_value());
  EXPECT_FALSE(fence.Status().away_since.has_value());
}

TEST_F(ClusterFenceTest, ItGoesAwayBetweenTheGrantAndTheClaim) {
  FencedNode node(zookeeper_, store_);
  ASSERT_TRUE(node.Obtain().grant.ok());
  node.client.BeforeCall(1, [&] { node.client.SetDown(true); });
  const Obtained refused = node.Obtain();
  ASSERT_FALSE(refused.grant.ok());
  EXPECT_EQ(refused.grant.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.dropped, 10U);
  EXPECT_EQ(node.marks.Load("pay")->end, 11U);
}

TEST_F(ClusterFenceTest, WithFallbackTheNodeFenceGoesOnAndSaysSo) {
  FencedNode node(zookeeper_, store_, /*fallback=*/true);
  ASSERT_TRUE(node.Obtain().grant.ok());
  node.client.SetDown(true);
  ASSERT_TRUE(node.Obtain().grant.ok());
  EXPECT_FALSE(node.fence.Blocking().has_value());
  ClusterFenceStatus status = node.fence.Status();
  EXPECT_FALSE(status.guards());
  EXPECT_EQ(status.unfenced, 1U);
  ASSERT_TRUE(status.problem.has_value());
  // The node's own marks are still a fence.
  store_.Put("pay", 5, 10);
  EXPECT_EQ(node.Obtain().grant.error().code, ErrorCode::kFrozen);

  // Back again, the witness is told what went without it.
  node.client.SetDown(false);
  const auto seen = node.fence.SeeAll({"pay"});
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->at(0)->end, 11U);
  ASSERT_TRUE(node.fence.CatchUp("pay", *seen->at(0), node.marks.Load("pay")->end).ok());
  EXPECT_EQ(WitnessEnd(), 21U);
  status = node.fence.Status();
  EXPECT_TRUE(status.guards());
  EXPECT_EQ(status.raised_to, 1U);
}

// A node that was told that the witness moved, and cannot see how far, has lost to another node: no fallback
// removes that doubt.
TEST_F(ClusterFenceTest, WithFallbackAClaimThatWasRefusedIsNotIssued) {
  FencedNode one(zookeeper_, store_);
  FencedNode two(zookeeper_, store_, /*fallback=*/true, 2);
  auto look_one = one.fence.See("pay");
  auto look_two = two.fence.See("pay");
  ASSERT_TRUE(look_one.ok() && look_two.ok());
  ASSERT_EQ(*one.fence.Claim("pay", *look_one, {1, 11}), FenceVerdict::kClaimed);
  // The same range from another database; ZooKeeper refuses the claim, and is away before the node can read
  // why.
  two.client.BeforeCall(1, [&] { two.client.SetDown(true); });
  const auto verdict = two.fence.Claim("pay", *look_two, {1, 11});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(two.fence.Status().unfenced, 0U);
}

// ---- The order of a tag

TEST_F(ClusterFenceTest, ANewerOrderIsNotedAndKeptByClaims) {
  FencedNode node(zookeeper_, store_);
  const auto strict = [&] { return node.witness.Load("pay")->strict; };
  const auto note = [&](core::TagOrder order, std::uint64_t version, std::optional<std::uint64_t> since) {
    return node.fence.NoteOrder({"pay", order, since, version}, *node.witness.Load("pay"));
  };
  // There is no record yet.
  ASSERT_TRUE(note(core::TagOrder::kTrend, 6, std::nullopt).ok());
  EXPECT_FALSE(zookeeper_.Data(PayTree().Witness("pay")).has_value());
  ASSERT_TRUE(note(core::TagOrder::kStrict, 7, std::nullopt).ok());
  EXPECT_EQ(strict(), (core::StrictMark{7, std::nullopt}));
  EXPECT_EQ(WitnessEnd(), 0U);
  ASSERT_TRUE(note(core::TagOrder::kStrict, 7, 1).ok());
  EXPECT_EQ(strict(), (core::StrictMark{7, 1}));
  const auto grant = node.Obtain().grant;
  ASSERT_TRUE(grant.ok()) << grant.error().message;
  EXPECT_EQ(strict(), (core::StrictMark{7, 1}));
  ASSERT_TRUE(node.fence.CatchUp("pay", *node.witness.Load("pay"), 500).ok());
  EXPECT_EQ(strict(), (core::StrictMark{7, 1}));
  // Older ones, and the same with less, are no news.
  ASSERT_TRUE(note(core::TagOrder::kStrict, 6, 1).ok());
  ASSERT_TRUE(note(core::TagOrder::kStrict, 7, std::nullopt).ok());
  ASSERT_TRUE(note(core::TagOrder::kTrend, 7, std::nullopt).ok());
  EXPECT_EQ(strict(), (core::StrictMark{7, 1}));
  ASSERT_TRUE(note(core::TagOrder::kTrend, 8, std::nullopt).ok());
  EXPECT_EQ(strict(), std::nullopt);
  EXPECT_EQ(WitnessEnd(), 500U);
}

// A claim and a note meet: the one that comes second sees what the first has written.
TEST_F(ClusterFenceTest, ANoteAndAClaimLoseNothingOfEachOther) {
  FencedNode node(zookeeper_, store_);
  FencedNode other(zookeeper_, store_, false, 2);
  ASSERT_TRUE(node.Obtain().grant.ok());
  const auto before = *node.witness.Load("pay");
  ASSERT_TRUE(other.Obtain().grant.ok());
  const std::uint64_t end = WitnessEnd();
  ASSERT_TRUE(node.fence.NoteOrder({"pay", core::TagOrder::kStrict, 1, 7}, before).ok());
  EXPECT_EQ(WitnessEnd(), end);
  auto look = *other.fence.See("pay");
  look.state.version = *look.state.version - 1;  // as it was before the note
  look.state.strict.reset();
  EXPECT_EQ(*other.fence.Claim("pay", look, {end, end + 5}), ClusterFence::Verdict::kClaimed);
  EXPECT_EQ(look.state.strict, (core::StrictMark{7, 1})) << "the claim shows it";
  EXPECT_EQ(node.witness.Load("pay")->strict, (core::StrictMark{7, 1}));
}

// Reads are answered, no write ever is: a leader that hangs behind a follower that does not.
class HungWitness final : public core::Witness {
 public:
  explicit HungWitness(testing::FakeClock& clock) : clock_(clock) {}
  Result<core::WitnessState> Load(std::string_view) override { return core::WitnessState{}; }
  Result<core::WitnessStates> LoadAll(const std::vector<std::string>& tags) override {
    return core::WitnessStates(tags.size(), core::WitnessState{});
  }
  Result<bool> Raise(std::string_view, const core::WitnessState&, std::uint64_t, std::string_view) override {
    clock_.Advance(std::chrono::milliseconds{2000});
    return Error{ErrorCode::kOutcomeUnknown, "no reply", ""};
  }
  Result<bool> Claim(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                     std::string_view claim) override {
    return Raise(tag, seen, end, claim);
  }
  Result<bool> NoteStrict(std::string_view tag, const core::WitnessState& seen,
                          const std::optional<core::StrictMark>&) override {
    return Raise(tag, seen, 0, "");
  }

 private:
  testing::FakeClock& clock_;
};

TEST(ClusterFenceTimeouts, AClaimThatIsNotAnsweredEndsSoonAndFallsBack) {
  for (const bool fallback : {false, true}) {
    testing::FakeClock clock;
    testing::FakeRandom random;
    testing::RecordingLogger log;
    HungWitness witness(clock);
    ClusterFence fence(witness, fallback, clock, random, log);
    auto look = fence.See("pay");
    ASSERT_TRUE(look.ok());
    const MonotonicTime begin = clock.Monotonic();
    const auto verdict = fence.Claim("pay", *look, {1, 11});
    EXPECT_LE(clock.Monotonic() - begin, ClusterFence::kClaimPatience + std::chrono::milliseconds{2000});
    EXPECT_TRUE(fence.Status().away_since.has_value());
    if (fallback) {
      ASSERT_TRUE(verdict.ok());
      EXPECT_EQ(fence.Status().unfenced, 1U);
    } else {
      ASSERT_FALSE(verdict.ok());
      EXPECT_EQ(verdict.error().code, ErrorCode::kUnavailable);
    }
  }
}

TEST_F(ClusterFenceTest, CatchingUpNeverLowersIt) {
  FencedNode node(zookeeper_, store_);
  FencedNode other(zookeeper_, store_, false, 2);
  ASSERT_TRUE(node.Obtain().grant.ok());
  const auto seen = node.fence.SeeAll({"pay"});
  ASSERT_TRUE(other.Obtain(100).grant.ok());
  EXPECT_TRUE(node.fence.CatchUp("pay", *seen->at(0), 50).ok());
  EXPECT_EQ(WitnessEnd(), 111U);
}

TEST_F(ClusterFenceTest, ARecordThatCannotBeReadStopsItsTagAlone) {
  FencedNode node(zookeeper_, store_, /*fallback=*/true);
  store_.Put("mail", 1, 10);
  ASSERT_TRUE(node.Obtain().grant.ok());
  for (const std::string text : {"", "{}", R"({"end":12,"claim":"","by":"","at_ms":1})",
                                 R"({"end":"9223372036854775808","claim":"","by":"","at_ms":1})",
                                 R"({"end":"1","claim":"","by":"","at_ms":1,"more":1})"}) {
    zookeeper_.Set(PayTree().Witness("pay"), text);
    const Obtained refused = node.Obtain();
    ASSERT_FALSE(refused.grant.ok()) << text;
    EXPECT_EQ(refused.grant.error().code, ErrorCode::kRefused) << text;
    EXPECT_NE(refused.grant.error().message.find("/snowflake/pay/leafctl/witness/pay"), std::string::npos);
    EXPECT_TRUE(node.granter->Obtain("mail", ExactSizer(1)).grant.ok());
    const auto seen = node.fence.SeeAll({"pay", "mail"});
    ASSERT_TRUE(seen.has_value());
    EXPECT_FALSE(seen->at(0).has_value());
    EXPECT_TRUE(seen->at(1).has_value());
  }
}

TEST_F(ClusterFenceTest, TagsOfAnyNameHaveWitnessesOfTheirOwn) {
  FencedNode node(zookeeper_, store_);
  const std::vector<std::string> tags = {"a/b", "a%2Fb", ".",   "..",        ".a", "A",
                                         "a",   "ä",     "a b", "zookeeper", "a.b"};
  for (std::size_t i = 0; i < tags.size(); ++i) {
    store_.Put(tags[i], static_cast<std::int64_t>(1 + 100 * i), 10);
    ASSERT_TRUE(node.granter->Obtain(tags[i], ExactSizer(1)).grant.ok()) << tags[i];
  }
  const auto seen = node.fence.SeeAll(tags);
  ASSERT_TRUE(seen.has_value());
  for (std::size_t i = 0; i < tags.size(); ++i) EXPECT_EQ(seen->at(i)->end, 2 + 100 * i) << tags[i];
  EXPECT_EQ(zookeeper_.Children(PayTree().Witnesses()).size(), tags.size());
}

TEST(DaemonRoster, ListsTheLiveDaemonsAndTheirAddresses) {
  testing::MemoryZooKeeper zookeeper;
  testing::RecordingLogger log;
  testing::MemoryClient reader(zookeeper);
  EXPECT_TRUE(zookeeper::ReadDaemonRoster(reader, PayTree())->empty());
  const zookeeper::DaemonRecord record{"db1", "leafctl serve, process 7 on db1", {"http://127.0.0.1:8080"}};
  {
    testing::MemoryClient client(zookeeper);
    zookeeper::DaemonEntry entry(PayTree(), client, log);
    entry.Begin("one", record);
    zookeeper::DaemonRecord listed = record;
    listed.id = "one";
    EXPECT_EQ(*zookeeper::ReadDaemonRoster(reader, PayTree()), std::vector{listed});
    // A new session makes the entry anew.
    client.Expire();
    EXPECT_TRUE(zookeeper::ReadDaemonRoster(reader, PayTree())->empty());
    entry.Refresh();
    EXPECT_EQ(zookeeper::ReadDaemonRoster(reader, PayTree())->size(), 1U);
    entry.End();
    EXPECT_TRUE(zookeeper::ReadDaemonRoster(reader, PayTree())->empty());
  }
  zookeeper.Create(PayTree().Daemon("two"), "nonsense");
  const auto unreadable = zookeeper::ReadDaemonRoster(reader, PayTree());
  EXPECT_EQ(unreadable.error().code, ErrorCode::kRefused);
  EXPECT_NE(unreadable.error().message.find(PayTree().Daemon("two")), std::string::npos);
  EXPECT_NE(unreadable.error().hint.find("delete it"), std::string::npos)
      << "worker check does not look there";
}

TEST(DaemonRoster, AnEntryThatCouldNotBeMadeComesLater) {
  testing::MemoryZooKeeper zookeeper;
  testing::RecordingLogger log;
  testing::MemoryClient client(zookeeper);
  client.SetDown(true);
  zookeeper::DaemonEntry entry(PayTree(), client, log);
  entry.Begin("one", {"db1", "leafctl", {}});
  client.SetDown(false);
  entry.Refresh();
  EXPECT_EQ(zookeeper::ReadDaemonRoster(client, PayTree())->size(), 1U);
}

// Three nodes and two databases, each of which takes itself for the primary: nodes change sides, a database
// goes back to what it was or is repaired, replies are lost or late, sessions change, and nodes meet between
// any two calls. `fenced`: whether claims are made at all. Returns how many IDs were granted twice.
std::uint64_t PlayHistory(std::uint32_t seed, bool fenced) {
  std::mt19937 random(seed);
  testing::MemoryZooKeeper zookeeper;
  testing::MemorySegmentStore stores[2];
  for (auto& store : stores) store.Put("pay", 1, 10);
  std::vector<std::unique_ptr<FencedNode>> nodes;
  for (std::uint64_t i = 0; i < 3; ++i) {
    nodes.push_back(std::make_unique<FencedNode>(zookeeper, stores[random() % 2],
                                                 random() % 4 == 0 && !fenced, 1 + i + 10ULL * seed));
    if (!fenced) {
      nodes.back()->granter =
          std::make_unique<Granter>(stores[random() % 2], nodes.back()->marks, nullptr, nodes.back()->clock,
                                    nodes.back()->log, std::chrono::milliseconds{1000});
    }
  }
  std::vector<IdRange> granted;
  const auto take = [&](FencedNode& node) {
    const Obtained obtained = node.Obtain(1 + random() % 20);
    if (obtained.grant.ok()) granted.push_back(obtained.grant->range);
  };
  for (int step = 0; step < 120; ++step) {
    FencedNode& node = *nodes[random() % nodes.size()];
    FencedNode& other = *nodes[random() % nodes.size()];
    switch (random() % 12) {
      case 0:
        if (fenced) node.Use(stores[random() % 2]);
        break;
      case 1: {
        testing::MemorySegmentStore& store = stores[random() % 2];
        store.Put("pay",
                  1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(store.MaxId("pay"))),
                  10);
        break;
      }
      case 2: {
        std::int64_t highest = 1;
        for (const IdRange& range : granted)
          highest = std::max(highest, static_cast<std::int64_t>(range.end));
        for (auto& store : stores) store.Put("pay", std::max(highest, store.MaxId("pay")), 10);
        break;
      }
      case 3:
        node.client.Expire();
        node.client.LandLate();
        break;
      case 4:
      case 5:
      case 6:
        node.client.FailWrite(static_cast<int>(random() % 2), static_cast<Fault>(random() % 3));
        take(node);
        node.client.ClearFault();
        if (random() % 2 == 0) node.client.LandLate();
        break;
      case 7:
      case 8:
        if (&node != &other) node.client.BeforeCall(static_cast<int>(random() % 4), [&] { take(other); });
        take(node);
        break;
      default:
        take(node);
    }
  }
  for (const auto& node : nodes) node->client.LandLate();
  std::sort(granted.begin(), granted.end(),
            [](const IdRange& a, const IdRange& b) { return a.begin < b.begin; });
  std::uint64_t twice = 0;
  std::uint64_t end = 0;
  for (const IdRange& range : granted) {
    if (range.begin < end) twice += std::min(end, range.end) - range.begin;
    end = std::max(end, range.end);
  }
  EXPECT_FALSE(granted.empty());
  return twice;
}

TEST(ClusterFenceHistories, NoIdIsGrantedTwiceWhateverTheDatabasesSay) {
  for (std::uint32_t seed = 1; seed <= 150; ++seed) ASSERT_EQ(PlayHistory(seed, true), 0U) << seed;
}

TEST(ClusterFenceHistories, WithoutClaimsTheyGrantIdsTwice) {
  std::uint64_t twice = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) twice += PlayHistory(seed, false);
  EXPECT_GT(twice, 0U);
}

}  // namespace
}  // namespace leaf::service
