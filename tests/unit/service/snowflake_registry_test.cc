// SnowflakeService with a registry that can be away: what works without it, and what does not.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leaf/service/snowflake_service.h"
#include "leaf/sys/worker_state_file.h"
#include "support/fake_registry.h"
#include "support/fakes.h"
#include "support/scale.h"
#include "support/snowflake_fakes.h"

namespace leaf::service {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::CrashingDisk;
using testing::FakeClock;
using testing::FakeRandom;
using testing::FakeRegistry;
using testing::FakeRegistryRecords;
using testing::ManualExecutor;
using testing::RecordingLogger;

// A cluster: what its nodes share, and every ID that any of them issued.
struct Cluster {
  FakeClock clock;
  FakeRegistryRecords records;
  std::set<std::uint64_t> issued;
};

// One node: its disk and the process that runs at the moment.
class SnowflakeNode {
 public:
  SnowflakeNode(Cluster& cluster, bool leased, int index = 1)
      : registry(cluster.records, leased, cluster.clock),
        cluster_(cluster),
        random_(static_cast<std::uint64_t>(index)) {
    options.cluster.name = "test";
    options.address = "127.0.0." + std::to_string(index) + ":8080";
    options.boot_id = "boot-1";
    options.machine = "machine-" + std::to_string(index);
  }

  Result<void> Start() {
    Make();
    auto started = service_->Start();
    if (!started.ok()) Crash();
    return started;
  }
  // `waits`: the starter ends with an error.
  void StartInBackground(bool waits = true) {
    Make();
    first.reset();
    service_->StartInBackground([this, waits](const Result<void>& result) {
      first = result;
      return waits;
    });
    Settle();
  }
  // kill -9
  void Crash() {
    service_.reset();
    timers_.reset();
    workers_.reset();
    registry_worker_.reset();
  }
  void Stop() {
    service_->Stop();
    Crash();
  }
  bool running() const { return service_ != nullptr; }
  SnowflakeService& service() { return *service_; }

  void Settle() {
    while (timers_->RunOne() || workers_->RunOne() || (!registry_hangs && registry_worker_->RunOne())) {
    }
  }

  bool Take(std::uint64_t count = 1) {
    core::SnowflakeRun run;
    if (!service_->TryNext(count, run)) return false;
    for (const IdRange& range : run.source->RangesOf(run)) {
      EXPECT_GE(range.begin, issued_end) << "order is not kept";
      issued_end = range.end;
      for (std::uint64_t id = range.begin; id < range.end; ++id) {
        EXPECT_TRUE(cluster_.issued.insert(id).second) << "an ID is issued twice: " << id;
      }
    }
    return true;
  }
  Result<void> CanIssue() { return service_->CanIssue(); }

  CrashingDisk disk;
  sys::WorkerStateFile state_file{"/state", disk};
  FakeRegistry registry;
  SnowflakeOptions options;
  RecordingLogger log;
  std::optional<Result<void>> first;
  bool registry_hangs = false;
  std::uint64_t issued_end = 0;

 private:
  void Make() {
    timers_ = std::make_unique<ManualExecutor>(cluster_.clock);
    workers_ = std::make_unique<ManualExecutor>(cluster_.clock);
    registry_worker_ = std::make_unique<ManualExecutor>(cluster_.clock);
    service_ =
        std::make_unique<SnowflakeService>(options, registry, state_file, cluster_.clock, random_,
                                           SnowflakeExecutors{*timers_, *workers_, *registry_worker_}, log);
  }

  Cluster& cluster_;
  FakeRandom random_;
  std::unique_ptr<ManualExecutor> timers_;
  std::unique_ptr<ManualExecutor> workers_;
  std::unique_ptr<ManualExecutor> registry_worker_;
  std::unique_ptr<SnowflakeService> service_;
};

class SnowflakeRegistryTest : public ::testing::Test {
 protected:
  // Lets time pass for `nodes`, in steps that let every timer run about when it should.
  void Pass(milliseconds time, std::vector<SnowflakeNode*> nodes) {
    for (milliseconds step{10}; time > milliseconds{0}; time -= step) {
      step = std::min(step, time);
      cluster_.clock.Advance(step);
      for (SnowflakeNode* node : nodes) {
        if (node->running()) node->Settle();
      }
    }
  }
  static ErrorCode CodeOf(const Result<void>& result) {
    return result.ok() ? ErrorCode::kInternal : result.error().code;
  }

