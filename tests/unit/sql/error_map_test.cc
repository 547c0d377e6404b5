#include "leaf/sql/error_map.h"

#include <gtest/gtest.h>
#include <soci/mysql/soci-mysql.h>

#include <string>

namespace leaf::sql {
namespace {

TEST(ErrorMap, KnowsMysqlErrorsByNumber) {
  const std::pair<unsigned, ErrorCode> known[] = {
      {1045, ErrorCode::kPermission},  {1698, ErrorCode::kPermission},    {1146, ErrorCode::kConfig},
      {1049, ErrorCode::kConfig},      {1062, ErrorCode::kAlreadyExists}, {1205, ErrorCode::kUnavailable},
      {1213, ErrorCode::kUnavailable}, {1290, ErrorCode::kUnavailable},   {2002, ErrorCode::kUnavailable},
      {2003, ErrorCode::kUnavailable}, {2006, ErrorCode::kUnavailable},   {2013, ErrorCode::kUnavailable},
      {1130, ErrorCode::kPermission},  {1820, ErrorCode::kPermission},    {1862, ErrorCode::kPermission},
      {3118, ErrorCode::kPermission},  {3159, ErrorCode::kPermission},    {4151, ErrorCode::kPermission},
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

TEST(ErrorMap, AtCommitOnlyWhatIsSurelyRolledBackIsARefusal) {
  for (unsigned number = 1000; number < 5000; ++number) {
    const bool rolled_back = number == 1213 || number == 1290 || number == 3101;
    EXPECT_EQ(MysqlErrorCode(number, Phase::kCommit),
              rolled_back ? ErrorCode::kUnavailable : ErrorCode::kOutcomeUnknown)
        << number;
  }
}

TEST(ErrorMap, AServerThatTakesNoWritesIsUnavailableAndToBlame) {
  for (const unsigned number : {1047U, 1053U, 1105U, 1180U, 1290U, 1836U, 1927U, 2002U, 2003U, 2006U, 2013U,
                                2026U, 2055U, 3032U, 3100U, 4031U}) {
    EXPECT_EQ(MysqlErrorCode(number, Phase::kStatement), ErrorCode::kUnavailable) << number;
    EXPECT_TRUE(MysqlBlamesServer(number)) << number;
  }
  // A row, a lock, a limit, a user or a statement says nothing about the other connections.
  for (const unsigned number : {1040U, 1045U, 1062U, 1064U, 1146U, 1205U, 1213U, 1317U, 1969U, 2059U, 3101U})
    EXPECT_FALSE(MysqlBlamesServer(number)) << number;
}

TEST(ErrorMap, AFullStoreIsUnavailableAndNotToBlame) {
  for (const unsigned number : {3U, 20U, 1021U, 1026U, 1030U, 1114U}) {
    EXPECT_EQ(MysqlErrorCode(number, Phase::kStatement), ErrorCode::kUnavailable) << number;
    EXPECT_FALSE(MysqlBlamesServer(number)) << number;
  }
  // Such a statement has surely not happened.
  for (const unsigned number : {1021U, 1114U})
    EXPECT_EQ(MysqlErrorCode(number, Phase::kAutocommit), ErrorCode::kUnavailable) << number;
  EXPECT_EQ(SqliteErrorCode(13, Phase::kStatement), ErrorCode::kUnavailable);
  EXPECT_EQ(SqliteErrorCode(4874, Phase::kStatement), ErrorCode::kUnavailable) << "SQLITE_IOERR_SHMSIZE";
}

TEST(ErrorMap, KnowsAServerThatIsFullAndARowThatIsLocked) {
  const auto error = [](unsigned number) { return soci::mysql_soci_error("", static_cast<int>(number)); };
  for (const unsigned full : {1040U, 1203U, 1226U}) {
    EXPECT_TRUE(IsTooManyConnections(error(full))) << full;
    EXPECT_FALSE(BlamesServer(error(full))) << full;
    EXPECT_EQ(MysqlErrorCode(full, Phase::kStatement), ErrorCode::kUnavailable) << full;
  }
  for (const unsigned locked : {1205U, 3572U}) {
    EXPECT_TRUE(IsRowLocked(error(locked))) << locked;
    EXPECT_EQ(MysqlErrorCode(locked, Phase::kStatement), ErrorCode::kUnavailable) << locked;
  }
  EXPECT_FALSE(IsTooManyConnections(error(2002)));
  const auto before_tls = [](const std::string& what) {
    return soci::mysql_soci_error(
        "Received error packet before completion of TLS handshake. The authenticity of the "
        "following error cannot be verified: " +
            what,
        2002);
  };
  EXPECT_TRUE(IsTooManyConnections(before_tls("1040 - Too many connections")));
  EXPECT_FALSE(IsTooManyConnections(before_tls("1129 - Host is blocked")));
  EXPECT_FALSE(IsRowLocked(error(1213)));
}

TEST(ErrorMap, KnowsWhatWasUndoneInFavourOfAnother) {
  const auto error = [](unsigned number) { return soci::mysql_soci_error("", static_cast<int>(number)); };
  for (const unsigned undone : {1020U, 1213U, 3101U}) {
    EXPECT_TRUE(IsConflict(error(undone))) << undone;
    EXPECT_FALSE(MysqlBlamesServer(undone)) << undone;
    EXPECT_EQ(MysqlErrorCode(undone, Phase::kStatement), ErrorCode::kUnavailable) << undone;
    EXPECT_EQ(MysqlErrorCode(undone, Phase::kAutocommit), ErrorCode::kUnavailable) << undone;
  }
  for (const unsigned other : {1062U, 1205U, 2013U}) EXPECT_FALSE(IsConflict(error(other))) << other;
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
