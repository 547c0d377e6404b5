// What is remembered of codes, on SQLite.
#include "leaf/sql/code_records.h"

#include <gtest/gtest.h>
#include <soci/soci.h>

#include <string>

#include "support/temp_dir.h"

namespace leaf::sql {
namespace {

class CodeRecordsTest : public ::testing::Test {
 protected:
  static core::CodeRecord Record(int length, std::string key = "k1") {
    return {.tag = "order", .alphabet = "decimal", .check = true, .lengths = {length}, .key = std::move(key)};
  }
  testing::TempDir dir_;
  Database database_{SqliteOptions{.path = dir_.path() + "/leaf.db", .create_tables = true}};
  SqlCodeRecords records_{database_};
};

TEST_F(CodeRecordsTest, KeepsTheFirstAndWhatGrows) {
  EXPECT_FALSE(records_.Load("order").value().has_value());
  EXPECT_EQ(records_.Keep(Record(12), core::CodesBegin::kNow).value().lengths, std::vector<int>{12});
  EXPECT_EQ(records_.Keep(Record(12), core::CodesBegin::kNow).value().lengths, std::vector<int>{12});
  EXPECT_EQ(records_.Keep(Record(14), core::CodesBegin::kNow).value().lengths, (std::vector<int>{12, 14}));
  const auto kept = records_.Load("order").value().value();
  EXPECT_EQ(kept.alphabet, "decimal");
  EXPECT_TRUE(kept.check);
  EXPECT_EQ(kept.lengths, (std::vector<int>{12, 14}));
  EXPECT_EQ(kept.key, "k1");
  EXPECT_FALSE(records_.Load("orde").value().has_value());
}

TEST_F(CodeRecordsTest, RefusesWhatCouldMakeACodeTwice) {
  ASSERT_TRUE(records_.Keep(Record(12), core::CodesBegin::kNow).ok());
  core::CodeRecord base32 = Record(13);
  base32.alphabet = "base32";
  core::CodeRecord unchecked = Record(13);
  unchecked.check = false;
  for (const core::CodeRecord& wanted : {Record(11), Record(12, "k2"), base32, unchecked}) {
    const auto kept = records_.Keep(wanted, core::CodesBegin::kNow);
    ASSERT_FALSE(kept.ok());
    EXPECT_EQ(kept.error().code, ErrorCode::kConfig);
  }
  EXPECT_EQ(records_.Load("order").value().value().lengths, std::vector<int>{12});
}

TEST_F(CodeRecordsTest, KeepsTheClusterOfSnowflakeIds) {
  core::CodeRecord record = Record(19);
  record.tag = "snowflake";
  ASSERT_TRUE(records_.Keep(record, core::CodesBegin::kNow).ok());
  EXPECT_EQ(records_.Load("snowflake").value()->cluster, "");
  record.cluster = "c1";
  EXPECT_EQ(records_.Keep(record, core::CodesBegin::kNow)->cluster, "c1");
  for (const core::CodeRecord& kept :
       {*records_.Load("snowflake").value(), records_.LoadAll().value().front()}) {
    EXPECT_EQ(kept.key, "k1");
    EXPECT_EQ(kept.cluster, "c1");
  }
  record.cluster = "c2";
  EXPECT_EQ(records_.Keep(record, core::CodesBegin::kNow).error().code, ErrorCode::kConfig);
}

TEST_F(CodeRecordsTest, LoadsThoseOfAllTags) {
  EXPECT_TRUE(records_.LoadAll().value().empty());
  ASSERT_TRUE(records_.Keep(Record(12), core::CodesBegin::kNow).ok());
  ASSERT_TRUE(records_.Keep(Record(14), core::CodesBegin::kNow).ok());
  core::CodeRecord other = Record(8, "k2");
  other.tag = "pay";
  other.alphabet = "base32";
  other.check = false;
  ASSERT_TRUE(records_.Keep(other, core::CodesBegin::kNow).ok());
  core::CodeEnds ends;
  const auto records = records_.LoadAll().value();
  for (const core::CodeRecord& record : records) ends[record.tag] = core::CodesEnd(record);
  EXPECT_EQ(ends, (core::CodeEnds{{"order", 100'000'000'000'000}, {"pay", std::uint64_t{1} << 40}}));
}

TEST_F(CodeRecordsTest, SaysThatThereIsNoTable) {
  ASSERT_TRUE(records_.Keep(Record(12), core::CodesBegin::kNow).ok());
  ASSERT_TRUE(database_
                  .Run("test",
                       [](soci::session& session) -> Result<void> {
                         session << "DROP TABLE leafctl_codes";
                         return {};
                       })
                  .ok());
  EXPECT_EQ(records_.Load("order").error().code, ErrorCode::kConfig);
  EXPECT_TRUE(records_.LoadAll().value().empty());
  EXPECT_NE(records_.Keep(Record(12), core::CodesBegin::kNow).error().message.find("leafctl_codes"),
            std::string::npos);
}

TEST(CodesEnd, IsThePowerOfTheRadixBelowTheEndOfTheNumbers) {
  core::CodeRecord record;
  record.alphabet = "decimal";
  record.lengths = {1};
  EXPECT_EQ(core::CodesEnd(record), 10U);
  record.lengths = {1, 18};
  EXPECT_EQ(core::CodesEnd(record), 1'000'000'000'000'000'000U);
  record.lengths = {19};
  EXPECT_EQ(core::CodesEnd(record), kIdEnd) << "10^19 is more";
  record.alphabet = "of a later version";
  record.lengths = {1};
  EXPECT_EQ(core::CodesEnd(record), kIdEnd);
}

TEST(CodeLengths, AreReadAsTheyAreWritten) {
  EXPECT_EQ(core::CodeLengthsText({12, 14}), "12,14");
  EXPECT_EQ(core::ParseCodeLengths("12,14"), (std::vector<int>{12, 14}));
  EXPECT_EQ(core::ParseCodeLengths("1"), std::vector<int>{1});
  for (const char* text : {"", ",", "12,", "14,12", "12,12", "0", "-1", "a", "12 ,14"})
    EXPECT_FALSE(core::ParseCodeLengths(text).has_value()) << text;
}

}  // namespace
}  // namespace leaf::sql
