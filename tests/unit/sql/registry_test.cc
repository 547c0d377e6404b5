// The sql registry beside the fork whose table it shares. The contract is tests/contract.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <soci/soci.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "leaf/core/java_leaf.h"
#include "leaf/sql/database.h"
#include "leaf/sql/worker_registry.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::sql {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeClock;

// A clock that runs a hook during each wait.
class BusyClock final : public Clock {
 public:
  WallTime Wall() const override { return clock.Wall(); }
  MonotonicTime Monotonic() const override { return clock.Monotonic(); }
  BootTime Boot() const override { return clock.Boot(); }
  void WaitUntil(MonotonicTime time) const override {
    clock.WaitUntil(time);
    if (meanwhile) meanwhile();
  }
  mutable FakeClock clock;
  std::function<void()> meanwhile;
};

class SqlRegistryTest : public ::testing::Test {
 protected:
  std::unique_ptr<SqlWorkerRegistry> Connect(std::uint64_t end = 1024, milliseconds watch = {}) {
    return std::make_unique<SqlWorkerRegistry>(
        database_,
        SqlRegistryOptions{
            .worker_begin = 0, .worker_end = end, .host = "h", .url = "http://u", .claim_watch = watch},
        clock_, log_);
  }
  static constexpr seconds kClaimWatch{22};
  std::unique_ptr<SqlWorkerRegistry> Watcher() { return Connect(1024, kClaimWatch); }
  void Execute(const std::string& statement) {
    const auto done = database_.Run("prepare the test", [&](soci::session& session) -> Result<void> {
      session << statement;
      return {};
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  long long Number(const std::string& query) {
    long long number = -1;
    const auto done = database_.Run("look", [&](soci::session& session) -> Result<void> {
      session << query, soci::into(number);
      return {};
    });
    EXPECT_TRUE(done.ok());
    return number;
  }
  // What a node of the fork does every 3 s.
  void ForkReports(const std::string& address) {
    Execute("UPDATE leaf_workerid_alloc SET max_timestamp = " + std::to_string(UnixMillis(clock_.Wall())) +
            " WHERE ip_port = '" + address + "'");
  }
  void ForkRegisters(const std::string& address) {
    Execute("INSERT INTO leaf_workerid_alloc (ip_port, max_timestamp) VALUES ('" + address + "', " +
            std::to_string(UnixMillis(clock_.Wall())) + ")");
  }

  testing::TempDir dir_;
  Database database_{SqliteOptions{.path = dir_.path() + "/leaf.db", .create_tables = true}};
  BusyClock clock_;
  testing::RecordingLogger log_;
  const core::ClusterProperties cluster_{"test", "sql", core::IdLayout{}};
  const core::NodeIdentity node_{"127.0.0.1:8080", "uuid-1"};
};

TEST_F(SqlRegistryTest, TakesOverFromTheForkAboveWhatItReported) {
  ForkRegisters(node_.address);
  const WallTime reported = clock_.Wall();
  clock_.clock.Advance(seconds{1});
  const auto claim = Connect()->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(claim->worker, 1U);
  EXPECT_EQ(claim->ceiling, reported + core::kJavaWatch);
  EXPECT_GE(clock_.Wall(), reported + core::kJavaWatch) << "it was not watched";
}

TEST_F(SqlRegistryTest, AForkThatStillReportsIsNotTakenOver) {
  ForkRegisters(node_.address);
  clock_.meanwhile = [this] { ForkReports(node_.address); };
  const auto refused = Connect()->Claim(node_, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_EQ(Number("SELECT count(*) FROM leafctl_workers"), 0);
}

TEST_F(SqlRegistryTest, AForkThatBeginsToReportLaterIsNoticed) {
  const auto registry = Connect();
  const auto claim = registry->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  ASSERT_TRUE(registry->Renew(*claim, clock_.Wall()).ok());
  clock_.clock.Advance(seconds{1});
  ForkReports(node_.address);
  const auto lost = registry->Renew(*claim, clock_.Wall());
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kRefused);
  EXPECT_FALSE(registry->Release(*claim, clock_.Wall()).ok());
  core::NodeIdentity node = node_;
  node.again = claim->worker;
  const auto again = registry->Claim(node, cluster_);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->worker, claim->worker);
  EXPECT_TRUE(registry->Renew(*again, clock_.Wall()).ok());
}

// ---- the database goes back

TEST_F(SqlRegistryTest, WhatTheDatabaseHasForgottenOfALiveNodeIsPutBack) {
  ASSERT_TRUE(Connect()->Claim({"127.0.0.9:8080", "uuid-9"}, cluster_).ok());
  const auto registry = Connect();
  const auto claim = registry->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  const WallTime told = clock_.Wall() + seconds{3};
  const std::string row = fmt::format(" FROM leafctl_workers WHERE worker = {}", claim->worker);
  ASSERT_TRUE(registry->Renew(*claim, told).ok());
  const auto expect_whole = [&] {
    EXPECT_EQ(Number("SELECT ceiling_ms" + row), UnixMillis(told));
    EXPECT_EQ(Number("SELECT claims" + row), static_cast<long long>(claim->generation));
    EXPECT_EQ(Number(fmt::format("SELECT count(*) FROM leaf_workerid_alloc WHERE id = {} AND ip_port = '{}'",
                                 claim->worker, node_.address)),
              1);
  };
  // As in backups: of its first life, of a time when the number was released, and of the time before its
  // claim.
  for (const char* const statement :
       {"UPDATE leafctl_workers SET claims = claims - 1, ceiling_ms = ceiling_ms - 60000 WHERE worker = 2",
        "UPDATE leafctl_workers SET claims = 0, uuid = '', ceiling_ms = 0 WHERE worker = 2",
        "DELETE FROM leafctl_workers WHERE worker = 2", "DELETE FROM leafctl_workers"}) {
    SCOPED_TRACE(statement);
    Execute(statement);
    EXPECT_TRUE(registry->Renew(*claim, told).ok());
    expect_whole();
  }
  Execute("DELETE FROM leafctl_workers");
  Execute("DELETE FROM leaf_workerid_alloc");
  EXPECT_TRUE(registry->Renew(*claim, told).ok());
  expect_whole();
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "the database had lost what it had acknowledged"), 5U);
  // The next number is above.
  EXPECT_GT(Connect()->Claim({"127.0.0.3:8080", "uuid-3"}, cluster_)->worker, claim->worker);
}

