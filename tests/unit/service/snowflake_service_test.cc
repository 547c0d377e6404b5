#include "leaf/service/snowflake_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leaf/sys/static_registry.h"
#include "leaf/sys/worker_state_file.h"
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
using testing::ManualExecutor;
using testing::RecordingLogger;

constexpr const char* kStatePath = "/state/snowflake.state";

// One machine: its clock, its disk, every ID it ever issued, and the process that runs at the moment.
class Machine {
 public:
  explicit Machine(std::uint64_t seed = 1) : random_(seed) {}

  // Starts a process. On an error there is none.
  Result<void> Start() {
    Forget();
    timers_ = std::make_unique<ManualExecutor>(clock);
    workers_ = std::make_unique<ManualExecutor>(clock);
    service_ = std::make_unique<SnowflakeService>(options, registry, state_file, clock, random_,
                                                  SnowflakeExecutors{*timers_, *workers_, *workers_}, log);
    auto started = service_->Start();
    if (!started.ok()) Forget();
    return started;
  }
  // The process ends as by kill -9.
  void Forget() {
    service_.reset();
    timers_.reset();
    workers_.reset();
  }
  void Stop() {
    service_->Stop();
    Forget();
  }
  SnowflakeService& service() { return *service_; }
  bool running() const { return service_ != nullptr; }

  // Runs everything that is due.
  void Settle() {
    while (timers_->RunOne() || workers_->RunOne()) {
    }
  }
  std::size_t timers() const { return timers_->timers(); }
  // The same, counted, and not for ever.
  int SettleCounted() {
    int tasks = 0;
    while (tasks < 1000 && (timers_->RunOne() || workers_->RunOne())) ++tasks;
    return tasks;
  }
  // Lets time pass, in steps that let every timer run about when it should.
  void Pass(milliseconds time) {
    for (milliseconds step{10}; time > milliseconds{0}; time -= step) {
      step = std::min(step, time);
      clock.Advance(step);
      if (running()) Settle();
    }
  }

  // Takes `count` IDs if they come at once, and holds them to what was promised: P1, P2, P5, P6.
  bool Take(std::uint64_t count = 1) {
    core::SnowflakeRun run;
    const WallTime now = clock.Wall();
    if (!service_->TryNext(count, run)) return false;
    std::uint64_t total = 0;
    for (const IdRange& range : service_->generator().RangesOf(run)) {
      EXPECT_GT(range.size(), 0U);
      EXPECT_LE(range.end, kIdEnd);
      // The IDs of all lives of a node ascend: one that is greater than the last one is new.
      EXPECT_GE(range.begin, issued_end) << "an ID is issued twice";
      issued_end = range.end;
      const core::IdFields fields = service_->generator().layout().Decompose(range.end - 1);
      EXPECT_LE(fields.time, now + options.window);
      last_time = fields.time;
      total += range.size();
    }
    EXPECT_EQ(total, count);
    issued += total;
    return true;
  }
  Result<void> CanIssue() { return service_->CanIssue(); }

  FakeClock clock;
  CrashingDisk disk;
  RecordingLogger log;
  sys::WorkerStateFile state_file{"/state", disk};
  sys::StaticRegistry registry{7, {}};
  SnowflakeOptions options = [] {
    SnowflakeOptions defaults;
    defaults.cluster.name = "test";
    defaults.boot_id = "boot-1";
    return defaults;
  }();
  std::uint64_t issued_end = 0;
  std::uint64_t issued = 0;
  WallTime last_time;

 private:
  FakeRandom random_;
  std::unique_ptr<ManualExecutor> timers_;
  std::unique_ptr<ManualExecutor> workers_;
  std::unique_ptr<SnowflakeService> service_;
};

TEST(SnowflakeService, IssuesAtOnceOnAFreshNode) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_TRUE(machine.CanIssue().ok());
  EXPECT_TRUE(machine.Take());
  EXPECT_EQ(machine.last_time, machine.clock.Wall());
  const SnowflakeStatus status = machine.service().Status();
  EXPECT_EQ(status.state, "issuing");
  EXPECT_EQ(status.worker, 7U);
  EXPECT_EQ(status.cluster.registry, "static");
  EXPECT_EQ(status.ceiling, machine.clock.Wall() + seconds{3});
}

TEST(SnowflakeService, GoesOnForDaysWithAWriteASecond) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  const std::size_t calls = machine.disk.calls();
  for (int i = 0; i < 600; ++i) {
    machine.Pass(milliseconds{100});
    ASSERT_TRUE(machine.Take()) << i;
    ASSERT_EQ(machine.last_time, machine.clock.Wall());
  }
  // A minute: the ceiling is raised by more than a second each time, with less than a dozen calls.
  EXPECT_LE(machine.disk.calls() - calls, 60U * 12);
}

