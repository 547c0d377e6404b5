// The registries' protocols, against a ZooKeeper in memory: every schedule that their headers name, at every
// call at which it can happen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "leaf/core/java_leaf.h"
#include "leaf/zookeeper/connect_string.h"
#include "leaf/zookeeper/daemon_roster.h"
#include "leaf/zookeeper/fixed_registry.h"
#include "leaf/zookeeper/lease_registry.h"
#include "leaf/zookeeper/witness.h"
#include "support/scale.h"
#include "unit/zookeeper/registry_fixture.h"

namespace leaf::zookeeper {
namespace {

// ---- fixed
// -------------------------------------------------------------------------------------------------

TEST_F(FixedRegistryTest, AVirginNamespaceGetsLeafsTreeAndOursBesideIt) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, 0U);
  EXPECT_FALSE(claim.ceiling.has_value());
  ASSERT_EQ(Forever(server), (std::vector<std::string>{kAddress + "-0000000000"}));
  EXPECT_EQ(server.Data(tree_.ForeverNode(kAddress + "-0000000000")),
            FormatForeverData(kAddress, WallTimeOf(1'795'000'000'000)));
  for (const std::string& folder : {std::string("/snowflake"), tree_.Base(), tree_.Forever()})
    EXPECT_EQ(server.Data(folder), "");
  EXPECT_EQ(ParseOwner(*server.Data(tree_.Owner(0)))->host, "host-a");
  EXPECT_EQ(*ParseAddress(*server.Data(tree_.Address(kAddress))), (AddressRecord{"a", 0}));
  EXPECT_EQ(ParseTemporary(*server.Data(tree_.Temporary(kAddress)))->url, "http://" + kAddress);
  EXPECT_EQ(clock_.fake().Wall(), WallTimeOf(1'795'000'000'000)) << "it waited for nothing";
}

// Whatever is made for one node of each kind, with or without credentials.
TEST_F(FixedRegistryTest, OnlyNodesOfOursAreProtectedAndOnlyWithCredentials) {
  for (const bool credentials : {false, true}) {
    MemoryZooKeeper server;
    const auto fixed = Fixed(server);
    const auto leased = Start<LeaseRegistry>(server, Options());
    MemoryClient client(server);
    if (credentials) {
      fixed->client.Authenticate();
      leased->client.Authenticate();
      client.Authenticate();
    }
    const auto claim = Get(*fixed, "a");
    EXPECT_TRUE(fixed->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
    ZookeeperWitness witness(tree_, "p", client, clock_);
    EXPECT_TRUE(witness.Raise("order", {}, 1000, "c").value());
    DaemonEntry entry(tree_, client, log_);
    entry.Begin("d", {"host", "p", {}});
    const Tree other = Tree::Make("leased").value();
    core::ClusterProperties cluster = cluster_;
    cluster.name = "leased";
    EXPECT_TRUE(leased->registry.Claim({kAddress, "b"}, cluster).ok());
    for (const std::string& path : {tree_.Witness("order"), tree_.Daemon("d"), tree_.Owner(0),
                                    tree_.Temporary(kAddress), other.Temporary(kAddress), other.Properties()})
      EXPECT_TRUE(server.Data(path)) << path;
    EXPECT_EQ(server.Children(other.Leases()).size(), 1U);
    for (const auto& [path, node] : server.Snapshot())
      EXPECT_EQ(node.open, !credentials || !(tree_.IsOwn(path) || other.IsOwn(path))) << path;
  }
}

TEST_F(FixedRegistryTest, TheReportIsTrueTimeEveryThreeSecondsAndNeverEarlier) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  const std::string path = tree_.ForeverNode(Forever(server).at(0));
  const auto reported = [&] { return ParseForeverData(*server.Data(path))->timestamp_ms; };
  const WallTime begin = clock_.Wall();
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    clock_.fake().Advance(milliseconds{300});
    const std::int64_t before = reported();
    ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
    if (reported() != before) ++changes;
    EXPECT_LE(reported(), UnixMillis(clock_.Wall()));
    EXPECT_GE(reported(), UnixMillis(clock_.Wall() - seconds{3}));
    // Exactly what Java writes.
    EXPECT_EQ(server.Data(path), FormatForeverData(kAddress, WallTimeOf(reported())));
  }
  EXPECT_EQ(changes, 10);
  clock_.fake().StepWall(-seconds{60});
  const std::int64_t before = reported();
  for (int i = 0; i < 20; ++i) {
    clock_.fake().Advance(seconds{1});
    ASSERT_TRUE(process->registry.Renew(claim, begin).ok());
    EXPECT_EQ(reported(), before) << "it went back";
  }
}

TEST_F(FixedRegistryTest, LostRepliesOfAClaimMakeNoSecondNode) {
  for (const Fault fault : {Fault::kLostReply, Fault::kDown}) {
    bool seen_last = false;
    for (int index = 0; index < kCallsMax && !seen_last; ++index) {
      SCOPED_TRACE(index);
      MemoryZooKeeper server;
      const auto process = Fixed(server);
      process->client.FailWrite(index, fault);
      const auto first = Claim(*process, "a");
      seen_last = !process->client.failed();
      process->client.ClearFault();
      if (!first.ok()) {
        EXPECT_EQ(first.error().code,
                  fault == Fault::kDown ? ErrorCode::kUnavailable : ErrorCode::kOutcomeUnknown);
      }
      const auto claim = Get(*process, "a");
      EXPECT_EQ(claim.worker, 0U);
      EXPECT_EQ(Forever(server).size(), 1U);
      EXPECT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
      // The next node gets the next number: none was lost.
      const auto other = Fixed(server);
      EXPECT_EQ(Get(*other, "b", "127.0.0.2:8080").worker, 1U);
    }
    EXPECT_TRUE(seen_last);
  }
}

// S2, I3: whatever is late lands when another process has claimed already, and has renewed.
TEST_F(FixedRegistryTest, ALateWriteOfAFormerLifeChangesNothing) {
  bool seen_last = false;
  for (int index = 0; index < kCallsMax && !seen_last; ++index) {
    SCOPED_TRACE(index);
    MemoryZooKeeper server;
    const auto dead = Fixed(server);
    dead->client.FailWrite(index, Fault::kLate);
    const auto first = Claim(*dead, "a");
    seen_last = !dead->client.failed();
    if (first.ok()) {
      // A renewal that is late.
      dead->client.FailWrite(0, Fault::kLate);
      EXPECT_FALSE(dead->registry.Renew(*first, clock_.Wall() + seconds{1}).ok());
    }
    const auto process = Fixed(server);
    const auto claim = Get(*process, "a");
    ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{5}).ok());
    const auto before = CeilingOf(server, claim.worker);
    dead->client.LandLate();
    EXPECT_EQ(Forever(server).size(), 1U);
    EXPECT_EQ(CeilingOf(server, claim.worker), before);
    EXPECT_EQ(ParseOwner(*server.Data(tree_.Owner(claim.worker)))->uuid, "a");
    EXPECT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{6}).ok());
    // The next start finds it all as it was.
    const auto again = Fixed(server);
    const auto next = Get(*again, "a");
    EXPECT_EQ(next.worker, claim.worker);
    EXPECT_GE(next.ceiling, before.ceiling);
  }
  EXPECT_TRUE(seen_last);
}

// The same, landing between any two calls of the second claim.
TEST_F(FixedRegistryTest, ALateWriteBetweenAnyTwoCallsOfTheNextClaim) {
  for (int index = 0; index < 14; ++index) {
    for (int call = 0; call < kCallsMax; ++call) {
      SCOPED_TRACE(std::to_string(index) + " " + std::to_string(call));
      MemoryZooKeeper server;
      const auto dead = Fixed(server);
      dead->client.FailWrite(index, Fault::kLate);
      (void)Claim(*dead, "a");
      const auto process = Fixed(server);
      process->client.BeforeCall(call, [&] { dead->client.LandLate(); });
      auto claim = Claim(*process, "a");
      if (!claim.ok()) claim = Claim(*process, "a");
      ASSERT_TRUE(claim.ok()) << claim.error().message;
      ASSERT_EQ(Forever(server).size(), 1U);
      EXPECT_EQ(Suffix(Forever(server)[0]), claim->worker);
      EXPECT_TRUE(process->registry.Renew(*claim, clock_.Wall() + seconds{6}).ok());
      if (process->client.calls() < call) break;
    }
  }
}

