// Taking part in a cluster: whatever the servers forget, nothing is claimed before all grants of all nodes
// that take part are known again. A healthy cluster pays one heartbeat for that.
#include "leaf/zookeeper/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "leaf/service/cluster_fence.h"
#include "leaf/service/command_part.h"
#include "leaf/service/granter.h"
#include "leaf/zookeeper/cluster_records.h"
#include "leaf/zookeeper/recovery.h"
#include "leaf/zookeeper/witness.h"
#include "support/fakes.h"
#include "support/scale.h"
#include "support/zookeeper_fakes.h"

namespace leaf::zookeeper {
namespace {

using MemberState = core::MembershipStatus::State;
using WriteFault = testing::MemoryClient::Fault;

constexpr std::chrono::milliseconds kNoWatch{0};
constexpr std::chrono::seconds kSomeWatch{22};

// The part of a node that outlives its processes.
struct MemberDir {
  MemberDir(const Clock& clock, std::uint64_t seed)
      : name("node " + std::to_string(seed)), random(seed), marks(clock) {}
  const std::string name;
  testing::FakeRandom random;
  testing::MemoryMarkStore marks;
};

// Counts marks, and runs a hook before one is raised.
class WatchedMarks final : public core::MarkStore {
 public:
  explicit WatchedMarks(core::MarkStore& inner) : inner_(inner) {}
  std::function<void()> before_raise;
  int raises = 0;

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override { return inner_.Acquire(tag); }
  Result<std::vector<core::Mark>> LoadAll() override { return inner_.LoadAll(); }
  Result<core::Mark> Load(std::string_view tag) override { return inner_.Load(tag); }
  Result<void> Raise(const core::MarkRaise& raise) override {
    ++raises;
    if (before_raise) std::exchange(before_raise, nullptr)();
    return inner_.Raise(raise);
  }
  Result<void> BeginRun() override { return inner_.BeginRun(); }
  Result<void> EndRun(const std::vector<core::UnissuedIds>& unissued) override {
    return inner_.EndRun(unissued);
  }
  Result<std::vector<core::OrderRow>> LoadOrders() override { return inner_.LoadOrders(); }
  Result<void> KeepOrders(const std::vector<core::OrderRow>& rows) override {
    return inner_.KeepOrders(rows);
  }

 private:
  core::MarkStore& inner_;
};

// One process.
struct Member {
  Member(testing::MemoryZooKeeper& server, MemberDir& its_dir, core::SegmentStore& store, const Clock& clock,
         const Tree& tree, std::chrono::milliseconds watch, bool one_shot, bool is_passive)
      : dir(its_dir),
        client(server),
        marks(dir.marks),
        membership(tree,
                   {.host = "host",
                    .process = dir.name,
                    .watch = watch,
                    .one_shot = one_shot,
                    .is_passive = is_passive},
                   client, dir.marks, clock, dir.random, log),
        witness(tree, dir.name, client, clock, &membership),
        fence(witness, /*fallback=*/false, clock, dir.random, log, &membership),
        granter(store, marks, &fence, clock, log, std::chrono::milliseconds{1000}) {}

  // As the daemon does.
  void Step() {
    fence.StepMembership([this]() -> Result<service::ClusterFence::KnownEnds> {
      ++contributions;
      service::ClusterFence::KnownEnds known;
      LEAF_ASSIGN_OR_RETURN(const auto all, dir.marks.LoadAll());
      for (const core::Mark& mark : all) known.ends.emplace_back(mark.tag, std::max(mark.end, mark.witness));
      return known;
    });
  }
  service::Obtained Obtain(const std::string& tag = "pay") {
    return granter.Obtain(tag, service::ExactSizer(10));
  }
  bool open() const { return membership.Ready().ok(); }
  MemberState state() const { return membership.Status().state; }

  MemberDir& dir;
  testing::MemoryClient client;
  testing::RecordingLogger log;
  WatchedMarks marks;
  Membership membership;
  ZookeeperWitness witness;
  service::ClusterFence fence;
  service::Granter granter;
  int contributions = 0;
};

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() { Reset(); }

  // Begins anew, with empty servers and two tags.
  void Reset() {
    server_.Wipe();
    server_.Create("/snowflake", "");
    for (const char* const tag : {"pay", "mail"}) store_.Put(tag, 1, 10);
    granted_.clear();
  }
  std::unique_ptr<MemberDir> Dir() { return std::make_unique<MemberDir>(clock_, ++dirs_); }
  std::unique_ptr<Member> Start(MemberDir& dir, std::chrono::milliseconds watch = kNoWatch,
                                bool one_shot = false, bool is_passive = false) {
    return std::make_unique<Member>(server_, dir, store_, clock_, tree_, watch, one_shot, is_passive);
  }
  // A command beside a daemon.
  std::unique_ptr<Member> StartPassive(MemberDir& dir) {
    return Start(dir, kSomeWatch, /*one_shot=*/true, /*is_passive=*/true);
  }
  service::CommandPart PartOf(Member& member) {
    return {{.fence = member.fence, .membership = member.membership, .marks = member.marks, .clock = clock_},
            kSomeWatch};
  }
  // A node that may claim.
  std::unique_ptr<Member> StartOpen(MemberDir& dir) {
    auto member = Start(dir);
    member->Step();
    EXPECT_TRUE(member->open()) << member->membership.Status().why;
    return member;
  }
  // A second node, which leaves, and is covered by the first.
  void StartAndCover(MemberDir& dir, Member& one) {
    auto two = StartOpen(dir);
    Pass(std::chrono::seconds{6}, {&one, two.get()});
    two->membership.Leave();
    two.reset();
    Pass(std::chrono::minutes{1}, {&one});
  }
  // Lets time pass in which these members are up.
  void Pass(std::chrono::milliseconds time, std::initializer_list<Member*> members) {
    for (; time.count() > 0; time -= core::kMembershipPoll) {
      clock_.Advance(std::min(time, core::kMembershipPoll));
      for (Member* const member : members) member->Step();
    }
  }
  // A grant that has to succeed.
  IdRange Take(Member& member, const std::string& tag = "pay") {
    const auto obtained = member.Obtain(tag);
    EXPECT_TRUE(obtained.grant.ok()) << obtained.grant.error().message;
    if (!obtained.grant.ok()) return {};
    granted_.push_back({tag, obtained.grant->range});
    return obtained.grant->range;
  }
  // A grant that may be refused.
  void Try(Member& member, const std::string& tag = "pay") {
    if (const auto obtained = member.Obtain(tag); obtained.grant.ok())
      granted_.push_back({tag, obtained.grant->range});
  }
  // IDs that were granted a second time.
  std::uint64_t Twice() {
    std::sort(granted_.begin(), granted_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second.begin) < std::pair(b.first, b.second.begin);
    });
    std::uint64_t twice = 0;
    for (std::size_t i = 1; i < granted_.size(); ++i) {
      if (granted_[i].first == granted_[i - 1].first && granted_[i].second.begin < granted_[i - 1].second.end)
        ++twice;
    }
    return twice;
  }
  std::string Id(MemberDir& dir) { return dir.marks.LoadMemory(tree_.Base())->id; }
  std::optional<NodeRecord> Record(MemberDir& dir) {
    const auto data = server_.Data(tree_.Node(Id(dir)));
    if (!data) return std::nullopt;
    return *ParseNode(*data);
  }
  core::ClusterMemory Memory(MemberDir& dir) { return *dir.marks.LoadMemory(tree_.Base()); }
  std::optional<IncarnationRecord> Incarnation() {
    const auto data = server_.Data(tree_.Incarnation());
    if (!data) return std::nullopt;
    return *ParseIncarnation(*data);
  }
  std::uint64_t WitnessEnd(const std::string& tag = "pay") {
    const auto data = server_.Data(tree_.Witness(tag));
    return data ? ParseWitness(*data)->end : 0;
  }
  // The database and ZooKeeper at one moment.
  struct Moment {
    testing::MemoryZooKeeper::Nodes nodes;
    std::int64_t pay = 0;
    std::int64_t mail = 0;
  };
  Moment Now() { return {server_.Snapshot(), store_.MaxId("pay"), store_.MaxId("mail")}; }
  void Restore(const Moment& moment) {
    server_.Restore(moment.nodes);
    store_.Put("pay", moment.pay, 10);
    store_.Put("mail", moment.mail, 10);
  }
  // A member that may claim has made known again what it was granted, and so have all nodes that are counted
  // on.
  void ExpectHonest(std::initializer_list<Member*> members, const std::string& where) {
    for (Member* const member : members) {
      const auto checks = member->membership.Checks();
      if (!checks.ok() || !server_.Apply(*checks, 0).done()) continue;  // its claims would fail
      ASSERT_TRUE(Incarnation().has_value()) << where;
      EXPECT_TRUE(Incarnation()->settled) << where;
      EXPECT_EQ(Record(member->dir)->contributed, Incarnation()->number) << where;
      EXPECT_FALSE(Record(member->dir)->left) << where;
      const auto marks = *member->dir.marks.LoadAll();
      for (const core::Mark& mark : marks)
        EXPECT_GE(WitnessEnd(mark.tag), std::max(mark.end, mark.witness)) << where;
    }
  }

  const Tree tree_ = *Tree::Make("pay");
  testing::FakeClock clock_;
  testing::MemoryZooKeeper server_{clock_};
  testing::MemorySegmentStore store_;
  std::uint64_t dirs_ = 0;
  std::vector<std::pair<std::string, IdRange>> granted_;
};

// ---- the first claim
// ----------------------------------------------------------------------------------------------------------

TEST_F(MembershipTest, TheFirstNodeOfACluster) {
  const auto dir = Dir();
  const auto node = Start(*dir);
  EXPECT_EQ(node->state(), MemberState::kJoining);
  EXPECT_EQ(node->Obtain().grant.error().code, ErrorCode::kUnavailable);
  node->Step();
  ASSERT_TRUE(node->open()) << node->membership.Status().why;
  EXPECT_EQ(Incarnation()->number, 1U);
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(Record(*dir)->contributed, 1U);
  EXPECT_FALSE(Record(*dir)->left);
  const core::ClusterMemory memory = *dir->marks.LoadMemory(tree_.Base());
  EXPECT_EQ(memory.incarnation, 1U);
  EXPECT_EQ(memory.beat, Record(*dir)->beat);
  EXPECT_TRUE(memory.covered.empty());
  EXPECT_EQ(memory.at, clock_.Wall());
  EXPECT_EQ(Take(*node), (IdRange{1, 11}));
  EXPECT_EQ(node->membership.Status().nodes, 1U);
  EXPECT_EQ(node->membership.Status().went_back, 0U);
}

TEST_F(MembershipTest, ANodeThatIsNewWatchesBeforeItsFirstClaim) {
  const auto dir = Dir();
  auto node = Start(*dir, kSomeWatch);
  node->Step();
  for (int i = 0; i < 43; ++i) {
    ASSERT_FALSE(node->open()) << i;
    EXPECT_EQ(node->state(), MemberState::kWatching);
    EXPECT_TRUE(Record(*dir)->left) << "no node has to count on it";
    EXPECT_EQ(dir->marks.LoadMemory(tree_.Base())->incarnation, 0U) << "if it ends now, it is new once more";
    Pass(core::kMembershipPoll, {node.get()});
  }
  EXPECT_EQ(node->Obtain().grant.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(store_.MaxId("pay"), 1) << "a refusal burns no IDs";
  // Another process of it begins from the start.
  node = Start(*dir, kSomeWatch);
  node->Step();
  Pass(kSomeWatch - core::kMembershipPoll, {node.get()});
  EXPECT_FALSE(node->open());
  Pass(core::kMembershipPoll, {node.get()});
  EXPECT_TRUE(node->open()) << node->membership.Status().why;
  EXPECT_FALSE(Record(*dir)->left);
}

TEST_F(MembershipTest, AWatchThatLostTouchBeginsAgain) {
  for (const int gap : {6, 9}) {
    Reset();
    const auto dir = Dir();
    const auto node = Start(*dir, kSomeWatch);
    node->Step();
    Pass(std::chrono::seconds{10}, {node.get()});
    node->client.SetDown(true);
    Pass(std::chrono::seconds{gap}, {node.get()});
    node->client.SetDown(false);
    Pass(std::chrono::seconds{22 - 10 - gap}, {node.get()});
    EXPECT_EQ(node->open(), gap == 6) << gap;
    if (gap == 6) continue;
    Pass(std::chrono::seconds{18}, {node.get()});
    EXPECT_FALSE(node->open());
    Pass(std::chrono::seconds{4}, {node.get()});
    EXPECT_TRUE(node->open());
  }
}

// Version 0.1 kept marks, and nothing about its cluster.
TEST_F(MembershipTest, ADirectoryOfAnOlderVersionMakesItsMarksKnownAndWatches) {
  const auto dir = Dir();
  ASSERT_TRUE(dir->marks.Raise({"pay", 501, std::nullopt}).ok());
  const auto node = Start(*dir, kSomeWatch);
  node->Step();
  EXPECT_FALSE(node->open()) << "its marks may be of another cluster";
  EXPECT_EQ(WitnessEnd(), 501U);
  EXPECT_EQ(node->contributions, 1);
  // What other nodes were granted is no mark of this node.
  Reset();
  const auto other = Dir();
  ASSERT_TRUE(other->marks.RaiseWitnesses({{"pay", 501}}).ok());
  const auto watcher = Start(*other, kSomeWatch);
  watcher->Step();
  EXPECT_FALSE(watcher->open());
}

TEST_F(MembershipTest, ARestartGoesOnAtOnce) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Take(*node);
  Pass(std::chrono::seconds{6}, {node.get()});
  node.reset();
  clock_.Advance(std::chrono::seconds{3});
  const int saves = dir->marks.saves();
  node = Start(*dir, kSomeWatch);
  node->Step();
  EXPECT_TRUE(node->open()) << node->membership.Status().why;
  EXPECT_EQ(node->client.calls(), 5)
      << "its record and the incarnation, the list of nodes, the daemons, their records, and its beat";
  EXPECT_EQ(node->client.writes(), 1);
  EXPECT_EQ(node->contributions, 0);
  EXPECT_EQ(dir->marks.saves(), saves + 1);
  EXPECT_EQ(Take(*node), (IdRange{11, 21}));
}

// Two processes of one directory begin at the same moment, a daemon and a command.
class SecondToBegin final : public core::ClusterMemoryStore {
 public:
  explicit SecondToBegin(core::ClusterMemoryStore& inner) : inner_(inner) {}
  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) override {
    auto memory = inner_.LoadMemory(cluster);
    // The first process saved its memory in between.
    if (memory.ok() && memory->id.empty())
      LEAF_RETURN_IF_ERROR(inner_.SaveMemory(cluster, {"first", 0, 0, {}, {}, {}}));
    return memory;
  }
  Result<void> SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) override {
    return inner_.SaveMemory(cluster, memory);
  }
  Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) override {
    return inner_.RaiseWitnesses(ends);
  }

 private:
  core::ClusterMemoryStore& inner_;
};

TEST_F(MembershipTest, TwoProcessesThatBeginWithADirectoryAtOnceAreOneNode) {
  const auto dir = Dir();
  SecondToBegin store(dir->marks);
  testing::MemoryClient client(server_);
  testing::RecordingLogger log;
  Membership membership(tree_, {.host = "h", .process = "p"}, client, store, clock_, dir->random, log);
  membership.Step([]() -> Result<void> { return {}; });
  EXPECT_TRUE(membership.Ready().ok());
  EXPECT_EQ(Id(*dir), "first");
  EXPECT_EQ(server_.Children(tree_.Nodes()), std::vector<std::string>{"first"});
}

