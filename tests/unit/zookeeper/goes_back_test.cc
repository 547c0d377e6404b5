// ZooKeeper that is restored from a backup, or wiped, under live nodes: no number that one of them has is
// given to another, and each gets back what ZooKeeper has forgotten.
#include <optional>
#include <utility>
#include <vector>

#include "leaf/zookeeper/session.h"
#include "unit/zookeeper/registry_fixture.h"

namespace leaf::zookeeper {
namespace {

class ForgetfulZooKeeperTest : public FixedRegistryTest {
 protected:
  static constexpr seconds kWatch{22};
  const std::string second_address_ = "127.0.0.2:8080";
  const std::string third_address_ = "127.0.0.3:8080";

  RegistryOptions Watching() const {
    RegistryOptions options = Options();
    options.claim_watch = std::nullopt;
    return options;
  }
  std::unique_ptr<Process<FixedRegistry>> Watcher(MemoryZooKeeper& server) {
    return Start<FixedRegistry>(server, Watching());
  }
  Result<core::WorkerClaim> Restart(Process<FixedRegistry>& process, const std::string& uuid,
                                    const std::string& address, std::uint64_t held) {
    return process.registry.Claim({.address = address, .uuid = uuid, .held = held}, cluster_);
  }
  template <typename Registry>
  Result<void> Renew(Process<Registry>& process, const core::WorkerClaim& claim) {
    return process.registry.Renew(claim, clock_.Wall() + seconds{3});
  }
  std::uint64_t NextNumber(MemoryZooKeeper& server) {
    const auto stat = server.Find(tree_.Forever())->stat;
    return NextForeverNumber(stat.child_version, stat.children);
  }
  // Every record that a claim leaves.
  void ExpectWhole(MemoryZooKeeper& server, const std::string& uuid, const std::string& address,
                   const core::WorkerClaim& claim, WallTime ceiling) {
    const std::string name = FormatForeverName(address, claim.worker);
    ASSERT_TRUE(server.Data(tree_.ForeverNode(name))) << name;
    EXPECT_TRUE(ParseForeverData(*server.Data(tree_.ForeverNode(name))).ok());
    EXPECT_EQ(ParseOwner(server.Data(tree_.Owner(claim.worker)).value_or(""))->uuid, uuid);
    EXPECT_EQ(*ParseAddress(server.Data(tree_.Address(address)).value_or("")),
              (AddressRecord{uuid, claim.worker}));
    const auto record = CeilingOf(server, claim.worker);
    EXPECT_EQ(record.uuid, uuid);
    EXPECT_EQ(record.generation, claim.generation);
    EXPECT_GE(record.ceiling, ceiling);
    EXPECT_GT(NextNumber(server), claim.worker) << "Java, or a new node, would get it";
  }
};

TEST_F(ForgetfulZooKeeperTest, ANumberThatIsNewToItsNodeIsWatchedAndTheNodesOwnIsNot) {
  MemoryZooKeeper server;
  const auto process = Watcher(server);
  const BootTime begin = clock_.Boot();
  EXPECT_EQ(Get(*process, "a").worker, 0U);
  EXPECT_EQ(clock_.Boot() - begin, kWatch);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "watching ZooKeeper for 22s"), 1U) << "people wait for it";
  const auto again = Watcher(server);
  const BootTime restart = clock_.Boot();
  EXPECT_EQ(Restart(*again, "a", kAddress, 0)->worker, 0U);
  EXPECT_EQ(clock_.Boot(), restart);
}

TEST_F(ForgetfulZooKeeperTest, ABackupOfThisClaimIsNoSignOfACopy) {
  for (const bool wiped_before : {false, true}) {
    MemoryZooKeeper server;
    const auto process = Fixed(server);
    const auto claim = Get(*process, "a");
    const auto renew = [&] {
      clock_.WaitUntil(clock_.Monotonic() + seconds{3});
      const auto renewed = Renew(*process, claim);
      EXPECT_TRUE(renewed.ok()) << renewed.error().message;
      EXPECT_EQ(CeilingOf(server, claim.worker).ceiling, clock_.Wall() + seconds{3});
    };
    for (int i = 0; i < 10; ++i) renew();
    const auto backup = server.Snapshot();
    renew();
    if (wiped_before) {
      server.Wipe();
      renew();
    }
    server.Restore(backup);
    renew();
    renew();
  }
}