  Cluster cluster_;
};

// ---- fixed numbers
// ---------------------------------------------------------------------------------------------

TEST_F(SnowflakeRegistryTest, AFixedNumberStartsFromItsStateAndRegistersLater) {
  SnowflakeNode other(cluster_, false, 2);
  ASSERT_TRUE(other.Start().ok());
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Settle();
  EXPECT_TRUE(node.Take());
  const std::uint64_t worker = node.service().Status().worker;
  EXPECT_EQ(worker, 1U);
  node.Stop();

  node.registry.down = true;
  Pass(minutes{1}, {&other});
  ASSERT_TRUE(node.Start().ok());
  node.Settle();
  EXPECT_TRUE(node.Take());
  SnowflakeStatus status = node.service().Status();
  EXPECT_EQ(status.worker, worker);
  EXPECT_FALSE(status.registered);
  ASSERT_TRUE(status.registry_problem.has_value());
  Pass(minutes{1}, {&node});
  EXPECT_TRUE(node.Take());

  node.registry.down = false;
  Pass(seconds{5}, {&node});
  status = node.service().Status();
  EXPECT_TRUE(status.registered);
  EXPECT_FALSE(status.registry_problem.has_value());
  EXPECT_EQ(cluster_.records.records[worker].ceiling, status.ceiling);
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALostReplyOfTheRegistryIsNoUnknownOutcomeOfARequest) {
  SnowflakeNode node(cluster_, true);
  node.registry.lose_reply = true;
  node.StartInBackground();
  EXPECT_FALSE(node.Take());
  const auto can = node.CanIssue();
  ASSERT_FALSE(can.ok());
  EXPECT_EQ(can.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(can.error().message.find("the reply was lost"), std::string::npos);
  std::optional<Result<core::SnowflakeRun>> answer;
  node.service().Next(1, milliseconds{0},
                      [&](Result<core::SnowflakeRun> result) { answer = std::move(result); });
  node.Settle();
  ASSERT_TRUE(answer && !answer->ok());
  EXPECT_EQ(answer->error().code, ErrorCode::kUnavailable);
}

TEST_F(SnowflakeRegistryTest, WithoutStateThereIsNoStartWithoutTheRegistry) {
  SnowflakeNode node(cluster_, false);
  node.registry.down = true;
  const auto refused = node.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("no worker number yet"), std::string::npos);
}

TEST_F(SnowflakeRegistryTest, ADaemonWaitsForTheRegistryAndSaysSo) {
  SnowflakeNode node(cluster_, false);
  node.registry.down = true;
  node.StartInBackground();
  ASSERT_TRUE(node.first.has_value());
  EXPECT_TRUE(node.first->ok()) << "it goes on trying";
  Pass(minutes{2}, {&node});
  EXPECT_FALSE(node.Take());
  const auto why = node.CanIssue();
  ASSERT_FALSE(why.ok());
  EXPECT_NE(why.error().message.find("the registry is away"), std::string::npos);
  EXPECT_EQ(node.service().Status().state, "claiming");
  EXPECT_LT(node.registry.claims, 60) << "with a back-off";
  // A request is told at once.
  std::optional<Result<core::SnowflakeRun>> answer;
  EXPECT_EQ(node.service().Next(1, seconds{1}, [&](Result<core::SnowflakeRun> r) { answer = std::move(r); }),
            0U);
  ASSERT_TRUE(answer && !answer->ok());
  EXPECT_EQ(answer->error().code, ErrorCode::kUnavailable);

  node.registry.down = false;
  Pass(seconds{20}, {&node});
  EXPECT_TRUE(node.Take());
  EXPECT_TRUE(node.service().Status().registered);
}

TEST_F(SnowflakeRegistryTest, WhatDoesNotPassEndsTheStartInTheBackground) {
  SnowflakeNode node(cluster_, false);
  node.registry.refuse = Error{ErrorCode::kRefused, "the address is another node's", ""};
  node.StartInBackground();
  ASSERT_TRUE(node.first && !node.first->ok());
  EXPECT_EQ(node.first->error().code, ErrorCode::kRefused);
  node.registry.refuse.reset();
  Pass(minutes{1}, {&node});
  EXPECT_EQ(node.registry.claims, 1);
  EXPECT_FALSE(node.Take());
}

// The first attempt took longer than the starter waited for it: nothing has ended, so there is no restart to
// wait for.
TEST_F(SnowflakeRegistryTest, AnErrorThatNoStarterHearsOfIsTriedAgain) {
  SnowflakeNode node(cluster_, false);
  node.registry.refuse = Error{ErrorCode::kClock, "the clock is ahead of the others", ""};
  node.StartInBackground(/*waits=*/false);
  ASSERT_TRUE(node.first && !node.first->ok());
  EXPECT_EQ(node.service().Status().state, "claiming");
  EXPECT_EQ(node.service().Status().problem->code, ErrorCode::kClock);
  Pass(seconds{5}, {&node});
  EXPECT_GT(node.registry.claims, 1);
  node.registry.refuse.reset();
  Pass(minutes{1}, {&node});
  EXPECT_TRUE(node.Take());
  EXPECT_EQ(node.service().Status().state, "issuing");
}

// An error number that nothing here knows is no reason to end: tags may be served all the same.
TEST_F(SnowflakeRegistryTest, AnErrorOfTheServerThatWasNotForeseenIsTriedAgain) {
  SnowflakeNode node(cluster_, false);
  node.registry.refuse = Error{ErrorCode::kInternal, "You have an error (MySQL error 1104)", ""};
  node.StartInBackground();
  EXPECT_TRUE(node.first && node.first->ok()) << "the starter goes on";
  EXPECT_FALSE(node.Take());
  node.registry.refuse.reset();
  Pass(minutes{1}, {&node});
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALifeThatCouldNotBeginLeavesItsCeilingBehind) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  // The number that it gets is ahead, and the disk is full.
  FakeRegistryRecords::Record& ahead = cluster_.records.records[0];
  ahead.ceiling = cluster_.clock.Wall() + seconds{9};
  node.disk.FailWrites(ENOSPC);
  node.StartInBackground();
  EXPECT_FALSE(node.Take());
  // Another number, another chance: nothing was issued up to that ceiling.
  ahead.owner = "another node";
  ahead.changed = cluster_.clock.Monotonic();
  node.disk.FailWrites(0);
  Pass(seconds{2}, {&node});
  EXPECT_TRUE(node.Take());
  EXPECT_EQ(node.service().Status().worker, 1U);
}

