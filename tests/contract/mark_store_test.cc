// What every MarkStore must do, on memory and on SQLite.
#include "leaf/sql/mark_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "leaf/base/limits.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

class MarkWorld {
 public:
  virtual ~MarkWorld() = default;
  virtual core::MarkStore& marks() = 0;
  virtual FakeClock& clock() = 0;
  // As after a restart of the process.
  virtual void Reopen() = 0;
};

class MemoryMarkWorld final : public MarkWorld {
 public:
  core::MarkStore& marks() override { return marks_; }
  FakeClock& clock() override { return clock_; }
  void Reopen() override {}

 private:
  FakeClock clock_;
  MemoryMarkStore marks_{clock_};
};

class SqliteMarkWorld final : public MarkWorld {
 public:
  SqliteMarkWorld() { Reopen(); }
  core::MarkStore& marks() override { return *marks_; }
  FakeClock& clock() override { return clock_; }
  void Reopen() override {
    marks_ = std::make_unique<sql::SqliteMarkStore>(
        dir_.path() + "/marks.db", [this](std::string_view tag) { return locks_.Acquire(tag); }, clock_,
        "test");
  }

 private:
  TempDir dir_;
  FakeClock clock_;
  MemoryMarkStore locks_{clock_};
  std::unique_ptr<sql::SqliteMarkStore> marks_;
};

struct MarkWorldFactory {
  std::string name;
  std::function<std::unique_ptr<MarkWorld>()> make;

  friend void PrintTo(const MarkWorldFactory& factory, std::ostream* out) { *out << factory.name; }
};

class MarkStoreContract : public ::testing::TestWithParam<MarkWorldFactory> {
 protected:
  MarkStoreContract() : world_(GetParam().make()) {}
  core::MarkStore& marks() { return world_->marks(); }
  const std::unique_ptr<MarkWorld> world_;
};

TEST_P(MarkStoreContract, ATagWithoutAMarkHasZero) {
  const auto mark = marks().Load("pay");
  ASSERT_TRUE(mark.ok());
  EXPECT_EQ(mark->end, 0U);
  EXPECT_EQ(mark->tag, "pay");
}

TEST_P(MarkStoreContract, RemembersTheHighestEndAcrossRestarts) {
  ASSERT_TRUE(marks().Raise({"pay", 2001, 0}).ok());
  ASSERT_TRUE(marks().Raise({"pay", 1000, 0}).ok());
  ASSERT_TRUE(marks().Raise({"订单'", kMaxIdLimit, std::nullopt}).ok());
  world_->Reopen();
  EXPECT_EQ(marks().Load("pay")->end, 2001U);
  EXPECT_EQ(marks().Load("PAY")->end, 0U);
  EXPECT_EQ(marks().Load("订单'")->end, kMaxIdLimit);
  EXPECT_EQ(marks().LoadAll()->size(), 2U);
}

TEST_P(MarkStoreContract, RemembersWhenAndByWhomAMarkWasRaised) {
  ASSERT_TRUE(marks().Raise({"pay", 2001, 0}).ok());
  const WallTime raised_at = world_->clock().Wall();
  world_->clock().Advance(std::chrono::hours{1});
  ASSERT_TRUE(marks().Raise({"pay", 2001, 0}).ok());  // raises nothing
  world_->Reopen();
  const auto mark = marks().Load("pay");
  EXPECT_EQ(mark->raised_at, raised_at);
  EXPECT_EQ(mark->raised_by, "test");
}