TEST_F(SqlRegistryTest, WhatAnotherNodeHasByNowIsNotPutBack) {
  const auto lost_to = [&](const std::string& statements) {
    Execute("DELETE FROM leafctl_workers");
    Execute("DELETE FROM leaf_workerid_alloc");
    const auto registry = Connect();
    const auto claim = registry->Claim(node_, cluster_);
    EXPECT_TRUE(claim.ok());
    EXPECT_TRUE(registry->Renew(*claim, clock_.Wall() + seconds{3}).ok());
    Execute("DELETE FROM leafctl_workers");
    Execute("DELETE FROM leaf_workerid_alloc");
    Execute(fmt::format(fmt::runtime(statements), claim->worker));
    const auto renewed = registry->Renew(*claim, clock_.Wall() + seconds{3});
    return renewed.ok() ? ErrorCode::kInternal : renewed.error().code;
  };
  // The number belongs to a node of the fork, or this node's address has another number.
  EXPECT_EQ(lost_to("INSERT INTO leaf_workerid_alloc (id, ip_port) VALUES ({}, '127.0.0.4:1')"),
            ErrorCode::kRefused);
  EXPECT_EQ(lost_to("INSERT INTO leaf_workerid_alloc (id, ip_port) VALUES ({}7, '127.0.0.1:8080')"),
            ErrorCode::kRefused);
  const std::string insert =
      "INSERT INTO leafctl_workers (worker, ip_port, uuid, host, url, claims, ceiling_ms, reported_ms, "
      "since_ms, "
      "live) VALUES ({}, '127.0.0.1:8080', ";
  EXPECT_EQ(lost_to(insert + "'uuid-8', 'h', '', 0, 0, 0, 0, 1)"), ErrorCode::kNotOwner);
  // Another node had it for a while, and issued beyond what this one was acknowledged for.
  EXPECT_EQ(lost_to(insert + "'', 'h', '', 0, 4000000000000, 0, 0, 0)"), ErrorCode::kNotOwner);
}