TEST(SnowflakeService, AfterACrashItWaitsForTheCeiling) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  const WallTime ceiling = machine.service().Status().ceiling;
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_FALSE(machine.Take());
  const auto waiting = machine.CanIssue();
  ASSERT_FALSE(waiting.ok());
  EXPECT_EQ(waiting.error().code, ErrorCode::kClock);
  EXPECT_NE(waiting.error().message.find("3s"), std::string::npos) << waiting.error().message;
  EXPECT_EQ(machine.service().Status().state, "starting");
  machine.Pass(milliseconds{2999});
  EXPECT_FALSE(machine.CanIssue().ok());
  EXPECT_FALSE(machine.Take());
  machine.Pass(milliseconds{1});
  EXPECT_TRUE(machine.CanIssue().ok());
  EXPECT_TRUE(machine.Take());
  EXPECT_GE(machine.last_time, ceiling);
}

// The wait at the start may be shorter than the time between two looks at the clock.
TEST(SnowflakeService, AfterACrashItIssuesAsSoonAsTheClockHasPassedTheCeiling) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  const WallTime ceiling = machine.service().Status().ceiling;
  machine.Forget();
  machine.clock.Advance(ceiling - machine.clock.Wall() - milliseconds{60});
  ASSERT_TRUE(machine.Start().ok());
  machine.Pass(milliseconds{50});
  std::optional<Result<core::SnowflakeRun>> answer;
  EXPECT_NE(machine.service().Next(1, milliseconds{100},
                                   [&](Result<core::SnowflakeRun> result) { answer = std::move(result); }),
            0U);
  EXPECT_EQ(machine.service().Status().state, "starting");
  machine.Pass(milliseconds{20});
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok()) << answer->error().message;
  EXPECT_TRUE(machine.CanIssue().ok());
}

TEST(SnowflakeService, AfterAStopItIssuesAtOnce) {
  Machine machine;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(machine.Start().ok());
    ASSERT_TRUE(machine.Take(i % 2 == 0 ? 1 : 10'000)) << i;
    machine.Stop();
    // The wall clock has passed the last ID.
    EXPECT_GT(machine.clock.Wall(), machine.last_time);
  }
  ASSERT_TRUE(machine.Start().ok());
  machine.Stop();
}

TEST(SnowflakeService, ACopyOfTheStateIsRefusedWithoutARegistry) {
  Machine machine;
  machine.options.machine = "here:1";
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  machine.Stop();
  ASSERT_TRUE(machine.Start().ok()) << "where it was written it goes on";
  machine.Stop();
  machine.options.machine = "here:2";
  const auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("worker 7"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().hint.find("leafctl worker adopt 7"), std::string::npos) << refused.error().hint;
  EXPECT_EQ(machine.state_file.Load()->value().machine, "here:1");
  // An unknown machine is no reason to stop.
  machine.options.machine = "";
  ASSERT_TRUE(machine.Start().ok());
  machine.Stop();
}

TEST(SnowflakeService, ACopyWithANumberOfItsOwnIsNone) {
  Machine machine;
  machine.options.machine = "here:1";
  ASSERT_TRUE(machine.Start().ok());
  machine.Stop();
  CrashingDisk& disk = machine.disk;
  FakeClock& clock = machine.clock;
  FakeRandom random;
  sys::StaticRegistry other(8, {});
  sys::WorkerStateFile file("/state", disk);
  ManualExecutor executor(clock);
  RecordingLogger log;
  SnowflakeOptions options = machine.options;
  options.machine = "there:1";
  SnowflakeService service(options, other, file, clock, random, {executor, executor, executor}, log);
  EXPECT_TRUE(service.Start().ok());
  service.Stop();
  EXPECT_EQ(file.Load()->value().machine, "there:1");
}

TEST(SnowflakeService, AStopWithoutAnIdKeepsWhatWasKnown) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  // Killed, started, stopped while it still waits, and again.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(machine.Start().ok());
    EXPECT_FALSE(machine.Take());
    machine.service().Abandon();
  }
  machine.Pass(seconds{3});
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_TRUE(machine.Take());
}