// What a healthy cluster pays: nothing beside the watch of a number that is new.
TEST_F(ForgetfulZooKeeperTest, ARestartAndAReportMakeNoCallsForIt) {
  const auto calls = [&](bool watching) {
    MemoryZooKeeper server;
    const auto first = watching ? Watcher(server) : Fixed(server);
    Get(*first, "a");
    const auto process = watching ? Watcher(server) : Fixed(server);
    const auto claim = Restart(*process, "a", kAddress, 0);
    EXPECT_TRUE(claim.ok());
    const std::pair started{process->client.calls(), process->client.writes()};
    EXPECT_TRUE(Renew(*process, *claim).ok());
    return std::pair{started, std::pair{process->client.calls() - started.first,
                                        process->client.writes() - started.second}};
  };
  const auto [start, report] = calls(/*watching=*/true);
  EXPECT_EQ(start.second, 3) << "the hold of the address, the claim, and the temporary node";
  EXPECT_EQ(report, (std::pair{1, 1}));
  EXPECT_EQ(calls(/*watching=*/false), (std::pair{start, report}));
}

// No session outlasts the watch: a node begins another one after kStaleMax.
TEST_F(ForgetfulZooKeeperTest, TheWatchCoversTheWindowAndEverySession) {
  RegistryOptions options = Watching();
  EXPECT_EQ(options.WatchTime(), kStaleMax + kOwnerMargin);
  options.window = seconds{60};
  EXPECT_EQ(options.WatchTime(), seconds{70}) << "a lease is used up to its last ceiling";
  options.claim_watch = seconds{1};
  EXPECT_EQ(options.WatchTime(), seconds{1});
}