TEST_F(SnowflakeRegistryTest, ACopiedStateIsToldToTheRegistryAndBeginsAboveWhatTheOriginalMayHaveIssued) {
  SnowflakeNode original(cluster_, false);
  ASSERT_TRUE(original.Start().ok());
  Pass(milliseconds{10}, {&original});
  ASSERT_TRUE(original.Take());
  original.Crash();
  ASSERT_TRUE(cluster_.records.records[0].ceiling);
  const WallTime told = *cluster_.records.records[0].ceiling;
  SnowflakeNode copy(cluster_, false, 2);
  copy.options.address = original.options.address;
  copy.disk = original.disk;
  copy.disk.Restart();
  copy.options.machine = "another";
  ASSERT_TRUE(copy.Start().ok());
  EXPECT_NE(copy.registry.former_uuid, "");
  const std::string uuid = copy.service().Status().node_uuid;
  EXPECT_NE(uuid, copy.registry.former_uuid);
  const auto waiting = copy.CanIssue();
  ASSERT_FALSE(waiting.ok());
  Pass(told + seconds{3} + copy.options.window - cluster_.clock.Wall() - milliseconds{10}, {&copy});
  EXPECT_FALSE(copy.Take()) << "the original may have issued those without having told";
  Pass(milliseconds{500}, {&copy});
  EXPECT_TRUE(copy.Take()) << copy.CanIssue().error().message;
  // From now on it belongs to this place.
  copy.Stop();
  ASSERT_TRUE(copy.Start().ok());
  EXPECT_EQ(copy.registry.former_uuid, "");
  EXPECT_EQ(copy.service().Status().node_uuid, uuid);
  copy.Crash();
  original.disk.Restart();
  EXPECT_FALSE(original.Start().ok()) << "the original is not the owner any more";
}

// An image that was made of a directory during its first start, before the registry gave it a number.
TEST_F(SnowflakeRegistryTest, AStateThatIsCopiedBeforeItsFirstNumberHasAnIdentityOfItsOwn) {
  SnowflakeNode original(cluster_, false);
  original.registry.down = true;
  EXPECT_FALSE(original.Start().ok());
  SnowflakeNode copy(cluster_, false, 2);
  copy.options.address = original.options.address;
  copy.disk = original.disk;
  copy.disk.Restart();
  original.registry.down = false;
  original.disk.Restart();
  ASSERT_TRUE(original.Start().ok());
  ASSERT_TRUE(original.Take());
  (void)copy.Start();
  EXPECT_NE(copy.registry.former_uuid, "") << "the registry can look whether the original is there";
}

// The registry knows the new identity. An error behind the claim must not leave the directory with the old
// one.
TEST_F(SnowflakeRegistryTest, AMovedStateKeepsItsNewIdentityWhereTheStartFailsBehindTheClaim) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(minutes{1}, {&node});
  ASSERT_TRUE(node.Take());
  node.Stop();
  node.options.machine = "another";
  cluster_.clock.StepWall(-seconds{30});
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kClock);
  EXPECT_NE(node.registry.former_uuid, "");
  // Not confirmed with a clock that can be trusted: no start without the registry.
  node.registry.down = true;
  cluster_.clock.StepWall(seconds{30});
  EXPECT_FALSE(node.Start().ok());
  node.registry.down = false;
  const auto started = node.Start();
  ASSERT_TRUE(started.ok()) << started.error().message;
  EXPECT_EQ(node.registry.former_uuid, "");
  Pass(seconds{10}, {&node});
  EXPECT_TRUE(node.Take()) << node.CanIssue().error().message;
}

// The clock was ahead, so that nothing was issued, and was put right after the stop. The number may have been
// given away since.
TEST_F(SnowflakeRegistryTest, AContactByAClockThatWasAheadIsNoRightToStart) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(minutes{1}, {&node});
  cluster_.clock.StepWall(hours{24 * 365});
  Pass(minutes{1}, {&node});
  EXPECT_FALSE(node.Take());
  node.Stop();
  cluster_.clock.StepWall(-hours{24 * 365});
  cluster_.clock.Advance(hours{48});
  node.registry.down = true;
  const auto refused = node.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("is not known (snowflake.offline_start_max)"), std::string::npos)
      << refused.error().message;
  node.registry.down = false;
  EXPECT_TRUE(node.Start().ok());
}