TEST_F(SqlRegistryTest, ANumberThatIsNewToItsNodeIsWatchedAndTheNodesOwnIsNot) {
  const MonotonicTime begin = clock_.Monotonic();
  const auto claim = Watcher()->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(clock_.Monotonic() - begin, kClaimWatch);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "watching the database for 22s"), 1U);
  core::NodeIdentity again = node_;
  again.held = claim->worker;
  const MonotonicTime restart = clock_.Monotonic();
  EXPECT_EQ(Watcher()->Claim(again, cluster_)->worker, claim->worker);
  EXPECT_EQ(clock_.Monotonic(), restart);
}

// The owner comes back at any moment of the watch.
TEST_F(SqlRegistryTest, TheNumberOfALiveNodeIsGivenToNoOther) {
  for (const int at : {0, 11, 21}) {
    SCOPED_TRACE(at);
    Execute("DELETE FROM leafctl_workers");
    Execute("DELETE FROM leaf_workerid_alloc");
    const auto one = Connect();
    const auto claim = one->Claim(node_, cluster_);
    ASSERT_TRUE(claim.ok());
    ASSERT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{3}).ok());
    Execute("DELETE FROM leafctl_workers");
    Execute("DELETE FROM leaf_workerid_alloc");
    const MonotonicTime back = clock_.Monotonic() + seconds{at};
    bool is_back = false;
    clock_.meanwhile = [&] {
      if (clock_.Monotonic() < back || std::exchange(is_back, true)) return;
      EXPECT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{3}).ok());
    };
    const auto two = Watcher();
    const auto other = two->Claim({"127.0.0.2:8080", "uuid-2"}, cluster_);
    clock_.meanwhile = nullptr;
    ASSERT_TRUE(other.ok()) << other.error().message;
    ASSERT_TRUE(is_back);
    EXPECT_NE(other->worker, claim->worker);
    EXPECT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{6}).ok());
    EXPECT_TRUE(two->Renew(*other, clock_.Wall() + seconds{6}).ok());
  }
}

TEST_F(SqlRegistryTest, ARestartTakesTheNumberOfItsStateDirectory) {
  core::NodeIdentity again = node_;
  again.held = 7;
  const MonotonicTime begin = clock_.Monotonic();
  const auto registry = Watcher();
  const auto claim = registry->Claim(again, cluster_);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(claim->worker, 7U);
  EXPECT_EQ(registry->times_put_back(), 1U) << "an operator hears of it";
  EXPECT_EQ(clock_.Monotonic(), begin);
  // If another node has that number, the node gets a new one, after a watch.
  core::NodeIdentity late{"127.0.0.2:8080", "uuid-2"};
  late.held = 7;
  const auto other = Watcher()->Claim(late, cluster_);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->worker, 8U);
  EXPECT_EQ(clock_.Monotonic() - begin, kClaimWatch);
  // A process that lost its number gets that one again, or none.
  late.held.reset();
  late.address = "127.0.0.3:8080";
  late.uuid = "uuid-3";
  late.again = 7;
  EXPECT_EQ(Watcher()->Claim(late, cluster_).error().code, ErrorCode::kRefused);
  late.again = 9;
  EXPECT_EQ(Watcher()->Claim(late, cluster_)->worker, 9U);
  // It does not get the number that its address has instead.
  late.again = 8;
  EXPECT_EQ(Watcher()->Claim(late, cluster_).error().code, ErrorCode::kRefused);
  EXPECT_TRUE(Watcher()->Claim({"127.0.0.3:8080", "uuid-3"}, cluster_).ok());
}

// Restored during the watch, or between it and the claim: a live node's number is the next one then.
TEST_F(SqlRegistryTest, ADatabaseThatGoesBackDuringTheWatchIsWatchedOnceMore) {
  for (const int at : {0, 11, 21, 22}) {
    SCOPED_TRACE(at);
    Execute("DELETE FROM leafctl_workers");
    Execute("DELETE FROM leaf_workerid_alloc");
    const auto one = Connect();
    const auto claim = one->Claim(node_, cluster_);
    ASSERT_TRUE(claim.ok());
    ASSERT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{3}).ok());
    const MonotonicTime begin = clock_.Monotonic();
    bool went_back = false;
    clock_.meanwhile = [&] {
      const auto passed = clock_.Monotonic() - begin;
      if (passed >= seconds{at} && !std::exchange(went_back, true)) {
        Execute("DELETE FROM leafctl_workers");
        Execute("DELETE FROM leaf_workerid_alloc");
      } else if (passed >= seconds{at + 15}) {
        EXPECT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{3}).ok());
      }
    };
    const auto two = Watcher();
    const auto other = two->Claim({"127.0.0.2:8080", "uuid-2"}, cluster_);
    clock_.meanwhile = nullptr;
    ASSERT_TRUE(other.ok()) << other.error().message;
    ASSERT_TRUE(went_back);
    EXPECT_NE(other->worker, claim->worker);
    EXPECT_TRUE(one->Renew(*claim, clock_.Wall() + seconds{6}).ok());
  }
}