TEST_F(ForgetfulZooKeeperTest, AWatchCountsOnlyWhileTheServersAnswerInOneSession) {
  for (const bool expires : {false, true}) {
    MemoryZooKeeper server;
    const auto process = Watcher(server);
    const BootTime middle = clock_.Boot() + seconds{11};
    clock_.OnWait([&] {
      if (clock_.Boot() < middle) return;
      if (expires) {
        process->client.Expire();
      } else {
        process->client.SetDown(true);
      }
    });
    const auto claim = Claim(*process, "a");
    clock_.OnWait(nullptr);
    ASSERT_FALSE(claim.ok());
    EXPECT_EQ(claim.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(Forever(server).empty());
  }
}

// S9: the owner comes back at any moment of the watch; everything was forgotten, or what one node had
// claimed.
TEST_F(ForgetfulZooKeeperTest, TheNumberOfALiveNodeIsGivenToNoOther) {
  for (const bool wiped : {false, true}) {
    for (const int at : {0, 1, 11, 21}) {
      SCOPED_TRACE(fmt::format("{} {}", wiped, at));
      MemoryZooKeeper server;
      const auto one = Fixed(server);
      const auto two = Fixed(server);
      const auto first = Get(*one, "a");
      const auto backup = server.Snapshot();
      const auto second = Get(*two, "b", second_address_);
      ASSERT_TRUE(Renew(*one, first).ok());
      ASSERT_TRUE(Renew(*two, second).ok());
      const WallTime told = clock_.Wall() + seconds{3};
      if (wiped) {
        server.Wipe();
      } else {
        server.Restore(backup);
      }
      one->client.Expire();
      two->client.Expire();

      const auto three = Watcher(server);
      const BootTime back = clock_.Boot() + seconds{at};
      bool is_back = false;
      clock_.OnWait([&] {
        if (clock_.Boot() < back || std::exchange(is_back, true)) return;
        EXPECT_TRUE(Renew(*one, first).ok());
        EXPECT_TRUE(Renew(*two, second).ok());
      });
      const auto third = Get(*three, "c", third_address_);
      clock_.OnWait(nullptr);
      ASSERT_TRUE(is_back);
      EXPECT_EQ(third.worker, 2U);
      ExpectWhole(server, "a", kAddress, first, told);
      ExpectWhole(server, "b", second_address_, second, told);
      EXPECT_TRUE(Renew(*one, first).ok());
      EXPECT_TRUE(Renew(*two, second).ok());
      EXPECT_TRUE(Renew(*three, third).ok());
      EXPECT_EQ(Forever(server).size(), 3U);
      EXPECT_GE(log_.Count(LogLevel::kWarning, "worker 1: ZooKeeper had lost what it had acknowledged"), 1U);
      EXPECT_EQ(two->registry.times_put_back(), 1U);
      EXPECT_EQ(three->registry.times_put_back(), 0U);
      // A restart finds what it had.
      const auto next = Watcher(server);
      const BootTime restart = clock_.Boot();
      EXPECT_EQ(Restart(*next, "b", second_address_, 1)->worker, 1U);
      EXPECT_EQ(clock_.Boot(), restart);
    }
  }
}

// The counter of numbers is moved by as much as is needed, whatever comes in between.
TEST_F(ForgetfulZooKeeperTest, OwnersThatComeBackAtOnceUseUpNoNumbers) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    std::vector<std::unique_ptr<Process<FixedRegistry>>> nodes;
    std::vector<core::WorkerClaim> claims;
    for (int i = 0; i < 4; ++i) {
      nodes.push_back(Fixed(server));
      claims.push_back(Get(*nodes.back(), std::to_string(i), fmt::format("127.0.0.{}:8080", i + 1)));
    }
    server.Wipe();
    bool in_between = false;
    nodes[3]->client.BeforeCall(call, [&] {
      in_between = true;
      EXPECT_TRUE(Renew(*nodes[2], claims[2]).ok());
    });
    for (std::size_t i = nodes.size(); i-- > 0;) {
      auto renewed = Renew(*nodes[i], claims[i]);
      if (!renewed.ok() && renewed.error().code == ErrorCode::kUnavailable)
        renewed = Renew(*nodes[i], claims[i]);
      EXPECT_TRUE(renewed.ok()) << renewed.error().message;
    }
    EXPECT_EQ(Forever(server).size(), 4U);
    // Each node that is put back raises the counter once, even below a higher number.
    EXPECT_GE(NextNumber(server), 4U);
    EXPECT_LE(NextNumber(server), 7U);
    if (!in_between) return;
  }
  FAIL() << "a renewal makes more calls than that";
}

TEST_F(ForgetfulZooKeeperTest, LostAndLateRepliesOfWhatIsPutBack) {
  for (const Fault fault : {Fault::kLostReply, Fault::kLate, Fault::kDown}) {
    bool seen_last = false;
    for (int index = 0; index < kCallsMax && !seen_last; ++index) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(fault), index));
      MemoryZooKeeper server;
      const auto earlier = Fixed(server);
      Get(*earlier, "z", third_address_);
      const auto node = Fixed(server);
      const auto claim = Get(*node, "a");
      server.Wipe();
      node->client.FailWrite(index, fault);
      (void)Renew(*node, claim);
      seen_last = !node->client.failed();
      node->client.ClearFault();
      EXPECT_TRUE(Renew(*node, claim).ok());
      node->client.LandLate();
      EXPECT_TRUE(Renew(*node, claim).ok());
      ExpectWhole(server, "a", kAddress, claim, clock_.Wall());
      EXPECT_EQ(Forever(server).size(), 1U);
    }
    EXPECT_TRUE(seen_last);
  }
}

// S10: whether or not another node has claimed it since.
TEST_F(ForgetfulZooKeeperTest, AReleasedNumberIsNotPutBack) {
  for (const bool claimed : {false, true}) {
    MemoryZooKeeper server;
    const auto process = Fixed(server);
    const auto claim = Get(*process, "a");
    ASSERT_TRUE(Renew(*process, claim).ok());
    server.Delete(tree_.Owner(0));
    server.Delete(tree_.Address(kAddress));
    if (claimed) {
      const auto other = Fixed(server);
      const auto theirs = Get(*other, "b");
      ASSERT_TRUE(other->registry.Release(theirs, clock_.Wall()).ok());
      server.Delete(tree_.Owner(0));
    }
    EXPECT_EQ(RenewCode(*process, claim, clock_.Wall() + seconds{6}), ErrorCode::kNotOwner);
    EXPECT_FALSE(server.Data(tree_.Owner(0)));
  }
}

