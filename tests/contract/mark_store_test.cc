// What every MarkStore must do, on memory and on SQLite.
#include "leaf/sql/mark_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "leaf/base/limits.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

class MarkWorld {
 public:
  virtual ~MarkWorld() = default;
  virtual core::MarkStore& marks() = 0;
  // As after a restart of the process.
  virtual void Reopen() = 0;
};

class MemoryMarkWorld final : public MarkWorld {
 public:
  core::MarkStore& marks() override { return marks_; }
  void Reopen() override {}

 private:
  MemoryMarkStore marks_;
};

class SqliteMarkWorld final : public MarkWorld {
 public:
  SqliteMarkWorld() { Reopen(); }
  core::MarkStore& marks() override { return *marks_; }
  void Reopen() override {
    marks_ = std::make_unique<sql::SqliteMarkStore>(
        dir_.path() + "/marks.db", [this](std::string_view tag) { return locks_.Acquire(tag); });
  }

 private:
  TempDir dir_;
  MemoryMarkStore locks_;
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

TEST_P(MarkStoreContract, ATagWithoutAMarkHasZero) { EXPECT_EQ(*marks().Load("pay"), 0U); }

TEST_P(MarkStoreContract, RemembersTheHighestEndAcrossRestarts) {
  ASSERT_TRUE(marks().Raise("pay", 2001).ok());
  ASSERT_TRUE(marks().Raise("pay", 1000).ok());
  ASSERT_TRUE(marks().Raise("订单'", kMaxIdLimit).ok());
  world_->Reopen();
  EXPECT_EQ(*marks().Load("pay"), 2001U);
  EXPECT_EQ(*marks().Load("PAY"), 0U);
  EXPECT_EQ(*marks().Load("订单'"), kMaxIdLimit);
  EXPECT_EQ(marks().LoadAll()->size(), 2U);
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
  sql::SqliteMarkStore marks(dir.path() + "/marks.db", nullptr);
  const auto loaded = marks.Load("pay");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  EXPECT_NE(loaded.error().message.find("marks.db"), std::string::npos);
}

}  // namespace
}  // namespace leaf::testing