// The process may be killed while it watches.
TEST_F(SqlRegistryTest, ADeniedNumberIsToldOfBeforeTheWatch) {
  const auto owned = Connect()->Claim({"127.0.0.2:8080", "uuid-2"}, cluster_);
  ASSERT_TRUE(owned.ok());
  core::NodeIdentity late = node_;
  late.held = owned->worker;
  const MonotonicTime begin = clock_.Monotonic();
  std::vector<std::chrono::nanoseconds> told;
  late.on_denied = [&] { told.push_back(clock_.Monotonic() - begin); };
  core::NodeIdentity copy = late;
  copy.former_uuid = "uuid-2";
  const auto other = Watcher()->Claim(late, cluster_);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_NE(other->worker, owned->worker);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front().count(), 0);
  EXPECT_EQ(clock_.Monotonic() - begin, kClaimWatch);
  // A node's own number is not denied, and a copy has none that could be.
  told.clear();
  late.held = other->worker;
  EXPECT_TRUE(Watcher()->Claim(late, cluster_).ok());
  copy.address = "127.0.0.4:8080";
  copy.uuid = "uuid-4";
  EXPECT_TRUE(Watcher()->Claim(copy, cluster_).ok());
  EXPECT_TRUE(told.empty());
}

TEST_F(SqlRegistryTest, AWatchForOwnersNeedsADatabaseThatAnswers) {
  const auto registry = Watcher();
  clock_.meanwhile = [&] { Execute("DROP TABLE IF EXISTS leafctl_workers"); };
  EXPECT_FALSE(registry->Claim(node_, cluster_).ok());
  clock_.meanwhile = nullptr;
  EXPECT_EQ(Number("SELECT count(*) FROM leaf_workerid_alloc"), 0);
}

TEST_F(SqlRegistryTest, ReportsTheTrueTimeEveryFewSeconds) {
  const auto registry = Connect();
  const auto claim = registry->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  std::set<long long> reported;
  for (int i = 0; i < 30; ++i) {
    clock_.clock.Advance(seconds{1});
    ASSERT_TRUE(registry->Renew(*claim, clock_.Wall() + seconds{3}).ok());
    const long long time = Number("SELECT max_timestamp FROM leaf_workerid_alloc");
    EXPECT_LE(time, UnixMillis(clock_.Wall())) << "a time in the future keeps the fork from starting";
    reported.insert(time);
  }
  EXPECT_EQ(reported.size(), 11U);
}

TEST_F(SqlRegistryTest, AnotherStateDirectoryIsRefusedUntilTheNumberIsReleased) {
  const auto first = Connect();
  const auto claim = first->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  ASSERT_TRUE(first->Renew(*claim, clock_.Wall() + seconds{3}).ok());
  const core::NodeIdentity second{node_.address, "uuid-2"};
  const auto refused = Connect()->Claim(second, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("uuid-1"), std::string::npos);
  EXPECT_NE(refused.error().hint.find("worker release 1"), std::string::npos);
  // What `worker release` does.
  Execute("UPDATE leafctl_workers SET uuid = '', claims = claims + 1 WHERE worker = 1");
  const auto allowed = Connect()->Claim(second, cluster_);
  ASSERT_TRUE(allowed.ok()) << allowed.error().message;
  EXPECT_EQ(allowed->worker, claim->worker);
  const WallTime end = clock_.Wall() + seconds{3} + core::UntoldMax(milliseconds{0});
  EXPECT_EQ(allowed->ceiling, end);
  // Also after a claim whose reply was lost, or a node that ended before its first ID.
  EXPECT_EQ(Connect()->Claim(second, cluster_)->ceiling, end);
  const auto lost = first->Renew(*claim, clock_.Wall() + seconds{60});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kNotOwner);
}