// S11
TEST_F(ForgetfulZooKeeperTest, AnOwnerThatComesBackAfterTheWatchStops) {
  MemoryZooKeeper server;
  const auto one = Fixed(server);
  const auto claim = Get(*one, "a");
  server.Wipe();
  const auto two = Watcher(server);
  EXPECT_EQ(Get(*two, "b", second_address_).worker, 0U);
  EXPECT_EQ(RenewCode(*one, claim, clock_.Wall()), ErrorCode::kNotOwner);
  EXPECT_EQ(ParseOwner(*server.Data(tree_.Owner(0)))->uuid, "b");
}

// The same, and the other node has stopped and was released when the owner comes back: what it issued is
// above.
TEST_F(ForgetfulZooKeeperTest, ACeilingBeyondTheOwnersIsAnotherNodes) {
  MemoryZooKeeper server;
  const auto one = Fixed(server);
  const auto earlier = Get(*one, "a");
  ASSERT_TRUE(one->registry.Release(earlier, clock_.Wall()).ok());
  const auto claim = Get(*one, "a");
  ASSERT_TRUE(Renew(*one, claim).ok());
  ASSERT_EQ(claim.generation, 2U);
  server.Wipe();
  const auto two = Watcher(server);
  const auto theirs = Get(*two, "b", second_address_);
  ASSERT_EQ(theirs.worker, claim.worker);
  ASSERT_TRUE(Renew(*two, theirs).ok());
  ASSERT_LT(theirs.generation, claim.generation);
  server.Delete(tree_.Owner(0));
  EXPECT_EQ(RenewCode(*one, claim, clock_.Wall()), ErrorCode::kNotOwner);
}

// S12: at any call another node may come in between.
TEST_F(ForgetfulZooKeeperTest, ARestartTakesTheNumberOfItsStateDirectory) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    for (int i = 0; i < 5; ++i) {
      const auto earlier = Fixed(server);
      Get(*earlier, "x" + std::to_string(i), fmt::format("127.0.1.{}:8080", i + 1));
    }
    const auto before = Fixed(server);
    ASSERT_EQ(Get(*before, "a").worker, 5U);
    server.Wipe();
    const auto process = Watcher(server);
    const auto other = Fixed(server);
    bool in_between = false;
    core::WorkerClaim second;
    process->client.BeforeCall(call, [&] {
      in_between = true;
      second = Get(*other, "b", second_address_);
    });
    const BootTime begin = clock_.Boot();
    const auto claim = Restart(*process, "a", kAddress, 5);
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    EXPECT_EQ(claim->worker, 5U);
    EXPECT_EQ(process->registry.times_put_back(), 1U) << "an operator hears of it";
    EXPECT_EQ(clock_.Boot(), begin);
    EXPECT_GT(NextNumber(server), 5U);
    if (!in_between) return;
    EXPECT_NE(second.worker, 5U);
    EXPECT_TRUE(Renew(*other, second).ok());
    EXPECT_TRUE(Renew(*process, *claim).ok());
  }
  FAIL() << "a claim makes more calls than that";
}

TEST_F(ForgetfulZooKeeperTest, ANumberThatJavaGotMeanwhileIsLeftToIt) {
  MemoryZooKeeper server;
  const auto process = Fixed(server);
  const auto claim = Get(*process, "a");
  server.Wipe();
  const Java java = StartJava(server, second_address_);
  ASSERT_EQ(java.worker, 0U);
  EXPECT_EQ(RenewCode(*process, claim, clock_.Wall()), ErrorCode::kRefused);
  EXPECT_FALSE(server.Data(tree_.Owner(0)));
  // A restart gets another number, and watches before.
  const auto next = Watcher(server);
  const BootTime begin = clock_.Boot();
  const auto restarted = Restart(*next, "a", kAddress, 0);
  ASSERT_TRUE(restarted.ok()) << restarted.error().message;
  EXPECT_EQ(restarted->worker, 1U);
  EXPECT_EQ(clock_.Boot() - begin, kWatch);
}