// ---- ZooKeeper goes back
// ------------------------------------------------------------------------------------------------------

TEST_F(MembershipTest, ARestoreMakesTheNextClaimFailAndRaisesTheIncarnation) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {node.get()});
  Take(*node);
  Take(*node);
  server_.Restore(backup);
  // This node has no mark of the tag, so that only its own record shows that ZooKeeper went back.
  const auto refused = node->Obtain("mail");
  ASSERT_FALSE(refused.grant.ok());
  EXPECT_EQ(refused.grant.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(WitnessEnd("mail"), 0U);
  EXPECT_FALSE(node->open());
  node->Step();
  EXPECT_TRUE(node->open()) << node->membership.Status().why;
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(WitnessEnd(), 31U);
  EXPECT_EQ(node->membership.Status().went_back, 1U);
  EXPECT_EQ(node->membership.Status().incarnation, 2U);
  EXPECT_EQ(node->log.Count(LogLevel::kError, "ZooKeeper lost data"), 1U);
  EXPECT_EQ(dir->marks.LoadMemory(tree_.Base())->incarnation, 2U);
  EXPECT_EQ(Take(*node, "mail"), (IdRange{11, 21})) << "what was reserved for the refused claim is lost";
}

TEST_F(MembershipTest, AHeartbeatFindsItOutWithoutAClaim) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {node.get()});
  Take(*node);
  server_.Restore(backup);
  Pass(kNodeHeartbeat, {node.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(WitnessEnd(), 21U);
  EXPECT_TRUE(node->open());
}

TEST_F(MembershipTest, AnEmptyVolume) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Take(*node);
  for (const bool running : {true, false}) {
    server_.Wipe();
    server_.Create("/snowflake", "");
    if (!running) node = Start(*dir, kSomeWatch);
    const std::uint64_t before = dir->marks.LoadMemory(tree_.Base())->incarnation;
    Pass(kNodeHeartbeat, {node.get()});
    EXPECT_EQ(Incarnation()->number, before + 1);
    EXPECT_EQ(WitnessEnd(), dir->marks.Load("pay")->end);
    EXPECT_EQ(node->open(), running) << "its watch is for those that no other node knows of";
    Pass(kSomeWatch, {node.get()});
    EXPECT_TRUE(node->open()) << node->membership.Status().why;
    Take(*node);
  }
  EXPECT_EQ(Twice(), 0U);
}

// A new node makes the incarnation of an empty volume, and sees no node that it would have to wait for. Nodes
// that know more raise the incarnation while the new one watches.
TEST_F(MembershipTest, AnEmptyVolumeWithANodeThatIsNew) {
  const auto old_dir = Dir();
  const auto new_dir = Dir();
  const auto old_node = StartOpen(*old_dir);
  const Moment empty = Now();
  Take(*old_node);
  Take(*old_node);
  Restore(empty);
  server_.Wipe();
  server_.Create("/snowflake", "");
  const auto new_node = Start(*new_dir, kSomeWatch);
  new_node->Step();
  Try(*new_node);
  Pass(std::chrono::seconds{60}, {new_node.get(), old_node.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(new_node->Obtain().grant.error().code, ErrorCode::kFrozen);
  store_.Put("pay", 21, 10);
  EXPECT_EQ(Take(*new_node).begin, 21U);
  Take(*old_node);
  EXPECT_EQ(Twice(), 0U);
}

TEST_F(MembershipTest, NothingIsClaimedUntilAllHaveContributed) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  const auto three = StartOpen(*dirs[2]);
  Take(*one);
  const Moment backup = Now();
  Pass(std::chrono::seconds{6}, {one.get(), two.get(), three.get()});
  Take(*one);
  Take(*two);
  Take(*three);
  Restore(backup);
  one->Step();
  ASSERT_TRUE(one->open()) << "it has not looked yet";
  EXPECT_FALSE(one->Obtain("mail").grant.ok());
  one->Step();
  EXPECT_EQ(one->state(), MemberState::kGathering);
  EXPECT_EQ(one->membership.Status().waiting_for.size(), 2U);
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_FALSE(Incarnation()->settled);
  // The other one has found out, and this one has not: the record is what it was, but the incarnation is not.
  EXPECT_TRUE(two->open());
  EXPECT_EQ(two->Obtain("mail").grant.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(two->open());
  two->Step();
  EXPECT_EQ(two->contributions, 2) << "when it joined, and now";
  EXPECT_EQ(Record(*dirs[1])->contributed, 2U);
  EXPECT_FALSE(two->open()) << "the third has not";
  Pass(std::chrono::minutes{1}, {one.get(), two.get()});
  EXPECT_FALSE(one->open() || two->open());
  EXPECT_EQ(one->membership.Status().waiting_for.size(), 1U);
  EXPECT_NE(one->membership.Ready().error().hint.find("cluster recover --confirm pay"), std::string::npos);
  Pass(core::kMembershipPoll, {three.get(), one.get(), two.get()});
  EXPECT_TRUE(one->open() && two->open() && three->open());
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(WitnessEnd(), 41U);
  for (Member* const node : {one.get(), two.get(), three.get()}) {
    // The table is below the witness: frozen until it is repaired.
    EXPECT_EQ(node->Obtain().grant.error().code, ErrorCode::kFrozen);
  }
  store_.Put("pay", 41, 10);
  for (Member* const node : {one.get(), two.get(), three.get()}) Take(*node);
  EXPECT_EQ(Twice(), 0U);
}

// It joined after the moment of the backup: nothing in ZooKeeper tells of it.
TEST_F(MembershipTest, ANodeThatOnlyAnotherOneRemembersIsPutBackAndWaitedFor) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const Moment backup = Now();
  auto two = StartOpen(*dirs[1]);
  Take(*two);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  EXPECT_EQ(dirs[0]->marks.LoadMemory(tree_.Base())->others, std::vector{Id(*dirs[1])});
  two.reset();
  Restore(backup);
  ASSERT_FALSE(Record(*dirs[1]).has_value());
  Pass(std::chrono::minutes{2}, {one.get()});
  EXPECT_EQ(one->state(), MemberState::kGathering);
  ASSERT_TRUE(Record(*dirs[1]).has_value());
  EXPECT_FALSE(Record(*dirs[1])->left);
  EXPECT_EQ(WitnessEnd(), 0U);
  two = Start(*dirs[1], kSomeWatch);
  two->Step();
  EXPECT_EQ(WitnessEnd(), 11U);
  Pass(kSomeWatch + kSomeWatch, {one.get(), two.get()});
  EXPECT_TRUE(one->open() && two->open());
  EXPECT_EQ(one->Obtain().grant.error().code, ErrorCode::kFrozen);
}

// The same where an earlier process of the directory saw the other node: what a node remembers is on disk.
TEST_F(MembershipTest, TheMemoryOfOtherNodesOutlivesTheProcess) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  const Moment backup = Now();
  auto two = StartOpen(*dirs[1]);
  Take(*two);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  one.reset();
  two.reset();
  Restore(backup);
  one = Start(*dirs[0]);
  Pass(std::chrono::seconds{30}, {one.get()});
  EXPECT_FALSE(one->open());
  EXPECT_EQ(one->membership.Status().waiting_for.size(), 1U);
  EXPECT_TRUE(Record(*dirs[1])->claims) << "others are to remember it, too";
}

// It joined after the moment of the backup, while the node that finds out was down: it shows up itself.
TEST_F(MembershipTest, ANodeThatNoOtherKnowsOfHasTheWatchToShowUp) {
  for (const bool away_again : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir()};
    auto one = StartOpen(*dirs[0]);
    Take(*one);
    Pass(std::chrono::seconds{6}, {one.get()});
    one.reset();
    const Moment backup = Now();
    const auto two = Start(*dirs[1]);
    two->Step();
    ASSERT_TRUE(two->open()) << two->membership.Status().why;
    Take(*two);
    Restore(backup);
    core::ClusterMemory more = Memory(*dirs[0]);
    more.beat += 1;
    ASSERT_TRUE(dirs[0]->marks.SaveMemory(tree_.Base(), more).ok());
    one = Start(*dirs[0], kSomeWatch);
    Pass(std::chrono::seconds{20}, {one.get()});
    EXPECT_EQ(one->state(), MemberState::kGathering);
    EXPECT_TRUE(one->membership.Status().waiting_for.empty());
    EXPECT_NE(one->membership.Status().why.find("have 22s to report"), std::string::npos);
    EXPECT_EQ(Incarnation()->number, 2U);
    EXPECT_FALSE(Incarnation()->settled);
    if (away_again) {
      // The servers are away for longer than the watch, and then this node reaches them first.
      one->client.SetDown(true);
      Pass(kSomeWatch + kNodeHeartbeat, {one.get()});
      one->client.SetDown(false);
      Pass(kNodeHeartbeat, {one.get()});
      EXPECT_EQ(one->state(), MemberState::kGathering) << one->membership.Status().why;
      Try(*one);
    }
    two->client.SetDown(false);
    Pass(kNodeHeartbeat, {two.get(), one.get()});
    EXPECT_EQ(WitnessEnd(), 21U) << "it made known what it was granted";
    Pass(kSomeWatch, {two.get(), one.get()});
    EXPECT_TRUE(one->open() && two->open());
    EXPECT_TRUE(Incarnation()->settled);
    Try(*one);
    EXPECT_EQ(Twice(), 0U);
  }
}

TEST_F(MembershipTest, ANodeThatLeftIsWaitedForWhereItsGrantsMayNotBeKnown) {
  for (const bool covered : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir()};
    const auto one = StartOpen(*dirs[0]);
    const auto two = StartOpen(*dirs[1]);
    Take(*two);
    Pass(std::chrono::seconds{6}, {one.get(), two.get()});
    two->membership.Leave();
    EXPECT_FALSE(two->open());
    EXPECT_TRUE(Record(*dirs[1])->left);
    Moment backup = Now();
    backup.nodes.erase(tree_.Witness("pay"));
    Pass(std::chrono::seconds{6}, {one.get()});
    // It alone knows what it was granted, until the other node covers it.
    if (covered) Pass(kNodeGone + kNodeHeartbeat, {one.get()});
    EXPECT_EQ(dirs[0]->marks.LoadMemory(tree_.Base())->others.empty(), covered);
    Restore(backup);
    Pass(std::chrono::seconds{30}, {one.get()});
    EXPECT_EQ(Incarnation()->number, 2U);
    EXPECT_EQ(one->open(), covered);
    EXPECT_EQ(WitnessEnd(), covered ? 11U : 0U);
  }
}

// No node remembers it, and it had left by the moment of the backup.
TEST_F(MembershipTest, ANodeThatLeftBeforeIsNotWaitedFor) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto two = StartOpen(*dirs[1]);
  Take(*two);
  two->membership.Leave();
  Moment backup = Now();
  const auto one = StartOpen(*dirs[0]);
  Pass(kNodeGone + kNodeHeartbeat, {one.get()});
  Restore(backup);
  Pass(std::chrono::seconds{30}, {one.get()});
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
  EXPECT_EQ(Incarnation()->number, 2U);
}

TEST_F(MembershipTest, ANodeThatIsGoneIsNoLongerCountedOnAndItsGrantsAreRemembered) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  const Moment backup = Now();
  Take(*two, "mail");
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  two.reset();
  Pass(kNodeGone - std::chrono::seconds{10}, {one.get()});
  EXPECT_FALSE(Record(*dirs[1])->left);
  EXPECT_EQ(dirs[0]->marks.Load("mail")->witness, 0U);
  Pass(std::chrono::seconds{20}, {one.get()});
  EXPECT_TRUE(Record(*dirs[1])->left);
  EXPECT_EQ(dirs[0]->marks.Load("mail")->witness, 11U);
  EXPECT_EQ(dirs[0]->marks.Load("mail")->end, 0U);
  EXPECT_TRUE(dirs[0]->marks.LoadMemory(tree_.Base())->others.empty());
  EXPECT_TRUE(one->open()) << "nothing of this keeps it from claiming";
  EXPECT_EQ(one->membership.Status().went_back, 0U);
  // In the backup it is still there, and may have been granted more than the other node knows.
  Restore(backup);
  Pass(std::chrono::seconds{30}, {one.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(WitnessEnd("mail"), 11U);
}

// Sooner than a silent one: it gets no more grants.
TEST_F(MembershipTest, ANodeThatHasLeftIsCoveredSoon) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Take(*two, "mail");
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  two->membership.Leave();
  Pass(kNodeLeft, {one.get()});
  EXPECT_EQ(Memory(*dirs[0]).others, std::vector{Id(*dirs[1])});
  Pass(kNodeHeartbeat + kNodeHeartbeat, {one.get()});
  EXPECT_TRUE(Memory(*dirs[0]).others.empty());
  EXPECT_EQ(Memory(*dirs[0]).covered, (std::vector{std::pair(Id(*dirs[1]), Record(*dirs[1])->beat)}));
  EXPECT_EQ(dirs[0]->marks.Load("mail")->witness, 11U);
}

// Many commands that come and go must not make each daemon read all witnesses with each heartbeat.
TEST_F(MembershipTest, AllWitnessesAreReadOnceInAWhile) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  const auto three = StartOpen(*dirs[2]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get(), three.get()});
  two->membership.Leave();
  Pass(std::chrono::seconds{10}, {one.get(), three.get()});
  three->membership.Leave();
  std::optional<WallTime> first;
  std::optional<WallTime> second;
  for (int i = 0; i < 400; ++i) {
    Pass(core::kMembershipPoll, {one.get()});
    const std::size_t covered = Memory(*dirs[0]).covered.size();
    if (!first && covered > 0) first = clock_.Wall();
    if (!second && covered > 1) second = clock_.Wall();
  }
  ASSERT_TRUE(first && second);
  EXPECT_GE(*second - *first, kCoverInterval);
  EXPECT_LE(*second - *first, kCoverInterval + kNodeHeartbeat + kNodeHeartbeat);
}

TEST_F(MembershipTest, AWitnessThatCannotBeReadIsSkippedByTheNodeThatCovers) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Take(*two);
  Take(*two, "mail");
  server_.Set(tree_.Witness("pay"), "nonsense");
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  two->membership.Leave();
  Pass(std::chrono::minutes{1}, {one.get()});
  EXPECT_EQ(Memory(*dirs[0]).covered.size(), 1U);
  EXPECT_EQ(dirs[0]->marks.Load("mail")->witness, 11U);
  EXPECT_EQ(dirs[0]->marks.Load("pay")->witness, 0U);
}