// S3
TEST_F(FixedRegistryTest, TwoStateDirectoriesWithOneAddress) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto a = Fixed(server);
    const auto b = Fixed(server);
    std::optional<Result<core::WorkerClaim>> second;
    a->client.BeforeCall(call, [&] { second = Claim(*b, "b"); });
    const auto first = Claim(*a, "a");
    const bool in_between = second.has_value();
    if (!second) second = Claim(*b, "b");
    EXPECT_EQ(Forever(server).size(), 1U);
    ASSERT_NE(first.ok(), second->ok()) << "both, or none";
    const Error& refused = first.ok() ? second->error() : first.error();
    EXPECT_EQ(refused.code, ErrorCode::kRefused) << refused.message;
    EXPECT_NE(refused.message.find("host-a"), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find(kAddress), std::string::npos);
    EXPECT_NE(refused.hint.find("worker release 0"), std::string::npos);
    const auto& winner = first.ok() ? a : b;
    EXPECT_TRUE(winner->registry.Renew(first.ok() ? *first : **second, clock_.Wall()).ok());
    if (!in_between) return;
  }
  FAIL() << "a claim makes more calls than that";
}

TEST_F(FixedRegistryTest, TwoAddressesBetweenAnyTwoCalls) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto a = Fixed(server);
    const auto b = Fixed(server);
    bool in_between = false;
    core::WorkerClaim second;
    a->client.BeforeCall(call, [&] {
      in_between = true;
      second = Get(*b, "b", "127.0.0.2:8080");
    });
    const auto first = Get(*a, "a");
    if (!in_between) return;
    EXPECT_NE(first.worker, second.worker);
    EXPECT_EQ(Forever(server).size(), 2U);
    EXPECT_TRUE(a->registry.Renew(first, clock_.Wall()).ok());
    EXPECT_TRUE(b->registry.Renew(second, clock_.Wall()).ok());
  }
  FAIL() << "a claim makes more calls than that";
}

// S4, S5: Java starts with our address between any two calls, and lives on.
TEST_F(FixedRegistryTest, JavaStartsWithOurAddressBetweenAnyTwoCalls) {
  bool refused = false;
  bool shared = false;
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto process = Fixed(server);
    Java java;
    bool in_between = false;
    process->client.BeforeCall(call, [&] {
      in_between = true;
      java = StartJava(server);
      LetJavaLive(server, java);
    });
    const auto claim = Claim(*process, "a");
    clock_.OnWait(nullptr);
    if (!in_between) {
      EXPECT_TRUE(refused);
      EXPECT_TRUE(shared);
      return;
    }
    if (!claim.ok()) {
      refused = true;
      EXPECT_EQ(claim.error().code, ErrorCode::kRefused) << claim.error().message;
      EXPECT_NE(claim.error().message.find("Java"), std::string::npos) << claim.error().message;
      continue;
    }
    if (claim->worker != java.worker) continue;
    // It took the node that we had just made. As soon as it reports, we stop.
    shared = true;
    clock_.fake().Advance(seconds{1});
    Heartbeat(server, java);
    EXPECT_EQ(RenewCode(*process, *claim, clock_.Wall()), ErrorCode::kRefused);
    EXPECT_EQ(RenewCode(*process, *claim, clock_.Wall()), ErrorCode::kRefused) << "until the next claim";
  }
  FAIL() << "a claim makes more calls than that";
}

TEST_F(FixedRegistryTest, JavaTakesOurNumberWhileWeRun) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
  const Java java = StartJava(server);
  EXPECT_EQ(java.worker, claim.worker);
  clock_.fake().Advance(seconds{1});
  Heartbeat(server, java);
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kRefused);
  // Once it has stopped, the number is claimed again, above its last time.
  const auto again = process->registry.Claim({kAddress, "a", "", claim.worker}, cluster_);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->worker, claim.worker);
  EXPECT_GT(again->ceiling, clock_.Wall() - seconds{4});
  EXPECT_TRUE(process->registry.Renew(*again, clock_.Wall()).ok());
}

TEST_F(FixedRegistryTest, ANumberThatIsClaimedAgainIsNeverANewOne) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(server.Delete(tree_.ForeverNode(Forever(server)[0])));
  const auto refused = process->registry.Claim({kAddress, "a", "", claim.worker}, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(Forever(server).empty()) << "no number was used up";
}

TEST_F(FixedRegistryTest, ACopyOfAStateDirectoryThatIsInUseIsRefused) {
  MemoryZooKeeper server;
  const auto original = Fixed(server);
  const auto claim = Get(*original, "a");
  const core::NodeIdentity copied{kAddress, "a2", /*former_uuid=*/"a"};
  clock_.OnWait([&, next = clock_.Boot() + seconds{3}]() mutable {
    if (clock_.Boot() < next) return;
    next = clock_.Boot() + seconds{3};
    EXPECT_TRUE(original->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
  });
  const auto refused = Fixed(server)->registry.Claim(copied, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("copy of this state directory"), std::string::npos);
  EXPECT_TRUE(original->registry.Renew(claim, clock_.Wall() + seconds{3}).ok()) << "and the original goes on";

  // A directory that was moved, and whose former process is gone, gets its number after a while.
  clock_.OnWait(nullptr);
  const BootTime before = clock_.Boot();
  const auto moved = Fixed(server)->registry.Claim(copied, cluster_);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_EQ(moved->worker, claim.worker);
  EXPECT_GE(clock_.Boot(), before + core::kCopyWatch);
  const WallTime told = clock_.Wall() - core::kCopyWatch + seconds{3};
  EXPECT_GE(moved->ceiling, told + core::UntoldMax(Options().window) - seconds{1});
  // The original has lost the number by then, whether it still runs or is started anew.
  EXPECT_EQ(RenewCode(*original, claim, clock_.Wall() + seconds{9}), ErrorCode::kNotOwner);
  EXPECT_EQ(Claim(*Fixed(server), "a").error().code, ErrorCode::kRefused);
  EXPECT_EQ(Get(*Fixed(server), "a2").worker, claim.worker);
}

// The schedule: a node goes on beyond the ceiling that it last told, and is lost with its directory. The node
// that takes its number over does not learn that its claim was made, or ends before its first ID, and claims
// again, after the record has got the name of this second node.
TEST_F(FixedRegistryTest, WhatAFormerOwnerDidNotTellIsKeptForEachClaimAfterIt) {
  for (const auto& [reply_is_lost, tells] :
       {std::pair{false, true}, std::pair{true, true}, std::pair{false, false}, std::pair{true, false}}) {
    MemoryZooKeeper server;
    RegistryOptions options = Options();
    options.window = seconds{3};
    const auto a = Start<FixedRegistry>(server, options);
    const auto claim = Get(*a, "a");
    // A node that never tells a ceiling has reported when it began.
    const WallTime told = tells ? clock_.Wall() + seconds{3} : clock_.Wall();
    if (tells) {
      ASSERT_TRUE(a->registry.Renew(claim, told).ok());
    }
    ASSERT_TRUE(server.Delete(tree_.Owner(claim.worker)));  // worker release
    const auto b = Start<FixedRegistry>(server, options);
    if (reply_is_lost) b->client.FailWrite(1, Fault::kLostReply);
    const auto first = Claim(*b, "b");
    ASSERT_EQ(first.ok(), !reply_is_lost) << b->client.writes();
    ASSERT_EQ(CeilingOf(server, claim.worker).uuid, "b");
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(Get(*b, "b").ceiling, told + core::UntoldMax(options.window)) << "and once only";
    }
  }
}

// What it has seen of another program it knows also where ZooKeeper goes away before the watch is over.
TEST_F(FixedRegistryTest, AnOutageDuringTheWatchForJavaIsNoReasonToStartWithoutZooKeeper) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  const auto java = StartJava(server);
  Heartbeat(server, java);
  const auto later = Fixed(server);
  clock_.OnWait([&] { later->client.SetDown(true); });
  int denials = 0;
  core::NodeIdentity node{kAddress, "a"};
  node.held = claim.worker;
  node.on_denied = [&] { ++denials; };
  const auto failed = later->registry.Claim(node, cluster_);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_GT(denials, 0);
}