// An original that ZooKeeper refuses reports nothing for longer than a copy is watched otherwise.
TEST_F(ForgetfulZooKeeperTest, ACopyIsWatchedAsLongAsAnyNewNode) {
  MemoryZooKeeper server;
  const auto original = Fixed(server);
  const auto claim = Get(*original, "a");
  ASSERT_TRUE(Renew(*original, claim).ok());
  const auto copy = Watcher(server);
  const BootTime back = clock_.Boot() + seconds{15};
  clock_.OnWait([&] {
    if (clock_.Boot() >= back) {
      EXPECT_TRUE(Renew(*original, claim).ok());
    }
  });
  const auto refused = copy->registry.Claim(
      {.address = kAddress, .uuid = "a2", .former_uuid = "a", .held = claim.worker}, cluster_);
  clock_.OnWait(nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused) << refused.error().message;
  EXPECT_TRUE(Renew(*original, claim).ok());
}

// A node may start without the registry only with a number that was not denied, and the process may be killed
// while it watches.
TEST_F(ForgetfulZooKeeperTest, ADeniedNumberIsToldOfBeforeTheWatch) {
  MemoryZooKeeper server;
  const auto owner = Fixed(server);
  const auto owned = Get(*owner, "b", second_address_);
  const auto process = Watcher(server);
  const BootTime begin = clock_.Boot();
  std::vector<std::chrono::nanoseconds> told;
  core::NodeIdentity node{.address = kAddress, .uuid = "a", .held = owned.worker};
  node.on_denied = [&] { told.push_back(clock_.Boot() - begin); };
  process->client.SetDown(true);
  EXPECT_FALSE(process->registry.Claim(node, cluster_).ok());
  EXPECT_TRUE(told.empty()) << "nothing was said";
  process->client.SetDown(false);
  const auto other = process->registry.Claim(node, cluster_);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_NE(other->worker, owned.worker);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front().count(), 0);
  EXPECT_GT(clock_.Boot(), begin) << "it has watched";
  // Its own number is not denied to it.
  told.clear();
  node.held = other->worker;
  EXPECT_TRUE(Watcher(server)->registry.Claim(node, cluster_).ok());
  EXPECT_TRUE(told.empty());
  // A copy has no number that could be denied.
  core::NodeIdentity copy{.address = "127.0.0.9:8080", .uuid = "c", .former_uuid = "b", .held = owned.worker};
  copy.on_denied = node.on_denied;
  EXPECT_TRUE(Watcher(server)->registry.Claim(copy, cluster_).ok());
  EXPECT_TRUE(told.empty());
}

// The configuration of a new node does not bind the cluster before its watch is over.
TEST_F(ForgetfulZooKeeperTest, OwnersThatComeBackDecideWhatTheClusterIs) {
  MemoryZooKeeper server;
  const auto owner = Fixed(server);
  const auto owned = Get(*owner, "a");
  server.Wipe();
  const auto newcomer = Watcher(server);
  bool is_back = false;
  clock_.OnWait([&] {
    if (!std::exchange(is_back, true)) {
      EXPECT_TRUE(Renew(*owner, owned).ok());
    }
  });
  core::ClusterProperties other = cluster_;
  other.layout = *core::IdLayout::Make(40, 11, 12, cluster_.layout.epoch_ms());
  const auto refused = newcomer->registry.Claim({.address = second_address_, .uuid = "b"}, other);
  clock_.OnWait(nullptr);
  ASSERT_TRUE(is_back);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(Renew(*owner, owned).ok());
}

// Java makes a node between any two calls with which an owner comes back.
TEST_F(ForgetfulZooKeeperTest, JavaThatComesMeanwhileIsNoticed) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto owner = Fixed(server);
    const auto owned = Get(*owner, "a");
    server.Wipe();
    std::optional<Java> java;
    owner->client.BeforeCall(call, [&] { java = StartJava(server, second_address_); });
    auto renewed = Renew(*owner, owned);
    if (!java) return;
    if (!renewed.ok() && renewed.error().code == ErrorCode::kUnavailable) renewed = Renew(*owner, owned);
    EXPECT_EQ(renewed.ok(), java->worker != owned.worker) << "both have it";
  }
  FAIL() << "a renewal makes more calls than that";
}