TEST(SnowflakeService, AClockFurtherBehindIsRefusedWithTheFigures) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  machine.clock.StepWall(-hours{1});
  const auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kClock);
  EXPECT_NE(refused.error().message.find("3603s"), std::string::npos) << refused.error().message;
  // Up to start_wait it is waited for.
  machine.clock.StepWall(hours{1} - seconds{7});
  ASSERT_TRUE(machine.Start().ok());
  machine.Pass(seconds{9});
  EXPECT_FALSE(machine.Take());
  machine.Pass(seconds{1});
  EXPECT_TRUE(machine.Take());
}

TEST(SnowflakeService, AForwardJumpStopsIssuingUntilItIsAcceptedOrTakenBack) {
  Machine machine;
  std::optional<core::ClockGuard::Offset> accepted;
  machine.options.accepted_offset = [&] { return accepted; };
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  const WallTime before = machine.clock.Wall();
  machine.clock.StepWall(hours{24 * 365});
  EXPECT_FALSE(machine.Take());
  machine.Pass(seconds{5});
  EXPECT_FALSE(machine.Take());
  auto stopped = machine.CanIssue();
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kClock);
  EXPECT_NE(stopped.error().message.find("8760h"), std::string::npos) << stopped.error().message;
  // The file has no ceiling from the wrong year.
  EXPECT_LE((*machine.state_file.Load())->ceiling, before + seconds{4});
  // A restart in the same boot remembers the jump.
  const auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kClock);
  // Taken back:
  machine.clock.StepWall(-hours{24 * 365});
  ASSERT_TRUE(machine.Start().ok());
  machine.Pass(seconds{4});
  EXPECT_TRUE(machine.Take());
  // Or accepted:
  machine.clock.StepWall(minutes{1});
  machine.Pass(seconds{5});
  EXPECT_FALSE(machine.Take());
  accepted = core::ClockGuard::OffsetOf(machine.clock.Wall(), machine.clock.Boot());
  machine.Pass(seconds{1});
  EXPECT_TRUE(machine.CanIssue().ok());
  EXPECT_TRUE(machine.Take());
  ASSERT_TRUE(machine.Start().ok());
}

TEST(SnowflakeService, AnotherBootHasNothingToCompareTheClockWith) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  machine.clock.StepWall(hours{24 * 7});
  machine.options.boot_id = "boot-2";
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_TRUE(machine.Take());
}

TEST(SnowflakeService, AFullDiskStopsBeforeTheCeilingAndSaysWhy) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  machine.disk.FailWrites(ENOSPC);
  machine.Pass(milliseconds{2990});
  EXPECT_TRUE(machine.Take()) << "until the ceiling it goes on";
  EXPECT_TRUE(machine.service().Status().problem.has_value());
  machine.Pass(milliseconds{10});
  EXPECT_FALSE(machine.Take());
  const auto stopped = machine.CanIssue();
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(stopped.error().message.find("No space left"), std::string::npos) << stopped.error().message;
  EXPECT_NE(stopped.error().message.find(kStatePath), std::string::npos);
  // A request says the same, at once.
  std::optional<Result<core::SnowflakeRun>> answer;
  EXPECT_EQ(
      machine.service().Next(1, seconds{1}, [&](Result<core::SnowflakeRun> r) { answer = std::move(r); }),
      0U);
  ASSERT_TRUE(answer && !answer->ok());
  EXPECT_EQ(answer->error().code, ErrorCode::kUnavailable);
  // And the old state is whole.
  EXPECT_TRUE(machine.state_file.Load().ok());
  EXPECT_FALSE(machine.disk.Content(std::string(kStatePath) + ".new").has_value());
  machine.disk.FailWrites(0);
  machine.Pass(milliseconds{300});
  EXPECT_TRUE(machine.CanIssue().ok());
  EXPECT_TRUE(machine.Take());
  EXPECT_EQ(machine.log.Count(LogLevel::kError), 1U) << "said once, not at every try";
}

// The clock goes on during a write: a ceiling that is calculated after it is higher than the one in the file.
TEST(SnowflakeService, OnASlowDiskTheCeilingIsTheOneThatWasWritten) {
  Machine machine;
  machine.disk.DuringSync([&] { machine.clock.Advance(milliseconds{400}); });
  ASSERT_TRUE(machine.Start().ok());
  for (int i = 0; i < 100; ++i) {
    const auto written = machine.state_file.Load();
    ASSERT_TRUE(written.ok() && *written);
    ASSERT_LE(machine.service().Status().ceiling, (*written)->ceiling) << i;
    ASSERT_TRUE(machine.Take());
    machine.Pass(milliseconds{100});
  }
}

TEST(SnowflakeService, AStateThatCannotBeWrittenIsRefusedAtStart) {
  for (const int error_number : {EACCES, EROFS, ENOSPC, EIO}) {
    Machine machine;
    machine.disk.FailWrites(error_number);
    const auto refused = machine.Start();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(kStatePath), std::string::npos) << refused.error().message;
  }
}