// The other node makes its grants known, too: in the tree that came back it had not left yet.
TEST_F(MembershipTest, AMissingNodeThatIsCoveredIsNotWaitedFor) {
  for (const bool went_on : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir()};
    const auto one = StartOpen(*dirs[0]);
    auto two = StartOpen(*dirs[1]);
    Take(*two);
    Pass(std::chrono::seconds{6}, {one.get(), two.get()});
    Moment backup = Now();
    backup.nodes.erase(tree_.Witness("pay"));
    two->membership.Leave();
    two.reset();
    Pass(std::chrono::minutes{1}, {one.get()});
    ASSERT_TRUE(Memory(*dirs[0]).others.empty());
    Restore(backup);
    if (went_on) {
      // It was started on the tree that came back, before the other one looked: what is known of its grants
      // is not enough any more.
      NodeRecord on = *Record(*dirs[1]);
      on.beat += 10;
      server_.Set(tree_.Node(Id(*dirs[1])), FormatNode(on));
    }
    Pass(std::chrono::seconds{30}, {one.get()});
    EXPECT_EQ(Incarnation()->number, 2U);
    EXPECT_EQ(one->open(), !went_on) << one->membership.Status().why;
    EXPECT_EQ(Record(*dirs[1])->left, !went_on);
    EXPECT_EQ(Record(*dirs[1])->contributed, 1U) << "if it comes back, it contributes";
    EXPECT_EQ(WitnessEnd(), 11U) << "what is known of it is";
  }
}

// Of one that was put back by the others nothing but the id is known.
TEST_F(MembershipTest, AMissingNodeIsNamedByWhatIsKnownOfIt) {
  NodeRecord record;
  EXPECT_EQ(NodeText("7d3e", record),
            "7d3e (its host is not known; the table clusters of its marks.db has this id)");
  record.process = "serve, process 7";
  record.host = "db1";
  EXPECT_EQ(NodeText("7d3e", record),
            "7d3e (serve, process 7 on db1, last there at 1970-01-01T00:00:00.000Z)");
}

// ---- M2: the servers go back, and a node that cannot tell starts before those that can have found out

// All that it knows of is covered; the other one was granted more since.
TEST_F(MembershipTest, ANodeThatKnowsOnlyNodesThatAreCoveredWaits) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  StartAndCover(*dirs[1], *one);
  ASSERT_TRUE(Memory(*dirs[0]).others.empty());
  one->membership.Leave();
  one.reset();
  clock_.Advance(std::chrono::seconds{20});
  const Moment backup = Now();
  auto two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + kSomeWatch, {two.get()});
  Take(*two);
  Restore(backup);
  one = Start(*dirs[0], kSomeWatch);
  Pass(std::chrono::seconds{12}, {one.get()});  // the other one's session has to run out
  EXPECT_FALSE(one->open());
  Try(*one);
  Pass(kSomeWatch, {two.get(), one.get()});
  Pass(kSomeWatch, {two.get(), one.get()});
  EXPECT_TRUE(one->open() && two->open()) << one->membership.Status().why;
  Try(*one);
  EXPECT_EQ(Twice(), 0U);
}

// Two that were down, and neither knows the third.
TEST_F(MembershipTest, NodesThatWaitDoNotVouchForEachOther) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  one.reset();
  two.reset();
  clock_.Advance(std::chrono::seconds{20});
  const Moment backup = Now();
  const auto three = Start(*dirs[2], kSomeWatch);
  Pass(kSomeWatch + kSomeWatch, {three.get()});
  Take(*three);
  Restore(backup);
  one = Start(*dirs[0], kSomeWatch);
  two = Start(*dirs[1], kSomeWatch);
  Pass(std::chrono::seconds{12}, {one.get(), two.get()});
  EXPECT_FALSE(one->open() || two->open());
  Try(*one);
  Try(*two);
  Pass(kSomeWatch + kSomeWatch, {three.get(), one.get(), two.get()});
  EXPECT_TRUE(one->open() && two->open() && three->open()) << one->membership.Status().why;
  Try(*one);
  EXPECT_EQ(Twice(), 0U);
}

// It could claim nothing when it was stopped; or its process began while it was cut off.
TEST_F(MembershipTest, ANodeThatWasAwayWaitsWhateverItDidBefore) {
  for (const bool gathers : {true, false}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir(), Dir()};
    auto one = Start(*dirs[0], kSomeWatch);
    const auto two = Start(*dirs[1], kSomeWatch);
    Pass(kSomeWatch + kNodeHeartbeat, {one.get(), two.get()});
    ASSERT_TRUE(one->open() && two->open());
    if (gathers) {
      // The servers went back once, and a third node is missing.
      server_.Create(tree_.Node("third"),
                     FormatNode({1, 1, true, false, "", "host", "third", clock_.Wall()}));
      Pass(std::chrono::seconds{6}, {one.get(), two.get()});
      const Moment earlier = Now();
      Pass(std::chrono::seconds{6}, {one.get(), two.get()});
      Restore(earlier);
      Pass(std::chrono::seconds{10}, {one.get(), two.get()});
      ASSERT_EQ(one->state(), MemberState::kGathering);
      NodeRecord gone = *ParseNode(*server_.Data(tree_.Node("third")));
      gone.left = true;
      server_.Set(tree_.Node("third"), FormatNode(gone));
    } else {
      one.reset();
      one = Start(*dirs[0], kSomeWatch);
      one->client.SetDown(true);
      Pass(core::kMembershipPoll, {one.get()});
    }
    Pass(std::chrono::seconds{30}, {two.get()});
    ASSERT_TRUE(two->open()) << two->membership.Status().why;
    const Moment backup = Now();
    Pass(std::chrono::seconds{6}, {two.get()});
    Take(*two);
    Restore(backup);
    one->client.SetDown(false);
    one->Step();
    EXPECT_FALSE(one->open()) << gathers;
    Try(*one);
    Pass(kSomeWatch + kSomeWatch, {two.get(), one.get()});
    EXPECT_TRUE(one->open() && two->open()) << one->membership.Status().why;
    Try(*one);
    EXPECT_EQ(Twice(), 0U) << gathers;
  }
}

// In the tree that came back it has left, and another node has covered it. To make its grants known takes it
// longer than the watch.
TEST_F(MembershipTest, ANodeThatContributesIsWaitedForAlsoWhereItHadLeft) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  StartAndCover(*dirs[1], *one);
  const Moment backup = Now();
  Pass(std::chrono::seconds{6}, {one.get()});
  one.reset();
  auto two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + kSomeWatch, {two.get()});
  Take(*two);
  two.reset();
  Restore(backup);
  one = Start(*dirs[0], kSomeWatch);
  one->Step();
  ASSERT_EQ(Incarnation()->number, 2U);
  two = Start(*dirs[1], kSomeWatch);
  for (int i = 0; i < 80; ++i) {
    two->membership.Step([]() -> Result<void> { return Error{ErrorCode::kUnavailable, "it goes on", ""}; });
    Pass(core::kMembershipPoll, {one.get()});
  }
  EXPECT_EQ(one->state(), MemberState::kGathering);
  EXPECT_FALSE(Incarnation()->settled);
  Pass(kSomeWatch, {two.get(), one.get()});
  EXPECT_TRUE(one->open() && two->open()) << one->membership.Status().why;
  Try(*one);
  EXPECT_EQ(Twice(), 0U);
}

// M4b. The old record that comes back is one that was covered, and the node has gone on since.
TEST_F(MembershipTest, ANodeThatWentOnAfterItWasCoveredIsWaitedFor) {
  // Whether the process that saw it go on is still there, or only its state directory.
  for (const bool running : {true, false}) {
    // Where a third node never saw that, it must not go by what it has covered.
    for (const bool third : {true, false}) {
      Reset();
      const auto dirs = std::array{Dir(), Dir(), Dir()};
      auto one = StartOpen(*dirs[0]);
      auto two = StartOpen(*dirs[1]);
      auto three = third ? StartOpen(*dirs[2]) : nullptr;
      Take(*two);
      const auto pass = [&](std::chrono::milliseconds time) {
        clock_.Advance(std::chrono::milliseconds{1});
        three ? Pass(time, {one.get(), three.get()}) : Pass(time, {one.get()});
      };
      pass(std::chrono::seconds{6});
      two->membership.Leave();
      pass(std::chrono::seconds{6});
      const Moment backup = Now();
      two.reset();
      pass(std::chrono::minutes{1});
      ASSERT_TRUE(Memory(*dirs[0]).others.empty() || third);
      three.reset();
      two = Start(*dirs[1]);
      Pass(kNodeHeartbeat + kNodeHeartbeat, {one.get(), two.get()});
      Take(*two);
      Pass(kNodeHeartbeat, {one.get(), two.get()});
      two.reset();
      if (!running) one.reset();
      Restore(backup);
      ASSERT_TRUE(Record(*dirs[1])->left);
      if (!running) one = Start(*dirs[0]);
      if (third) three = Start(*dirs[2]);
      pass(std::chrono::minutes{2});
      EXPECT_FALSE(one->open()) << running << third;
      EXPECT_FALSE(three && three->open()) << running << third;
      Try(*one);
      if (three) Try(*three);
      two = Start(*dirs[1]);
      Pass(std::chrono::seconds{30}, {one.get(), two.get()});
      EXPECT_TRUE(one->open() && two->open()) << one->membership.Status().why;
      EXPECT_EQ(WitnessEnd(), 21U);
      Try(*one);
      EXPECT_EQ(Twice(), 0U) << running << third;
    }
  }
}

// What was covered up to the beat that it had last is not waited for, also where it came back once.
TEST_F(MembershipTest, ANodeThatWasCoveredTwiceIsNotWaitedFor) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  const Moment backup = Now();
  for (int times = 0; times < 2; ++times) {
    two->membership.Leave();
    two.reset();
    Pass(std::chrono::minutes{2}, {one.get()});
    ASSERT_TRUE(Memory(*dirs[0]).others.empty());
    if (times == 1) break;
    two = Start(*dirs[1]);
    Pass(kNodeHeartbeat + kNodeHeartbeat, {one.get(), two.get()});
    Take(*two);
    ASSERT_FALSE(Memory(*dirs[0]).others.empty());
  }
  Restore(backup);
  Pass(std::chrono::minutes{1}, {one.get()});
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
  EXPECT_EQ(WitnessEnd(), 11U);
}

// It cannot claim with the record that was marked as gone. Once it has changed the record, it is counted on
// again.
TEST_F(MembershipTest, ANodeThatWasGoneAndComesBackIsCountedOnAgain) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  Pass(kNodeGone + kNodeHeartbeat, {one.get()});
  ASSERT_TRUE(Record(*dirs[1])->left);
  EXPECT_FALSE(two->open()) << "it did not run";
  EXPECT_EQ(two->Obtain().grant.error().code, ErrorCode::kUnavailable);
  Pass(kNodeHeartbeat, {two.get(), one.get()});
  EXPECT_FALSE(Record(*dirs[1])->left);
  Take(*two);
  Pass(kNodeHeartbeat, {one.get(), two.get()});
  EXPECT_EQ(dirs[0]->marks.LoadMemory(tree_.Base())->others, std::vector{Id(*dirs[1])});
}

TEST_F(MembershipTest, TheRecordOfANodeThatLeftLongAgoIsRemoved) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Take(*two);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  two->membership.Leave();
  Pass(kNodeGone + kNodeHeartbeat, {one.get()});
  clock_.Advance(kNodeForgotten - std::chrono::hours{1});
  Pass(kNodeHeartbeat, {one.get()});
  EXPECT_TRUE(Record(*dirs[1]).has_value());
  clock_.Advance(std::chrono::hours{1});
  Pass(kNodeHeartbeat, {one.get()});
  EXPECT_FALSE(Record(*dirs[1]).has_value());
}

// It cannot tell that from a ZooKeeper that went back. But a machine that was off for so long must not make
// the others wait for nodes that are gone for ever.
TEST_F(MembershipTest, ANodeWhoseRecordWasRemovedStopsNoOther) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  auto lost = StartOpen(*dirs[2]);
  Take(*two);
  Pass(std::chrono::seconds{6}, {one.get(), two.get(), lost.get()});
  two.reset();
  lost.reset();
  Pass(kNodeGone + kNodeHeartbeat, {one.get()});
  clock_.Advance(kNodeForgotten);
  Pass(std::chrono::minutes{1}, {one.get()});
  ASSERT_FALSE(Record(*dirs[1]).has_value());
  ASSERT_FALSE(Record(*dirs[2]).has_value());
  two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + kSomeWatch, {two.get(), one.get()});
  EXPECT_TRUE(two->open()) << two->membership.Status().why;
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
  EXPECT_EQ(two->contributions, 1);
  EXPECT_FALSE(Record(*dirs[2]).has_value());
  EXPECT_EQ(Incarnation()->number, 1U) << "it is as good as new, and none went back";
  EXPECT_GT(Record(*dirs[1])->beat, 0U);
  EXPECT_EQ(Memory(*dirs[1]).beat, Record(*dirs[1])->beat);
}

// The record of a node that was away for a shorter time is not removed, so that ZooKeeper must have gone
// back.
TEST_F(MembershipTest, ANodeWhoseRecordIsGoneTooEarlyFindsThatOut) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Take(*node);
  node.reset();
  server_.Delete(tree_.Node(Id(*dir)));
  clock_.Advance(kNodeForgotten - std::chrono::hours{1});
  node = Start(*dir);
  node->Step();
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(node->contributions, 1);
}

// It was away for that long, and the servers went back besides.
TEST_F(MembershipTest, ANodeThatWasForgottenGivesBackInALaterIncarnation) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  Take(*two);
  two.reset();
  server_.Wipe();
  server_.Create("/snowflake", "");
  Pass(kNodeHeartbeat, {one.get()});
  ASSERT_EQ(Incarnation()->number, 2U);
  one.reset();
  clock_.Advance(kNodeForgotten);
  two = Start(*dirs[1], kSomeWatch);
  two->Step();
  EXPECT_EQ(two->contributions, 1);
  EXPECT_EQ(WitnessEnd(), 11U);
}

// A node whose record was removed must not cost a write with each heartbeat.
TEST_F(MembershipTest, ANodeThatIsRememberedAndHasNoRecordIsForgottenInTime) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  two.reset();
  ASSERT_EQ(dirs[0]->marks.LoadMemory(tree_.Base())->others.size(), 1U);
  server_.Delete(tree_.Node(Id(*dirs[1])));
  Pass(kNodeGone + std::chrono::minutes{1}, {one.get()});
  EXPECT_TRUE(dirs[0]->marks.LoadMemory(tree_.Base())->others.empty());
  const int before = one->client.writes();
  Pass(std::chrono::minutes{1}, {one.get()});
  EXPECT_EQ(one->client.writes() - before, static_cast<int>(std::chrono::minutes{1} / kNodeHeartbeat));
  EXPECT_EQ(one->membership.Status().nodes, 1U);
}

// ---- what an operator says
// ----------------------------------------------------------------------------------------------------