// The schedule: the first owner is cut off as soon as it has its number, issues ahead of the clock, and is
// lost.
TEST_F(SqlRegistryTest, AnOwnerThatNeverToldACeilingHasOneAllTheSame) {
  ASSERT_TRUE(Connect()->Claim(node_, cluster_).ok());
  const WallTime begun = clock_.Wall();
  Execute("UPDATE leafctl_workers SET uuid = '', claims = claims + 1 WHERE worker = 1");
  const core::NodeIdentity second{node_.address, "uuid-2"};
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(Connect()->Claim(second, cluster_)->ceiling, begun + core::UntoldMax(milliseconds{0}));
}

// What the hint says when the numbers are used up: the table gives one out again.
TEST_F(SqlRegistryTest, AReleasedNumberGoesToAnotherAddress) {
  const auto first = Connect();
  const auto claim = first->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  ASSERT_TRUE(first->Renew(*claim, clock_.Wall() + seconds{3}).ok());
  Execute("DELETE FROM leaf_workerid_alloc WHERE id = 1");
  Execute("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'leaf_workerid_alloc'");
  const core::NodeIdentity second{"127.0.0.2:8080", "uuid-2"};
  const auto refused = Connect()->Claim(second, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().hint.find("worker release 1"), std::string::npos);
  Execute("UPDATE leafctl_workers SET uuid = '', claims = claims + 1 WHERE worker = 1");
  const auto registry = Connect();
  const auto allowed = registry->Claim(second, cluster_);
  ASSERT_TRUE(allowed.ok()) << allowed.error().message;
  EXPECT_EQ(allowed->worker, claim->worker);
  EXPECT_EQ(allowed->ceiling, clock_.Wall() + seconds{3} + core::UntoldMax(milliseconds{0}));
  EXPECT_TRUE(registry->Renew(*allowed, clock_.Wall() + seconds{6}).ok());
  EXPECT_EQ(Number("SELECT count(*) FROM leafctl_workers WHERE ip_port = '127.0.0.2:8080'"), 1);
  // A backup of before that claim.
  Execute(
      "UPDATE leafctl_workers SET ip_port = '127.0.0.1:8080', uuid = '', claims = claims - 1, ceiling_ms = "
      "ceiling_ms - 5000");
  Execute("DELETE FROM leaf_workerid_alloc");
  for (int i = 0; i < 2; ++i) {
    const auto renewed = registry->Renew(*allowed, clock_.Wall() + seconds{9});
    EXPECT_TRUE(renewed.ok()) << renewed.error().message;
  }
  EXPECT_EQ(Number("SELECT count(*) FROM leafctl_workers WHERE ip_port = '127.0.0.2:8080'"), 1);
  EXPECT_EQ(first->Renew(*claim, clock_.Wall() + seconds{60}).error().code, ErrorCode::kNotOwner);
}

// A machine that was cloned while leafctl ran, or set back to a snapshot: what is there was sent by another
// process.
TEST_F(SqlRegistryTest, TwoProcessesWithOneMemoryAreNoticed) {
  const auto registry = Connect();
  const auto claim = registry->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  ASSERT_TRUE(registry->Renew(*claim, clock_.Wall() + seconds{3}).ok());
  // A database that was restored to a moment of this claim is no such sign.
  Execute("UPDATE leafctl_workers SET ceiling_ms = ceiling_ms - 2000 WHERE worker = 1");
  ASSERT_TRUE(registry->Renew(*claim, clock_.Wall() + seconds{4}).ok());
  Execute("UPDATE leafctl_workers SET ceiling_ms = ceiling_ms + 1 WHERE worker = 1");
  const auto lost = registry->Renew(*claim, clock_.Wall() + seconds{6});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kNotOwner);
  EXPECT_NE(lost.error().message.find("set back to a snapshot"), std::string::npos) << lost.error().message;
}

TEST_F(SqlRegistryTest, ACopyOfAStateDirectoryThatIsInUseIsRefused) {
  const auto original = Connect();
  const auto claim = original->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  const core::NodeIdentity copied{node_.address, "uuid-1b", /*former_uuid=*/node_.uuid};
  clock_.meanwhile = [&] { EXPECT_TRUE(original->Renew(*claim, clock_.Wall() + seconds{3}).ok()); };
  const auto refused = Connect()->Claim(copied, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("copy of this state directory"), std::string::npos);
  EXPECT_TRUE(original->Renew(*claim, clock_.Wall() + seconds{3}).ok()) << "and the original goes on";

  // A directory that was moved, and whose former process is gone, gets its number after a while.
  clock_.meanwhile = nullptr;
  const MonotonicTime before = clock_.Monotonic();
  const auto moved = Connect()->Claim(copied, cluster_);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_EQ(moved->worker, claim->worker);
  EXPECT_GE(clock_.Monotonic(), before + core::kCopyWatch);
  const WallTime told = clock_.Wall() - core::kCopyWatch + seconds{3};
  EXPECT_GE(moved->ceiling, told + core::UntoldMax(milliseconds{0}) - seconds{1});
  // The original has lost the number by then, whether it still runs or is started anew.
  EXPECT_EQ(original->Renew(*claim, clock_.Wall()).error().code, ErrorCode::kNotOwner);
  EXPECT_EQ(Connect()->Claim(node_, cluster_).error().code, ErrorCode::kRefused);
}