TEST(SnowflakeService, ClusterPropertiesAreComparedAndBothValuesNamed) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  const SnowflakeOptions options = machine.options;
  const auto refusal = [&] {
    const auto refused = machine.Start();
    EXPECT_FALSE(refused.ok());
    if (refused.ok()) return std::string();
    EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
    machine.options = options;
    return refused.error().message;
  };
  machine.options.cluster.layout = *core::IdLayout::Make(41, 10, 12, 1700000000000);
  std::string message = refusal();
  EXPECT_NE(message.find("1288834974657"), std::string::npos) << message;
  EXPECT_NE(message.find("1700000000000"), std::string::npos);
  machine.options.cluster.layout = *core::IdLayout::Make(42, 9, 12, 1288834974657);
  message = refusal();
  EXPECT_NE(message.find("41-10-12"), std::string::npos) << message;
  EXPECT_NE(message.find("42-9-12"), std::string::npos);
  machine.options.cluster.name = "other";
  message = refusal();
  EXPECT_NE(message.find("'test'"), std::string::npos) << message;
  EXPECT_NE(message.find("'other'"), std::string::npos);
  // The kind of registry.
  auto state = **machine.state_file.Load();
  state.cluster.registry = "zookeeper";
  ASSERT_TRUE(machine.state_file.Store(state).ok());
  message = refusal();
  EXPECT_NE(message.find("'static'"), std::string::npos) << message;
  EXPECT_NE(message.find("'zookeeper'"), std::string::npos);
}

TEST(SnowflakeService, APrivateClusterIsNamedAfterItsDirectory) {
  Machine machine;
  machine.options.cluster.name = "";
  ASSERT_TRUE(machine.Start().ok());
  const SnowflakeStatus status = machine.service().Status();
  EXPECT_EQ(status.node_uuid.size(), 36U);
  EXPECT_EQ(status.cluster.name, "local-" + status.node_uuid);
  machine.Stop();
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_EQ(machine.service().Status().cluster.name, status.cluster.name);
  EXPECT_TRUE(machine.Take());
}

TEST(SnowflakeService, AnotherWorkerNumberBeginsAboveTheOld) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  const WallTime ceiling = machine.service().Status().ceiling;
  sys::StaticRegistry other(8, {});
  FakeRandom random;
  ManualExecutor timers(machine.clock);
  ManualExecutor workers(machine.clock);
  SnowflakeService service(machine.options, other, machine.state_file, machine.clock, random,
                           {timers, workers, workers}, machine.log);
  machine.Forget();
  ASSERT_TRUE(service.Start().ok());
  EXPECT_EQ(service.generator().End(), ceiling);
}

TEST(SnowflakeService, NumbersOutsideTheRangeOrTheLayoutAreRefused) {
  Machine machine;
  machine.options.worker_begin = 8;
  auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  machine.options.worker_begin = 0;
  machine.options.cluster.layout = *core::IdLayout::Make(48, 3, 12, kLeafEpochMillis);
  EXPECT_TRUE(machine.Start().ok());  // 0..7
  Machine narrow;
  narrow.options.cluster.layout = *core::IdLayout::Make(49, 2, 12, kLeafEpochMillis);
  refused = narrow.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
}

TEST(SnowflakeService, TheEndOfTheLayout) {
  Machine machine;
  const WallTime last = core::IdLayout{}.LastTime();
  machine.clock.StepWall(last - machine.clock.Wall() - seconds{1});
  ASSERT_TRUE(machine.Start().ok());
  EXPECT_TRUE(machine.service().Status().exhaustion_near);
  EXPECT_EQ(machine.log.Count(LogLevel::kWarning), 1U);
  machine.Pass(seconds{1});
  ASSERT_EQ(FormatRfc3339(machine.clock.Wall()), "2080-07-10T17:30:30.208Z");
  EXPECT_TRUE(machine.Take()) << "the last good millisecond";
  machine.Pass(milliseconds{1});
  EXPECT_FALSE(machine.Take());
  const auto ended = machine.CanIssue();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kOverflow);
  EXPECT_NE(ended.error().message.find("2080-07-10T17:30:30.208Z"), std::string::npos);
  machine.Stop();
  const auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverflow);

  Machine latest;
  latest.clock.StepWall(last - latest.clock.Wall());
  ASSERT_TRUE(latest.Start().ok()) << "in the last good millisecond";
  EXPECT_TRUE(latest.Take());

  // "Near" begins two years before the end, which itself is not yet near.
  Machine early;
  early.clock.StepWall(last - std::chrono::hours{24 * 730} - early.clock.Wall());
  ASSERT_TRUE(early.Start().ok());
  EXPECT_FALSE(early.service().Status().exhaustion_near);
  early.clock.Advance(milliseconds{1});
  EXPECT_TRUE(early.service().Status().exhaustion_near);
}