TEST_F(FixedRegistryTest, ADeadJavasNumberIsTakenOverAboveWhatItMayHaveIssued) {
  MemoryZooKeeper server;
  StartJava(server, "127.0.0.9:1");
  const Java java = StartJava(server);
  clock_.fake().Advance(seconds{30});
  Heartbeat(server, java);
  const WallTime last = clock_.Wall();
  clock_.fake().Advance(seconds{1});
  const auto process = Fixed(server);
  const BootTime begin = clock_.Boot();
  const auto claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, 1U);
  EXPECT_EQ(claim.ceiling, last + seconds{4});
  EXPECT_GE(clock_.Boot() - begin, core::kJavaWatch);
  EXPECT_EQ(Forever(server).size(), 2U);
  // A second start does not wait, and no less is covered: even if nothing was renewed in between.
  const auto again = Fixed(server);
  const BootTime restart = clock_.Boot();
  const auto next = Get(*again, "a");
  EXPECT_EQ(clock_.Boot(), restart);
  EXPECT_EQ(next.ceiling, last + seconds{4});
}

TEST_F(FixedRegistryTest, HandedToJavaAndBack) {
  MemoryZooKeeper server;
  auto process = Fixed(server);
  auto claim = Get(*process, "a");
  clock_.fake().Advance(seconds{1});
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
  clock_.fake().Advance(seconds{3});
  ASSERT_TRUE(process->registry.Release(claim, clock_.Wall()).ok());
  // Java's start check: its clock against the report.
  EXPECT_EQ(ParseForeverData(*server.Data(tree_.ForeverNode(Forever(server)[0])))->timestamp_ms,
            UnixMillis(clock_.Wall()));
  EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value());
  const Java java = StartJava(server);
  EXPECT_EQ(java.worker, claim.worker);
  clock_.fake().Advance(seconds{100});
  Heartbeat(server, java);
  const WallTime last = clock_.Wall();
  process = Fixed(server);
  claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, java.worker);
  EXPECT_EQ(claim.ceiling, last + seconds{4});
  EXPECT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
}

// The clock was an hour ahead when this node raised its ceiling, and was set right before Java came.
TEST_F(FixedRegistryTest, JavasReportDoesNotLowerOurOwnCeiling) {
  MemoryZooKeeper server;
  auto process = Fixed(server);
  auto claim = Get(*process, "a");
  const WallTime told = clock_.Wall() + hours{1};
  ASSERT_TRUE(process->registry.Renew(claim, told).ok());
  const Java java = StartJava(server);
  ASSERT_EQ(java.worker, claim.worker);
  clock_.fake().Advance(seconds{100});
  Heartbeat(server, java);
  process = Fixed(server);
  claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, java.worker);
  EXPECT_EQ(claim.ceiling, told);
}

// S6
TEST_F(FixedRegistryTest, AReleasedNumberIsLostHoweverTheVersionsLook) {
  MemoryZooKeeper server;
  const auto a = Fixed(server);
  const auto claim = Get(*a, "a");
  ASSERT_TRUE(a->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
  // A renewal that is on its way all the time.
  a->client.FailWrite(0, Fault::kLate);
  EXPECT_EQ(RenewCode(*a, claim, clock_.Wall() + seconds{1}), ErrorCode::kOutcomeUnknown);
  const auto b = Fixed(server);
  EXPECT_EQ(Claim(*b, "b").error().code, ErrorCode::kRefused);
  ASSERT_TRUE(server.Delete(tree_.Owner(claim.worker)));  // worker release
  const auto theirs = Get(*b, "b");
  EXPECT_EQ(theirs.worker, claim.worker);
  EXPECT_GE(theirs.ceiling, clock_.Wall() + seconds{3});
  ASSERT_TRUE(b->registry.Renew(theirs, clock_.Wall() + seconds{9}).ok());
  const auto before = CeilingOf(server, claim.worker);
  a->client.LandLate();
  EXPECT_EQ(CeilingOf(server, claim.worker), before);
  EXPECT_EQ(RenewCode(*a, claim, clock_.Wall()), ErrorCode::kNotOwner);
  EXPECT_EQ(CeilingOf(server, claim.worker), before);
  EXPECT_TRUE(b->registry.Renew(theirs, clock_.Wall() + seconds{9}).ok());
  EXPECT_EQ(Claim(*a, "a").error().code, ErrorCode::kRefused);
}

// S13: a machine that was cloned while leafctl ran, or set back to a snapshot.
TEST_F(FixedRegistryTest, TwoProcessesWithOneMemoryAreNoticed) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
  // One whose reply is lost is this process's own.
  process->client.FailWrite(0, Fault::kLostReply);
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall() + seconds{4}), ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{5}).ok());
  CeilingRecord record = CeilingOf(server, claim.worker);
  record.ceiling = *record.ceiling + seconds{1};
  server.Set(tree_.Ceiling(claim.worker), FormatCeiling(record));
  const auto lost = process->registry.Renew(claim, clock_.Wall() + seconds{6});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kNotOwner);
  EXPECT_NE(lost.error().message.find("set back to a snapshot"), std::string::npos) << lost.error().message;
  EXPECT_EQ(CeilingOf(server, claim.worker), record);
}

TEST_F(FixedRegistryTest, WhateverProvesOurRightMayNotGoAway) {
  for (const bool owner : {false, true}) {
    MemoryZooKeeper server;
    const auto process = Fixed(server);
    const auto claim = Get(*process, "a");
    ASSERT_TRUE(server.Delete(owner ? tree_.Owner(0) : tree_.ForeverNode(Forever(server)[0])));
    EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kNotOwner);
    EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value());
  }
}

TEST_F(FixedRegistryTest, ACopiedStateDirectoryStopsTheFirst) {
  MemoryZooKeeper server;
  const auto a = Fixed(server);
  const auto copy = Fixed(server);
  const auto first = Get(*a, "a");
  ASSERT_TRUE(a->registry.Renew(first, clock_.Wall() + seconds{3}).ok());
  const auto second = Get(*copy, "a");
  EXPECT_GE(second.ceiling, clock_.Wall() + seconds{3});
  EXPECT_EQ(RenewCode(*a, first, clock_.Wall() + seconds{6}), ErrorCode::kNotOwner);
  EXPECT_TRUE(copy->registry.Renew(second, clock_.Wall() + seconds{6}).ok());
}

TEST_F(FixedRegistryTest, LostRepliesOfRenewalsAreMadeUpFor) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  for (int i = 1; i <= 20; ++i) {
    clock_.fake().Advance(seconds{1});
    if (i % 2 == 0) process->client.FailWrite(0, Fault::kLostReply);
    const WallTime ceiling = clock_.Wall() + seconds{3};
    const auto renewed = process->registry.Renew(claim, ceiling);
    EXPECT_EQ(renewed.ok(), i % 2 == 1);
    EXPECT_EQ(CeilingOf(server, 0).ceiling, ceiling);
  }
  process->client.FailWrite(0, Fault::kLostReply);
  EXPECT_FALSE(process->registry.Release(claim, clock_.Wall()).ok());
  EXPECT_TRUE(process->registry.Release(claim, clock_.Wall()).ok());
  EXPECT_EQ(Get(*Fixed(server), "a").ceiling, clock_.Wall());
}

// S7
TEST_F(FixedRegistryTest, TheSessionExpiresBetweenAnyTwoCalls) {
  for (const bool behind : {false, true}) {
    bool done = false;
    for (int call = 0; call < kCallsMax && !done; ++call) {
      SCOPED_TRACE(call);
      MemoryZooKeeper server;
      const auto process = Fixed(server);
      // What a server showed that is as far behind as it can be.
      const auto stale = server.Snapshot();
      bool in_between = false;
      process->client.BeforeCall(call, [&] {
        in_between = true;
        process->client.Expire(behind ? std::optional(stale) : std::nullopt);
      });
      auto claim = Claim(*process, "a");
      for (int i = 0; i < 3 && !claim.ok(); ++i) claim = Claim(*process, "a");
      ASSERT_TRUE(claim.ok()) << claim.error().message;
      EXPECT_EQ(claim->worker, 0U);
      EXPECT_EQ(Forever(server).size(), 1U);
      EXPECT_TRUE(process->registry.Renew(*claim, clock_.Wall()).ok());
      done = !in_between;
    }
    EXPECT_TRUE(done);
  }
}