TEST_F(ForgetfulZooKeeperTest, AHighNumberComesBackInSeveralTransactions) {
  MemoryZooKeeper server;
  core::ClusterProperties wide = cluster_;
  wide.layout = *core::IdLayout::Make(38, 13, 12, cluster_.layout.epoch_ms());
  RegistryOptions options = Options();
  options.worker_end = 8192;
  const auto process = Start<FixedRegistry>(server, options);
  const auto claim = process->registry.Claim({.address = kAddress, .uuid = "a", .held = 5000}, wide);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(claim->worker, 5000U);
  server.Wipe();
  auto renewed = Renew(*process, *claim);
  for (int i = 0; i < 3 && !renewed.ok(); ++i) renewed = Renew(*process, *claim);
  EXPECT_TRUE(renewed.ok()) << renewed.error().message;
  EXPECT_EQ(NextNumber(server), 5001U);
  EXPECT_EQ(Forever(server).size(), 1U);
}

// The owner comes back between any two calls of a claim that has finished its watch.
TEST_F(ForgetfulZooKeeperTest, AClaimThatMeetsAnOwnerTakesTheNextNumber) {
  for (int call = 0; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    MemoryZooKeeper server;
    const auto owner = Fixed(server);
    const auto owned = Get(*owner, "a");
    server.Wipe();
    const auto claimant = Fixed(server);
    bool in_between = false;
    bool owner_goes_on = false;
    claimant->client.BeforeCall(call, [&] {
      in_between = true;
      owner_goes_on = Renew(*owner, owned).ok();
    });
    auto claim = Claim(*claimant, "b", second_address_);
    if (!in_between) return;
    if (!claim.ok()) claim = Claim(*claimant, "b", second_address_);
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    EXPECT_EQ(owner_goes_on, claim->worker != owned.worker) << "both have it, or none";
    EXPECT_TRUE(Renew(*claimant, *claim).ok());
    EXPECT_EQ(Forever(server).size(), owner_goes_on ? 2U : 1U);
  }
  FAIL() << "a claim makes more calls than that";
}

// ---- leases
// --------------------------------------------------------------------------------------------------

class ForgetfulLeaseTest : public ForgetfulZooKeeperTest {
 protected:
  std::unique_ptr<Process<LeaseRegistry>> Holder(MemoryZooKeeper& server) {
    return Start<LeaseRegistry>(server, Watching());
  }
  Result<core::WorkerClaim> RestartHolder(Process<LeaseRegistry>& process, const std::string& uuid,
                                          std::uint64_t held, WallTime ceiling, milliseconds away = {}) {
    return process.registry.Claim({.address = kAddress,
                                   .uuid = uuid,
                                   .held = held,
                                   .held_ceiling = ceiling,
                                   .last_contact = clock_.Wall() - away},
                                  cluster_);
  }
  LeaseRecord RecordOf(MemoryZooKeeper& server, std::uint64_t worker) {
    return *ParseLease(server.Data(tree_.Lease(worker)).value());
  }
};

TEST_F(ForgetfulLeaseTest, TheNumberOfALiveHolderIsGivenToNoOther) {
  for (const bool wiped : {false, true}) {
    for (const int at : {0, 11, 21}) {
      SCOPED_TRACE(fmt::format("{} {}", wiped, at));
      MemoryZooKeeper server;
      const auto backup_of = Leased(server);
      const auto earlier = Get(*backup_of, "z", third_address_);
      ASSERT_TRUE(backup_of->registry.Release(earlier, clock_.Wall()).ok());
      const auto backup = server.Snapshot();
      const auto one = Leased(server);
      const auto claim = Get(*one, "a");
      ASSERT_TRUE(Renew(*one, claim).ok());
      if (wiped) {
        server.Wipe();
      } else {
        server.Restore(backup);
      }
      one->client.Expire();
      const auto two = Holder(server);
      const BootTime begin = clock_.Boot();
      bool is_back = false;
      clock_.OnWait([&] {
        if (clock_.Boot() < begin + seconds{at} || std::exchange(is_back, true)) return;
        EXPECT_TRUE(Renew(*one, claim).ok());
      });
      const auto other = Get(*two, "b", second_address_);
      clock_.OnWait(nullptr);
      EXPECT_EQ(clock_.Boot() - begin, kWatch);
      EXPECT_NE(other.worker, claim.worker);
      EXPECT_TRUE(Renew(*one, claim).ok());
      EXPECT_TRUE(Renew(*two, other).ok());
      EXPECT_EQ(RecordOf(server, claim.worker).generation, claim.generation);
    }
  }
}