// Found by the simulator: the registry refused the original, and it started without the registry later.
TEST_F(SnowflakeRegistryTest, AStateThatTheRegistryHasRefusedIsNoRightToStartWithoutIt) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  const std::string uuid = node.service().Status().node_uuid;
  node.Crash();
  // A copy of the directory has taken over.
  cluster_.records.records[0].owner = "the copy";
  const auto refused = node.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  SnowflakeNode next(cluster_, false);
  next.disk = node.disk;
  next.disk.Restart();
  next.registry.down = true;
  auto without = next.Start();
  ASSERT_FALSE(without.ok()) << "by a process that has not heard it itself";
  EXPECT_EQ(without.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(without.error().message.find("it has refused worker 0"), std::string::npos)
      << without.error().message;
  // The number is given back.
  cluster_.records.records[0].owner = uuid;
  next.registry.down = false;
  ASSERT_TRUE(next.Start().ok());
  EXPECT_EQ(next.service().Status().worker, 0U);
  next.Crash();
  next.registry.down = true;
  EXPECT_TRUE(next.Start().ok());
}

TEST_F(SnowflakeRegistryTest, ANumberThatWasLostIsNoRightToStartWithoutTheRegistry) {
  for (const bool is_displaced : {false, true}) {
    SnowflakeNode node(cluster_, false, is_displaced ? 2 : 1);
    ASSERT_TRUE(node.Start().ok());
    Pass(seconds{1}, {&node});
    node.registry.refuse_renewals =
        Error{is_displaced ? ErrorCode::kRefused : ErrorCode::kNotOwner, "another node uses it", ""};
    node.registry.refuse = Error{ErrorCode::kRefused, "another node uses it", ""};
    Pass(seconds{10}, {&node});
    EXPECT_FALSE(node.Take());
    node.Crash();
    SnowflakeNode next(cluster_, false, is_displaced ? 2 : 1);
    next.disk = node.disk;
    next.disk.Restart();
    next.registry.down = true;
    EXPECT_FALSE(next.Start().ok()) << is_displaced;
    // An orderly end forgets nothing either.
    next.registry.down = false;
    ASSERT_TRUE(next.Start().ok());
    Pass(seconds{1}, {&next});
    next.registry.refuse_renewals =
        Error{is_displaced ? ErrorCode::kRefused : ErrorCode::kNotOwner, "another node uses it", ""};
    next.registry.refuse = Error{ErrorCode::kRefused, "another node uses it", ""};
    Pass(seconds{10}, {&next});
    next.Stop();
    next.registry.down = true;
    EXPECT_FALSE(next.Start().ok()) << is_displaced;
  }
}

// What the registry says of the number is heard at the end, too.
TEST_F(SnowflakeRegistryTest, ANumberThatIsLostAtTheEndIsNoRightToStartWithoutTheRegistry) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  node.registry.refuse_release = Error{ErrorCode::kNotOwner, "another node's", ""};
  node.Stop();
  node.registry.down = true;
  EXPECT_FALSE(node.Start().ok());
  node.registry.down = false;
  EXPECT_TRUE(node.Start().ok());
}

// Killed between the registry's word and the end of the claim, which may watch for a long time.
TEST_F(SnowflakeRegistryTest, ANumberThatIsDeniedDuringAClaimIsNoRightForTheNextProcess) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  node.Crash();
  FakeRegistryRecords::Record& old = cluster_.records.records[0];
  old.owner = "another node";
  old.address = "127.0.0.9:8080";
  SnowflakeNode next(cluster_, false);
  bool is_denied = false;
  node.registry.after_denial = [&] {
    is_denied = true;
    next.disk = node.disk;
    next.disk.Restart();
  };
  ASSERT_TRUE(node.Start().ok());
  ASSERT_TRUE(is_denied);
  next.registry.down = true;
  EXPECT_FALSE(next.Start().ok()) << "with the number of another node";
  node.Crash();
  node.registry.down = true;
  EXPECT_TRUE(node.Start().ok()) << "with its new one";
}

TEST_F(SnowflakeRegistryTest, ALossThatTheDiskHadNoSpaceForIsWrittenOnceThereIsSome) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  node.registry.refuse_renewals = Error{ErrorCode::kNotOwner, "another node's", ""};
  node.disk.FailWrites(ENOSPC);
  Pass(seconds{10}, {&node});
  EXPECT_FALSE(node.Take());
  node.disk.FailWrites(0);
  Pass(seconds{10}, {&node});
  node.Crash();
  node.registry.down = true;
  EXPECT_FALSE(node.Start().ok());
}

// The new number could not be used, and the state directory still has the old one.
TEST_F(SnowflakeRegistryTest, ANumberThatWasExchangedIsNoRightToStartWithoutTheRegistry) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  node.Crash();
  FakeRegistryRecords::Record& old = cluster_.records.records[0];
  old.owner = "another node";
  old.address = "127.0.0.9:8080";
  node.options.check_peers = [] { return Result<void>(Error{ErrorCode::kClock, "the clock is wrong", ""}); };
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kClock);
  node.options.check_peers = nullptr;
  node.registry.down = true;
  EXPECT_FALSE(node.Start().ok()) << "with the number of another node";
  node.registry.down = false;
  ASSERT_TRUE(node.Start().ok());
  EXPECT_EQ(node.service().Status().worker, 1U);
  node.Crash();
  node.registry.down = true;
  EXPECT_TRUE(node.Start().ok()) << "with its new one";
}