// S1 and S7 together: our node is made, the reply is lost, the session too, and the next server has not
// heard of the node.
TEST_F(FixedRegistryTest, AServerThatIsBehindDoesNotHideOurNode) {
  for (int write = 0; write < kCallsMax; ++write) {
    for (int call = 0; call < 16; ++call) {
      SCOPED_TRACE(std::to_string(write) + " " + std::to_string(call));
      MemoryZooKeeper server;
      const auto process = Fixed(server);
      auto stale = server.Snapshot();
      process->client.FailWrite(write, Fault::kLostReply);
      const auto first = Claim(*process, "a");
      if (first.ok()) return;
      // Everything up to the lost one is there, without it.
      process->client.BeforeCall(call, [&] {
        stale = server.Snapshot();
        for (const std::string& child : Forever(server)) stale.erase(tree_.ForeverNode(child));
        process->client.Expire(stale);
      });
      auto claim = Claim(*process, "a");
      for (int i = 0; i < 3 && !claim.ok(); ++i) claim = Claim(*process, "a");
      ASSERT_TRUE(claim.ok()) << claim.error().message;
      EXPECT_EQ(Forever(server).size(), 1U);
      EXPECT_EQ(claim->worker, 0U);
    }
  }
  FAIL() << "a claim makes more writes than that";
}

TEST_F(FixedRegistryTest, AServerThatIsBehindDoesNotMakeUsLoseOurNumber) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto stale = server.Snapshot();
  const auto claim = Get(*process, "a");
  process->client.FailWrite(0, Fault::kLostReply);
  EXPECT_FALSE(process->registry.Renew(claim, clock_.Wall()).ok());
  // The renewal conflicts; what is read then comes from a new session at a server that knows nothing of us.
  process->client.BeforeCall(1, [&] { process->client.Expire(stale); });
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kUnavailable);
  EXPECT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
}

TEST_F(FixedRegistryTest, TheThousandAndTwentyFifthWorkerIsToldWhatToDo) {
  MemoryZooKeeper server;
  for (int i = 0; i < 1024; ++i)
    StartJava(server, "127.1." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ":1");
  const auto process = Fixed(server);
  const auto claim = Claim(*process, "a");
  ASSERT_FALSE(claim.ok());
  EXPECT_EQ(claim.error().code, ErrorCode::kExhausted);
  EXPECT_NE(claim.error().message.find("1024"), std::string::npos);
  EXPECT_NE(claim.error().hint.find("recycle"), std::string::npos);
  EXPECT_EQ(Forever(server).size(), 1024U) << "a number was used up for nothing";
  // A node that Java made for this address does not help either.
  const Java java = StartJava(server);
  EXPECT_EQ(java.worker, 1024U);
  EXPECT_EQ(Claim(*process, "a").error().code, ErrorCode::kExhausted);
}

TEST_F(FixedRegistryTest, ANumberOutsideTheRangeIsRefusedAndNotMade) {
  MemoryZooKeeper server;
  StartJava(server, "127.0.0.9:1");
  const auto code = [&](std::uint64_t begin, std::uint64_t end) {
    RegistryOptions options = Options();
    options.worker_begin = begin;
    options.worker_end = end;
    const auto process = Start<FixedRegistry>(server, options);
    const auto claim = Claim(*process, "a");
    if (claim.ok()) return ErrorCode::kInternal;
    EXPECT_NE(claim.error().message.find("worker_range"), std::string::npos) << claim.error().message;
    return claim.error().code;
  };
  EXPECT_EQ(code(0, 1), ErrorCode::kExhausted) << "the next one is 1: all of the range are used up";
  EXPECT_EQ(code(2, 9), ErrorCode::kRefused);
  EXPECT_EQ(Forever(server).size(), 1U);
  // The same for a number that this node has already.
  StartJava(server);
  EXPECT_EQ(code(0, 1), ErrorCode::kRefused);
}

TEST_F(FixedRegistryTest, TheAddressIsFoundBeforeTheLastDash) {
  MemoryZooKeeper server;
  StartJava(server, "127.0.0.9:1");
  const Java java = StartJava(server);
  EXPECT_EQ(java.worker, 1U);
  // A host name with a dash, and foreign nodes.
  server.CreateSequential(tree_.ForeverNode("my-host:80-"), "{}");
  server.Create(tree_.ForeverNode("lock"), "");
  server.Create(tree_.ForeverNode(kAddress), "");
  server.Create(tree_.ForeverNode("x-" + kAddress + "-0000000009"), "");
  EXPECT_EQ(Get(*Fixed(server), "a").worker, 1U);
  EXPECT_EQ(Claim(*Fixed(server), "c", "my-host:80").error().code, ErrorCode::kConfig);
}

TEST_F(FixedRegistryTest, WhatCannotBeReadIsNotGuessedAt) {
  const auto refused = [&](const std::string& path, const std::string& data) {
    MemoryZooKeeper server;
    auto process = Fixed(server);
    Get(*process, "a");
    const std::string real = path.empty() ? tree_.ForeverNode(Forever(server)[0]) : path;
    ASSERT_TRUE(server.Set(real, data));
    process = Fixed(server);
    const auto claim = Claim(*process, "a");
    ASSERT_FALSE(claim.ok()) << path;
    EXPECT_EQ(claim.error().code, ErrorCode::kRefused);
    EXPECT_NE(claim.error().message.find(real), std::string::npos) << claim.error().message;
    EXPECT_EQ(Forever(server).size(), 1U);
  };
  refused(tree_.Properties(), "{}");
  refused(tree_.Owner(0), "x");
  refused(tree_.Address(kAddress), "");
  refused(tree_.Ceiling(0), "{}");
  refused("", "");
  refused("", R"({"ip":"127.0.0.1","port":"8080","timestamp":5,"lease":7})");
  refused("", R"({"ip":"127.0.0.1","port":"8080","timestamp":9000000000000000000})");
}

TEST_F(FixedRegistryTest, AnotherClusterUnderThisNameIsRefused) {
  MemoryZooKeeper server;
  Get(*Fixed(server), "a");
  const auto process = Fixed(server);
  const auto layout = process->registry.Claim(
      {kAddress, "a"}, {"test", "zookeeper", *core::IdLayout::Make(40, 11, 12, kLeafEpochMillis)});
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.error().code, ErrorCode::kRefused);
  const auto recycling = Leased(server);
  EXPECT_EQ(Claim(*recycling, "a").error().code, ErrorCode::kRefused);
}

TEST_F(FixedRegistryTest, ATypoInTheChrootMakesNoUniverse) {
  class Rootless final : public Client {
   public:
    explicit Rootless(Client& inner) : inner_(inner) {}
    Result<std::optional<NodeData>> Get(const std::string& p) override { return inner_.Get("/none" + p); }
    Result<std::optional<NodeStat>> Exists(const std::string& p) override {
      return inner_.Exists("/none" + p);
    }
    Result<std::optional<std::vector<std::string>>> Children(const std::string& p) override {
      return inner_.Children("/none" + p);
    }
    Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths) override {
      std::vector<std::string> below;
      for (const std::string& path : paths) below.push_back("/none" + path);
      return inner_.GetAll(below);
    }
    Result<WriteOutcome> Write(const std::vector<Operation>& operations) override {
      std::vector<Operation> below = operations;
      for (Operation& operation : below) operation.path = "/none" + operation.path;
      return inner_.Write(below);
    }
    std::int64_t session_id() const override { return inner_.session_id(); }
    std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override {
      return inner_.OnNewSession(std::move(listener));
    }

   private:
    Client& inner_;
  };
  MemoryZooKeeper server;
  MemoryClient inner(server);
  Rootless client(inner);
  FixedRegistry registry(Options(), client, clock_, log_);
  const auto claim = registry.Claim({kAddress, "a"}, cluster_);
  ASSERT_FALSE(claim.ok());
  EXPECT_EQ(claim.error().code, ErrorCode::kConfig);
}