TEST(SnowflakeService, AClockBeforeTheEpochIsRefused) {
  Machine machine;
  machine.clock.StepWall(WallTimeOf(0) - machine.clock.Wall());
  const auto refused = machine.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kClock);
}

TEST(SnowflakeService, AbandonedItIssuesAndWritesNothing) {
  Machine machine;
  ASSERT_TRUE(machine.Start().ok());
  ASSERT_TRUE(machine.Take());
  const auto content = machine.disk.Content(kStatePath);
  machine.service().Abandon();
  EXPECT_FALSE(machine.Take());
  machine.Pass(seconds{10});
  machine.service().Stop();
  EXPECT_EQ(machine.disk.Content(kStatePath), content);
}

// ---- waiting
// ---------------------------------------------------------------------------------------------------

class SnowflakeWaiting : public ::testing::Test {
 protected:
  SnowflakeWaiting() { EXPECT_TRUE(machine_.Start().ok()); }
  // Uses up the lead over the clock.
  void Drain() {
    while (machine_.Take(4000)) {
    }
    while (machine_.Take()) {
    }
  }
  std::uint64_t Ask(std::uint64_t count, milliseconds wait) {
    answers_.emplace_back();
    return machine_.service().Next(count, wait,
                                   [this, index = answers_.size() - 1](Result<core::SnowflakeRun> answer) {
                                     EXPECT_FALSE(answers_[index].has_value()) << "answered twice";
                                     answers_[index] = std::move(answer);
                                   });
  }
  std::vector<std::optional<Result<core::SnowflakeRun>>> answers_;
  Machine machine_;
};

TEST_F(SnowflakeWaiting, ADrainedRequestIsServedAsTheClockGoesOn) {
  Drain();
  EXPECT_TRUE(machine_.CanIssue().ok()) << "busy is not broken";
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  EXPECT_FALSE(answers_[0].has_value());
  machine_.Pass(milliseconds{200});
  ASSERT_TRUE(answers_[0] && answers_[0]->ok());
  ASSERT_TRUE(answers_[1] && answers_[1]->ok());
  EXPECT_LT((*answers_[0])->begin, (*answers_[1])->begin) << "in order of arrival";
}