TEST_F(SnowflakeRegistryTest, AStateOfAnotherMachineOrTooOldIsNoRightToStart) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  node.options.machine = "another";
  auto refused = node.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("another machine"), std::string::npos);
  node.options.machine = "";
  EXPECT_FALSE(node.Start().ok());
  node.options.machine = "machine-1";
  cluster_.clock.Advance(hours{25});
  refused = node.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("offline_start_max"), std::string::npos);
  node.options.offline_start_max = hours{48};
  EXPECT_TRUE(node.Start().ok());
}

TEST_F(SnowflakeRegistryTest, EvenWithoutTheRegistryAClockBehindTheCeilingIsRefused) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(minutes{1}, {&node});
  EXPECT_TRUE(node.Take());
  node.Stop();
  node.registry.down = true;
  cluster_.clock.StepWall(-seconds{30});
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kClock);
}

// The registry could not be told for a while, and knows an older ceiling than the state.
TEST_F(SnowflakeRegistryTest, ACeilingOfTheRegistryLowersNoneOfTheState) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{1}, {&node});
  node.registry.down = true;
  Pass(minutes{1}, {&node});
  ASSERT_TRUE(node.Take());
  const WallTime ceiling = node.service().Status().ceiling;
  ASSERT_LT(cluster_.records.records[0].ceiling, ceiling);
  node.Crash();
  node.registry.down = false;
  ASSERT_TRUE(node.Start().ok());
  EXPECT_FALSE(node.Take());
  Pass(ceiling - cluster_.clock.Wall() - milliseconds{1}, {&node});
  EXPECT_FALSE(node.Take());
  Pass(milliseconds{1}, {&node});
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALateRegistrationThatFindsAnotherNumberStops) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  ASSERT_TRUE(node.Start().ok());
  EXPECT_TRUE(node.Take());
  // An operator has emptied the registry, and another node has taken the number meanwhile.
  cluster_.records.records.clear();
  SnowflakeNode other(cluster_, false, 2);
  ASSERT_TRUE(other.Start().ok());
  node.registry.down = false;
  Pass(seconds{5}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
  // It stays so.
  Pass(minutes{5}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(node.service().Status().state, "stopped");
}

TEST_F(SnowflakeRegistryTest, ALateRegistrationThatFindsAHigherCeilingStops) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  cluster_.records.records[0].ceiling = cluster_.clock.Wall() + hours{1};
  ASSERT_TRUE(node.Start().ok());
  node.registry.down = false;
  Pass(seconds{5}, {&node});
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
}

// The ceiling of another user of the number was above all that this node knew at its start. The node has
// passed that ceiling meanwhile, which proves nothing: IDs up to it may have been issued twice.
TEST_F(SnowflakeRegistryTest, ALateRegistrationComparesWithWhatWasKnownAtTheStart) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  const WallTime of_another = cluster_.clock.Wall() + seconds{10};
  cluster_.records.records[0].ceiling = of_another;
  ASSERT_TRUE(node.Start().ok());
  Pass(minutes{1}, {&node});
  ASSERT_TRUE(node.Take());
  ASSERT_GT(node.service().Status().ceiling, of_another);
  node.registry.down = false;
  Pass(seconds{5}, {&node});
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
  EXPECT_FALSE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALateRegistrationThatIsRefusedStops) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  ASSERT_TRUE(node.Start().ok());
  node.registry.refuse = Error{ErrorCode::kRefused, "the address is another node's", ""};
  node.registry.down = false;
  Pass(seconds{5}, {&node});
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
  EXPECT_FALSE(node.Take());
}

// An orderly stop lowers the ceiling in the file to the exact end; one that the registry could not be told of
// leaves the higher one there, which is this node's own.
TEST_F(SnowflakeRegistryTest, OnesOwnCeilingFromBeforeTheStopIsNoStranger) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{10}, {&node});
  EXPECT_TRUE(node.Take());
  const WallTime told = *cluster_.records.records[0].ceiling;
  node.registry.down = true;
  node.Stop();
  EXPECT_EQ(cluster_.records.records[0].ceiling, told);
  ASSERT_TRUE(node.Start().ok());
  node.registry.down = false;
  Pass(seconds{10}, {&node});
  EXPECT_TRUE(node.service().Status().registered);
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ARegistryThatHangsKeepsNoFixedNumberWaiting) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  node.registry_hangs = true;
  for (int i = 0; i < 600; ++i) {
    Pass(seconds{1}, {&node});
    ASSERT_TRUE(node.Take()) << i;
  }
}

TEST_F(SnowflakeRegistryTest, AFixedNumberThatIsLostIsLostForGood) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  ++cluster_.records.records[0].generation;  // worker release, and a claim of another node
  Pass(seconds{5}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
  const WallTime ceiling = *cluster_.records.records[0].ceiling;
  node.Stop();
  EXPECT_EQ(cluster_.records.records[0].ceiling, ceiling)
      << "a node that has lost its number releases nothing";
}