TEST_F(FixedRegistryTest, ClaimsOfManyNodesInRandomOrderStayApart) {
  // Up to 12 nodes, two to an address at times, with lost and late writes and sessions that end: a node that
  // holds a number by an acknowledged renewal is the only one that does.
  for (std::uint64_t seed = 1; seed <= testing::Scaled(20U); ++seed) {
    SCOPED_TRACE(seed);
    testing::FakeRandom random(seed);
    MemoryZooKeeper server;
    struct Node {
      std::string uuid;
      std::string address;
      std::unique_ptr<Process<FixedRegistry>> process;
      std::optional<core::WorkerClaim> claim;
    };
    std::vector<Node> nodes;
    for (int i = 0; i < 12; ++i)
      nodes.push_back(
          {"u" + std::to_string(i), "127.0.0." + std::to_string(i * 2 / 3) + ":80", Fixed(server), {}});
    std::vector<std::unique_ptr<Process<FixedRegistry>>> dead;
    std::map<std::uint64_t, WallTime> issued;  // exclusive end of what a number has had acknowledged
    for (int step = 0; step < 150; ++step) {
      Node& node = nodes[random.Below(nodes.size())];
      clock_.fake().Advance(milliseconds{random.Below(2000)});
      if (random.Below(4) == 0) {
        node.process->client.FailWrite(static_cast<int>(random.Below(8)),
                                       random.Below(2) == 0 ? Fault::kLostReply : Fault::kLate);
      }
      switch (random.Below(6)) {
        case 0:
        case 1: {
          const auto claim = Claim(*node.process, node.uuid, node.address);
          node.claim.reset();
          if (!claim.ok()) break;
          node.claim = *claim;
          if (issued.count(claim->worker) > 0) {
            ASSERT_TRUE(claim->ceiling.has_value());
            ASSERT_GE(*claim->ceiling, issued[claim->worker]);
          }
          break;
        }
        case 2:
        case 3: {
          if (!node.claim) break;
          const WallTime ceiling = clock_.Wall() + seconds{3};
          if (node.process->registry.Renew(*node.claim, ceiling).ok()) {
            auto& end = issued[node.claim->worker];
            end = std::max(end, ceiling);
            for (const Node& other : nodes) {
              if (&other == &node || !other.claim || other.claim->worker != node.claim->worker) continue;
              EXPECT_FALSE(other.process->registry.Renew(*other.claim, ceiling).ok())
                  << "two hold one number";
            }
          }
          break;
        }
        case 4:
          // Killed; what it had sent may still land.
          dead.push_back(std::move(node.process));
          node.process = Fixed(server);
          node.claim.reset();
          break;
        default:
          if (!dead.empty()) dead[random.Below(dead.size())]->client.LandLate();
          if (random.Below(3) == 0) node.process->client.Expire();
      }
      // One node for an address, for ever.
      std::set<std::string> addresses;
      for (const std::string& child : Forever(server))
        ASSERT_TRUE(addresses.insert(ParseForeverName(child)->address).second) << child;
    }
  }
}

// ---- presence
// ----------------------------------------------------------------------------------------------

TEST_F(FixedRegistryTest, TheTemporaryNodeComesBackWithEachSession) {
  MemoryZooKeeper server;
  const auto a = Fixed(server);
  const auto b = Fixed(server);
  EXPECT_FALSE(a->registry.LivePeers().ok()) << "not before a claim";
  const auto claim = Get(*a, "a");
  Get(*b, "b", "127.0.0.2:8080");
  auto peers = a->registry.LivePeers();
  ASSERT_TRUE(peers.ok());
  ASSERT_EQ(peers->size(), 1U);
  EXPECT_EQ(peers->front().address, "127.0.0.2:8080");
  EXPECT_EQ(peers->front().url, "http://" + kAddress);
  EXPECT_EQ(peers->front().worker, 1U);

  b->client.Expire();
  b->client.Announce();
  EXPECT_TRUE(server.Data(tree_.Temporary("127.0.0.2:8080")).has_value())
      << "made by the new session's event";
  EXPECT_EQ(a->registry.LivePeers()->size(), 1U);

  // The event comes while nothing works: the next renewal makes up for it.
  a->client.SetDown(true);
  a->client.Expire();
  a->client.Announce();
  EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value());
  a->client.SetDown(false);
  ASSERT_TRUE(a->registry.Renew(claim, clock_.Wall()).ok());
  EXPECT_TRUE(server.Data(tree_.Temporary(kAddress)).has_value());
  EXPECT_EQ(b->registry.LivePeers()->size(), 1U);

  // A foreign node there does no harm.
  server.Create(tree_.Temporary("127.0.0.3:1"), "x");
  EXPECT_EQ(a->registry.LivePeers()->size(), 1U);
  ASSERT_TRUE(a->registry.Release(claim, clock_.Wall()).ok());
  EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value());
  a->client.Expire();
  a->client.Announce();
  EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value()) << "released";
}

TEST_F(FixedRegistryTest, ATemporaryNodeOfTheSessionBeforeIsReplaced) {
  MemoryZooKeeper server;
  const auto dead = Fixed(server);
  Get(*dead, "a");
  const auto process = Fixed(server);  // its session has not run out yet
  Get(*process, "a");
  dead->client.Expire();
  EXPECT_TRUE(server.Data(tree_.Temporary(kAddress)).has_value());
}

// ---- leased
// ------------------------------------------------------------------------------------------------

class LeaseRegistryTest : public ZooKeeperRegistryTest {
 protected:
  static constexpr std::uint64_t kCapacity = 4;
  RegistryOptions Few() const {
    RegistryOptions options = Options();
    options.worker_begin = 1020;
    options.worker_end = 1024;
    return options;
  }
  std::unique_ptr<Process<LeaseRegistry>> LeasedOfFew(MemoryZooKeeper& server) {
    return Start<LeaseRegistry>(server, Few());
  }
  RegistryOptions OneNumber() const {
    RegistryOptions options = Few();
    options.worker_begin = 1023;
    return options;
  }
  static std::string AddressOf(int node) { return "127.0.0." + std::to_string(node) + ":80"; }
  LeaseRecord RecordOf(MemoryZooKeeper& server, std::uint64_t worker) {
    return *ParseLease(server.Data(tree_.Lease(worker)).value());
  }
};

TEST_F(LeaseRegistryTest, NumbersComeFromTheTopAndBack) {
  MemoryZooKeeper server;
  const auto a = Leased(server);
  const auto b = Leased(server);
  const auto first = Get(*a, "a");
  EXPECT_EQ(first.worker, 1023U);
  EXPECT_EQ(first.generation, 1U);
  EXPECT_FALSE(first.ceiling.has_value());
  EXPECT_EQ(Get(*b, "b", AddressOf(2)).worker, 1022U);
  const WallTime end = clock_.Wall() + seconds{2};
  ASSERT_TRUE(a->registry.Renew(first, end + seconds{1}).ok());
  ASSERT_TRUE(a->registry.Release(first, end).ok());
  EXPECT_FALSE(server.Data(tree_.Temporary(kAddress)).has_value());
  EXPECT_EQ(RenewCode(*a, first, end), ErrorCode::kNotOwner);
  const auto c = Leased(server);
  const auto next = Get(*c, "c", AddressOf(3));
  EXPECT_EQ(next.worker, 1023U);
  EXPECT_EQ(next.generation, 2U);
  EXPECT_EQ(next.ceiling, end);
  EXPECT_TRUE(server.Children(tree_.Forever()).empty()) << "Java's numbers are not ours to use up";
}

TEST_F(LeaseRegistryTest, OnesOwnLeaseComesBackAtOnce) {
  MemoryZooKeeper server;
  const auto first = Get(*Leased(server), "a");
  Get(*Leased(server), "b", AddressOf(2));
  const BootTime begin = clock_.Boot();
  const auto again = Get(*Leased(server), "a");
  EXPECT_EQ(again.worker, first.worker);
  EXPECT_EQ(again.generation, first.generation + 1);
  EXPECT_EQ(clock_.Boot(), begin);
}