TEST_F(SnowflakeWaiting, NoRequestOvertakesOneThatWaits) {
  Drain();
  EXPECT_NE(Ask(100'000, seconds{1}), 0U);
  machine_.clock.Advance(milliseconds{5});
  EXPECT_FALSE(machine_.Take()) << "a millisecond is there, but another request waits for more";
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  machine_.Pass(milliseconds{300});
  ASSERT_TRUE(answers_[0] && answers_[0]->ok());
  ASSERT_TRUE(answers_[1] && answers_[1]->ok());
  EXPECT_LT((*answers_[0])->begin, (*answers_[1])->begin);
}

TEST_F(SnowflakeWaiting, ADeadlineEndsTheWait) {
  Drain();
  EXPECT_NE(Ask(400'000, milliseconds{50}), 0U);
  machine_.Pass(milliseconds{60});
  ASSERT_TRUE(answers_[0] && !answers_[0]->ok());
  EXPECT_EQ(answers_[0]->error().code, ErrorCode::kExhausted);
}

TEST_F(SnowflakeWaiting, AWithdrawnRequestIsToldAndForgotten) {
  Drain();
  const std::uint64_t ticket = Ask(1, seconds{1});
  machine_.service().Withdraw(ticket);
  machine_.service().Withdraw(ticket);
  ASSERT_TRUE(answers_[0] && !answers_[0]->ok());
  // No request waits behind one that was withdrawn.
  Ask(1, milliseconds{200});
  machine_.Pass(milliseconds{200});
  ASSERT_TRUE(answers_[1] && answers_[1]->ok());
}

TEST_F(SnowflakeWaiting, AStopFailsAllRequests) {
  Drain();
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  machine_.service().Stop();
  ASSERT_TRUE(answers_[0] && !answers_[0]->ok());
  EXPECT_EQ(answers_[0]->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(1, seconds{1}), 0U);
  EXPECT_EQ(answers_[1]->error().code, ErrorCode::kUnavailable);
}

TEST_F(SnowflakeWaiting, AHaltFailsAllRequestsAndWritesNothingAnyMore) {
  Drain();
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  const auto calls = machine_.disk.calls();
  const Error why{ErrorCode::kUnavailable, "the place is lost", "look"};
  machine_.service().Halt(why);
  machine_.service().Halt({ErrorCode::kUnavailable, "another", ""});
  EXPECT_EQ(Ask(1, seconds{1}), 0U);
  machine_.Pass(seconds{30});
  EXPECT_EQ(Ask(1, seconds{1}), 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(answers_[i] && !answers_[i]->ok()) << i;
    EXPECT_EQ(answers_[i]->error().message, why.message) << i;
  }
  EXPECT_EQ(machine_.CanIssue().error().message, why.message);
  EXPECT_EQ(machine_.service().Status().state, "stopped");
  machine_.Stop();
  EXPECT_EQ(machine_.disk.calls(), calls) << "the file may be another process's";
}

// A term that is closed before its first ID never begins.
TEST_F(SnowflakeWaiting, AHaltWhileTheStartWaitsFailsAllRequests) {
  ASSERT_TRUE(machine_.Take());
  ASSERT_TRUE(machine_.Start().ok());
  ASSERT_EQ(machine_.service().Status().state, "starting");
  machine_.service().Halt({ErrorCode::kUnavailable, "the place is lost", "look"});
  machine_.Pass(milliseconds{2500});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Ask(1, seconds{1}), 0U) << i;
    ASSERT_TRUE(answers_[i] && !answers_[i]->ok()) << i;
    EXPECT_EQ(answers_[i]->error().message, "the place is lost") << i;
    machine_.Pass(seconds{1});
  }
}

TEST_F(SnowflakeWaiting, ALargeStepBackIsToldAtOnceAndForHowLong) {
  ASSERT_TRUE(machine_.Take());
  machine_.clock.StepWall(-minutes{5});
  EXPECT_EQ(Ask(1, seconds{1}), 0U);
  ASSERT_TRUE(answers_[0] && !answers_[0]->ok());
  EXPECT_EQ(answers_[0]->error().code, ErrorCode::kClock);
  EXPECT_NE(answers_[0]->error().message.find("297001ms"), std::string::npos) << answers_[0]->error().message;
  EXPECT_FALSE(machine_.CanIssue().ok());
  EXPECT_EQ(Ask(1, milliseconds{297'000}), 0U);
  EXPECT_FALSE(answers_[1]->ok());
  const std::uint64_t ticket = Ask(1, milliseconds{297'001});
  EXPECT_NE(ticket, 0U) << "exactly as long as it takes";
  machine_.service().Withdraw(ticket);
  // One that can be waited for is.
  machine_.clock.StepWall(minutes{5} - seconds{3} - milliseconds{500});
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  machine_.Pass(seconds{1});
  ASSERT_TRUE(answers_[3] && answers_[3]->ok());
}

TEST_F(SnowflakeWaiting, TooLargeIsNotWaitedFor) {
  EXPECT_EQ(Ask(machine_.service().generator().count_max() + 1, seconds{1}), 0U);
  EXPECT_EQ(answers_[0]->error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(Ask(machine_.service().generator().count_max(), seconds{1}), 0U);
  EXPECT_TRUE(answers_[1]->ok());
}

// The tasks that are due at one moment come to an end, however many requests wait: no timer spins.
TEST_F(SnowflakeWaiting, NothingSpinsWhileTimeStandsStill) {
  Drain();
  EXPECT_NE(Ask(1, seconds{1}), 0U);
  EXPECT_LT(machine_.SettleCounted(), 100);
  machine_.Pass(milliseconds{50});
  ASSERT_TRUE(answers_[0] && answers_[0]->ok());
  // Nor at the start, while the clock has to pass what was issued; nor with a disk that fails.
  ASSERT_TRUE(machine_.Start().ok());
  EXPECT_NE(Ask(1, seconds{10}), 0U);
  EXPECT_LT(machine_.SettleCounted(), 100);
  const std::size_t calls = machine_.disk.calls();
  machine_.Pass(seconds{1});
  EXPECT_EQ(machine_.disk.calls(), calls);
  machine_.Pass(seconds{3});
  ASSERT_TRUE(answers_[1] && answers_[1]->ok());
  machine_.disk.FailWrites(ENOSPC);
  machine_.Pass(seconds{4});
  const std::size_t failing = machine_.disk.calls();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(machine_.Take());
    machine_.Settle();
  }
  EXPECT_EQ(machine_.disk.calls(), failing) << "the timer tries again, not every request";
  machine_.disk.FailWrites(0);
}

// Requests wait all the time, and the ceiling is raised again and again: each wake-up may replace the timer
// that serves the waiting requests, and must not add one.
TEST_F(SnowflakeWaiting, WaitingForeverTakesOneTimer) {
  Drain();
  for (int i = 0; i < 2500; ++i) {
    for (int n = 0; n < 3; ++n) Ask(4000, seconds{1});
    machine_.Pass(milliseconds{2});
    // The tick, the next extension, the pump; and superseded pumps that are due within a tick.
    ASSERT_LT(machine_.timers(), 20U) << i;
  }
}

TEST_F(SnowflakeWaiting, AtSaturationTheCeilingIsRaisedInLargeSteps) {
  Drain();
  const std::size_t calls = machine_.disk.calls();
  std::uint64_t taken = 0;
  for (int i = 0; i < 1000; ++i) {
    machine_.Pass(milliseconds{1});
    while (machine_.Take(100)) taken += 100;
  }
  EXPECT_GT(taken, 3'800'000U);
  // About 21 writes a second, of less than a dozen calls.
  EXPECT_LT(machine_.disk.calls() - calls, 24U * 12);
}

// ---- crashes
// ---------------------------------------------------------------------------------------------------

// A crash at every system call of a ceiling write, by kill or by power cut, then a start with the clock
// anywhere from an hour behind to an hour ahead: nothing repeats, and the start does what the rules say.
TEST(SnowflakeCrash, AtEverySystemCallOfTheCeilingWrite) {
  std::size_t calls = 0;
  {
    Machine machine;
    ASSERT_TRUE(machine.Start().ok());
    const std::size_t before = machine.disk.calls();
    machine.Pass(milliseconds{1300});
    calls = machine.disk.calls() - before;
  }
  ASSERT_GE(calls, 8U) << "open, write, fsync, close, rename, open, fsync, close";

  const milliseconds offsets[] = {-hours{1},       -minutes{1},     -seconds{11},      -seconds{10},
                                  -seconds{7},     -seconds{3},     -milliseconds{11}, -milliseconds{1},
                                  milliseconds{0}, milliseconds{1}, milliseconds{11},  seconds{3},
                                  seconds{10},     seconds{11},     seconds{288},      hours{1}};
  int issued = 0;
  int waited = 0;
  int refused = 0;
  int combination = 0;
  FakeRandom random(21);
  for (std::size_t call = 0; call < calls; ++call) {
    for (const bool after : {false, true}) {
      for (const bool power : {false, true}) {
        for (const milliseconds offset : offsets) {
          // Scaled down, all calls and all offsets are still there, but not each with each.
          if (++combination % testing::kScaleDown != 0) continue;
          Machine machine(call + 1);
          ASSERT_TRUE(machine.Start().ok());
          ASSERT_TRUE(machine.Take());
          machine.disk.CrashAt(call, after);
          // The most adverse process: it goes on issuing as much as it can, to the end of what it may.
          for (int i = 0; i < 130; ++i) {
            machine.Pass(milliseconds{10});
            while (machine.Take(50'000)) {
            }
          }
          ASSERT_TRUE(machine.disk.dead());
          while (machine.Take()) {
          }
          const WallTime last = machine.last_time;
          machine.Forget();
          if (power) {
            machine.disk.LosePower(random);
            machine.options.boot_id = "boot-2";
          } else {
            machine.disk.Restart();
          }
          machine.clock.StepWall(offset);
          const auto state = machine.state_file.Load();
          ASSERT_TRUE(state.ok()) << state.error().message;
          ASSERT_TRUE(state->has_value());
          ASSERT_GT((*state)->ceiling, last) << "the ceiling that was issued under is durable";
          const milliseconds behind = (*state)->ceiling - machine.clock.Wall();
          const auto started = machine.Start();
          if (behind > seconds{10} || (!power && offset > seconds{10})) {
            ASSERT_FALSE(started.ok());
            ASSERT_EQ(started.error().code, ErrorCode::kClock);
            ++refused;
            continue;
          }
          ASSERT_TRUE(started.ok()) << started.error().message;
          if (behind > milliseconds{0}) {
            ASSERT_FALSE(machine.Take());
            machine.Pass(behind - milliseconds{1});
            ASSERT_FALSE(machine.Take());
            machine.Pass(milliseconds{1});
            ++waited;
          } else {
            ++issued;
          }
          ASSERT_TRUE(machine.Take());
          for (int i = 0; i < 20; ++i) {
            machine.Pass(milliseconds{100});
            ASSERT_TRUE(machine.Take(1000));
          }
        }
      }
    }
  }
  EXPECT_GT(issued, 0);
  EXPECT_GT(waited, 0);
  EXPECT_GT(refused, 0);
}

// The same at every system call of the last write, which may lower the ceiling.
TEST(SnowflakeCrash, AtEverySystemCallOfTheStop) {
  for (std::size_t call = 0; call < 12; ++call) {
    for (const bool after : {false, true}) {
      for (const bool power : {false, true}) {
        Machine machine;
        FakeRandom random(call);
        ASSERT_TRUE(machine.Start().ok());
        ASSERT_TRUE(machine.Take(20'000));
        machine.disk.CrashAt(call, after);
        machine.Stop();
        if (power) {
          machine.disk.LosePower(random);
        } else {
          machine.disk.Restart();
        }
        ASSERT_TRUE(machine.Start().ok());
        machine.Pass(seconds{3});
        ASSERT_TRUE(machine.Take());
      }
    }
  }
}

// A node whose life is nothing but trouble: kills, power cuts, full disks, stops, and a clock that Jepsen's
// schedules bump and strobe. Whatever happens, no ID comes twice, none is too far ahead, and when the trouble
// ends IDs come again.
class SnowflakeTrouble : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SnowflakeTrouble, NothingRepeats) {
  const std::uint64_t seed = GetParam();
  FakeRandom random(seed);
  Machine machine(seed);
  machine.options.clock_jump_max = minutes{10};  // bumps are what is under test, not their refusal
  const auto bump = [&] {
    // ±2^2 .. ±2^18 ms, as Jepsen's clock nemesis: about ±11 ms to ±288 s when jittered.
    const auto size = static_cast<std::int64_t>(std::uint64_t{4} << random.Below(17));
    const std::int64_t jitter = static_cast<std::int64_t>(random.Below(static_cast<std::uint64_t>(size)));
    machine.clock.StepWall(milliseconds{(random.Below(2) == 0 ? 1 : -1) * (size + jitter / 10)});
  };
  for (int round = 0; round < 400; ++round) {
    if (!machine.running()) {
      if (const auto started = machine.Start(); !started.ok()) {
        ASSERT_EQ(started.error().code, ErrorCode::kClock) << started.error().message;
      }
    }
    switch (random.Below(8)) {
      case 0:
        bump();
        break;
      case 1:  // strobe: there and back, many times
        for (int i = 0; i < 50; ++i) {
          const milliseconds delta{random.Below(2000)};
          machine.clock.StepWall(i % 2 == 0 ? delta : -delta);
          if (machine.running() && machine.Take(1 + random.Below(100))) continue;
          machine.Pass(milliseconds{random.Below(5)});
        }
        break;
      case 2:
        machine.Forget();
        machine.disk.Restart();
        break;
      case 3:
        machine.disk.CrashAt(random.Below(30), random.Below(2) == 0);
        machine.Pass(milliseconds{random.Below(3000)});
        machine.Forget();
        machine.disk.LosePower(random);
        break;
      case 4:
        if (machine.running()) machine.Stop();
        break;
      case 5:
        machine.disk.FailWrites(random.Below(2) == 0 ? ENOSPC : 0);
        machine.disk.FailSyncs(random.Below(4) == 0 ? EIO : 0);
        machine.Pass(milliseconds{random.Below(4000)});
        machine.disk.FailWrites(0);
        machine.disk.FailSyncs(0);
        break;
      default:
        for (int i = 0; i < 20 && machine.running(); ++i) {
          machine.Take(1 + random.Below(5000));
          machine.Pass(milliseconds{random.Below(200)});
        }
        break;
    }
    if (HasFailure()) FAIL() << "seed " << seed << ", round " << round;
  }
  // The trouble ends: the operator accepts the clock, and in time IDs come again.
  machine.options.accepted_offset = [&]() -> std::optional<core::ClockGuard::Offset> {
    return core::ClockGuard::OffsetOf(machine.clock.Wall(), machine.clock.Boot());
  };
  machine.Forget();
  machine.disk.Restart();
  for (int i = 0; i < 200 && !machine.Start().ok(); ++i) machine.Pass(minutes{1});
  ASSERT_TRUE(machine.running());
  bool came = false;
  for (int i = 0; i < 3000 && !(came = machine.Take()); ++i) machine.Pass(seconds{1});
  EXPECT_TRUE(came);
  // A sign of life: how many these were is up to the order in which a compiler evaluates arguments that are
  // random.
  EXPECT_GT(machine.issued, 1'000U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SnowflakeTrouble,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::Scaled(40U)));

}  // namespace
}  // namespace leaf::service