TEST_F(SqlRegistryTest, AFormerClaimOfTheSameDirectoryIsOver) {
  const auto first = Connect();
  const auto claim = first->Claim(node_, cluster_);
  ASSERT_TRUE(claim.ok());
  const auto again = Connect()->Claim(node_, cluster_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->worker, claim->worker);
  EXPECT_EQ(first->Renew(*claim, clock_.Wall()).error().code, ErrorCode::kNotOwner);
}

TEST_F(SqlRegistryTest, ANumberOutsideTheRangeLeavesNoRow) {
  ASSERT_TRUE(Connect(2)->Claim(node_, cluster_).ok());
  const auto refused = Connect(2)->Claim({"127.0.0.2:8080", "uuid-2"}, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().hint.find("recycle"), std::string::npos);
  EXPECT_EQ(Number("SELECT count(*) FROM leaf_workerid_alloc"), 1);
  // One that was given out by the fork is refused as well.
  Execute("INSERT INTO leaf_workerid_alloc (id, ip_port) VALUES (1024, '127.0.0.3:8080')");
  EXPECT_EQ(Connect()->Claim({"127.0.0.3:8080", "uuid-3"}, cluster_).error().code, ErrorCode::kRefused);
}

TEST_F(SqlRegistryTest, OneTableIsOneCluster) {
  ASSERT_TRUE(Connect()->Claim(node_, cluster_).ok());
  core::ClusterProperties other = cluster_;
  other.layout = *core::IdLayout::Make(40, 11, 12, cluster_.layout.epoch_ms());
  const auto refused = Connect()->Claim({"127.0.0.2:8080", "uuid-2"}, other);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("41-10-12"), std::string::npos);
  other = cluster_;
  other.name = "another";
  EXPECT_EQ(Connect()->Claim({"127.0.0.2:8080", "uuid-2"}, other).error().code, ErrorCode::kRefused);
}

TEST_F(SqlRegistryTest, WithoutTablesItSaysHowToMakeThem) {
  Database bare(SqliteOptions{.path = dir_.path() + "/bare.db"});
  SqlWorkerRegistry registry(bare, {}, clock_, log_);
  const auto refused = registry.Claim(node_, cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  EXPECT_NE(refused.error().hint.find("db init"), std::string::npos);
}

TEST_F(SqlRegistryTest, AWatchCanBeInterrupted) {
  ForkRegisters(node_.address);
  const auto registry = Connect();
  clock_.meanwhile = [&] { registry->Interrupt(); };
  const MonotonicTime before = clock_.Monotonic();
  EXPECT_EQ(registry->Claim(node_, cluster_).error().code, ErrorCode::kUnavailable);
  EXPECT_LT(clock_.Monotonic(), before + core::kJavaWatch);
}

TEST_F(SqlRegistryTest, PeersAreTheOthersThatLive) {
  const auto one = Connect();
  const auto two = Connect();
  ASSERT_TRUE(one->Claim(node_, cluster_).ok());
  EXPECT_TRUE(one->LivePeers()->empty());
  const auto claim = two->Claim({"127.0.0.2:8080", "uuid-2"}, cluster_);
  ASSERT_TRUE(claim.ok());
  auto peers = one->LivePeers();
  ASSERT_TRUE(peers.ok());
  ASSERT_EQ(peers->size(), 1U);
  EXPECT_EQ(peers->front().address, "127.0.0.2:8080");
  EXPECT_EQ(peers->front().worker, claim->worker);
  ASSERT_TRUE(two->Release(*claim, clock_.Wall()).ok());
  EXPECT_TRUE(one->LivePeers()->empty());
}

}  // namespace
}  // namespace leaf::sql
