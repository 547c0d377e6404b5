// What every MarkStore must do, on memory and on SQLite.
#include "leaf/sql/mark_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

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
  virtual core::ClusterMemoryStore& memories() = 0;
  virtual FakeClock& clock() = 0;
  // As after a restart of the process.
  virtual void Reopen() = 0;
};

class MemoryMarkWorld final : public MarkWorld {
 public:
  core::MarkStore& marks() override { return marks_; }
  core::ClusterMemoryStore& memories() override { return marks_; }
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
  core::ClusterMemoryStore& memories() override { return *marks_; }
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
  core::ClusterMemoryStore& memories() { return world_->memories(); }
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

TEST_P(MarkStoreContract, RemembersWhenAMarkWasRaisedAndByWhichProcess) {
  ASSERT_TRUE(marks().Raise({"pay", 2001, 0}).ok());
  const WallTime raised_at = world_->clock().Wall();
  world_->clock().Advance(std::chrono::hours{1});
  ASSERT_TRUE(marks().Raise({"pay", 2001, 0}).ok());  // raises nothing
  world_->Reopen();
  const auto mark = marks().Load("pay");
  EXPECT_EQ(mark->raised_at, raised_at);
  EXPECT_EQ(mark->raised_by, "test");
}

TEST_P(MarkStoreContract, RemembersTheNewestOrderOfATag) {
  using enum core::TagOrder;
  const auto keep = [&](const core::OrderRow& row) { ASSERT_TRUE(marks().KeepOrders({row}).ok()); };
  const auto pay = [&] {
    const auto rows = marks().LoadOrders();
    for (const core::OrderRow& row : *rows) {
      if (row.tag == "pay") return row;
    }
    return core::OrderRow{};
  };
  EXPECT_TRUE(marks().LoadOrders()->empty());
  ASSERT_TRUE(marks().KeepOrders({}).ok());
  ASSERT_TRUE(
      marks().KeepOrders({{"pay", kStrict, std::nullopt, 5}, {"订单'", kTrend, std::nullopt, 7}}).ok());
  world_->Reopen();
  EXPECT_EQ(marks().LoadOrders()->size(), 2U);
  EXPECT_EQ(pay(), (core::OrderRow{"pay", kStrict, std::nullopt, 5}));
  // Known in full now, and nothing that is older or says less.
  keep({"pay", kStrict, 1001, 5});
  keep({"pay", kStrict, std::nullopt, 5});
  keep({"pay", kTrend, std::nullopt, 5});
  keep({"pay", kTrend, std::nullopt, 4});
  EXPECT_EQ(pay(), (core::OrderRow{"pay", kStrict, 1001, 5}));
  keep({"pay", kTrend, std::nullopt, 8});
  EXPECT_EQ(pay(), (core::OrderRow{"pay", kTrend, std::nullopt, 8}));
  keep({"pay", kStrict, std::nullopt, 8});
  EXPECT_EQ(pay(), (core::OrderRow{"pay", kStrict, std::nullopt, 8})) << "the safe side of two histories";
  world_->Reopen();
  EXPECT_EQ(pay(), (core::OrderRow{"pay", kStrict, std::nullopt, 8}));
  EXPECT_TRUE(marks().LoadAll()->empty());
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

TEST_P(MarkStoreContract, RemembersHowFarTheClusterWasGranted) {
  ASSERT_TRUE(marks().Raise({"pay", 11, std::nullopt, 21}).ok());
  EXPECT_EQ(marks().Load("pay")->end, 11U);
  EXPECT_EQ(marks().Load("pay")->witness, 21U);
  ASSERT_TRUE(marks().Raise({"pay", 31, std::nullopt, 11}).ok());  // an older look
  ASSERT_TRUE(marks().Raise({"pay", 41, 5}).ok());                 // a grant without a claim
  world_->Reopen();
  EXPECT_EQ(marks().Load("pay")->end, 41U);
  EXPECT_EQ(marks().Load("pay")->witness, 21U);
  ASSERT_TRUE(marks().Raise({"pay", 41, std::nullopt, kMaxIdLimit}).ok());
  EXPECT_EQ(marks().LoadAll()->at(0).witness, kMaxIdLimit);
}

TEST_P(MarkStoreContract, RemembersWhatOthersWereGranted) {
  ASSERT_TRUE(marks().Raise({"pay", 2001, 7, 2001}).ok());
  const core::Mark before = *marks().Load("pay");
  ASSERT_TRUE(memories().RaiseWitnesses({}).ok());
  ASSERT_TRUE(memories().RaiseWitnesses({{"pay", 3001}, {"订单'", 11}, {"mail", 1}}).ok());
  ASSERT_TRUE(memories().RaiseWitnesses({{"pay", 2501}, {"mail", 5}}).ok());  // lowers none
  world_->Reopen();
  const core::Mark pay = *marks().Load("pay");
  EXPECT_EQ(pay.witness, 3001U);
  // All else of the mark is as it was: nothing was granted to this node.
  EXPECT_EQ(pay.end, before.end);
  EXPECT_EQ(pay.raised_at, before.raised_at);
  EXPECT_EQ(pay.raised_by, before.raised_by);
  EXPECT_EQ(pay.held, before.held);
  EXPECT_EQ(marks().Load("mail")->witness, 5U);
  EXPECT_EQ(marks().Load("mail")->end, 0U);
  EXPECT_EQ(marks().Load("订单'")->witness, 11U);
  EXPECT_EQ(marks().LoadAll()->size(), 3U);
}

// What other nodes were granted does not begin the baseline: from 0 to the first grant, it would show a huge
// number of IDs in no time.
TEST_P(MarkStoreContract, ABaselineBeginsWithTheFirstGrantAndNotWithWhatOthersWereGranted) {
  ASSERT_TRUE(memories().RaiseWitnesses({{"pay", 1'000'000}}).ok());
  world_->clock().Advance(std::chrono::hours{1});
  ASSERT_TRUE(marks().Raise({"pay", 1'000'010, 3, 1'000'010}).ok());
  world_->Reopen();
  const core::Mark mark = *marks().Load("pay");
  EXPECT_EQ(mark.end, 1'000'010U);
  EXPECT_EQ(mark.base.max_id, 1'000'010U);
  EXPECT_EQ(mark.base.at, world_->clock().Wall());
  EXPECT_EQ(mark.held, 3U);
  EXPECT_EQ(mark.raised_by, "test");
}

TEST_P(MarkStoreContract, KnowsNothingOfAClusterThatItWasNotIn) {
  const auto memory = memories().LoadMemory("/snowflake/pay");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(*memory, core::ClusterMemory{});
}

TEST_P(MarkStoreContract, RemembersEachClusterAcrossRestarts) {
  const WallTime now = world_->clock().Wall();
  const core::ClusterMemory pay{"a1", 3, 7, {"b", "c"}, {{"d", 0}, {"e", 41}}, now, {{"c", 12}}};
  const core::ClusterMemory mail{"a2", 1, 0, {}, {}, now - std::chrono::hours{1}};
  ASSERT_TRUE(memories().SaveMemory("/snowflake/pay", pay).ok());
  ASSERT_TRUE(memories().SaveMemory("/it's/mail", mail).ok());
  world_->Reopen();
  EXPECT_EQ(*memories().LoadMemory("/snowflake/pay"), pay);
  EXPECT_EQ(*memories().LoadMemory("/it's/mail"), mail);
  EXPECT_EQ(*memories().LoadMemory("/snowflake/PAY"), core::ClusterMemory{});
  EXPECT_EQ(marks().LoadAll()->size(), 0U) << "no mark comes of it";
}

TEST_P(MarkStoreContract, AMemoryIsNotOverwrittenByAnOlderOne) {
  const WallTime now = world_->clock().Wall();
  const auto save = [&](core::ClusterMemory memory) {
    ASSERT_TRUE(memories().SaveMemory("c", memory).ok());
    world_->Reopen();
  };
  save({"a", 2, 7, {"b"}, {{"c", 3}}, now});
  // Another process of this directory, which looked earlier, saves what it saw.
  save({"a", 2, 5, {"b", "d"}, {}, now - std::chrono::seconds{3}, {{"d", 4}}});
  EXPECT_EQ(*memories().LoadMemory("c"),
            (core::ClusterMemory{"a", 2, 7, {"b", "d"}, {{"c", 3}}, now, {{"d", 4}}}))
      << "what the newer one knows stays, and what it did not know comes to it";
  save({"a", 1, 6, {"b"}, {}, now});
  EXPECT_EQ(*memories().LoadMemory("c"),
            (core::ClusterMemory{"a", 2, 7, {"b", "d"}, {{"c", 3}}, now, {{"d", 4}}}));
  // The count of heartbeats goes on over the incarnations; the time is that of the last heartbeat.
  save({"a", 3, 1, {}, {{"b", 8}}, now + std::chrono::seconds{1}});
  EXPECT_EQ(*memories().LoadMemory("c"),
            (core::ClusterMemory{"a", 3, 7, {"b", "d"}, {{"c", 3}}, now, {{"d", 4}}}));
  // It has seen one go on that the newer one has as covered.
  save({"a", 3, 1, {"c"}, {}, now, {{"c", 9}}});
  EXPECT_EQ(*memories().LoadMemory("c"),
            (core::ClusterMemory{"a", 3, 7, {"b", "c", "d"}, {}, now, {{"c", 9}, {"d", 4}}}));
  save({"a", 3, 8, {"b"}, {}, now + std::chrono::seconds{1}, {{"b", 9}}});
  EXPECT_EQ(memories().LoadMemory("c")->beats, (std::vector{std::pair(std::string("b"), std::uint64_t{9})}));
  save({"a", 3, 8, {}, {}, now + std::chrono::seconds{1}});
  EXPECT_TRUE(memories().LoadMemory("c")->beats.empty());
  EXPECT_EQ(memories().LoadMemory("c")->beat, 8U);
}

// Two processes begin with a directory at once.
TEST_P(MarkStoreContract, ADirectoryKeepsItsFirstName) {
  ASSERT_TRUE(memories().SaveMemory("c", {"first", 0, 0, {}, {}, {}}).ok());
  ASSERT_TRUE(memories().SaveMemory("c", {"second", 0, 0, {}, {}, {}}).ok());
  EXPECT_EQ(memories().LoadMemory("c")->id, "first");
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

// What version 0.1 made: no column for the witness, and nothing about clusters.
void MakeFileOfVersion01(const std::string& path) {
  sqlite3* file = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &file), SQLITE_OK);
  EXPECT_EQ(
      sqlite3_exec(
          file,
          "CREATE TABLE marks (tag TEXT NOT NULL PRIMARY KEY, end INTEGER NOT NULL, "
          "raised_at INTEGER NOT NULL, raised_by TEXT NOT NULL, "
          "base_end INTEGER NOT NULL, base_at INTEGER NOT NULL, "
          "next_end INTEGER NOT NULL, next_at INTEGER NOT NULL, "
          "held INTEGER NOT NULL, held_exactly INTEGER NOT NULL DEFAULT 0, "
          "wasted_last INTEGER NOT NULL DEFAULT 0, wasted INTEGER NOT NULL DEFAULT 0, "
          "wasted_exactly INTEGER NOT NULL DEFAULT 1) WITHOUT ROWID;"
          "INSERT INTO marks (tag, end, raised_at, raised_by, base_end, base_at, next_end, next_at, held) "
          "VALUES ('pay', 2001, 1795000000000, 'old', 1, 1794000000000, 1000, 1795000000000, 7)",
          nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(file);
}

bool HasWitnessColumn(const std::string& path) {
  sqlite3* file = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &file, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  const bool has = sqlite3_table_column_metadata(file, nullptr, "marks", "witness", nullptr, nullptr, nullptr,
                                                 nullptr, nullptr) == SQLITE_OK;
  sqlite3_close(file);
  return has;
}

TEST(SqliteMarkStore, AFileOfVersion01KeepsItsMarksAndGetsTheColumn) {
  TempDir dir;
  const std::string path = dir.path() + "/marks.db";
  MakeFileOfVersion01(path);
  ASSERT_FALSE(HasWitnessColumn(path));
  const FakeClock clock;
  for (int round = 0; round < 2; ++round) {  // the second time it has it
    sql::SqliteMarkStore marks(path, nullptr, clock, "new");
    const auto mark = marks.Load("pay");
    ASSERT_TRUE(mark.ok()) << mark.error().message;
    EXPECT_EQ(mark->end, 2001U);
    EXPECT_EQ(mark->raised_by, "old");
    EXPECT_EQ(mark->base.max_id, 1U);
    EXPECT_EQ(mark->held, 7U);
    EXPECT_EQ(mark->witness, round == 0 ? 0U : 2001U);
    EXPECT_TRUE(HasWitnessColumn(path));
    EXPECT_EQ(*marks.LoadMemory("c"), core::ClusterMemory{});
    ASSERT_TRUE(marks.Raise({"pay", 2001, std::nullopt, 2001}).ok());
  }
}

TEST(SqliteMarkStore, AFileOfVersion01IsOpenedByManyAtOnce) {
  const FakeClock clock;
  for (int round = 0; round < 20; ++round) {
    TempDir dir;
    const std::string path = dir.path() + "/marks.db";
    MakeFileOfVersion01(path);
    std::vector<std::string> failures(4);
    std::vector<std::thread> threads;
    for (std::string& failure : failures) {
      threads.emplace_back([&] {
        sql::SqliteMarkStore marks(path, nullptr, clock, "new");
        if (const auto raised = marks.Raise({"pay", 2001, std::nullopt, 2001}); !raised.ok())
          failure = raised.error().message;
        if (const auto saved = marks.SaveMemory("c", {"a", 1, 1, {}, {}, {}}); !saved.ok())
          failure = saved.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) ASSERT_EQ(failure, "") << "round " << round;
    sql::SqliteMarkStore marks(path, nullptr, clock, "new");
    EXPECT_EQ(marks.Load("pay")->witness, 2001U);
    EXPECT_EQ(marks.LoadAll()->size(), 1U);
  }
}

// `leafctl status` on the directory of a daemon of version 0.1 that is running.
TEST(SqliteMarkStore, ALookAtAFileOfVersion01ChangesNothing) {
  TempDir dir;
  const std::string path = dir.path() + "/marks.db";
  MakeFileOfVersion01(path);
  const FakeClock clock;
  sql::SqliteMarkStore marks(sql::SqliteOptions{.path = path, .read_only = true}, clock);
  const auto all = marks.LoadAll();
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->at(0).end, 2001U);
  EXPECT_EQ(all->at(0).witness, 0U);
  EXPECT_FALSE(HasWitnessColumn(path));
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