TEST_F(SnowflakeRegistryTest, AFixedNumberThatAnotherProgramUsedIsClaimedAgain) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  EXPECT_TRUE(node.Take());
  const Error java{ErrorCode::kRefused, "a Java Leaf node is alive", "stop it"};
  node.registry.refuse = node.registry.refuse_renewals = java;
  for (int i = 0; i < 60; ++i) {
    Pass(seconds{5}, {&node});
    EXPECT_FALSE(node.Take());
    EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner) << "what a request is told does not change";
    // While the registry is away it cannot confirm the number, and the state directory alone is not enough.
    node.registry.down = i % 2 == 0;
  }
  EXPECT_EQ(node.registry.again, 0U);
  EXPECT_EQ(node.service().Status().state, "claiming");
  EXPECT_NE(node.CanIssue().error().message.find("worker 0 is lost"), std::string::npos);
  // Java stops. What it issued is below the ceiling that the next claim gets.
  const WallTime end = cluster_.clock.Wall() + seconds{25};
  cluster_.records.records[0].ceiling = end;
  node.registry.down = false;
  node.registry.refuse.reset();
  node.registry.refuse_renewals.reset();
  while (!node.Take()) {
    ASSERT_LT(cluster_.clock.Wall(), end + minutes{1}) << node.CanIssue().error().message;
    Pass(milliseconds{100}, {&node});
  }
  EXPECT_GE(cluster_.clock.Wall(), end);
  EXPECT_TRUE(node.CanIssue().ok());
  EXPECT_EQ(node.service().Status().worker, 0U);
  const std::uint64_t generation = cluster_.records.records[0].generation;
  Pass(minutes{5}, {&node});
  EXPECT_TRUE(node.Take());
  EXPECT_EQ(cluster_.records.records[0].generation, generation) << "it is kept";
  node.Stop();
}

TEST_F(SnowflakeRegistryTest, AnotherNumberIsNotTakenWithoutARestart) {
  SnowflakeNode node(cluster_, false);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  EXPECT_TRUE(node.Take());
  // The registry has lost its records, and another node is worker 0 now.
  cluster_.records.records.clear();
  SnowflakeNode other(cluster_, false, 2);
  ASSERT_TRUE(other.Start().ok());
  node.registry.refuse_renewals = Error{ErrorCode::kRefused, "it does not know of this claim", ""};
  Pass(seconds{60}, {&node, &other});
  node.registry.refuse_renewals.reset();
  const int claims = node.registry.claims;
  Pass(minutes{5}, {&node, &other});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kNotOwner);
  EXPECT_EQ(node.service().Status().state, "stopped");
  EXPECT_EQ(node.registry.claims, claims);
  EXPECT_TRUE(other.Take());
}

TEST_F(SnowflakeRegistryTest, AClaimWhoseReplyWasLostIsFoundAfterACrash) {
  SnowflakeNode node(cluster_, false);
  node.registry.lose_reply = true;
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kOutcomeUnknown);
  // The process is gone, and only what is durable tells that the claim was its own.
  ASSERT_TRUE(node.Start().ok());
  EXPECT_EQ(node.service().Status().worker, 0U);
}

// ---- leases
// ----------------------------------------------------------------------------------------------------

// An interval has a dozen ticks.
TEST_F(SnowflakeRegistryTest, TheRegistryIsNotToldAtEachTick) {
  for (const bool leased : {false, true}) {
    SnowflakeNode node(cluster_, leased, leased ? 2 : 1);
    ASSERT_TRUE(node.Start().ok());
    Pass(seconds{30}, {&node});
    const int before = node.registry.renewals;
    Pass(20 * core::kTellInterval, {&node});
    const int idle = node.registry.renewals - before;
    EXPECT_GE(idle, 15) << leased;
    EXPECT_LE(idle, 80) << leased;
    node.Stop();
  }
}

TEST_F(SnowflakeRegistryTest, ALeaseStopsAtItsCeilingAndGoesOn) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{10}, {&node});
  node.registry.down = true;
  const WallTime ceiling = *cluster_.records.records[0].ceiling;
  while (cluster_.clock.Wall() < ceiling) {
    EXPECT_TRUE(node.Take());
    Pass(milliseconds{50}, {&node});
  }
  Pass(milliseconds{50}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kUnavailable);
  node.registry.down = false;
  Pass(seconds{2}, {&node});
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALeaseThatIsLostIsFollowedByAnother) {
  SnowflakeNode node(cluster_, true);
  SnowflakeNode other(cluster_, true, 2);
  ASSERT_TRUE(node.Start().ok());
  ASSERT_TRUE(other.Start().ok());
  Pass(seconds{5}, {&node, &other});
  EXPECT_TRUE(node.Take());
  const std::uint64_t worker = node.service().Status().worker;
  // It sleeps past its lease, and another node takes the number.
  Pass(seconds{40}, {&other});
  SnowflakeNode late(cluster_, true, 3);
  cluster_.records.capacity = 2;
  ASSERT_TRUE(late.Start().ok());
  EXPECT_EQ(late.service().Status().worker, worker);
  EXPECT_TRUE(late.Take());
  // Until it is told, it has nothing left to issue.
  EXPECT_FALSE(node.Take());
  Pass(seconds{2}, {&node, &other, &late});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(node.service().Status().state, "claiming");
  // All numbers are taken; once there is one more, it goes on with that.
  cluster_.records.capacity = 3;
  Pass(seconds{40}, {&node, &other, &late});
  EXPECT_TRUE(node.Take());
  EXPECT_EQ(node.service().Status().worker, 2U);
  EXPECT_TRUE(late.Take());
  EXPECT_TRUE(other.Take());
}