TEST_F(MembershipTest, WaivingThoseThatAreLostSettlesIt) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  auto three = StartOpen(*dirs[2]);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {one.get(), two.get(), three.get()});
  Take(*two);
  two.reset();
  three.reset();
  server_.Restore(backup);
  Pass(kNodeHeartbeat, {one.get()});
  testing::MemoryClient client(server_);
  auto records = *ReadCluster(client, tree_);
  EXPECT_EQ(records.nodes.size(), 3U);
  ASSERT_EQ(records.Missing().size(), 2U);

  // Waiving one of them is not enough.
  EXPECT_TRUE(*Waive(client, tree_, records, {Id(*dirs[1])}, "an operator", clock_.Wall()));
  EXPECT_FALSE(Incarnation()->settled);
  EXPECT_EQ(ReadCluster(client, tree_)->Missing().size(), 1U);
  // The records have changed since they were read.
  EXPECT_FALSE(*Waive(client, tree_, records, {Id(*dirs[1]), Id(*dirs[2])}, "an operator", clock_.Wall()));
  EXPECT_FALSE(Incarnation()->settled);
  records = *ReadCluster(client, tree_);
  EXPECT_TRUE(*Waive(client, tree_, records, {Id(*dirs[2])}, "an operator", clock_.Wall()));
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(Incarnation()->by, "an operator");
  EXPECT_TRUE(ReadCluster(client, tree_)->Missing().empty());
  one->Step();
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
  // Waiving once more makes the daemons look at the table again.
  const std::int32_t version = one->membership.Status().version;
  records = *ReadCluster(client, tree_);
  EXPECT_EQ(version, records.incarnation_version);
  EXPECT_TRUE(*Waive(client, tree_, records, {}, "another operator", clock_.Wall()));
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(Incarnation()->by, "another operator");
  EXPECT_FALSE(*Waive(client, tree_, records, {}, "another operator", clock_.Wall()))
      << "that was another one's";
  Pass(kNodeHeartbeat, {one.get()});
  EXPECT_TRUE(one->open());
  EXPECT_EQ(one->membership.Status().version, version + 1);

  // A waived node that comes back contributes all the same, before it claims.
  two = Start(*dirs[1]);
  two->Step();
  EXPECT_EQ(two->contributions, 1);
  EXPECT_EQ(WitnessEnd(), 11U);
  EXPECT_TRUE(two->open());
}

// The node raised the incarnation itself, and ended before it made anything known.
TEST_F(MembershipTest, AWaivedNodeThatFoundOutFirstContributesToo) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  Take(*two);
  server_.Restore(backup);
  clock_.Advance(kNodeHeartbeat);
  two->client.FailWrite(1, WriteFault::kDown);  // the one after the incarnation's
  two->Step();
  ASSERT_TRUE(two->client.failed());
  two.reset();
  ASSERT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(dirs[1]->marks.LoadMemory(tree_.Base())->incarnation, 1U) << "it has not taken part in it";
  EXPECT_EQ(WitnessEnd(), 0U);
  Pass(kNodeHeartbeat, {one.get()});
  testing::MemoryClient client(server_);
  ASSERT_TRUE(
      *Waive(client, tree_, *ReadCluster(client, tree_), {Id(*dirs[1])}, "an operator", clock_.Wall()));
  one->Step();
  EXPECT_TRUE(one->open());
  two = Start(*dirs[1]);
  two->Step();
  EXPECT_EQ(two->contributions, 1);
  EXPECT_EQ(WitnessEnd(), 11U);
  EXPECT_TRUE(two->open());
}

// The waived node is there after all, and has put back the record of another one that ZooKeeper had
// forgotten. The waiver does not cover that one.
TEST_F(MembershipTest, WaivingANodeDoesNotWaiveWhatItHasPutBack) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  const auto backup = server_.Snapshot();
  auto three = StartOpen(*dirs[2]);
  Take(*three);
  Pass(std::chrono::seconds{6}, {two.get(), three.get()});
  three.reset();
  server_.Restore(backup);
  server_.Set(tree_.Node(Id(*dirs[0])), FormatNode(*Record(*dirs[0])));
  core::ClusterMemory more = *dirs[0]->marks.LoadMemory(tree_.Base());
  more.beat += 5;
  ASSERT_TRUE(dirs[0]->marks.SaveMemory(tree_.Base(), more).ok());
  const auto again = Start(*dirs[0]);
  again->Step();
  ASSERT_EQ(again->state(), MemberState::kGathering);
  testing::MemoryClient client(server_);
  const ClusterRecords records = *ReadCluster(client, tree_);
  ASSERT_EQ(records.Missing().size(), 1U);
  two->client.FailWrite(1, WriteFault::kDown);  // its contribution
  clock_.Advance(kNodeHeartbeat);
  two->Step();
  ASSERT_TRUE(two->client.failed());
  ASSERT_EQ(ReadCluster(client, tree_)->Missing().size(), 2U);
  EXPECT_FALSE(*Waive(client, tree_, records, {Id(*dirs[1])}, "an operator", clock_.Wall()));
  EXPECT_FALSE(Incarnation()->settled);
  again->Step();
  EXPECT_FALSE(again->open());
}

// A node that was granted [1, 11) after the backup is down, and both stores are restored.
class RecoveryTest : public MembershipTest {
 protected:
  void LoseOne() {
    one_ = StartOpen(*dirs_[0]);
    auto two = StartOpen(*dirs_[1]);
    const Moment backup = Now();
    Pass(std::chrono::seconds{6}, {one_.get(), two.get()});
    Take(*two);
    two.reset();
    Restore(backup);
    Pass(kNodeHeartbeat, {one_.get()});
    ASSERT_EQ(one_->state(), MemberState::kGathering);
    ASSERT_TRUE(recovery_.Read().ok());
    ASSERT_EQ(recovery_.missing().size(), 1U);
  }

  const std::array<std::unique_ptr<MemberDir>, 2> dirs_{Dir(), Dir()};
  std::unique_ptr<Member> one_;
  testing::MemoryClient client_{server_};
  testing::RecordingLogger log_;
  testing::FakeRandom random_{7};
  ZookeeperWitness witness_{tree_, "operator", client_, clock_};
  service::ClusterFence fence_{witness_, /*fallback=*/false, clock_, random_, log_};
  std::vector<std::string> done_;     // what was moved, in order
  std::optional<Error> refusal_;      // of the next move of a row
  std::function<void()> after_list_;  // once, after the rows were read
  testing::HookedClock waits_{clock_};
  Recovery recovery_{RecoveryPorts{
      .list =
          [this] {
            auto rows = store_.List();
            if (after_list_) std::exchange(after_list_, nullptr)();
            return rows;
          },
      .removed = [this] { return store_.RemovedMarks(); },
      .advance = [this](const std::string& tag, std::uint64_t to) -> Result<void> {
        if (refusal_) return *std::exchange(refusal_, std::nullopt);
        done_.push_back("row " + tag);
        LEAF_RETURN_IF_ERROR(store_.Advance(tag, to, core::WriteMode::kCommit));
        return {};
      },
      .raise = [this](const std::string& tag, std::uint64_t to) -> Result<void> {
        done_.push_back("witness " + tag);
        LEAF_ASSIGN_OR_RETURN(auto seen, witness_.Load(tag));
        return fence_.CatchUp(tag, std::move(seen), to);
      },
      .witness = witness_,
      .witness_name = "the tree",
      .client = client_,
      .tree = tree_,
      .clock = waits_,
  }};
};

// What readiness says where no tag has a reserve. With fallback a node goes on without the witness, and not
// with one that has gone back.
TEST_F(RecoveryTest, ANodeThatMayNotClaimBlocksGrants) {
  const auto blocks = [&](Member& member, bool fallback) {
    return service::ClusterFence(member.witness, fallback, clock_, random_, log_, &member.membership)
        .Blocking()
        .has_value();
  };
  const auto dir = Dir();
  const auto joining = Start(*dir);
  ASSERT_EQ(joining->state(), MemberState::kJoining);
  EXPECT_TRUE(blocks(*joining, false));
  EXPECT_FALSE(blocks(*joining, true));
  LoseOne();
  for (const bool fallback : {false, true}) EXPECT_TRUE(blocks(*one_, fallback)) << fallback;
}

TEST_F(RecoveryTest, WithoutABoundItNamesTheNodesThatAreMissing) {
  LoseOne();
  const auto plan = recovery_.Plan(std::nullopt);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kRefused);
  EXPECT_NE(plan.error().message.find(Id(*dirs_[1])), std::string::npos) << plan.error().message;
}

TEST_F(RecoveryTest, TagsMoveAboveWhatIsKnownAndWhatIsAllowedForTheWitnessFirst) {
  LoseOne();
  recovery_.Know("pay", 5, "a directory");
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->size(), 2U);
  EXPECT_EQ(recovery_.examined(), 2U);
  EXPECT_EQ((*plan)[1].row.tag, "pay");
  EXPECT_EQ((*plan)[1].where, "a directory");
  EXPECT_EQ((*plan)[1].target, 105U);
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(done_, (std::vector<std::string>{"witness mail", "row mail", "witness pay", "row pay"}));
  EXPECT_FALSE(recovery_.is_unsettled());
  EXPECT_TRUE(recovery_.missing().empty());
  EXPECT_TRUE(Incarnation()->settled);
  one_->Step();
  EXPECT_GE(Take(*one_).begin, 105U);
  EXPECT_EQ(Twice(), 0U);
}

using LostWrite = std::tuple<int, WriteFault>;
class RecoveryWriteTest : public RecoveryTest, public ::testing::WithParamInterface<LostWrite> {};

// Whether a write without a reply was done is seen in the tree: the operator has nothing to run again.
TEST_P(RecoveryWriteTest, AReplyIsLost) {
  const auto& [index, fault] = GetParam();
  LoseOne();
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  client_.FailWrite(index, fault);
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_TRUE(client_.failed());
  client_.LandLate();
  EXPECT_TRUE(Incarnation()->settled);
  EXPECT_EQ(done_, (std::vector<std::string>{"witness mail", "row mail", "witness pay", "row pay"}));
  one_->Step();
  EXPECT_GE(Take(*one_).begin, 101U);
  EXPECT_EQ(Twice(), 0U);
}
// Two witnesses, the record of the node that is missing, and the incarnation.
INSTANTIATE_TEST_SUITE_P(EachWrite, RecoveryWriteTest,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(WriteFault::kLostReply, WriteFault::kLate)));

// No node has noticed yet that ZooKeeper went back: the nodes that are up are waited for.
TEST_F(RecoveryTest, ANodeIsSilentUntilItsNextHeartbeat) {
  one_ = StartOpen(*dirs_[0]);
  auto two = StartOpen(*dirs_[1]);
  Pass(std::chrono::seconds{6}, {one_.get(), two.get()});
  ASSERT_TRUE(recovery_.Read().ok());
  const ClusterRecords first = recovery_.records();
  EXPECT_EQ(recovery_.SilentSince(first).size(), 2U);
  Pass(kNodeHeartbeat, {one_.get()});
  ASSERT_TRUE(recovery_.Read().ok());
  const auto silent = recovery_.SilentSince(first);
  ASSERT_EQ(silent.size(), 1U);
  EXPECT_EQ(silent.front().id, Id(*dirs_[1]));
  // A node whose state directory was read, or that has left, is not waited for.
  recovery_.Vouch(Id(*dirs_[1]));
  EXPECT_TRUE(recovery_.SilentSince(first).empty());
  one_->fence.LeaveMembership();
  ASSERT_TRUE(recovery_.Read().ok());
  EXPECT_TRUE(recovery_.SilentSince(recovery_.records()).empty());
}

// It joined after the backup, is cut off for a while, and no other node had looked at the records since.
TEST_F(RecoveryTest, ANodeThatNoRecordNamesHasTheWatchToReport) {
  one_ = Start(*dirs_[0], kSomeWatch);
  Pass(kSomeWatch + std::chrono::seconds{1}, {one_.get()});
  ASSERT_TRUE(one_->open());
  const Moment backup = Now();
  one_->membership.Leave();
  one_.reset();
  one_ = Start(*dirs_[0], kSomeWatch);
  Pass(kSomeWatch + kNodeHeartbeat, {one_.get()});
  const auto two = Start(*dirs_[1], kSomeWatch);
  Pass(kSomeWatch + std::chrono::seconds{1}, {two.get()});
  Take(*two);
  Restore(backup);
  for (int i = 0; i < 100 && Incarnation()->settled; ++i) Pass(core::kMembershipPoll, {one_.get()});
  ASSERT_EQ(one_->state(), MemberState::kGathering);
  ASSERT_FALSE(Record(*dirs_[1])) << "it is not known yet";
  const MonotonicTime since = clock_.Monotonic();
  waits_.OnWait([&] {
    if (clock_.Monotonic() > since + kSomeWatch / 2) two->Step();
  });
  const auto silent = recovery_.Await(/*without=*/false, kSomeWatch);
  ASSERT_TRUE(silent.ok()) << silent.error().message;
  EXPECT_TRUE(silent->empty());
  EXPECT_GE(clock_.Monotonic() - since, kSomeWatch);
  EXPECT_TRUE(recovery_.HasReported(Id(*dirs_[1])));
  const auto plan = recovery_.Plan(std::nullopt);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  Pass(kSomeWatch + kNodeHeartbeat, {one_.get(), two.get()});
  ASSERT_TRUE(one_->open());
  Take(*one_);
  EXPECT_EQ(Twice(), 0U);
}

TEST_F(RecoveryTest, ANodeIsWaitedForUntilItHasReported) {
  LoseOne();
  EXPECT_FALSE(recovery_.HasReported(Id(*dirs_[1])));
  EXPECT_TRUE(recovery_.HasReported(Id(*dirs_[0])));
  const MonotonicTime since = clock_.Monotonic();
  ASSERT_TRUE(recovery_.Await(/*without=*/false, kNoWatch).ok());
  const auto patient = clock_.Monotonic() - since;
  EXPECT_FALSE(recovery_.Plan(std::nullopt).ok());
  ASSERT_TRUE(recovery_.Await(/*without=*/true, kNoWatch).ok());
  EXPECT_LT(clock_.Monotonic() - since - patient, patient) << "it is lost";
  const MonotonicTime begin = clock_.Monotonic();
  ASSERT_TRUE(recovery_.Await(/*without=*/true, kSomeWatch).ok());
  EXPECT_GE(clock_.Monotonic() - begin, kSomeWatch);
  const auto two = Start(*dirs_[1], kSomeWatch);
  waits_.OnWait([&] { two->Step(); });
  const MonotonicTime again = clock_.Monotonic();
  ASSERT_TRUE(recovery_.Await(/*without=*/false, kNoWatch).ok());
  EXPECT_LT(clock_.Monotonic() - again, std::chrono::seconds{1});
  EXPECT_TRUE(recovery_.missing().empty());
}

// Its first process ended before it had claimed, and took its record away; the second one asks a server that
// is behind. Found by the simulator: an alarm, and the whole cluster waited.
TEST_F(MembershipTest, ANewNodeThatReadsARecordOfBeforeFromAServerThatIsBehindRaisesNoAlarm) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = Start(*dirs[1], kSomeWatch);
  two->Step();
  ASSERT_TRUE(Record(*dirs[1]));
  const auto before = server_.Snapshot();
  two->fence.LeaveMembership();
  ASSERT_FALSE(Record(*dirs[1]));
  two = Start(*dirs[1], kSomeWatch);
  two->client.Expire(before);
  Pass(std::chrono::seconds{30}, {one.get(), two.get()});
  EXPECT_EQ(Incarnation()->number, 1U) << Incarnation()->why;
  EXPECT_EQ(two->membership.Status().went_back, 0U);
  EXPECT_TRUE(one->open());
  EXPECT_TRUE(two->open());
}

TEST_F(MembershipTest, ANodeThatIsOutOfTouchIsNotOpen) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  clock_.Advance(kAwayMax + std::chrono::seconds{1});
  EXPECT_FALSE(node->open());
  EXPECT_EQ(node->state(), MemberState::kJoining);
  EXPECT_NE(node->membership.Status().why.find("has not reached ZooKeeper"), std::string::npos);
  Pass(core::kMembershipPoll, {node.get()});
  EXPECT_EQ(node->state(), MemberState::kOpen);
}

