#include "leaf/service/node.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "leaf/sys/static_registry.h"
#include "leaf/sys/worker_state_file.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ManualExecutor;

// Both modes on fakes; every task runs when the test says so.
class NodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    table_.Put("pay", 1, 2000);
    SnowflakeOptions options;
    options.cluster.name = "test";
    options.boot_id = "boot-1";
    node_.AddSegments({.options = {},
                       .store = table_,
                       .marks = marks_,
                       .random = random_,
                       .executors = {timers_, workers_, slow_workers_, refresher_}});
    node_.AddSnowflakes({.options = options,
                         .registry = registry_,
                         .state_file = state_file_,
                         .random = random_,
                         .executors = {sf_timers_, ceilings_, registry_worker_},
                         .peer_worker = peer_worker_,
                         .peers = std::nullopt});
  }
  void Run() {
    bool ran = true;
    while (ran) {
      ran = false;
      for (ManualExecutor* const executor : executors_) ran = executor->RunOne() || ran;
    }
  }
  void StartBoth() {
    node_.StartSegments();
    node_.StartSnowflakes([this](const Result<void>& started) {
      started_ = started;
      return true;
    });
    Run();
    ASSERT_TRUE(started_ && started_->ok());
  }
  // One ID of `tag`, or the reason why there is none.
  Result<void> Segment(const std::string& tag) {
    std::optional<Result<void>> answer;
    node_.segment()->Next(tag, 1, {seconds{1}, seconds{1}}, [&](Result<IdSpans> result) {
      answer = result.ok() ? Result<void>() : Result<void>(result.error());
    });
    Run();
    return answer.value_or(Error{ErrorCode::kExhausted, "no answer", ""});
  }
  bool Snowflake() {
    core::SnowflakeRun run;
    return node_.snowflake()->TryNext(1, run);
  }

  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::MemoryMarkStore marks_{clock_};
  testing::CrashingDisk disk_;
  sys::WorkerStateFile state_file_{"/state", disk_};
  sys::StaticRegistry registry_{7, {}};
  ManualExecutor timers_{clock_}, workers_{clock_}, slow_workers_{clock_}, refresher_{clock_};
  ManualExecutor sf_timers_{clock_}, ceilings_{clock_}, registry_worker_{clock_}, peer_worker_{clock_};
  const std::vector<ManualExecutor*> executors_{&timers_,    &workers_,  &slow_workers_,    &refresher_,
                                                &sf_timers_, &ceilings_, &registry_worker_, &peer_worker_};
  std::optional<Result<void>> started_;
  Node node_{clock_, log_};
};

TEST_F(NodeTest, ServesBothModes) {
  StartBoth();
  EXPECT_TRUE(Segment("pay").ok());
  EXPECT_TRUE(Snowflake());
  EXPECT_EQ(node_.peer_clocks(), nullptr);
}

TEST_F(NodeTest, AStopLeavesNoThreadAtWorkAndWritesDownTheReserve) {
  StartBoth();
  ASSERT_TRUE(Segment("pay").ok());
  ASSERT_TRUE(Snowflake());
  node_.Stop();
  for (ManualExecutor* const executor : executors_) {
    bool ran = false;
    executor->Post([&ran] { ran = true; });
    EXPECT_FALSE(executor->RunOne() || ran);
  }
  EXPECT_FALSE(Snowflake());
  EXPECT_FALSE(Segment("pay").ok());
  // The end of this life: what the next one holds is what was left of the first range.
  ASSERT_TRUE(marks_.BeginRun().ok());
  const auto mark = marks_.Load("pay");
  ASSERT_TRUE(mark.ok());
  EXPECT_EQ(mark->wasted_last, 1999U);
  EXPECT_TRUE(mark->wasted_exactly);
}

TEST_F(NodeTest, AStopBeforeTheStartAndASecondOneAreHarmless) {
  node_.Stop();
  node_.Stop();
  EXPECT_FALSE(Snowflake());
  EXPECT_EQ(log_.Count(LogLevel::kWarning), 0U);
}

TEST_F(NodeTest, AHaltSpeaksForBothModes) {
  StartBoth();
  ASSERT_TRUE(Segment("pay").ok());
  ASSERT_TRUE(Snowflake());
  node_.Halt({ErrorCode::kUnavailable, "the state directory is lost", ""});
  const auto segment = Segment("pay");
  ASSERT_FALSE(segment.ok());
  EXPECT_EQ(segment.error().message, "the state directory is lost");
  EXPECT_FALSE(Snowflake());
  EXPECT_EQ(node_.snowflake()->CanIssue().error().message, "the state directory is lost");
}

}  // namespace
}  // namespace leaf::service