// Another node holds the number by now, or held it for a while.
TEST_F(ForgetfulLeaseTest, AHolderThatComesBackAfterTheWatchStops) {
  for (const bool released : {false, true}) {
    MemoryZooKeeper server;
    const auto one = Leased(server);
    auto claim = Get(*one, "a");
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(one->registry.Release(claim, clock_.Wall()).ok());
      claim = Get(*one, "a");
    }
    ASSERT_TRUE(Renew(*one, claim).ok());
    server.Wipe();
    const auto two = Holder(server);
    const auto other = Get(*two, "b", second_address_);
    ASSERT_EQ(other.worker, claim.worker);
    ASSERT_LT(other.generation, claim.generation);
    ASSERT_TRUE(Renew(*two, other).ok());
    if (released) {
      ASSERT_TRUE(two->registry.Release(other, clock_.Wall() + seconds{3}).ok());
    }
    EXPECT_EQ(RenewCode(*one, claim, clock_.Wall()), ErrorCode::kNotOwner);
    EXPECT_EQ(RecordOf(server, claim.worker).uuid, released ? "" : "b");
  }
}

TEST_F(ForgetfulLeaseTest, ARestartTakesItsLeaseAtOnceOnlyIfItIsWhatTheStateDirectoryRemembers) {
  const auto waits = [&](bool released, milliseconds file_is_ahead, bool other_number) {
    MemoryZooKeeper server;
    const auto one = Leased(server);
    const auto claim = Get(*one, "a");
    EXPECT_TRUE(Renew(*one, claim).ok());
    const WallTime told = clock_.Wall() + seconds{3};
    if (released) {
      EXPECT_TRUE(one->registry.Release(claim, told).ok());
    }
    const auto next = Holder(server);
    const BootTime begin = clock_.Boot();
    EXPECT_TRUE(
        RestartHolder(*next, "a", other_number ? claim.worker - 1 : claim.worker, told + file_is_ahead).ok());
    return clock_.Boot() - begin >= kWatch;
  };
  EXPECT_FALSE(waits(/*released=*/false, milliseconds{0}, false));
  EXPECT_FALSE(waits(false, milliseconds{5000}, false)) << "killed before it could tell";
  EXPECT_TRUE(waits(false, milliseconds{5001}, false));
  EXPECT_FALSE(waits(/*released=*/true, milliseconds{0}, false));
  EXPECT_TRUE(waits(true, milliseconds{1}, false));
  EXPECT_TRUE(waits(true, -milliseconds{1}, false)) << "another node had it since";
  EXPECT_TRUE(waits(false, milliseconds{0}, true));
  EXPECT_TRUE(waits(true, milliseconds{0}, true));
}