// S1, S2
TEST_F(LeaseRegistryTest, ANumberWhoseCeilingIsFarAheadStopsNoOtherNodesStart) {
  MemoryZooKeeper server;
  const auto wrong = Leased(server);
  const auto burnt = Get(*wrong, "a");
  ASSERT_TRUE(wrong->registry.Renew(burnt, clock_.Wall() + std::chrono::hours{1}).ok());
  ASSERT_TRUE(wrong->registry.Release(burnt, clock_.Wall() + std::chrono::hours{1}).ok());
  const auto other = Get(*Leased(server), "b", AddressOf(2));
  EXPECT_EQ(other.worker, burnt.worker - 1) << "the burnt one is free, and higher";
  EXPECT_FALSE(other.ceiling);
  // The node that burnt it can start, too.
  EXPECT_NE(Get(*Leased(server), "a").worker, burnt.worker);
  // A ceiling that a start waits for is no obstacle.
  const auto own = Get(*Leased(server), "c", AddressOf(3));
  const auto again = Leased(server);
  EXPECT_EQ(Get(*again, "c", AddressOf(3)).worker, own.worker);
}

TEST_F(LeaseRegistryTest, WhereAllCeilingsAreFarAheadTheLowestIsTaken) {
  MemoryZooKeeper server;
  const std::uint64_t numbers = Few().worker_end - Few().worker_begin;
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < numbers; ++i) {
    const auto process = LeasedOfFew(server);
    const auto claim = Get(*process, "n" + std::to_string(i), AddressOf(static_cast<int>(i)));
    last = claim.worker;
    ASSERT_TRUE(process->registry.Release(claim, clock_.Wall() + std::chrono::hours{100 - i}).ok());
  }
  EXPECT_EQ(Get(*LeasedOfFew(server), "z", AddressOf(99)).worker, last);
}

TEST_F(LeaseRegistryTest, LostAndLateWritesOfAClaim) {
  for (const Fault fault : {Fault::kLostReply, Fault::kDown, Fault::kLate}) {
    bool seen_last = false;
    for (int index = 0; index < kCallsMax && !seen_last; ++index) {
      SCOPED_TRACE(index);
      MemoryZooKeeper server;
      const auto process = Leased(server);
      process->client.FailWrite(index, fault);
      (void)Claim(*process, "a");
      seen_last = !process->client.failed();
      const auto next = Leased(server);
      const auto claim = Get(*next, "a");
      EXPECT_EQ(claim.worker, 1023U) << "it used up another number";
      ASSERT_TRUE(next->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
      const auto before = RecordOf(server, 1023);
      process->client.LandLate();
      EXPECT_EQ(RecordOf(server, 1023), before);
      EXPECT_TRUE(next->registry.Renew(claim, clock_.Wall() + seconds{4}).ok());
    }
    EXPECT_TRUE(seen_last);
  }
}

TEST_F(LeaseRegistryTest, TwoClaimsBetweenAnyTwoCalls) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto a = Leased(server);
    const auto b = Leased(server);
    bool in_between = false;
    core::WorkerClaim second;
    a->client.BeforeCall(call, [&] {
      in_between = true;
      second = Get(*b, "b", AddressOf(2));
    });
    const auto first = Get(*a, "a");
    if (!in_between) return;
    EXPECT_NE(first.worker, second.worker);
    EXPECT_TRUE(a->registry.Renew(first, clock_.Wall()).ok());
    EXPECT_TRUE(b->registry.Renew(second, clock_.Wall()).ok());
  }
  FAIL() << "a claim makes more calls than that";
}

// S3, S5: all of them are frozen; several claim, and their waits go on at the same time.
TEST_F(LeaseRegistryTest, ALeaseThatHasRunOutIsTakenAboveItsCeilingAndTheOldHolderGetsNoFurther) {
  MemoryZooKeeper server;
  std::vector<std::unique_ptr<Process<LeaseRegistry>>> holders;
  std::vector<core::WorkerClaim> claims;
  for (int i = 0; i < static_cast<int>(kCapacity); ++i) {
    holders.push_back(LeasedOfFew(server));
    claims.push_back(Get(*holders.back(), "u" + std::to_string(i), AddressOf(i)));
    ASSERT_TRUE(holders.back()->registry.Renew(claims.back(), clock_.Wall() + seconds{100 + i}).ok());
  }
  const WallTime renewed_at = clock_.Wall();
  const BootTime begin = clock_.Boot();
  const auto late = LeasedOfFew(server);
  const auto taken = Get(*late, "late", AddressOf(9));
  const auto waited = clock_.Boot() - begin;
  EXPECT_GE(waited, seconds{30}) << "not before the lease has run out";
  EXPECT_LE(waited, seconds{33}) << "one wait for all";
  EXPECT_EQ(taken.worker, 1023U);
  EXPECT_EQ(taken.generation, 2U);
  EXPECT_EQ(taken.ceiling, renewed_at + seconds{100});
  // The frozen one wakes up.
  EXPECT_EQ(RenewCode(*holders[0], claims[0], renewed_at + seconds{200}), ErrorCode::kNotOwner);
  EXPECT_EQ(holders[0]->registry.Release(claims[0], renewed_at).error().code, ErrorCode::kNotOwner);
  EXPECT_TRUE(late->registry.Renew(taken, renewed_at + seconds{200}).ok());
  // The others were only watched.
  EXPECT_TRUE(holders[1]->registry.Renew(claims[1], renewed_at + seconds{200}).ok());
}

// One call of the first looks took longer than those of the last.
TEST_F(LeaseRegistryTest, ALeaseThatHasRunOutIsTakenHoweverLongEachLookTakes) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const RegistryOptions one = OneNumber();
    const auto dead = Start<LeaseRegistry>(server, one);
    Get(*dead, "dead", AddressOf(0));
    const auto late = Start<LeaseRegistry>(server, one);
    const BootTime begin = clock_.Boot();
    late->client.BeforeCall(call, [&] { clock_.fake().Advance(milliseconds{5}); });
    EXPECT_EQ(Get(*late, "late", AddressOf(1)).worker, 1023U);
    EXPECT_LE(clock_.Boot() - begin, seconds{34});
  }
}

TEST_F(LeaseRegistryTest, TwoClaimantsSeeTheSameRecordRunOut) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const RegistryOptions one = OneNumber();
    const auto dead = Start<LeaseRegistry>(server, one);
    const auto old = Get(*dead, "dead", AddressOf(0));
    const auto a = Start<LeaseRegistry>(server, one);
    const auto b = Start<LeaseRegistry>(server, one);
    std::optional<Result<core::WorkerClaim>> second;
    a->client.BeforeCall(call, [&] { second = Claim(*b, "b", AddressOf(2)); });
    auto first = Claim(*a, "a");
    if (!second) {
      ASSERT_GT(call, 60) << "the wait itself makes more calls than that";
      return;
    }
    // The second may have to wait for the first, which does not renew here: then the first has lost it.
    ASSERT_TRUE(second->ok() || first.ok());
    if (first.ok() && second->ok()) {
      const bool later = first->generation > (*second)->generation;
      EXPECT_EQ(RenewCode(later ? *b : *a, later ? **second : *first, clock_.Wall()), ErrorCode::kNotOwner);
      EXPECT_TRUE((later ? *a : *b).registry.Renew(later ? *first : **second, clock_.Wall()).ok());
    }
    EXPECT_EQ(RenewCode(*dead, old, clock_.Wall()), ErrorCode::kNotOwner);
  }
}

TEST_F(LeaseRegistryTest, WhenAllAreAliveTheNextIsToldSo) {
  MemoryZooKeeper server;
  std::vector<std::unique_ptr<Process<LeaseRegistry>>> holders;
  std::vector<core::WorkerClaim> claims;
  for (int i = 0; i < static_cast<int>(kCapacity); ++i) {
    holders.push_back(LeasedOfFew(server));
    claims.push_back(Get(*holders.back(), "u" + std::to_string(i), AddressOf(i)));
  }
  std::size_t turn = 0;
  clock_.OnWait([&] {
    const std::size_t i = turn++ % claims.size();
    EXPECT_TRUE(holders[i]->registry.Renew(claims[i], clock_.Wall() + seconds{3}).ok());
  });
  const auto late = LeasedOfFew(server);
  const auto refused = Claim(*late, "late", AddressOf(9));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("1020..1023"), std::string::npos) << refused.error().message;
  // One is released while the late node waits: it gets the number at once.
  const BootTime begin = clock_.Boot();
  turn = 0;
  clock_.OnWait([&] {
    if (turn++ != 3) return;
    EXPECT_TRUE(holders[2]->registry.Release(claims[2], clock_.Wall()).ok());
  });
  const auto got = Claim(*late, "late", AddressOf(9));
  clock_.OnWait(nullptr);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->worker, claims[2].worker);
  EXPECT_LE(clock_.Boot() - begin, seconds{3});
}