TEST_F(RecoveryTest, ANodeThatIsVouchedForIsNotMissing) {
  LoseOne();
  recovery_.Know("pay", 11, "its directory");
  recovery_.Vouch(Id(*dirs_[1]));
  ASSERT_TRUE(recovery_.Read().ok());
  const auto plan = recovery_.Plan(std::nullopt);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->size(), 1U);
  EXPECT_EQ(plan->front().target, 11U);
  ASSERT_TRUE(recovery_.Apply(*plan, "operator").ok());
  one_->Step();
  EXPECT_EQ(Take(*one_).begin, 11U);
  EXPECT_EQ(Twice(), 0U);
}

// The rows, then a grant, then the witnesses: found by the drills on a slow machine, where a dry run wanted
// to move a tag of a cluster that had lost nothing of it.
TEST_F(RecoveryTest, AGrantBetweenRowsAndWitnessesIsNoLoss) {
  one_ = StartOpen(*dirs_[0]);
  Pass(std::chrono::seconds{6}, {one_.get()});
  Take(*one_);
  ASSERT_TRUE(recovery_.Read().ok());
  after_list_ = [this] { Take(*one_); };
  const auto plan = recovery_.Plan(std::nullopt);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->empty());
  EXPECT_FALSE(after_list_);
}

TEST_F(RecoveryTest, NothingGoesOnBeforeAllTagsHaveMoved) {
  LoseOne();
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok());
  refusal_ = Error{ErrorCode::kUnavailable, "the database is away", ""};
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_FALSE(applied.ok());
  EXPECT_EQ(applied.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(applied.error().message.find("1 of 2: the database is away"), std::string::npos)
      << applied.error().message;
  EXPECT_FALSE(Incarnation()->settled);
  one_->Step();
  EXPECT_FALSE(one_->open());
  // Once more, and it is done.
  const auto again = recovery_.Plan(100);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(recovery_.Apply(*again, "operator").ok());
  EXPECT_TRUE(Incarnation()->settled);
}

TEST_F(RecoveryTest, ABoundThatDoesNotFitIsRefusedBeforeAnythingMoves) {
  store_.Put("mail", static_cast<std::int64_t>(kMaxIdLimit) - 50, 10);
  LoseOne();
  const auto plan = recovery_.Plan(51);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kOverflow);
  EXPECT_NE(plan.error().message.find("'mail'"), std::string::npos) << plan.error().message;
  EXPECT_TRUE(recovery_.Plan(50).ok());
}

// The tag was removed, or is younger than the backup. When it is added again it starts above its witness.
TEST_F(RecoveryTest, ATagWithoutARowIsAllowedForInItsWitness) {
  LoseOne();
  recovery_.Know("pay", 5, "a directory");
  recovery_.Know("gone", 30, "a directory");
  ASSERT_TRUE(store_.Remove("pay", core::WriteMode::kCommit).ok());
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->size(), 3U);
  EXPECT_EQ(recovery_.examined(), 3U);
  EXPECT_TRUE((*plan)[0].in_table);
  EXPECT_EQ((*plan)[1].row.tag, "gone");
  EXPECT_FALSE((*plan)[1].in_table);
  EXPECT_EQ((*plan)[1].target, 130U);
  EXPECT_EQ((*plan)[2].row.tag, "pay");
  EXPECT_FALSE((*plan)[2].in_table);
  ASSERT_TRUE(recovery_.Apply(*plan, "operator").ok());
  EXPECT_EQ(done_, (std::vector<std::string>{"witness mail", "row mail", "witness gone", "witness pay"}));
  EXPECT_EQ(witness_.Load("gone")->end, 130U);
  EXPECT_GE(witness_.Load("pay")->end, 105U);
  EXPECT_TRUE(recovery_.Plan(std::nullopt)->empty());
}

TEST_F(RecoveryTest, ATagWithoutARowIsAllowedForAboveWhereItsRowHadGotTo) {
  store_.Put("gone", 5000, 10);
  LoseOne();
  ASSERT_TRUE(store_.Remove("gone", core::WriteMode::kCommit).ok());
  recovery_.Know("gone", 3000, "a directory");
  const auto plan = recovery_.Plan(1000);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->back().row.tag, "gone");
  EXPECT_EQ(plan->back().removed, 5000U);
  EXPECT_EQ(plan->back().target, 6000U);
}

TEST_F(RecoveryTest, AnUnreadableWitnessOfATagWithoutARowStopsNothing) {
  LoseOne();
  server_.Create(tree_.Witness("gone"), "nonsense");
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->size(), 2U);
  EXPECT_EQ(recovery_.skipped(), (std::vector<std::string>{"gone"}));
}

// The node may have made tags known that are not in the plan.
TEST_F(RecoveryTest, AMissingNodeThatShowsUpStopsIt) {
  LoseOne();
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  auto two = Start(*dirs_[1]);
  Pass(kNodeHeartbeat, {one_.get(), two.get()});
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_FALSE(applied.ok());
  EXPECT_EQ(applied.error().code, ErrorCode::kRefused);
  EXPECT_NE(applied.error().message.find("has reported"), std::string::npos) << applied.error().message;
}

// A removed tag that has too few numbers left must not hold up the others.
TEST_F(RecoveryTest, ATagWithoutARowTakesWhatFits) {
  LoseOne();
  recovery_.Know("gone", kMaxIdLimit - 50, "a directory");
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->back().row.tag, "gone");
  EXPECT_EQ(plan->back().target, kMaxIdLimit);
}

TEST_F(RecoveryTest, AWitnessThatCannotBeReadIsNamed) {
  LoseOne();
  server_.Create(tree_.Witness("pay"), "nonsense");
  const auto plan = recovery_.Plan(10);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kRefused);
  EXPECT_NE(plan.error().message.find("'pay'"), std::string::npos) << plan.error().message;
}

// The plan does not allow for it.
TEST_F(RecoveryTest, AnotherNodeThatIsMissingByThenStopsIt) {
  LoseOne();
  const auto plan = recovery_.Plan(100);
  ASSERT_TRUE(plan.ok());
  NodeRecord other = recovery_.missing().front().record;
  other.host = "elsewhere";
  server_.Create(tree_.Node("another"), FormatNode(other));
  const auto applied = recovery_.Apply(*plan, "operator");
  ASSERT_FALSE(applied.ok());
  EXPECT_EQ(applied.error().code, ErrorCode::kRefused);
  EXPECT_NE(applied.error().message.find("another (node 2 on elsewhere"), std::string::npos)
      << applied.error().message;
  EXPECT_FALSE(Incarnation()->settled);
}

TEST_F(MembershipTest, ARecordThatCannotBeReadIsNamedAndStopsClaims) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Pass(std::chrono::seconds{6}, {node.get()});
  node.reset();
  server_.Set(tree_.Incarnation(), "nonsense");
  node = Start(*dir);
  node->Step();
  ASSERT_FALSE(node->open());
  EXPECT_NE(node->membership.Ready().error().message.find(tree_.Incarnation()), std::string::npos);
  testing::MemoryClient client(server_);
  EXPECT_EQ(ReadCluster(client, tree_).error().code, ErrorCode::kRefused);
}

TEST_F(MembershipTest, ARecordOfAnotherNodeThatCannotBeReadIsSkippedAndWaitedForByName) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  server_.Create(tree_.Node("odd"), "nonsense");
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  const auto backup = server_.Snapshot();
  Pass(std::chrono::minutes{1}, {one.get(), two.get()});
  EXPECT_TRUE(one->open() && two->open());
  EXPECT_EQ(one->membership.Status().nodes, 2U);
  Take(*one);
  server_.Restore(backup);
  Pass(std::chrono::seconds{30}, {one.get(), two.get()});
  EXPECT_EQ(one->state(), MemberState::kGathering);
  const auto waiting_for = one->membership.Status().waiting_for;
  ASSERT_EQ(waiting_for.size(), 1U);
  EXPECT_NE(waiting_for[0].find(tree_.Node("odd")), std::string::npos) << waiting_for[0];
  EXPECT_EQ(WitnessEnd(), 11U) << "what the others know is known again all the same";
  server_.Delete(tree_.Node("odd"));
  Pass(kNodeHeartbeat, {one.get(), two.get()});
  EXPECT_TRUE(one->open() && two->open());
}

// ---- a witness alone went back
// ------------------------------------------------------------------------------------------------

TEST_F(MembershipTest, AWitnessThatIsLowerThanItWasRaisesTheIncarnation) {
  for (const bool deleted : {false, true}) {
    Reset();
    const auto dir = Dir();
    const auto node = StartOpen(*dir);
    Take(*node);
    const std::string older = *server_.Data(tree_.Witness("pay"));
    Take(*node);
    if (deleted) {
      server_.Delete(tree_.Witness("pay"));
    } else {
      server_.Set(tree_.Witness("pay"), older);
    }
    EXPECT_EQ(node->Obtain().grant.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(store_.MaxId("pay"), 21) << "nothing is reserved";
    EXPECT_FALSE(node->open());
    EXPECT_EQ(Incarnation()->number, 1U);
    node->Step();
    EXPECT_TRUE(node->open()) << node->membership.Status().why;
    EXPECT_EQ(Incarnation()->number, 2U);
    EXPECT_EQ(WitnessEnd(), 21U);
    EXPECT_EQ(Take(*node), (IdRange{21, 31}));
  }
}

// M3: a new session may show an older tree for a while.
TEST_F(MembershipTest, AnOlderServersAnswerRaisesNothing) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto older = server_.Snapshot();
  Take(*node);
  node->client.Expire(older);
  EXPECT_EQ(node->Obtain().grant.error().code, ErrorCode::kUnavailable) << "it cannot tell";
  node->Step();
  EXPECT_TRUE(node->open()) << node->membership.Status().why;
  EXPECT_EQ(Incarnation()->number, 1U);
  EXPECT_EQ(node->membership.Status().went_back, 0U);
  EXPECT_EQ(Take(*node), (IdRange{21, 31}));

  // The same with a record of its own that is older, or not there.
  Pass(std::chrono::seconds{6}, {node.get()});
  testing::MemoryZooKeeper::Nodes empty{{"", {}}};
  for (const auto& stale : {older, empty}) {
    node->client.Expire(stale);
    Pass(kNodeHeartbeat, {node.get()});
    EXPECT_TRUE(node->open()) << node->membership.Status().why;
    EXPECT_EQ(Incarnation()->number, 1U);
    EXPECT_EQ(node->log.Count(LogLevel::kError), 0U);
  }
  Take(*node);
  EXPECT_EQ(Twice(), 0U);
}

// ---- a claim that is under way
// ------------------------------------------------------------------------------------------------

// The witness has it, its mark is not written yet, and ZooKeeper goes back and is settled: no contribution
// has it.
TEST_F(MembershipTest, AClaimWhoseMarkComesAfterTheContributionIsDropped) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {node.get()});
  node->marks.before_raise = [&] {
    server_.Restore(backup);
    Pass(kNodeHeartbeat, {node.get()});
    ASSERT_TRUE(node->open());
    ASSERT_EQ(WitnessEnd(), 11U);
  };
  const auto dropped = node->Obtain();
  ASSERT_FALSE(dropped.grant.ok());
  EXPECT_EQ(dropped.grant.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(dropped.dropped, 10U);
  Pass(kNodeHeartbeat, {node.get()});
  Try(*node);
  Pass(kNodeHeartbeat, {node.get()});
  Take(*node);
  EXPECT_EQ(Twice(), 0U);
}

// A look in the old incarnation, the claim in the new one: the witness may have been replaced in between.
TEST_F(MembershipTest, ALookOfAnOlderEraDoesNotHold) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto look = node->fence.See("pay");
  ASSERT_TRUE(look.ok());
  EXPECT_TRUE(node->fence.Holds(*look).ok());
  Pass(std::chrono::seconds{6}, {node.get()});
  EXPECT_TRUE(node->fence.Holds(*look).ok()) << "a heartbeat changes nothing";
  server_.Delete(tree_.Witness("pay"));
  EXPECT_FALSE(node->Obtain().grant.ok());
  EXPECT_FALSE(node->fence.Holds(*look).ok());
  node->Step();
  ASSERT_TRUE(node->open());
  EXPECT_FALSE(node->fence.Holds(*look).ok()) << "open again is another era";
  EXPECT_TRUE(node->fence.Holds(*node->fence.See("pay")).ok());
}

TEST_F(MembershipTest, AHeartbeatBetweenTheLookAndTheClaimCostsNothing) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  node->client.BeforeCall(1, [&] { Pass(std::chrono::seconds{6}, {node.get()}); });
  EXPECT_EQ(Take(*node), (IdRange{11, 21}));
  // The record is moved by another process of this directory.
  node->client.BeforeCall(1, [&] {
    const auto record = server_.Data(tree_.Node(Id(*dir)));
    server_.Set(tree_.Node(Id(*dir)), *record);
  });
  EXPECT_EQ(Take(*node), (IdRange{21, 31}));
  EXPECT_TRUE(node->open());
}

// ---- away, and back
// -----------------------------------------------------------------------------------------------------------

TEST_F(MembershipTest, ANodeThatWasAwayWaitsForTheOthersToMove) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Take(*one);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  for (const bool they_are_there : {true, false}) {
    one.reset();
    Pass(kAwayMax + kNodeHeartbeat, {two.get()});
    one = Start(*dirs[0], kSomeWatch);
    one->Step();
    EXPECT_EQ(one->state(), MemberState::kWatching);
    EXPECT_NE(one->membership.Status().why.find(dirs[1]->name), std::string::npos)
        << one->membership.Status().why;
    EXPECT_FALSE(one->Obtain().grant.ok());
    if (they_are_there) {
      Pass(kNodeHeartbeat + core::kMembershipPoll, {two.get(), one.get()});
    } else {
      Pass(kSomeWatch - core::kMembershipPoll, {one.get()});
      EXPECT_FALSE(one->open());
      Pass(core::kMembershipPoll, {one.get()});
    }
    EXPECT_TRUE(one->open()) << one->membership.Status().why;
    Take(*one);
  }
  // A restart does not count as having been away.
  one.reset();
  Pass(kAwayMax - std::chrono::seconds{1}, {two.get()});
  one = Start(*dirs[0], kSomeWatch);
  one->Step();
  EXPECT_TRUE(one->open());
}

// It is closed at once, before the next step: perhaps the whole process did not run.
TEST_F(MembershipTest, ANodeThatWasNotInTouchClosesByItselfAndWaits) {
  for (const bool suspended : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir()};
    const auto two = StartOpen(*dirs[1]);
    auto one = StartOpen(*dirs[0]);
    Pass(std::chrono::seconds{6}, {two.get(), one.get()});
    one = Start(*dirs[0], kSomeWatch);
    Pass(std::chrono::seconds{6}, {two.get(), one.get()});
    ASSERT_TRUE(one->open());
    Take(*one);
    const std::uint64_t era = one->membership.Era();
    if (suspended) {
      Pass(kAwayMax - kNodeHeartbeat, {two.get()});
      EXPECT_TRUE(one->open());
      Pass(kNodeHeartbeat + core::kMembershipPoll, {two.get()});
    } else {
      one->client.SetDown(true);
      Pass(kAwayMax - kNodeHeartbeat, {two.get(), one.get()});
      EXPECT_TRUE(one->open()) << "a claim finds out by itself";
      Pass(kNodeHeartbeat, {two.get(), one.get()});
      clock_.Advance(core::kMembershipPoll);
      one->client.SetDown(false);
    }
    EXPECT_FALSE(one->open());
    EXPECT_FALSE(one->membership.Checks().ok());
    EXPECT_EQ(one->Obtain().grant.error().code, ErrorCode::kUnavailable);
    one->Step();
    EXPECT_EQ(one->state(), MemberState::kWatching) << suspended;
    EXPECT_GT(one->membership.Era(), era) << "what was under way is dropped";
    EXPECT_TRUE(Record(*dirs[0])->left);
    Pass(core::kMembershipPoll, {one.get()});
    EXPECT_FALSE(one->open());
    Pass(kNodeHeartbeat + core::kMembershipPoll, {two.get(), one.get()});
    EXPECT_TRUE(one->open()) << one->membership.Status().why;
    EXPECT_EQ(Incarnation()->number, 1U);
    Take(*one);
  }
}