// A node stops; another one has its number meanwhile; then ZooKeeper is what it was when the first one
// stopped. What it has is just what the state directory remembers. Where the number was free, the other one
// puts its record back; where it was not, the other one stops, and its ceiling is over by the end of the
// watch.
TEST_F(ForgetfulLeaseTest, ANodeThatWasAwayWatchesItsOwnLeaseToo) {
  for (const bool released : {false, true}) {
    SCOPED_TRACE(released);
    MemoryZooKeeper server;
    const auto one = Leased(server);
    const auto claim = Get(*one, "a");
    const WallTime told = clock_.Wall() + seconds{3};
    ASSERT_TRUE(one->registry.Renew(claim, told).ok());
    if (released) {
      ASSERT_TRUE(one->registry.Release(claim, told).ok());
    }
    const auto backup = server.Snapshot();
    if (!released) {
      ASSERT_TRUE(one->registry.Release(claim, told).ok());
    }
    const auto two = Leased(server);
    const auto theirs = Get(*two, "b", second_address_);
    ASSERT_EQ(theirs.worker, claim.worker);
    ASSERT_TRUE(Renew(*two, theirs).ok());
    server.Restore(backup);

    const auto next = Holder(server);
    const BootTime begin = clock_.Boot();
    std::optional<bool> goes_on;
    clock_.OnWait([&] {
      if (!goes_on) goes_on = Renew(*two, theirs).ok();
    });
    const auto again = RestartHolder(*next, "a", claim.worker, told, milliseconds{30'001});
    clock_.OnWait(nullptr);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_GE(clock_.Boot() - begin, kWatch);
    ASSERT_EQ(goes_on, released);
    EXPECT_EQ(again->worker == theirs.worker, !released);
    EXPECT_EQ(Renew(*two, theirs).ok(), released);
  }
}

TEST_F(ForgetfulLeaseTest, ALeaseIsWatchedOnlyAfterItsNodeWasAway) {
  const auto waits = [&](milliseconds away) {
    MemoryZooKeeper server;
    const auto one = Leased(server);
    const auto claim = Get(*one, "a");
    const WallTime told = clock_.Wall();
    EXPECT_TRUE(one->registry.Release(claim, told).ok());
    const auto next = Holder(server);
    const BootTime begin = clock_.Boot();
    const auto again = RestartHolder(*next, "a", claim.worker, told, away);
    EXPECT_TRUE(again.ok());
    EXPECT_EQ(again->worker, claim.worker) << "no other node has it";
    return clock_.Boot() - begin >= kWatch;
  };
  EXPECT_FALSE(waits(milliseconds{0}));
  EXPECT_FALSE(waits(milliseconds{30'000}));
  EXPECT_TRUE(waits(milliseconds{30'001}));
  EXPECT_TRUE(waits(-milliseconds{1})) << "the clock was set back: how long it was away is not known";
}

// What comes back is of this very claim, and older than what was acknowledged since: no other process wrote
// it.
TEST_F(ForgetfulLeaseTest, ABackupOfThisClaimIsNoSignOfACopy) {
  for (const bool wiped_before : {false, true}) {
    MemoryZooKeeper server;
    const auto one = Leased(server);
    const auto claim = Get(*one, "a");
    const auto renew = [&] {
      clock_.WaitUntil(clock_.Monotonic() + seconds{3});
      const auto renewed = Renew(*one, claim);
      EXPECT_TRUE(renewed.ok()) << renewed.error().message;
      EXPECT_EQ(RecordOf(server, claim.worker).ceiling, clock_.Wall() + seconds{3});
    };
    for (int i = 0; i < 3; ++i) renew();
    const auto backup = server.Snapshot();
    renew();
    if (wiped_before) {
      server.Wipe();
      renew();
    }
    server.Restore(backup);
    renew();
    renew();
    EXPECT_FALSE(one->registry.met_a_copy());
  }
}

TEST_F(ForgetfulLeaseTest, LostRepliesOfWhatIsPutBack) {
  for (const Fault fault : {Fault::kLostReply, Fault::kLate, Fault::kDown}) {
    bool seen_last = false;
    for (int index = 0; index < kCallsMax && !seen_last; ++index) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(fault), index));
      MemoryZooKeeper server;
      const auto one = Leased(server);
      const auto claim = Get(*one, "a");
      ASSERT_TRUE(Renew(*one, claim).ok());
      server.Wipe();
      one->client.FailWrite(index, fault);
      (void)Renew(*one, claim);
      seen_last = !one->client.failed();
      one->client.ClearFault();
      EXPECT_TRUE(Renew(*one, claim).ok());
      one->client.LandLate();
      EXPECT_TRUE(Renew(*one, claim).ok());
      EXPECT_EQ(RecordOf(server, claim.worker).uuid, "a");
    }
    EXPECT_TRUE(seen_last);
  }
}

}  // namespace
}  // namespace leaf::zookeeper