// S4
TEST_F(LeaseRegistryTest, LostRepliesOfRenewalsAndOfTheReleaseAreMadeUpFor) {
  MemoryZooKeeper server;
  const auto process = Leased(server);
  const auto claim = Get(*process, "a");
  for (int i = 1; i <= 20; ++i) {
    clock_.fake().Advance(seconds{1});
    if (i % 2 == 0) process->client.FailWrite(0, Fault::kLostReply);
    const WallTime ceiling = clock_.Wall() + seconds{3};
    EXPECT_EQ(process->registry.Renew(claim, ceiling).ok(), i % 2 == 1);
    EXPECT_EQ(RecordOf(server, claim.worker).ceiling, ceiling);
  }
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
  EXPECT_GT(RecordOf(server, claim.worker).ceiling, clock_.Wall()) << "lowered";
  process->client.FailWrite(0, Fault::kLostReply);
  EXPECT_FALSE(process->registry.Release(claim, clock_.Wall()).ok());
  EXPECT_TRUE(process->registry.Release(claim, clock_.Wall()).ok());
  EXPECT_EQ(Get(*Leased(server), "b").ceiling, clock_.Wall());
}

// S11: a copied state directory, and a machine that was copied with its memory.
TEST_F(LeaseRegistryTest, ACopyIsNoticedAndTheLoserNeedsAnotherIdentity) {
  for (const bool with_memory : {false, true}) {
    MemoryZooKeeper server;
    const auto process = Leased(server);
    const auto claim = Get(*process, "a");
    ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
    process->client.FailWrite(0, Fault::kLostReply);
    EXPECT_EQ(RenewCode(*process, claim, clock_.Wall() + seconds{4}), ErrorCode::kOutcomeUnknown);
    ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{5}).ok());
    EXPECT_FALSE(process->registry.met_a_copy());
    const auto copy = Leased(server);
    if (with_memory) {
      LeaseRecord record = RecordOf(server, claim.worker);
      record.ceiling = *record.ceiling + seconds{1};
      server.Set(tree_.Lease(claim.worker), FormatLease(record));
    } else {
      EXPECT_EQ(Get(*copy, "a").worker, claim.worker);
    }
    EXPECT_EQ(RenewCode(*process, claim, clock_.Wall() + seconds{6}), ErrorCode::kNotOwner);
    EXPECT_TRUE(process->registry.met_a_copy());
    EXPECT_EQ(Get(*process, "b").worker, claim.worker - 1);
    EXPECT_FALSE(process->registry.met_a_copy());
  }
}

TEST_F(LeaseRegistryTest, ALeaseThatAnOperatorReleasedIsLost) {
  MemoryZooKeeper server;
  const auto process = Leased(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall() + seconds{3}).ok());
  LeaseRecord record = RecordOf(server, claim.worker);
  record.uuid.clear();
  ++record.generation;
  server.Set(tree_.Lease(claim.worker), FormatLease(record));
  const auto lost = process->registry.Renew(claim, clock_.Wall() + seconds{6});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kNotOwner);
  EXPECT_NE(lost.error().message.find("it was released"), std::string::npos) << lost.error().message;
  EXPECT_EQ(RecordOf(server, claim.worker), record);
  const auto other = Leased(server);
  EXPECT_GE(Get(*other, "b", AddressOf(2)).ceiling, clock_.Wall() + seconds{3});
}

TEST_F(LeaseRegistryTest, ARecordMadeAnewIsNoticed) {
  MemoryZooKeeper server;
  const auto process = Leased(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
  server.Delete(tree_.Lease(claim.worker));
  server.Create(tree_.Lease(claim.worker), FormatLease({1, "b", AddressOf(2), std::nullopt}));
  server.Set(tree_.Lease(claim.worker), FormatLease({1, "b", AddressOf(2), clock_.Wall()}));
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kNotOwner);
}

// S6
TEST_F(LeaseRegistryTest, LeasesKeepAwayFromLeafsOwnNumbers) {
  MemoryZooKeeper server;
  RegistryOptions options = Options();
  options.worker_end = 16;
  const auto process = Start<LeaseRegistry>(server, options);
  const auto claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, 15U);
  for (int i = 0; i < 8; ++i) StartJava(server, "127.0.1." + std::to_string(i) + ":1");
  // Java's next is 8: with 8 kept free, there is nothing below 16.
  const auto none = Start<LeaseRegistry>(server, options);
  const auto refused = Claim(*none, "b", AddressOf(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("Leaf"), std::string::npos);
  // Deleted nodes give nothing back.
  server.Delete(tree_.ForeverNode(server.Children(tree_.Forever())[0]));
  EXPECT_EQ(Claim(*none, "b", AddressOf(2)).error().code, ErrorCode::kExhausted);
  for (int i = 8; i < 12; ++i) {
    StartJava(server, "127.0.1." + std::to_string(i) + ":1");
    // Next is 9 … 12: of 15, at least 4 remain up to 11.
    EXPECT_EQ(process->registry.Renew(claim, clock_.Wall()).ok(), i < 11) << i;
  }
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kNotOwner);
  EXPECT_EQ(Claim(*process, "a").error().code, ErrorCode::kExhausted);
}

// The fork's tree, and a node of it.
class ForkTest : public LeaseRegistryTest {
 protected:
  void MakeForkTree(MemoryZooKeeper& server, std::uint64_t begin, std::uint64_t end) {
    for (const std::string& folder : {std::string("/snowflake"), tree_.Base(), tree_.Base() + "/recycle",
                                      tree_.RecycleUnused(), tree_.RecycleUsed()}) {
      if (!server.Data(folder)) server.Create(folder, "");
    }
    for (std::uint64_t worker = begin; worker < end; ++worker)
      server.Create(tree_.RecycleUnused(worker), Record(worker, std::nullopt));
  }
  static std::string Record(std::uint64_t worker, std::optional<WallTime> reported) {
    return fmt::format(R"({{"workId":{},"lastUsedIp":null,"lastUsedPort":null,"lastUsedTimestamp":{}}})",
                       worker, reported ? std::to_string(UnixMillis(*reported)) : "null");
  }
  // It deletes the number, and makes it: two steps.
  bool ForkTakes(MemoryZooKeeper& server, std::uint64_t worker) {
    if (!server.Data(tree_.RecycleUnused(worker))) return false;
    server.Delete(tree_.RecycleUnused(worker));
    server.Create(tree_.RecycleUsed(worker), Record(worker, std::nullopt));
    return true;
  }
  void ForkReports(MemoryZooKeeper& server, std::uint64_t worker, WallTime at) {
    server.Set(tree_.RecycleUsed(worker), Record(worker, at));
  }
};

TEST_F(ForkTest, ANumberOfARunningNodeIsNotLeased) {
  MemoryZooKeeper server(clock_);
  MakeForkTree(server, 1016, 1025);
  for (const std::uint64_t worker : {1023U, 1022U, 1021U}) ForkTakes(server, worker);
  ForkReports(server, 1023, clock_.Wall());
  // A node that has been silent for two hours keeps its number while others of the fork run, which recycle it
  // themselves.
  ForkReports(server, 1022, clock_.Wall() - std::chrono::hours{2});
  const auto process = Leased(server);
  EXPECT_EQ(Get(*process, "a").worker, 1020U);
  EXPECT_FALSE(ForkTakes(server, 1020)) << "what is leased is not the fork's to take";
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "zk_recycle"), 1U);
}

