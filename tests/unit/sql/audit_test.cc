// The history of changes on SQLite: a line with each change, and no change without its line.
#include "leaf/sql/audit.h"

#include <gtest/gtest.h>
#include <soci/soci.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/sql/segment_store.h"
#include "support/temp_dir.h"

namespace leaf::sql {
namespace {

using core::WriteMode;

class AuditTest : public ::testing::Test {
 protected:
  void Execute(const std::string& statement) {
    ASSERT_TRUE(database_
                    .Run("test",
                         [&](soci::session& session) -> Result<void> {
                           session << statement;
                           return {};
                         })
                    .ok());
  }
  std::vector<std::string> Actions(std::string_view tag) {
    std::vector<std::string> actions;
    const auto lines = store_.History(tag, 100).value();
    for (const core::AuditLine& line : lines) actions.push_back(line.action);
    return actions;
  }
  core::NewTag Tag(const std::string& name) {
    core::NewTag tag;
    tag.tag = name;
    tag.step = 10;
    return tag;
  }

  static core::TagChange Change(std::int64_t step, std::optional<std::uint64_t> max_id = std::nullopt,
                                std::optional<std::string> description = std::nullopt) {
    core::TagChange change;
    change.step = step;
    change.max_id = max_id;
    change.description = std::move(description);
    return change;
  }

  testing::TempDir dir_;
  Database database_{SqliteOptions{.path = dir_.path() + "/leaf.db", .create_tables = true}};
  std::vector<std::pair<core::AuditLine, std::string>> told_;
  SqlSegmentStore store_{
      database_,
      {.who = "someone", .origin = "a test"},
      [this](const core::AuditLine& line, const std::string& why_not) { told_.emplace_back(line, why_not); }};
};

TEST_F(AuditTest, EachChangeHasALine) {
  ASSERT_TRUE(store_.Add(Tag("pay"), WriteMode::kCommit).ok());
  ASSERT_TRUE(store_.Update("pay", Change(20, 50, "cash"), WriteMode::kCommit).ok());
  ASSERT_TRUE(store_.Advance("pay", 60, WriteMode::kCommit).ok());
  ASSERT_TRUE(store_.Advance("pay", 70, WriteMode::kCommit, core::kAuditRepair).ok());
  ASSERT_TRUE(store_.Record("pay", core::kAuditPause).ok());
  ASSERT_TRUE(store_.Remove("pay", WriteMode::kCommit).ok());
  EXPECT_EQ(Actions("pay"), (std::vector<std::string>{"remove", "pause", "repair", "advance", "set", "add"}));
  EXPECT_EQ(told_.size(), 6U);
  const auto lines = store_.History("pay", 100).value();
  for (const core::AuditLine& line : lines) {
    EXPECT_EQ(line.tag, "pay");
    EXPECT_EQ(line.author.who, "someone");
    EXPECT_EQ(line.author.origin, "a test");
    EXPECT_GT(UnixMillis(line.at), 1'600'000'000'000);
  }
  using State = core::AuditState;
  EXPECT_FALSE(lines[5].before.has_value());
  EXPECT_EQ(lines[5].after, (State{1, 10, std::nullopt}));
  EXPECT_EQ(lines[4].before, (State{1, 10, std::nullopt}));
  EXPECT_EQ(lines[4].after, (State{50, 20, "cash"}));
  EXPECT_EQ(lines[0].before, (State{70, 20, "cash"}));
  EXPECT_FALSE(lines[0].after.has_value());
  EXPECT_FALSE(lines[1].before.has_value() || lines[1].after.has_value());
  EXPECT_EQ(store_.History("pay", 2)->size(), 2U);
  EXPECT_TRUE(store_.History("other", 100)->empty());
}

TEST_F(AuditTest, WhatChangesNothingHasNone) {
  ASSERT_TRUE(store_.Add(Tag("dry"), WriteMode::kDryRun).ok());
  ASSERT_TRUE(store_.Add(Tag("pay"), WriteMode::kCommit).ok());
  EXPECT_FALSE(store_.Add(Tag("pay"), WriteMode::kCommit).ok());
  ASSERT_TRUE(store_.Update("pay", Change(20), WriteMode::kDryRun).ok());
  ASSERT_TRUE(store_.Update("pay", Change(10), WriteMode::kCommit).ok());
  ASSERT_TRUE(store_.Advance("pay", 1, WriteMode::kCommit).ok());
  EXPECT_EQ(store_.Advance("pay", 0, WriteMode::kCommit).error().code, ErrorCode::kRefused);
  // All of it or nothing.
  EXPECT_EQ(store_.Update("pay", Change(30, 0), WriteMode::kCommit).error().code, ErrorCode::kRefused);
  EXPECT_EQ(store_.Describe("pay")->step, 10);
  ASSERT_TRUE(store_.Remove("pay", WriteMode::kDryRun).ok());
  EXPECT_EQ(Actions("pay"), std::vector<std::string>{"add"});
  EXPECT_TRUE(Actions("dry").empty());
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(AuditTest, AStoreWithoutAnAuthorRecordsNothing) {
  SqlSegmentStore plain(database_);
  ASSERT_TRUE(plain.Add(Tag("pay"), WriteMode::kCommit).ok());
  EXPECT_TRUE(Actions("pay").empty());
}

TEST_F(AuditTest, WithoutTheTableAChangeIsMadeAndTheReasonTold) {
  Execute("DROP TABLE leafctl_audit");
  ASSERT_TRUE(store_.Add(Tag("pay"), WriteMode::kCommit).ok());
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_NE(told_[0].second.find("no table leafctl_audit"), std::string::npos);
  EXPECT_TRUE(store_.Describe("pay").ok());
  EXPECT_EQ(store_.History("pay", 100).error().code, ErrorCode::kConfig);
}

TEST_F(AuditTest, ALineThatCannotBeWrittenUndoesItsChange) {
  ASSERT_TRUE(store_.Add(Tag("pay"), WriteMode::kCommit).ok());
  Execute("CREATE TRIGGER never BEFORE INSERT ON leafctl_audit BEGIN SELECT RAISE(ABORT, 'no'); END");
  EXPECT_FALSE(store_.Update("pay", Change(20), WriteMode::kCommit).ok());
  EXPECT_FALSE(store_.Remove("pay", WriteMode::kCommit).ok());
  EXPECT_EQ(store_.Describe("pay")->step, 10);
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(AuditTest, LongAndOddNamesFit) {
  SqlSegmentStore odd(database_, {.who = std::string(300, 'x') + "\n\xff", .origin = "\x01"}, nullptr);
  ASSERT_TRUE(odd.Add(Tag("pay"), WriteMode::kCommit).ok());
  const auto lines = odd.History("pay", 1).value();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].author.who, std::string(255, 'x'));
  EXPECT_EQ(lines[0].author.origin, "\\x01");
}

}  // namespace
}  // namespace leaf::sql