// Two copies of one state directory would take the lease from each other for ever.
TEST_F(SnowflakeRegistryTest, ALeaseThatACopyHasIsLeftToIt) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  EXPECT_TRUE(node.Take());
  EXPECT_EQ(node.service().Status().worker, 0U);
  const std::string uuid = cluster_.records.records[0].owner;
  // The copy has claimed it.
  ++cluster_.records.records[0].generation;
  cluster_.records.records[0].changed = cluster_.clock.Monotonic();
  node.registry.copied = true;
  Pass(seconds{10}, {&node});
  EXPECT_EQ(cluster_.records.records[0].owner, uuid);
  EXPECT_EQ(node.service().Status().worker, 1U);
  EXPECT_NE(cluster_.records.records[1].owner, uuid);
  EXPECT_FALSE(node.registry.held.has_value());
  EXPECT_EQ(node.log.Count(LogLevel::kWarning, "one of them has a copy"), 1U);
  EXPECT_TRUE(node.Take());
  // It is the identity of the next process, too.
  node.Stop();
  ASSERT_TRUE(node.Start().ok());
  EXPECT_EQ(node.service().Status().worker, 1U);
}

// NTP sets the clock of a machine that has just booted, while the first claim goes on. Whether it is right
// now, an operator says.
TEST_F(SnowflakeRegistryTest, AClockThatIsSetBeforeTheFirstNumberIsAccepted) {
  SnowflakeNode node(cluster_, false);
  std::optional<core::ClockGuard::Offset> accepted;
  node.options.accepted_offset = [&] { return accepted; };
  node.registry.down = true;
  node.StartInBackground();
  ASSERT_TRUE(node.first.has_value() && node.first->ok());
  cluster_.clock.StepWall(hours{24});
  node.registry.down = false;
  Pass(seconds{40}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(node.CanIssue().error().code, ErrorCode::kClock);
  EXPECT_FALSE((*node.state_file.Load())->worker.has_value()) << "what `worker accept-clock` finds";
  accepted = core::ClockGuard::OffsetOf(cluster_.clock.Wall(), cluster_.clock.Boot());
  Pass(seconds{40}, {&node});
  EXPECT_TRUE(node.Take());
}

TEST_F(SnowflakeRegistryTest, ALeaseCannotBeStartedFromTheState) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  node.Stop();
  node.registry.down = true;
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kUnavailable);
}

// A cluster that turns from leases to fixed numbers, while its registry is away: another node may hold the
// number as a lease by now.
TEST_F(SnowflakeRegistryTest, ANumberThatWasALeaseIsNoFixedOne) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  EXPECT_TRUE(node.Take());
  node.Stop();
  SnowflakeNode other(cluster_, true, 2);
  ASSERT_TRUE(other.Start().ok());
  SnowflakeNode again(cluster_, false);
  again.disk = node.disk;
  again.registry.down = true;
  const auto refused = again.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("was a lease"), std::string::npos);
}

TEST_F(SnowflakeRegistryTest, ALeaseIsKeptAliveWhileTheClockStandsBehind) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  cluster_.clock.StepWall(-minutes{10});
  const MonotonicTime before = cluster_.records.records[0].changed;
  Pass(minutes{1}, {&node});
  EXPECT_GT(cluster_.records.records[0].changed, before + seconds{50});
}

TEST_F(SnowflakeRegistryTest, ALeaseIsKeptAliveWhileTheClockIsDistrusted) {
  SnowflakeNode node(cluster_, true);
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  cluster_.clock.StepWall(minutes{10});
  Pass(seconds{5}, {&node});
  ASSERT_EQ(CodeOf(node.CanIssue()), ErrorCode::kClock);
  const MonotonicTime before = cluster_.records.records[0].changed;
  const auto ceiling = cluster_.records.records[0].ceiling;
  Pass(minutes{1}, {&node});
  EXPECT_GT(cluster_.records.records[0].changed, before + seconds{50});
  EXPECT_EQ(cluster_.records.records[0].ceiling, ceiling) << "but no ceiling is raised";
}

// The schedule: the disk is full at the first start, and the node claims a number under an identity that only
// its memory has. After a restart the node has another identity, and the registry refuses it the number.
TEST_F(SnowflakeRegistryTest, NothingIsClaimedBeforeTheStateDirectoryHasItsIdentity) {
  SnowflakeNode node(cluster_, false);
  node.disk.FailWrites(ENOSPC);
  node.StartInBackground(true);
  Pass(seconds{3}, {&node});
  EXPECT_EQ(node.registry.claims, 0);
  node.Crash();
  node.disk.FailWrites(0);
  EXPECT_TRUE(node.Start().ok());
  EXPECT_TRUE(node.Take());
}