TEST_F(ForkTest, WhatTheForkLeftBehindIsLeasedAboveItsTimes) {
  MemoryZooKeeper server(clock_);
  MakeForkTree(server, 1023, 1025);
  ForkTakes(server, 1023);
  const WallTime reported = clock_.Wall() - kForkSilence;
  ForkReports(server, 1023, reported);
  const auto process = Leased(server);
  const auto claim = Get(*process, "a");
  EXPECT_EQ(claim.worker, 1023U);
  EXPECT_EQ(claim.ceiling, reported + kForkSilence);
  EXPECT_FALSE(server.Data(tree_.RecycleUsed(1023)).has_value());

  const WallTime last = clock_.Wall() - seconds{1};
  server.Create(tree_.RecycleUnused(1022), Record(1022, last));
  const auto other = Leased(server);
  const auto second = Get(*other, "b", AddressOf(2));
  EXPECT_EQ(second.worker, 1022U);
  EXPECT_EQ(second.ceiling, last + core::kJavaMargin);
  EXPECT_FALSE(server.Data(tree_.RecycleUnused(1022)).has_value());
}

TEST_F(ForkTest, ARecordWithoutATimeIsAsOldAsItsLastWrite) {
  MemoryZooKeeper server(clock_);
  MakeForkTree(server, 1023, 1024);
  ForkTakes(server, 1023);
  server.Set(tree_.RecycleUsed(1023), "?");
  EXPECT_EQ(Get(*Leased(server), "a").worker, 1022U);
}

// S7
TEST_F(ForkTest, ANodeOfTheForkTakesTheNumberBetweenAnyTwoCalls) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server(clock_);
    MakeForkTree(server, 1000, 1024);
    const auto process = Leased(server);
    bool in_between = false;
    bool taken = false;
    process->client.BeforeCall(call, [&] {
      in_between = true;
      taken = ForkTakes(server, 1023);
    });
    const auto claim = Get(*process, "a");
    EXPECT_EQ(claim.worker, taken ? 1022U : 1023U);
    EXPECT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
    if (!in_between) return;
  }
  FAIL() << "a claim makes more calls than that";
}

// The fork deletes a number before it makes it again. Meanwhile it is in neither folder.
TEST_F(ForkTest, ANumberOnItsWayBetweenTheFoldersIsNotTheFirstChoice) {
  MemoryZooKeeper server(clock_);
  MakeForkTree(server, 1000, 1024);
  server.Delete(tree_.RecycleUnused(1023));
  EXPECT_EQ(Get(*Leased(server), "a").worker, 1022U);
}

// S8
TEST_F(ForkTest, ATreeThatIsMadeLaterIsLookedAtByEachRenewal) {
  MemoryZooKeeper server(clock_);
  const auto process = Leased(server);
  const auto claim = Get(*process, "a");
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
  MakeForkTree(server, 1016, 1025);
  ASSERT_TRUE(process->registry.Renew(claim, clock_.Wall()).ok());
  EXPECT_FALSE(ForkTakes(server, claim.worker));

  server.Create(tree_.RecycleUsed(claim.worker), Record(claim.worker, std::nullopt));
  const auto lost = process->registry.Renew(claim, clock_.Wall());
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kNotOwner);
  EXPECT_NE(lost.error().message.find("recycle/inuse/workId:1023"), std::string::npos)
      << lost.error().message;
  EXPECT_EQ(Get(*process, "a").worker, 1022U);
}

TEST_F(LeaseRegistryTest, TheSessionExpiresBetweenAnyTwoCalls) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto process = Leased(server);
    bool in_between = false;
    const auto stale = server.Snapshot();
    process->client.BeforeCall(call, [&] {
      in_between = true;
      process->client.Expire(stale);
    });
    auto claim = Claim(*process, "a");
    if (!claim.ok()) claim = Claim(*process, "a");
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    EXPECT_EQ(claim->worker, 1023U);
    if (!in_between) return;
    EXPECT_TRUE(process->registry.Renew(*claim, clock_.Wall()).ok());
    EXPECT_TRUE(server.Data(tree_.Temporary(kAddress)).has_value());
  }
  FAIL() << "a claim makes more calls than that";
}

TEST_F(LeaseRegistryTest, AnUnreadableRecordIsLeftAlone) {
  MemoryZooKeeper server;
  const auto process = Leased(server);
  ASSERT_EQ(Get(*process, "a").worker, 1023U);
  server.Set(tree_.Lease(1023), "?");
  EXPECT_EQ(Get(*Leased(server), "b", AddressOf(2)).worker, 1022U);
  EXPECT_EQ(server.Data(tree_.Lease(1023)), "?");
}

TEST_F(LeaseRegistryTest, RandomClaimsNeverShareATime) {
  for (std::uint64_t seed = 1; seed <= testing::Scaled(20U); ++seed) {
    SCOPED_TRACE(seed);
    testing::FakeRandom random(seed);
    MemoryZooKeeper server;
    struct Node {
      std::string uuid;
      std::string address;
      std::unique_ptr<Process<LeaseRegistry>> process;
      std::optional<core::WorkerClaim> claim;
      WallTime acknowledged;  // it may issue up to here
    };
    std::vector<Node> nodes;
    for (int i = 0; i < 7; ++i)
      nodes.push_back({"u" + std::to_string(i), AddressOf(i), LeasedOfFew(server), {}, {}});
    std::vector<std::unique_ptr<Process<LeaseRegistry>>> dead;
    std::map<std::uint64_t, WallTime> issued;
    for (int step = 0; step < 150; ++step) {
      Node& node = nodes[random.Below(nodes.size())];
      clock_.fake().Advance(milliseconds{random.Below(3000)});
      if (random.Below(4) == 0) {
        node.process->client.FailWrite(static_cast<int>(random.Below(4)),
                                       random.Below(2) == 0 ? Fault::kLostReply : Fault::kLate);
      }
      switch (random.Below(7)) {
        case 0:
        case 1: {
          const auto claim = Claim(*node.process, node.uuid, node.address);
          node.claim.reset();
          if (!claim.ok()) break;
          node.claim = *claim;
          if (issued.count(claim->worker) > 0) {
            ASSERT_TRUE(claim->ceiling.has_value());
            ASSERT_GE(*claim->ceiling, issued[claim->worker]);
          }
          break;
        }
        case 2:
        case 3:
        case 4: {
          if (!node.claim) break;
          const WallTime ceiling = clock_.Wall() + seconds{3};
          if (node.process->registry.Renew(*node.claim, ceiling).ok()) {
            auto& end = issued[node.claim->worker];
            end = std::max(end, ceiling);
          }
          break;
        }
        case 5:
          dead.push_back(std::move(node.process));
          node.process = LeasedOfFew(server);
          node.claim.reset();
          break;
        default:
          if (!dead.empty()) dead[random.Below(dead.size())]->client.LandLate();
          if (random.Below(3) == 0) node.process->client.Expire();
      }
    }
  }
}

// ---- where it is
// -------------------------------------------------------------------------------------------

TEST(ConnectStringTest, HostsAndChroot) {
  const auto plain = ParseConnectString("127.0.0.1:2181");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->hosts, "127.0.0.1:2181");
  EXPECT_EQ(plain->chroot, "");
  const auto full = ParseConnectString("zk-1.example:2181,[2001:db8::1]:2182,zk_3:1/a/b");
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(full->hosts, "zk-1.example:2181,[2001:db8::1]:2182,zk_3:1");
  EXPECT_EQ(full->chroot, "/a/b");
  EXPECT_EQ(ParseConnectString("h:1/")->chroot, "");
}

TEST(ConnectStringTest, WhatIsWrongIsNamed) {
  for (const std::string text : {"",
                                 "/",
                                 "h",
                                 "h:",
                                 ":1",
                                 "h:0",
                                 "h:65536",
                                 "h:1,",
                                 ",h:1",
                                 "h:1,,g:1",
                                 "h:1/a/",
                                 "h:1//a",
                                 "h:1/../a",
                                 "h:1 ",
                                 " h:1",
                                 "h:1/a\n",
                                 "2001:db8::1:2181",
                                 "h:1x",
                                 "h;rm:1",
                                 "[a]b]:1",
                                 "[[::1]:1"}) {
    const auto parsed = ParseConnectString(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig);
    EXPECT_NE(parsed.error().message.find(Quoted(text)), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace leaf::zookeeper