// The servers went back to a moment after its last heartbeat: its own record does not show that, and the
// other node, which knows more, has not looked yet.
TEST_F(MembershipTest, ANodeThatWasCutOffDoesNotClaimFromWhatCameBack) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto two = StartOpen(*dirs[1]);
  auto one = StartOpen(*dirs[0]);
  Take(*one);
  Pass(std::chrono::seconds{6}, {two.get(), one.get()});
  one = Start(*dirs[0], kSomeWatch);
  Pass(std::chrono::seconds{6}, {two.get(), one.get()});
  one->client.SetDown(true);
  Pass(kNodeHeartbeat, {two.get(), one.get()});
  const Moment backup = Now();
  Pass(kAwayMax, {two.get(), one.get()});
  Take(*two);
  Take(*two, "mail");
  Restore(backup);
  one->client.SetDown(false);
  one->Step();
  Try(*one);
  Try(*one, "mail");
  Pass(core::kMembershipPoll, {one.get(), two.get()});
  Pass(kSomeWatch, {one.get(), two.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
  for (const char* const tag : {"pay", "mail"}) Try(*one, tag);
  EXPECT_EQ(Twice(), 0U);
}

TEST_F(MembershipTest, ANodeThatWasAwayWaitsForAllThatAreThere) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  const auto three = StartOpen(*dirs[2]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get(), three.get()});
  one.reset();
  Pass(kAwayMax + kNodeHeartbeat, {two.get(), three.get()});
  one = Start(*dirs[0], kSomeWatch);
  one->Step();
  Pass(kNodeHeartbeat + core::kMembershipPoll, {two.get(), one.get()});
  EXPECT_EQ(one->state(), MemberState::kWatching) << "one of two";
  EXPECT_NE(one->membership.Status().why.find(dirs[2]->name), std::string::npos);
  EXPECT_EQ(one->membership.Status().why.find(dirs[1]->name), std::string::npos);
  Pass(kNodeHeartbeat + core::kMembershipPoll, {three.get(), one.get()});
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
}

// A node that has left writes no more: it is not waited for by name, but another node has to be there.
TEST_F(MembershipTest, ANodeThatWasAwayWaitsForTheWatchWhereAllOthersHaveLeft) {
  for (const bool one_is_there : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir(), Dir()};
    auto one = StartOpen(*dirs[0]);
    const auto two = StartOpen(*dirs[1]);
    const auto three = StartOpen(*dirs[2]);
    Pass(std::chrono::seconds{6}, {one.get(), two.get(), three.get()});
    two->membership.Leave();
    if (!one_is_there) three->membership.Leave();
    one.reset();
    clock_.Advance(kAwayMax + kNodeHeartbeat);
    one = Start(*dirs[0], kSomeWatch);
    one->Step();
    EXPECT_EQ(one->state(), MemberState::kWatching);
    if (one_is_there) {
      Pass(kNodeHeartbeat + core::kMembershipPoll, {three.get(), one.get()});
    } else {
      Pass(kSomeWatch - core::kMembershipPoll, {one.get()});
      EXPECT_FALSE(one->open());
      Pass(core::kMembershipPoll, {one.get()});
    }
    EXPECT_TRUE(one->open()) << one->membership.Status().why;
  }
}

TEST_F(MembershipTest, ANodeThatKnowsNoOtherDoesNotWait) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Take(*node);
  node.reset();
  clock_.Advance(std::chrono::hours{1});
  node = Start(*dir, kSomeWatch);
  node->Step();
  EXPECT_TRUE(node->open()) << node->membership.Status().why;
}

TEST_F(MembershipTest, AClockThatWasSetBackCountsAsAway) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Pass(std::chrono::seconds{6}, {one.get(), two.get()});
  one.reset();
  clock_.StepWall(-std::chrono::hours{1});
  one = Start(*dirs[0], kSomeWatch);
  one->Step();
  EXPECT_EQ(one->state(), MemberState::kWatching);
}

TEST_F(MembershipTest, ANodeThatLeavesSaysSo) {
  const auto dir = Dir();
  auto node = StartOpen(*dir);
  Take(*node);
  node->membership.Leave();
  EXPECT_FALSE(node->open());
  EXPECT_TRUE(Record(*dir)->left);
  EXPECT_EQ(dir->marks.LoadMemory(tree_.Base())->beat, Record(*dir)->beat);
  EXPECT_FALSE(node->Obtain().grant.ok());
  // And comes back.
  clock_.Advance(std::chrono::seconds{5});
  node = Start(*dir, kSomeWatch);
  node->Step();
  EXPECT_TRUE(node->open());
  EXPECT_EQ(node->contributions, 0);
  EXPECT_FALSE(Record(*dir)->left);
  EXPECT_EQ(Incarnation()->number, 1U);
}

// It never claimed, and leaves no trace.
TEST_F(MembershipTest, ANodeThatNeverOpenedIsNotRemembered) {
  for (const bool gracefully : {true, false}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir()};
    const auto one = StartOpen(*dirs[0]);
    auto two = Start(*dirs[1], kSomeWatch);
    Pass(std::chrono::seconds{6}, {two.get(), one.get()});
    ASSERT_FALSE(two->open());
    ASSERT_TRUE(Record(*dirs[1])->left);
    EXPECT_FALSE(Record(*dirs[1])->claims);
    EXPECT_TRUE(Memory(*dirs[0]).others.empty());
    EXPECT_EQ(one->membership.Status().nodes, 1U);
    if (gracefully) {
      two->membership.Leave();
      EXPECT_FALSE(Record(*dirs[1]).has_value());
    }
    two.reset();
    const auto backup = server_.Snapshot();
    Pass(std::chrono::seconds{6}, {one.get()});
    server_.Restore(backup);
    if (!gracefully) server_.Delete(tree_.Node(Id(*dirs[1])));
    Pass(kNodeHeartbeat, {one.get()});
    EXPECT_EQ(Incarnation()->number, 2U);
    EXPECT_TRUE(one->open()) << one->membership.Status().why;
    EXPECT_FALSE(Record(*dirs[1]).has_value()) << "no node puts it back";
    // It is new the next time.
    two = Start(*dirs[1], kSomeWatch);
    Pass(kSomeWatch - core::kMembershipPoll, {two.get(), one.get()});
    EXPECT_FALSE(two->open());
    Pass(core::kMembershipPoll + core::kMembershipPoll, {two.get(), one.get()});
    EXPECT_TRUE(two->open()) << two->membership.Status().why;
    EXPECT_TRUE(Record(*dirs[1])->claims);
  }
}

// Another process of this directory has taken it over.
TEST_F(MembershipTest, ANodeLeavesOnlyWithItsOwnLastHeartbeat) {
  const auto dir = Dir();
  const auto old_one = StartOpen(*dir);
  clock_.Advance(std::chrono::seconds{1});
  const auto next = StartOpen(*dir);
  const WallTime at = Memory(*dir).at;
  clock_.Advance(std::chrono::seconds{1});
  old_one->membership.Leave();
  EXPECT_FALSE(Record(*dir)->left);
  EXPECT_EQ(Memory(*dir).at, at);
  EXPECT_TRUE(next->open());
  Take(*next);
}

TEST_F(MembershipTest, ANodeThatCouldNotSayThatItLeftHasNotBeenInTouchEither) {
  for (const int fault : {0, 1}) {
    Reset();
    const auto dir = Dir();
    const auto node = StartOpen(*dir);
    const core::ClusterMemory before = Memory(*dir);
    clock_.Advance(std::chrono::seconds{3});
    if (fault == 0) {
      node->client.SetDown(true);
    } else {
      node->client.FailWrite(0, WriteFault::kDown);
    }
    node->membership.Leave();
    EXPECT_FALSE(node->open());
    EXPECT_EQ(Memory(*dir), before);
    EXPECT_FALSE(Record(*dir)->left);
  }
}

// The number of times that a record was written does not tell how far its owner had got: others write it,
// too.
TEST_F(MembershipTest, OnlyItsOwnerRaisesTheHeartbeatOfARecord) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Pass(std::chrono::seconds{6}, {node.get()});
  NodeRecord older = *Record(*dir);
  EXPECT_EQ(older.beat, Memory(*dir).beat);
  Pass(kNodeHeartbeat, {node.get()});
  EXPECT_EQ(Record(*dir)->beat, older.beat + 1);
  // The version goes on; what stands there does not.
  older.left = true;
  server_.Set(tree_.Node(Id(*dir)), FormatNode(older));
  Pass(kNodeHeartbeat, {node.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(node->open());
  EXPECT_GT(Record(*dir)->beat, older.beat + 1);
  // The record was made anew, so that its version is lower; the heartbeat is not.
  const std::string same = *server_.Data(tree_.Node(Id(*dir)));
  server_.Delete(tree_.Node(Id(*dir)));
  server_.Create(tree_.Node(Id(*dir)), same);
  Pass(kNodeHeartbeat, {node.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(node->open());
}

// M2: its own record is as it was at the moment of the backup; the incarnation is not.
TEST_F(MembershipTest, ANodeWhoseRecordDidNotGoBackIsRefusedAllTheSame) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  Take(*one);
  Pass(std::chrono::seconds{6}, {two.get(), one.get()});
  const Moment backup = Now();
  Take(*one);
  Restore(backup);
  EXPECT_FALSE(one->Obtain().grant.ok());
  one->Step();
  ASSERT_EQ(Incarnation()->number, 2U);
  ASSERT_EQ(Record(*dirs[1])->beat, dirs[1]->marks.LoadMemory(tree_.Base())->beat);
  EXPECT_EQ(two->Obtain("mail").grant.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(WitnessEnd("mail"), 0U);
}

// Its record is as it was at the moment of the backup, so that only the incarnation tells it.
TEST_F(MembershipTest, ANodeThatLeavesWhileTheOthersGatherHasNotContributed) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  auto two = StartOpen(*dirs[1]);
  Take(*one);
  Pass(std::chrono::seconds{6}, {two.get(), one.get()});
  const Moment backup = Now();
  Take(*one);
  Take(*two);
  Restore(backup);
  EXPECT_FALSE(one->Obtain().grant.ok());
  one->Step();
  ASSERT_EQ(one->state(), MemberState::kGathering);
  two->membership.Leave();
  two.reset();
  one->Step();
  EXPECT_FALSE(one->open()) << "no other node knows what it was granted";
  two = Start(*dirs[1]);
  Pass(kNodeHeartbeat, {two.get(), one.get()});
  EXPECT_TRUE(one->open());
  EXPECT_EQ(WitnessEnd(), 31U);
}

// ---- a command beside the daemon
// ----------------------------------------------------------------------------------------------

TEST_F(MembershipTest, ACommandLeavesTheRecordOfTheDaemonAlone) {
  const auto dir = Dir();
  const auto daemon = Start(*dir);
  daemon->membership.SetDaemon("d-one");
  daemon->Step();
  Take(*daemon);
  const auto before = *server_.Find(tree_.Node(Id(*dir)));
  const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
  command->Step();
  ASSERT_TRUE(command->open()) << command->membership.Status().why;
  EXPECT_EQ(command->client.writes(), 1) << "a heartbeat, and no more";
  Take(*command);
  EXPECT_TRUE(command->membership.LookAgain().ok());
  command->membership.Leave();
  const auto after = *server_.Find(tree_.Node(Id(*dir)));
  EXPECT_EQ(after.stat.version, before.stat.version + 1);
  EXPECT_FALSE(Record(*dir)->left);
  EXPECT_EQ(Take(*daemon), (IdRange{21, 31}));
}

// Neither of them has seen that the node had left.
TEST_F(MembershipTest, OfCommandsThatOverlapTheLastOneLeaves) {
  const auto dir = Dir();
  std::unique_ptr<Member> commands[] = {Start(*dir, kNoWatch, /*one_shot=*/true),
                                        Start(*dir, kNoWatch, /*one_shot=*/true)};
  for (const auto& command : commands) {
    command->Step();
    ASSERT_TRUE(command->open());
  }
  for (const auto& command : commands) command->membership.Leave();
  EXPECT_TRUE(Record(*dir)->left);
}

// A heartbeat that is denied: its looks are answered all the time.
TEST_F(MembershipTest, ANodeThatCouldNotBeatWasAway) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = Start(*dirs[0], kSomeWatch);
  const auto two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + kNodeHeartbeat, {one.get(), two.get()});
  ASSERT_TRUE(one->open() && two->open());
  for (int i = 0; i < 120; ++i) {
    one->client.ClearFault();
    one->client.FailWrite(0, WriteFault::kDown);
    Pass(core::kMembershipPoll, {one.get(), two.get()});
  }
  ASSERT_FALSE(one->open());
  one->client.ClearFault();
  Pass(core::kMembershipPoll, {one.get()});
  EXPECT_FALSE(one->open()) << "it waits for the other one";
  Pass(kNodeHeartbeat + kNodeHeartbeat, {two.get(), one.get()});
  EXPECT_TRUE(one->open()) << one->membership.Status().why;
}

// The watch of nodes that report their grants is the one that a node which was away waits for.
TEST_F(MembershipTest, AfterAGatheringNoNodeWaitsOnceMore) {
  const auto dirs = std::array{Dir(), Dir()};
  auto one = Start(*dirs[0], kSomeWatch);
  auto two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + kNodeHeartbeat, {one.get(), two.get()});
  const Moment backup = Now();
  Pass(kNodeHeartbeat + kNodeHeartbeat, {one.get(), two.get()});
  one.reset();
  two.reset();
  clock_.Advance(std::chrono::minutes{1});
  Restore(backup);
  one = Start(*dirs[0], kSomeWatch);
  two = Start(*dirs[1], kSomeWatch);
  Pass(kSomeWatch + std::chrono::seconds{2}, {one.get(), two.get()});
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(one->open() && two->open()) << one->membership.Status().why;
}

// M7. The daemon was killed, so that its record does not say that it has left.
TEST_F(MembershipTest, ACommandFindsOutWhatAnEarlierOneClaimed) {
  const auto dir = Dir();
  auto daemon = StartOpen(*dir);
  Take(*daemon);
  daemon.reset();
  const Moment backup = Now();
  for (int i = 0; i < 2; ++i) {
    const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
    command->Step();
    ASSERT_EQ(command->open(), i == 0) << command->membership.Status().why;
    Try(*command);
    command->membership.Leave();
    if (i == 0) Restore(backup);
  }
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_EQ(Twice(), 0U);
}