// The schedule: a node starts without the registry, an operator releases its number, the registry comes back,
// and gives the number to the node again, with the margin of a former owner.
TEST_F(SnowflakeRegistryTest, ANumberThatWasReleasedMeanwhileIsConfirmedUnlessAnotherNodeHadIt) {
  for (const bool another : {false, true}) {
    SCOPED_TRACE(another);
    Cluster cluster;
    SnowflakeNode node(cluster, false);
    const auto pass = [&](milliseconds time) {
      for (; time > milliseconds{0}; time -= milliseconds{10}) {
        cluster.clock.Advance(milliseconds{10});
        node.Settle();
      }
    };
    ASSERT_TRUE(node.Start().ok());
    pass(seconds{5});
    EXPECT_TRUE(node.Take());
    node.Crash();
    node.disk.Restart();
    node.registry.down = true;
    ASSERT_TRUE(node.Start().ok());
    auto& record = cluster.records.records[0];
    record.owner.clear();
    ++record.generation;
    // Another node's claim adds the margin, too, if it issues nothing.
    if (another) *record.ceiling += core::UntoldMax(cluster.records.window);
    pass(seconds{5});
    EXPECT_TRUE(node.Take());
    node.registry.down = false;
    pass(seconds{10});
    EXPECT_EQ(CodeOf(node.CanIssue()), another ? ErrorCode::kNotOwner : ErrorCode::kInternal);
    EXPECT_EQ(node.Take(), !another);
  }
}

TEST_F(SnowflakeRegistryTest, AStartThatIsRefusedGivesItsLeaseBack) {
  SnowflakeNode node(cluster_, true);
  node.options.check_peers = [] { return Result<void>(Error{ErrorCode::kClock, "the peers disagree", ""}); };
  EXPECT_EQ(CodeOf(node.Start()), ErrorCode::kClock);
  EXPECT_EQ(cluster_.records.records[0].owner, "");
}

TEST_F(SnowflakeRegistryTest, AVerdictOfThePeersStopsAtTheCeiling) {
  SnowflakeNode node(cluster_, false);
  std::optional<Error> verdict;
  node.options.peers_verdict = [&] { return verdict ? Result<void>(*verdict) : Result<void>(); };
  ASSERT_TRUE(node.Start().ok());
  Pass(seconds{5}, {&node});
  EXPECT_TRUE(node.Take());
  verdict = Error{ErrorCode::kClock, "the peers disagree", ""};
  Pass(seconds{4}, {&node});
  EXPECT_FALSE(node.Take());
  EXPECT_EQ(CodeOf(node.CanIssue()), ErrorCode::kClock);
  verdict.reset();
  Pass(seconds{1}, {&node});
  EXPECT_TRUE(node.Take());
}

// Everything at once: nodes that crash, stop, sleep and are cut off, replies that are lost. No ID twice, in
// order per node, and all issue again once all is well again.
class SnowflakeRegistryTrouble : public ::testing::TestWithParam<int> {};

TEST_P(SnowflakeRegistryTrouble, NothingRepeats) {
  const bool leased = GetParam() % 2 == 0;
  FakeRandom random(static_cast<std::uint64_t>(GetParam()));
  Cluster cluster;
  cluster.records.capacity = 4;
  cluster.records.lease = seconds{5};
  std::vector<std::unique_ptr<SnowflakeNode>> nodes;
  std::vector<MonotonicTime> asleep_until(4);
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(std::make_unique<SnowflakeNode>(cluster, leased, i + 1));
    nodes.back()->StartInBackground();
  }
  const auto tend = [&](std::size_t index) {
    SnowflakeNode& node = *nodes[index];
    if (cluster.clock.Monotonic() < asleep_until[index]) return;
    if (!node.running()) node.StartInBackground();
    node.Settle();
    node.Take(1 + random.Below(30));
  };
  for (int round = 0; round < 6000; ++round) {
    cluster.clock.Advance(milliseconds{random.Below(40)});
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      SnowflakeNode& node = *nodes[i];
      switch (random.Below(400)) {
        case 0:
          node.Crash();
          break;
        case 1:
          if (node.running()) node.Stop();
          break;
        case 2:
          asleep_until[i] = cluster.clock.Monotonic() + milliseconds{random.Below(12'000)};
          break;
        case 3:
          node.registry.down = !node.registry.down;
          break;
        case 4:
          node.registry.lose_reply = true;
          break;
        default:
          break;
      }
      tend(i);
    }
  }
  for (auto& node : nodes) {
    node->registry.down = false;
    node->registry.lose_reply = false;
  }
  for (MonotonicTime& until : asleep_until) until = {};
  for (int round = 0; round < 3000; ++round) {
    cluster.clock.Advance(milliseconds{20});
    for (std::size_t i = 0; i < nodes.size(); ++i) tend(i);
  }
  for (auto& node : nodes) EXPECT_TRUE(node->CanIssue().ok()) << node->CanIssue().error().message;
  EXPECT_GT(cluster.issued.size(), 10'000U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SnowflakeRegistryTrouble, ::testing::Range(0, testing::Scaled(20)));

}  // namespace
}  // namespace leaf::service