TEST_P(MarkStoreContract, CountsWhatEachRunLeftBehind) {
  ASSERT_TRUE(marks().BeginRun().ok());
  ASSERT_TRUE(marks().Raise({"pay", 2001, 2000}).ok());
  ASSERT_TRUE(marks().Raise({"pay", 4001, 3800}).ok());
  ASSERT_TRUE(marks().Raise({"pay", 4002, std::nullopt}).ok());  // a direct run in between holds nothing
  ASSERT_TRUE(marks().Raise({"idle", 11, 10}).ok());
  EXPECT_EQ(marks().Load("pay")->held, 3800U);
  ASSERT_TRUE(marks().EndRun({{"pay", 1234}, {"unheard-of", 5}}).ok());
  world_->Reopen();

  ASSERT_TRUE(marks().BeginRun().ok());
  auto pay = marks().Load("pay");
  EXPECT_EQ(pay->held, 0U);
  EXPECT_EQ(pay->wasted_last, 1234U);
  EXPECT_EQ(pay->wasted, 1234U);
  EXPECT_TRUE(pay->wasted_exactly);
  EXPECT_EQ(marks().Load("idle")->wasted, 0U);
  ASSERT_TRUE(marks().Raise({"pay", 5001, 1000}).ok());
  world_->Reopen();  // a crash

  ASSERT_TRUE(marks().BeginRun().ok());
  pay = marks().Load("pay");
  EXPECT_EQ(pay->wasted_last, 1000U);
  EXPECT_EQ(pay->wasted, 2234U);
  EXPECT_FALSE(pay->wasted_exactly);
  EXPECT_EQ(marks().Load("idle")->wasted_last, 0U);
  ASSERT_TRUE(marks().BeginRun().ok());  // a run that granted nothing wasted nothing
  EXPECT_EQ(marks().Load("pay")->wasted_last, 0U);
  EXPECT_EQ(marks().Load("pay")->wasted, 2234U);
}

TEST_P(MarkStoreContract, KeepsABaselineOfOneToTwoAges) {
  const WallTime start = world_->clock().Wall();
  const auto raise_after = [&](std::chrono::milliseconds time, std::uint64_t end) {
    world_->clock().Advance(time);
    ASSERT_TRUE(marks().Raise({"pay", end, 0}).ok());
  };
  const std::chrono::hours day{24};
  raise_after(std::chrono::hours{0}, 1);
  raise_after(6 * day, 600);
  EXPECT_EQ(marks().Load("pay")->base.max_id, 1U);
  EXPECT_EQ(marks().Load("pay")->base.at, start);
  raise_after(1 * day, 700);  // the next baseline is taken
  raise_after(6 * day, 1300);
  EXPECT_EQ(marks().Load("pay")->base.at, start);
  raise_after(1 * day, 1400);  // and becomes the one in use
  world_->Reopen();
  EXPECT_EQ(marks().Load("pay")->base.max_id, 700U);
  EXPECT_EQ(marks().Load("pay")->base.at, start + 7 * day);
}

TEST_P(MarkStoreContract, AHoldExcludesOthersOfTheSameTag) {
  auto hold = marks().Acquire("pay");
  ASSERT_TRUE(hold.ok());
  EXPECT_FALSE(marks().Acquire("pay").ok());
  EXPECT_TRUE(marks().Acquire("other").ok());
  hold->reset();
  EXPECT_TRUE(marks().Acquire("pay").ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, MarkStoreContract,
    ::testing::Values(MarkWorldFactory{"Memory", [] { return std::make_unique<MemoryMarkWorld>(); }},
                      MarkWorldFactory{"Sqlite", [] { return std::make_unique<SqliteMarkWorld>(); }}),
    [](const auto& world) { return world.param.name; });

TEST(SqliteMarkStore, AFileThatIsNoDatabaseIsRefusedByName) {
  TempDir dir;
  std::ofstream(dir.path() + "/marks.db") << std::string(4096, 'x');
  const FakeClock clock;
  sql::SqliteMarkStore marks(dir.path() + "/marks.db", nullptr, clock, "test");
  const auto loaded = marks.Load("pay");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  EXPECT_NE(loaded.error().message.find("marks.db"), std::string::npos);
}

// SQLite sends away one of two connections that make a new file at once, even with a busy time-out.
TEST(SqliteMarkStore, ANewFileIsOpenedByManyAtOnce) {
  const FakeClock clock;
  for (int round = 0; round < 40; ++round) {
    TempDir dir;
    std::vector<std::string> failures(6);
    std::vector<std::thread> threads;
    for (std::string& failure : failures) {
      threads.emplace_back([&] {
        sql::SqliteMarkStore marks(dir.path() + "/marks.db", nullptr, clock, "test");
        const auto loaded = marks.Load("pay");
        if (!loaded.ok()) failure = loaded.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) ASSERT_EQ(failure, "") << "round " << round;
  }
}

}  // namespace
}  // namespace leaf::testing