TEST_F(MembershipTest, ACommandWithoutADaemonLeavesWhenItIsDone) {
  const auto dir = Dir();
  for (int round = 0; round < 2; ++round) {
    const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
    command->Step();
    if (round == 0) {
      EXPECT_FALSE(command->open()) << "the first time it is new";
      Pass(kSomeWatch, {command.get()});
    }
    ASSERT_TRUE(command->open()) << command->membership.Status().why;
    EXPECT_FALSE(Record(*dir)->left) << "others count on it while it claims";
    Take(*command);
    command->membership.Leave();
    EXPECT_TRUE(Record(*dir)->left);
    clock_.Advance(std::chrono::seconds{1});
  }
}

// IDs that a command was granted before ZooKeeper went back must not be printed.
TEST_F(MembershipTest, ACommandThatLooksAgainFindsOut) {
  const auto dir = Dir();
  const auto daemon = StartOpen(*dir);
  Take(*daemon);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {daemon.get()});
  const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
  command->Step();
  ASSERT_TRUE(command->open());
  EXPECT_TRUE(command->membership.LookAgain().ok());
  server_.Restore(backup);
  Pass(kNodeHeartbeat, {daemon.get()});  // and has made known what it knows
  ASSERT_TRUE(daemon->open());
  EXPECT_FALSE(command->membership.LookAgain().ok());
  EXPECT_FALSE(command->open());
}

// M6, by the way that `next --direct` goes. A command that is stopped for longer than kAwayMax has not
// reached ZooKeeper for so long, and is no less wrong.
TEST_F(MembershipTest, AGrantOfACommandThatTheClusterDoesNotKnowOfIsDropped) {
  for (const bool goes_back : {true, false}) {
    for (const int seconds : {6, 20}) {
      Reset();
      const auto dir = Dir();
      const auto daemon = StartOpen(*dir);
      Take(*daemon);
      const auto backup = server_.Snapshot();
      Pass(std::chrono::seconds{6}, {daemon.get()});
      const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
      command->marks.before_raise = [&] {
        if (goes_back) server_.Restore(backup);
        Pass(std::chrono::seconds{seconds}, {daemon.get()});
        EXPECT_TRUE(daemon->open()) << "it has made known what it knows";
      };
      const auto granted = PartOf(*command).Obtain(kNoWatch, [&] { return command->Obtain().grant; });
      EXPECT_EQ(command->marks.raises, 1);
      EXPECT_EQ(granted.ok(), !goes_back) << seconds;
      if (goes_back) {
        EXPECT_EQ(granted.error().code, ErrorCode::kUnavailable);
      }
    }
  }
}

TEST_F(MembershipTest, ACommandWaitsAsLongAsANewNodeHasTo) {
  for (const bool fallback : {false, true}) {
    Reset();
    const auto dir = Dir();
    const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
    service::ClusterFence fence(command->witness, fallback, clock_, dir->random, command->log,
                                &command->membership);
    const MonotonicTime begin = clock_.Monotonic();
    const auto granted =
        service::CommandPart(
            {.fence = fence, .membership = command->membership, .marks = dir->marks, .clock = clock_},
            kSomeWatch)
            .Obtain(kNoWatch, [&] {
              EXPECT_GE(clock_.Monotonic() - begin, kSomeWatch) << "the servers answer: no fallback";
              return command->Obtain().grant;
            });
    ASSERT_TRUE(granted.ok()) << granted.error().message;
    EXPECT_TRUE(Record(*dir)->left) << "others need not count on it";
  }
}

TEST_F(MembershipTest, ACommandThatReachesNoServerSaysSoOnceItsPatienceIsOver) {
  constexpr std::chrono::seconds kPatience{3};
  const auto dir = Dir();
  for (const bool fallback : {false, true}) {
    const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
    service::ClusterFence fence(command->witness, fallback, clock_, dir->random, command->log,
                                &command->membership);
    command->client.SetDown(true);
    const MonotonicTime begin = clock_.Monotonic();
    bool asked = false;
    const auto granted =
        service::CommandPart(
            {.fence = fence, .membership = command->membership, .marks = dir->marks, .clock = clock_},
            kSomeWatch)
            .Obtain(kPatience, [&]() -> Result<core::Grant> {
              asked = true;
              return core::Grant{.range = {1, 2}};
            });
    EXPECT_GE(clock_.Monotonic() - begin, kPatience);
    EXPECT_LT(clock_.Monotonic() - begin, kSomeWatch);
    EXPECT_EQ(asked, fallback) << "what the servers say is the fence's business then";
    EXPECT_EQ(granted.ok(), fallback);
    if (!fallback) {
      EXPECT_EQ(granted.error().code, ErrorCode::kUnavailable);
    }
  }
}

TEST_F(MembershipTest, ACommandBesideADaemonLeavesAllToIt) {
  const auto dir = Dir();
  const auto daemon = StartOpen(*dir);
  Take(*daemon);
  const auto backup = server_.Snapshot();
  Pass(std::chrono::seconds{6}, {daemon.get()});
  const auto command = StartPassive(*dir);
  command->Step();
  ASSERT_TRUE(command->open()) << command->membership.Status().why;
  Take(*command);
  Take(*daemon);
  Pass(std::chrono::minutes{1}, {daemon.get(), command.get()});
  EXPECT_TRUE(command->open()) << "it goes on while its daemon does";
  const int writes = command->client.writes();

  server_.Restore(backup);
  Pass(kNodeHeartbeat, {command.get()});
  EXPECT_FALSE(command->open());
  EXPECT_FALSE(command->Obtain("mail").grant.ok());
  EXPECT_EQ(Incarnation()->number, 1U);
  const auto another = StartPassive(*dir);
  another->Step();
  EXPECT_FALSE(another->open());
  Pass(kNodeHeartbeat, {daemon.get(), command.get(), another.get()});
  ASSERT_TRUE(daemon->open());
  EXPECT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(command->open()) << command->membership.Status().why;
  EXPECT_TRUE(another->open()) << another->membership.Status().why;
  EXPECT_EQ(command->client.writes(), writes);
  EXPECT_EQ(command->contributions + another->contributions, 0);
  command->membership.Leave();
  another->membership.Leave();
  EXPECT_FALSE(Record(*dir)->left);
  EXPECT_EQ(another->client.writes(), 0);
  store_.Put("pay", static_cast<std::int64_t>(WitnessEnd()), 10);
  Take(*daemon);
  EXPECT_EQ(Twice(), 0U);
}

// A daemon that was not in touch waits until the other nodes have contributed. Its command is in touch, but
// knows no more.
TEST_F(MembershipTest, ACommandBesideADaemonThatWasCutOffDoesNotClaim) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto two = StartOpen(*dirs[1]);
  const auto daemon = StartOpen(*dirs[0]);
  Pass(std::chrono::seconds{6}, {two.get(), daemon.get()});
  daemon->client.SetDown(true);
  Pass(kNodeHeartbeat, {two.get(), daemon.get()});
  const auto before = StartPassive(*dirs[0]);
  before->Step();
  EXPECT_TRUE(before->open());
  const Moment backup = Now();
  Pass(kAwayMax, {two.get(), daemon.get()});
  EXPECT_FALSE(before->open()) << "it is as long ago as its daemon's last heartbeat";
  Take(*two);
  Restore(backup);
  const auto command = StartPassive(*dirs[0]);
  for (Member* const member : {command.get(), before.get()}) {
    member->Step();
    EXPECT_FALSE(member->open());
    Try(*member);
  }
  daemon->client.SetDown(false);
  Pass(kSomeWatch, {two.get(), daemon.get(), command.get()});
  ASSERT_EQ(Incarnation()->number, 2U);
  EXPECT_TRUE(daemon->open());
  EXPECT_TRUE(command->open()) << command->membership.Status().why;
  EXPECT_EQ(command->Obtain().grant.error().code, ErrorCode::kFrozen);
  EXPECT_EQ(Twice(), 0U);
}

// Its heartbeat holds for as long as a daemon's.
TEST_F(MembershipTest, ACommandThatDidNotRunClosesByItself) {
  const auto dir = Dir();
  const auto daemon = StartOpen(*dir);
  const auto command = Start(*dir, kSomeWatch, /*one_shot=*/true);
  command->Step();
  ASSERT_TRUE(command->open());
  EXPECT_EQ(command->client.writes(), 1);
  Pass(kAwayMax, {daemon.get()});
  EXPECT_TRUE(command->open());
  Pass(core::kMembershipPoll, {daemon.get()});
  EXPECT_FALSE(command->open());
}

// ---- replies that are lost
// ----------------------------------------------------------------------------------------------------

// Any write of a first start is lost, comes late, or has its reply lost.
TEST_F(MembershipTest, AFirstStartSurvivesAnyLostWrite) {
  for (const WriteFault fault : {WriteFault::kLostReply, WriteFault::kLate, WriteFault::kDown}) {
    bool failed = true;
    for (int at = 0; failed; ++at) {
      ASSERT_LT(at, 40);
      Reset();
      const std::string where =
          "write " + std::to_string(at) + ", fault " + std::to_string(static_cast<int>(fault));
      const auto dir = Dir();
      const auto node = Start(*dir, std::chrono::seconds{2});
      node->client.FailWrite(at, fault);
      for (int i = 0; i < 20; ++i) {
        Pass(core::kMembershipPoll, {node.get()});
        ExpectHonest({node.get()}, where);
        if (i == 10) node->client.LandLate();
      }
      failed = node->client.failed();
      node->client.ClearFault();
      EXPECT_TRUE(node->open()) << where << ": " << node->membership.Status().why;
      EXPECT_EQ(Incarnation()->number, 1U) << where;
      Take(*node);
    }
  }
}

// Two nodes; the servers and the database go back; then one of the nodes loses a write.
TEST_F(MembershipTest, GatheringSurvivesAnyLostWrite) {
  for (const WriteFault fault : {WriteFault::kLostReply, WriteFault::kLate, WriteFault::kDown}) {
    for (const bool first : {true, false}) {
      for (const bool wiped : {true, false}) {
        bool failed = true;
        // Under a sanitizer few of the writes: all of them take three minutes there.
        for (int at = 0; failed; at += testing::kScaleDownMuch) {
          ASSERT_LT(at, 60 + testing::kScaleDownMuch);
          Reset();
          const std::string where = "write " + std::to_string(at) + ", fault " +
                                    std::to_string(static_cast<int>(fault)) +
                                    (first ? ", first" : ", second") + (wiped ? ", wiped" : ", restored");
          const auto dirs = std::array{Dir(), Dir()};
          const auto one = StartOpen(*dirs[0]);
          const Moment backup = Now();
          const auto two = StartOpen(*dirs[1]);
          Take(*one);
          Take(*two);
          Take(*two, "mail");
          Pass(std::chrono::seconds{6}, {one.get(), two.get()});
          Restore(backup);
          if (wiped) {
            server_.Wipe();
            server_.Create("/snowflake", "");
          }
          Member& victim = first ? *one : *two;
          victim.client.FailWrite(at, fault);
          for (int i = 0; i < 40; ++i) {
            Pass(core::kMembershipPoll, {one.get()});
            ExpectHonest({one.get(), two.get()}, where);
            Try(*one, "mail");
            Pass(core::kMembershipPoll, {two.get()});
            ExpectHonest({one.get(), two.get()}, where);
            Try(*two);
            if (i == 15) victim.client.LandLate();
          }
          failed = victim.client.failed();
          EXPECT_TRUE(one->open()) << where << ": " << one->membership.Status().why;
          EXPECT_TRUE(two->open()) << where << ": " << two->membership.Status().why;
          EXPECT_GE(WitnessEnd(), 21U) << where;
          EXPECT_GE(WitnessEnd("mail"), 11U) << where;
          EXPECT_EQ(Twice(), 0U) << where;
        }
      }
    }
  }
}

// M4, between any two reads: one node settles while the other puts a third back, and contributes. GetAll is
// no snapshot: each of its reads is answered at a moment of its own.
class OneByOneClient final : public Client {
 public:
  explicit OneByOneClient(testing::MemoryClient& inner) : inner_(inner) {}
  Result<std::optional<NodeData>> Get(const std::string& path) override { return inner_.Get(path); }
  Result<std::optional<NodeStat>> Exists(const std::string& path) override { return inner_.Exists(path); }
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) override {
    return inner_.Children(path);
  }
  Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths) override {
    std::vector<std::optional<NodeData>> nodes;
    for (const std::string& path : paths) {
      LEAF_ASSIGN_OR_RETURN(auto node, inner_.Get(path));
      nodes.push_back(std::move(node));
    }
    return nodes;
  }
  Result<WriteOutcome> Write(const std::vector<Operation>& operations) override {
    return inner_.Write(operations);
  }
  std::int64_t session_id() const override { return inner_.session_id(); }
  std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override {
    return inner_.OnNewSession(std::move(listener));
  }

 private:
  testing::MemoryClient& inner_;
};

TEST_F(MembershipTest, NoNodeSettlesOverOneThatIsBeingPutBack) {
  // The third's name comes before the others', or after them.
  for (const std::string name : {"0", "z", "0 that is forgotten", "z that is forgotten"}) {
    const std::string third = name.substr(0, 1);
    const bool forgotten = name != third;
    bool ran = true;
    for (int at = 0; ran; ++at) {
      ASSERT_LT(at, 100);
      Reset();
      const auto dirs = std::array{Dir(), Dir()};
      testing::MemoryClient inner(server_);
      OneByOneClient client(inner);
      testing::RecordingLogger log;
      Membership one(tree_, {.host = "h", .process = "p"}, client, dirs[0]->marks, clock_, dirs[0]->random,
                     log);
      const auto contribute = []() -> Result<void> { return {}; };
      one.Step(contribute);
      // In the tree the third has left; the second one was up when it came back, and remembers that.
      const NodeRecord left{1, 1, true, true, "", "host", "third", clock_.Wall()};
      server_.Create(tree_.Node(third), FormatNode(left));
      const auto two = StartOpen(*dirs[1]);
      const auto backup = server_.Snapshot();
      NodeRecord back = left;
      back.left = false;
      server_.Set(tree_.Node(third), FormatNode(back));
      Pass(std::chrono::seconds{6}, {two.get()});
      clock_.Advance(std::chrono::seconds{6});
      one.Step(contribute);
      server_.Restore(backup);
      if (forgotten) server_.Delete(tree_.Node(third));
      // The first one has never heard of it.
      ASSERT_TRUE(dirs[0]->marks.SaveMemory(tree_.Base(), *dirs[0]->marks.LoadMemory(tree_.Base())).ok());
      Membership fresh(tree_, {.host = "h", .process = "p"}, client, dirs[0]->marks, clock_, dirs[0]->random,
                       log);
      core::ClusterMemory forgets = *dirs[0]->marks.LoadMemory(tree_.Base());
      forgets.others.clear();
      ASSERT_TRUE(dirs[0]->marks.SaveMemory(tree_.Base(), forgets).ok());
      fresh.Step(contribute);
      ASSERT_FALSE(fresh.Ready().ok());
      ran = false;
      inner.BeforeCall(at, [&] {
        ran = true;
        Pass(core::kMembershipPoll, {two.get()});
      });
      fresh.Step(contribute);
      if (ran) {
        const auto record = *ParseNode(server_.Data(tree_.Node(third)).value_or(""));
        EXPECT_EQ(record.contributed, 1U);
        EXPECT_FALSE(record.left) << "it is put back";
        EXPECT_FALSE(Incarnation()->settled) << "call " << at << ", third " << third;
        EXPECT_FALSE(fresh.Ready().ok()) << "call " << at << ", third " << third;
      }
    }
  }
}

