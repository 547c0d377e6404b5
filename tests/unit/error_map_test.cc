#include "leaf/sql/error_map.h"

#include <gtest/gtest.h>

namespace leaf::sql {
namespace {

TEST(ErrorMap, KnowsMysqlErrorsByNumber) {
  const std::pair<unsigned, ErrorCode> known[] = {
      {1045, ErrorCode::kPermission},  {1698, ErrorCode::kPermission},    {1146, ErrorCode::kConfig},
      {1049, ErrorCode::kConfig},      {1062, ErrorCode::kAlreadyExists}, {1205, ErrorCode::kUnavailable},
      {1213, ErrorCode::kUnavailable}, {1290, ErrorCode::kUnavailable},   {2002, ErrorCode::kUnavailable},
      {2003, ErrorCode::kUnavailable}, {2006, ErrorCode::kUnavailable},   {2013, ErrorCode::kUnavailable},
      {1064, ErrorCode::kInternal}};
  for (const auto& [number, code] : known)
    EXPECT_EQ(MysqlErrorCode(number, Phase::kStatement), code) << number;
}

TEST(ErrorMap, ALostReplyToCommitIsAnUnknownOutcomeAndARefusalIsNot) {
  for (const unsigned lost : {2006U, 2013U, 2055U, 1053U, 2099U, 4242U}) {
    EXPECT_EQ(MysqlErrorCode(lost, Phase::kCommit), ErrorCode::kOutcomeUnknown) << lost;
  }
  EXPECT_EQ(MysqlErrorCode(1213, Phase::kCommit), ErrorCode::kUnavailable)
      << "a Galera conflict was rolled back";
  EXPECT_EQ(SqliteErrorCode(5, Phase::kCommit), ErrorCode::kUnavailable);
  EXPECT_EQ(SqliteErrorCode(10, Phase::kCommit), ErrorCode::kOutcomeUnknown);
}

TEST(ErrorMap, KnowsSqliteErrorsByPrimaryCode) {
  EXPECT_EQ(SqliteErrorCode(5, Phase::kStatement), ErrorCode::kUnavailable);
  EXPECT_EQ(SqliteErrorCode(517, Phase::kStatement), ErrorCode::kUnavailable) << "SQLITE_BUSY_SNAPSHOT";
  EXPECT_EQ(SqliteErrorCode(26, Phase::kStatement), ErrorCode::kConfig);
  EXPECT_EQ(SqliteErrorCode(8, Phase::kStatement), ErrorCode::kPermission);
  EXPECT_EQ(SqliteErrorCode(1555, Phase::kStatement), ErrorCode::kAlreadyExists);
}

}  // namespace
}  // namespace leaf::sql