// ---- what it costs
// ------------------------------------------------------------------------------------------------------------

// A multi in the place of a set, and not one call more; one mark, as before.
TEST_F(MembershipTest, AGrantCostsWhatItCostWithoutMembership) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  Take(*node);
  const auto plain_dir = Dir();
  testing::MemoryClient client(server_);
  testing::RecordingLogger log;
  ZookeeperWitness witness(tree_, "plain", client, clock_);
  service::ClusterFence fence(witness, false, clock_, plain_dir->random, log);
  WatchedMarks marks(plain_dir->marks);
  service::Granter granter(store_, marks, &fence, clock_, log, std::chrono::milliseconds{1000});
  ASSERT_TRUE(granter.Obtain("pay", service::ExactSizer(10)).grant.ok());

  const std::array before{client.calls(), client.writes(), marks.raises};
  const std::array before_member{node->client.calls(), node->client.writes(), node->marks.raises};
  const int saves = dir->marks.saves();
  constexpr int kGrants = 20;
  for (int i = 0; i < kGrants; ++i) {
    ASSERT_TRUE(granter.Obtain("pay", service::ExactSizer(10)).grant.ok());
    Take(*node);
  }
  EXPECT_EQ(client.calls() - before[0], 2 * kGrants) << "the look, and the claim";
  EXPECT_EQ(node->client.calls() - before_member[0], 2 * kGrants);
  EXPECT_EQ(client.writes() - before[1], kGrants);
  EXPECT_EQ(node->client.writes() - before_member[1], kGrants);
  EXPECT_EQ(marks.raises - before[2], kGrants);
  EXPECT_EQ(node->marks.raises - before_member[2], kGrants);
  EXPECT_EQ(dir->marks.saves(), saves) << "a grant remembers nothing but its mark";
}

TEST_F(MembershipTest, AHeartbeatIsFiveCallsAndOneMemory) {
  const auto dirs = std::array{Dir(), Dir(), Dir()};
  const auto node = StartOpen(*dirs[0]);
  const auto two = StartOpen(*dirs[1]);
  const auto three = StartOpen(*dirs[2]);
  Pass(std::chrono::seconds{12}, {node.get(), two.get(), three.get()});
  const int calls = node->client.calls();
  const int writes = node->client.writes();
  const int saves = dirs[0]->marks.saves();
  Pass(std::chrono::minutes{1}, {node.get(), two.get(), three.get()});
  const int beats = static_cast<int>(std::chrono::minutes{1} / kNodeHeartbeat);
  EXPECT_EQ(node->client.calls() - calls, 5 * beats);
  EXPECT_EQ(node->client.writes() - writes, beats);
  EXPECT_EQ(dirs[0]->marks.saves() - saves, beats);
  EXPECT_EQ(node->contributions, 1) << "when it joined";
}

TEST_F(MembershipTest, WhatItSaysOfItself) {
  const auto dirs = std::array{Dir(), Dir()};
  const auto one = StartOpen(*dirs[0]);
  EXPECT_EQ(one->membership.Status().heartbeats, 1U);
  EXPECT_EQ(one->membership.Status().version, 0);
  const auto two = StartOpen(*dirs[1]);
  one->membership.SetDaemon("d-one");
  two->membership.SetDaemon("d-two");
  if (!server_.Find(tree_.Daemons())) server_.Create(tree_.Daemons(), "");
  for (const char* const id : {"d-one", "d-two", "d-old"}) server_.Create(tree_.Daemon(id), "");
  Pass(std::chrono::seconds{30}, {one.get(), two.get()});
  EXPECT_EQ(one->membership.Status().heartbeats, 7U);
  EXPECT_EQ(one->membership.Status().nodes, 2U);
  EXPECT_EQ(one->membership.Status().older_daemons, 1U) << "of a version that takes no part";
  server_.Delete(tree_.Daemon("d-old"));
  Pass(kNodeHeartbeat, {one.get(), two.get()});
  EXPECT_EQ(one->membership.Status().older_daemons, 0U);
}

// The witness answers, so that there is no fallback, and no range can be claimed until an operator acts.
TEST_F(MembershipTest, WhatWaitingDoesNotCureIsToldAlsoWithFallback) {
  const auto dir = Dir();
  const auto other = Dir();
  StartOpen(*other);
  server_.Set(tree_.Incarnation(), "nonsense");
  const auto node = Start(*dir);
  service::ClusterFence fence(node->witness, /*fallback=*/true, clock_, dir->random, node->log,
                              &node->membership);
  EXPECT_FALSE(fence.Blocking().has_value()) << "it has not looked yet";
  fence.StepMembership(service::KnownFrom(dir->marks));
  ASSERT_TRUE(fence.Blocking().has_value());
  EXPECT_NE(fence.Blocking()->message.find("malformed"), std::string::npos) << fence.Blocking()->message;
  EXPECT_EQ(fence.Blocking()->hint.find("by itself"), std::string::npos) << fence.Blocking()->hint;
  node->client.SetDown(true);
  fence.StepMembership(service::KnownFrom(dir->marks));
  EXPECT_FALSE(fence.Blocking().has_value()) << "while it is away the fallback goes on";
}

// Requests for IDs, or for the status, ask ZooKeeper nothing.
TEST_F(MembershipTest, NoRequestMakesACall) {
  const auto dir = Dir();
  const auto node = StartOpen(*dir);
  const int calls = node->client.calls();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(node->membership.Ready().ok());
    EXPECT_TRUE(node->membership.Checks().ok());
    EXPECT_FALSE(node->fence.Blocking().has_value());
    ASSERT_TRUE(node->fence.Status().membership.has_value());
    EXPECT_EQ(node->fence.Status().membership->state, MemberState::kOpen);
    (void)node->membership.Era();
    node->Step();
  }
  EXPECT_EQ(node->client.calls(), calls);
}

// ---- whole schedules
// ----------------------------------------------------------------------------------------------------------

// The database and ZooKeeper are restored to the same moment, with all daemons down. They were up for
// different times after it, and start again in any order, the one that knew less first, too.
TEST_F(MembershipTest, BothAreRestoredToOneMoment) {
  for (const int nodes : {2, 3}) {
    std::vector<std::size_t> order;
    for (int i = 0; i < nodes; ++i) order.push_back(static_cast<std::size_t>(i));
    do {
      for (const bool gracefully : {false, true}) {
        Reset();
        std::string where = gracefully ? "left:" : "killed:";
        for (const std::size_t i : order) where += " " + std::to_string(i);
        std::vector<std::unique_ptr<MemberDir>> dirs;
        std::vector<std::unique_ptr<Member>> up;
        for (int i = 0; i < nodes; ++i) {
          dirs.push_back(Dir());
          up.push_back(StartOpen(*dirs.back()));
          Take(*up.back());
        }
        const auto pass = [&](std::chrono::seconds time) {
          for (int i = 0; i < time / core::kMembershipPoll; ++i) {
            clock_.Advance(core::kMembershipPoll);
            for (const auto& node : up) {
              if (node) node->Step();
            }
          }
        };
        pass(std::chrono::seconds{6});
        const Moment backup = Now();
        // Each of them is up for longer than the one before.
        for (auto& node : up) {
          for (int i = 0; i < 3; ++i) {
            pass(std::chrono::seconds{4});
            for (const auto& other : up) {
              if (other) Take(*other, other == node ? "pay" : "mail");
            }
          }
          if (gracefully) node->membership.Leave();
          node.reset();
        }
        clock_.Advance(std::chrono::seconds{20});
        Restore(backup);
        std::size_t started = 0;
        for (const std::size_t i : order) {
          up[i] = Start(*dirs[i], kSomeWatch);
          ++started;
          for (int round = 0; round < 5; ++round) {
            pass(std::chrono::seconds{10});
            for (const auto& node : up) {
              if (!node) continue;
              for (const char* const tag : {"pay", "mail"}) Try(*node, tag);
            }
          }
          ASSERT_EQ(Twice(), 0U) << where << ", with " << started << " of them";
        }
        // All of them are up; once the table is repaired, they go on.
        for (const char* const tag : {"pay", "mail"})
          store_.Put(tag, static_cast<std::int64_t>(WitnessEnd(tag)), 10);
        for (const auto& node : up) {
          EXPECT_TRUE(node->open()) << where << ": " << node->membership.Status().why;
          for (const char* const tag : {"pay", "mail"}) Take(*node, tag);
        }
        ASSERT_EQ(Twice(), 0U) << where;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// The same while they are up, and with a node that is new and starts at once.
TEST_F(MembershipTest, BothAreRestoredUnderRunningNodesAndANewOneStarts) {
  for (const bool wiped : {false, true}) {
    Reset();
    const auto dirs = std::array{Dir(), Dir(), Dir()};
    const auto one = StartOpen(*dirs[0]);
    const auto two = StartOpen(*dirs[1]);
    Take(*one);
    Take(*two);
    Pass(std::chrono::seconds{6}, {one.get(), two.get()});
    const Moment backup = Now();
    for (int i = 0; i < 3; ++i) {
      Pass(std::chrono::seconds{4}, {one.get(), two.get()});
      Take(*one);
      Take(*two, "mail");
    }
    Restore(backup);
    if (wiped) {
      server_.Wipe();
      server_.Create("/snowflake", "");
    }
    const auto three = Start(*dirs[2], kSomeWatch);
    for (int i = 0; i < 100; ++i) {
      Pass(core::kMembershipPoll, {three.get()});
      for (const char* const tag : {"pay", "mail"}) Try(*three, tag);
      Pass(core::kMembershipPoll, {one.get(), two.get()});
    }
    EXPECT_TRUE(one->open() && two->open() && three->open());
    for (const char* const tag : {"pay", "mail"}) {
      store_.Put(tag, static_cast<std::int64_t>(WitnessEnd(tag)), 10);
      for (Member* const node : {one.get(), two.get(), three.get()}) Take(*node, tag);
    }
    EXPECT_EQ(Twice(), 0U) << wiped;
  }
}

// Histories that a seed decides: grants, kills, stops and starts, lost writes, sessions that see an older
// tree, and backups of both that come back. What no protocol could survive is left out: a backup is taken
// when all that are up have been in touch, none goes down before it has been again, and it comes back after
// that. No two nodes run with one directory.
TEST_F(MembershipTest, NoIdIsGrantedTwiceWhateverComesBack) {
  std::size_t grants = 0;
  std::uint64_t went_back = 0;
  const auto seeds = static_cast<std::uint32_t>(300 / testing::kScaleDownMuch);
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    Reset();
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<MemberDir>> dirs;
    std::vector<std::unique_ptr<Member>> up;
    for (int i = 0; i < 3; ++i) {
      dirs.push_back(Dir());
      up.push_back(nullptr);
    }
    const auto pass = [&](std::chrono::milliseconds time) {
      for (; time.count() > 0; time -= core::kMembershipPoll) {
        clock_.Advance(core::kMembershipPoll);
        for (const auto& node : up) {
          if (node) node->Step();
        }
      }
    };
    const auto all_in_touch = [&] {
      for (const auto& node : up) {
        if (!node) continue;
        node->client.ClearFault();
        node->client.Expire();
      }
      pass(std::chrono::seconds{6});
    };
    const auto repair = [&] {
      // By what the cluster knows: a node that is down may have been granted more.
      for (const char* const tag : {"pay", "mail"})
        store_.Put(tag, std::max(store_.MaxId(tag), static_cast<std::int64_t>(WitnessEnd(tag))), 10);
    };
    std::optional<Moment> backup;
    for (int step = 0; step < 150; ++step) {
      const std::size_t at = random() % up.size();
      auto& node = up[at];
      switch (random() % 18) {
        case 0:
          if (node) {
            all_in_touch();
            if (random() % 2 == 0) node->membership.Leave();
            went_back += node->membership.Status().went_back;
            node.reset();
          }
          break;
        case 1:
        case 2:
          if (!node) node = Start(*dirs[at], kSomeWatch);
          break;
        case 3:
          if (!backup) {
            all_in_touch();
            backup = Now();
            all_in_touch();
          }
          break;
        case 4:
          if (backup && random() % 3 == 0) {
            all_in_touch();
            if (std::none_of(up.begin(), up.end(), [](const auto& each) { return each && each->open(); }))
              break;
            Restore(*backup);
            backup.reset();
            if (random() % 4 == 0) {
              server_.Wipe();
              server_.Create("/snowflake", "");
            }
            if (node)
              node->client.FailWrite(static_cast<int>(random() % 3), static_cast<WriteFault>(random() % 3));
            for (int i = 0; i < 12; ++i) {
              pass(core::kMembershipPoll);
              for (const auto& each : up) {
                if (each) Try(*each, random() % 2 == 0 ? "pay" : "mail");
              }
            }
          }
          break;
        case 5:
          if (node)
            node->client.FailWrite(static_cast<int>(random() % 3), static_cast<WriteFault>(random() % 3));
          break;
        case 6:
          if (node) node->client.LandLate();
          break;
        case 7:
          if (node) node->client.Expire(random() % 2 == 0 ? std::optional(server_.Snapshot()) : std::nullopt);
          break;
        case 8:
          repair();
          break;
        case 9:
          pass(std::chrono::seconds{static_cast<int>(random() % 30)});
          break;
        case 16:
          // Those that have left are covered.
          pass(std::chrono::seconds{100});
          break;
        case 17:
          // The servers are away, and the nodes come back one after the other.
          for (const auto& each : up) {
            if (each) each->client.SetDown(true);
          }
          pass(std::chrono::seconds{30});
          for (std::size_t i = 0; i < up.size(); ++i) {
            const auto& each = up[(at + i) % up.size()];
            if (each) each->client.SetDown(false);
            for (int pause = static_cast<int>(random() % 6); pause > 0; --pause) {
              pass(core::kMembershipPoll);
              if (each) Try(*each);
            }
          }
          break;
        case 10:
          if (node) {
            Member& other = *node;
            other.client.BeforeCall(static_cast<int>(random() % 8), [&] {
              for (const auto& each : up) {
                if (each && each.get() != &other) {
                  each->Step();
                  Try(*each);
                }
              }
            });
          }
          break;
        default:
          pass(core::kMembershipPoll);
          for (const auto& each : up) {
            if (each) Try(*each, random() % 2 == 0 ? "pay" : "mail");
          }
      }
    }
    // With all of them up, and all faults gone, they go on.
    for (std::size_t i = 0; i < up.size(); ++i) {
      if (!up[i]) up[i] = Start(*dirs[i], kSomeWatch);
      up[i]->client.ClearFault();
      up[i]->client.Expire();  // to a server that is not behind
      up[i]->client.LandLate();
    }
    pass(std::chrono::minutes{1});
    repair();
    for (const auto& node : up) {
      EXPECT_TRUE(node->open()) << seed << ", " << node->dir.name << ", " << NameOf(node->state()) << ": "
                                << node->membership.Status().why;
      for (const char* const tag : {"pay", "mail"}) Take(*node, tag);
      went_back += node->membership.Status().went_back;
    }
    grants += granted_.size();
    ASSERT_EQ(Twice(), 0U) << "seed " << seed;
    if (HasFailure()) break;
  }
  EXPECT_GT(grants, 30 * seeds);
  EXPECT_GT(went_back, seeds / 3);
}

}  // namespace
}  // namespace leaf::zookeeper
