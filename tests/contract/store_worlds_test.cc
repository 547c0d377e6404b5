// The worlds that the SegmentStore contract runs in: memory, SQLite, MariaDB with both published tables.
#include <gtest/gtest.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract/mariadb.h"
#include "contract/segment_store_contract.h"
#include "leaf/inspect/sql_database.h"
#include "leaf/sql/database.h"
#include "leaf/sql/schema.h"
#include "leaf/sql/segment_store.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

class MemoryWorld final : public StoreWorld {
 public:
  core::SegmentStore& store() override { return table_; }
  core::TagAdmin& admin() override { return table_; }
  void Put(const std::string& tag, std::int64_t max_id, std::int64_t step) override {
    table_.Put(tag, max_id, step);
  }

 private:
  MemorySegmentStore table_;
};

class SqlWorld : public StoreWorld {
 public:
  core::SegmentStore& store() override { return store_; }
  core::TagAdmin& admin() override { return store_; }
  void Put(const std::string& tag, std::int64_t max_id, std::int64_t step) override {
    Must(database_.Run("put a row", [&](soci::session& session) -> Result<void> {
      const long long max_id_value = max_id;
      const long long step_value = step;
      session << "DELETE FROM leaf_alloc WHERE biz_tag = :tag", soci::use(tag, "tag");
      session << "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (:tag, :max_id, :step)",
          soci::use(tag, "tag"), soci::use(max_id_value, "max_id"), soci::use(step_value, "step");
      return {};
    }));
  }

 protected:
  template <typename... Arguments>
  explicit SqlWorld(Arguments&&... arguments)
      : database_(std::forward<Arguments>(arguments)...), store_(database_) {}
  void Execute(const std::string& sql) {
    Must(database_.Run("prepare the test", [&](soci::session& session) -> Result<void> {
      session << sql;
      return {};
    }));
  }
  static void Must(const Result<void>& result) {
    if (!result.ok()) throw std::runtime_error(result.error().message);
  }
  sql::Database database_;
  sql::SqlSegmentStore store_;
};

class SqliteWorld final : public SqlWorld {
 public:
  SqliteWorld() : SqliteWorld(std::make_unique<TempDir>()) {}

 private:
  explicit SqliteWorld(std::unique_ptr<TempDir> dir)
      : SqlWorld(sql::SqliteOptions{.path = dir->path() + "/a b'c.db"}), dir_(std::move(dir)) {
    Must(sql::InitSchema(database_));
  }
  const std::unique_ptr<TempDir> dir_;
};

constexpr const char* kVariantA =
    "CREATE TABLE `leaf_alloc` (`biz_tag` varchar(128) NOT NULL DEFAULT '', `max_id` bigint(20) NOT NULL "
    "DEFAULT '1', "
    "`step` int(11) NOT NULL, `description` varchar(256) DEFAULT NULL, `update_time` timestamp NOT NULL "
    "DEFAULT "
    "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (`biz_tag`)) ENGINE=InnoDB";
constexpr const char* kVariantB =
    "CREATE TABLE `leaf_alloc` (`id` int(11) NOT NULL AUTO_INCREMENT, `biz_tag` varchar(128) NOT NULL "
    "DEFAULT '', "
    "`max_id` bigint(20) NOT NULL DEFAULT '1', `step` int(11) NOT NULL, `description` varchar(256) DEFAULT "
    "NULL, "
    "`update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY "
    "(`id`), UNIQUE "
    "KEY (`biz_tag`)) ENGINE=InnoDB";

class MariaDbWorld final : public SqlWorld {
 public:
  // `ddl`: a table of Leaf's users; empty for the one that `db init` makes.
  MariaDbWorld(const std::string& ddl, const std::string& charset)
      : SqlWorld(MysqlFromEnvironment(), kSystemClock), own_(ddl.empty()) {
    Execute("DROP TABLE IF EXISTS leaf_alloc");
    Execute("DROP TABLE IF EXISTS leafctl_removed_tags");
    if (!ddl.empty()) Execute(ddl + " DEFAULT CHARSET=" + charset);
    Must(sql::InitSchema(database_));
    Must(sql::InitSchema(database_));
    const auto findings = inspect::CheckSchema(database_);
    if (!findings.ok()) throw std::runtime_error(findings.error().message);
    for (const auto& finding : *findings) {
      if (finding.is_problem) throw std::runtime_error(finding.message);
    }
  }
  using SqlWorld::Execute;
  bool tells_all_tags_apart() const override { return own_; }

 private:
  const bool own_;
};

template <typename World, typename... Args>
StoreWorldFactory Factory(const std::string& name, Args... args) {
  return {name, [args...] { return std::make_unique<World>(args...); }};
}

INSTANTIATE_TEST_SUITE_P(Local, SegmentStoreContract,
                         ::testing::Values(Factory<MemoryWorld>("Memory"), Factory<SqliteWorld>("Sqlite")),
                         StoreWorldName);

INSTANTIATE_TEST_SUITE_P(
    MariaDb, SegmentStoreContract,
    ::testing::Values(Factory<MariaDbWorld>("OwnTable", std::string(), std::string()),
                      Factory<MariaDbWorld>("VariantA", std::string(kVariantA), std::string("utf8mb4")),
                      Factory<MariaDbWorld>("VariantALatin1", std::string(kVariantA), std::string("latin1")),
                      Factory<MariaDbWorld>("VariantB", std::string(kVariantB), std::string("utf8mb4"))),
    StoreWorldName);

// A node with a slow link would otherwise keep the others waiting: it has read the row, and they are granted
// ranges before it raises it.
TEST(MariaDbStore, NoRowIsLockedWhileAReplyIsOnItsWay) {
  MariaDbWorld world("", "");
  world.Put("pay", 1, 1000);
  const auto slow = world.store().Reserve("pay", [&](const core::TagRow& row) -> Result<core::GrantSize> {
    EXPECT_EQ(row.max_id, 1);
    const auto other = world.store().Reserve("pay", [](const core::TagRow&) -> Result<core::GrantSize> {
      return core::GrantSize{500, 500};
    });
    EXPECT_TRUE(other.ok()) << other.error().message;
    EXPECT_EQ(other.ok() ? other->range : IdRange{}, (IdRange{1, 501}));
    return core::GrantSize{1000, 1000};
  });
  ASSERT_TRUE(slow.ok()) << slow.error().message;
  EXPECT_EQ(slow->range, (IdRange{501, 1501}));
  EXPECT_EQ(world.store().Describe("pay")->max_id, 1501);
}

TEST(MariaDbStore, ARowThatGoesBackOrEndsBetweenTheTwoStatementsIsReadAgain) {
  MariaDbWorld world("", "");
  world.Put("back", 1000, 10);
  std::vector<std::int64_t> seen;
  const auto back = world.store().Reserve("back", [&](const core::TagRow& row) -> Result<core::GrantSize> {
    seen.push_back(row.max_id);
    if (seen.size() == 1) world.Put("back", 700, 10);
    return core::GrantSize{10, 10};
  });
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->range, (IdRange{700, 710}));
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1000, 700})) << "the sizer judges what the range begins with";

  const std::int64_t end = std::numeric_limits<std::int64_t>::max();
  world.Put("end", end - 100, 10);
  const auto cut = world.store().Reserve("end", [&](const core::TagRow& row) -> Result<core::GrantSize> {
    if (row.max_id == end - 100) world.Put("end", end - 5, 10);
    return core::GrantSize{10, 1};
  });
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(cut->range.size(), 5U);

  world.Put("gone", 1, 10);
  const auto gone = world.store().Reserve("gone", [&](const core::TagRow&) -> Result<core::GrantSize> {
    (void)world.admin().Remove("gone", core::WriteMode::kCommit);
    return core::GrantSize{10, 10};
  });
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
}

constexpr const char* kConflict =
    "CREATE TRIGGER first_come BEFORE UPDATE ON leaf_alloc FOR EACH ROW "
    "IF (SELECT left_over FROM conflicts) > 0 THEN "
    "UPDATE conflicts SET left_over = left_over - 1; "
    "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'another node came first'; END IF";

// Error 1213, as a Galera node answers the second of two writes of one row. The count is kept by an engine
// without transactions, so that what the statement's end undoes is not the count.
TEST(MariaDbStore, AGrantIsTriedAgainAfterAConflictOfTwoNodes) {
  MariaDbWorld world("", "");
  world.Put("pay", 1, 1000);
  world.Execute("CREATE OR REPLACE TABLE conflicts (left_over INT) ENGINE = MyISAM");
  world.Execute("INSERT INTO conflicts VALUES (3)");
  world.Execute(kConflict);
  int asked = 0;
  const auto grant = world.store().Reserve("pay", [&](const core::TagRow& row) -> Result<core::GrantSize> {
    EXPECT_EQ(row.max_id, 1);
    if (++asked == 4) world.Execute("DROP TRIGGER first_come");
    return core::GrantSize{500, 500};
  });
  ASSERT_TRUE(grant.ok()) << grant.error().message;
  EXPECT_EQ(grant->range, (IdRange{1, 501}));
  EXPECT_EQ(asked, 4) << "each attempt begins with what the row says then";

  // A grant whose every attempt is refused fails, and the row stays where it is.
  world.Execute(kConflict);
  world.Execute("UPDATE conflicts SET left_over = 1000");
  const auto refused = world.store().Reserve("pay", [](const core::TagRow&) -> Result<core::GrantSize> {
    return core::GrantSize{500, 500};
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("1213"), std::string::npos) << refused.error().message;
  EXPECT_EQ(world.store().Describe("pay")->max_id, 501);
  world.Execute("DROP TABLE leaf_alloc, conflicts");
}

// A server that has not just said that it takes writes is asked first, and nothing is written unasked.
TEST(MariaDbStore, ARowIsMovedUnreadOnlyWhileTheServerIsTrusted) {
  MariaDbWorld world("", "");
  world.Put("pay", 1, 1000);
  int sized = 0;
  const auto unread = [&] {
    return world.store().ReserveUnread("pay", 0, [&]() -> Result<core::GrantSize> {
      ++sized;
      return core::GrantSize{10, 1};
    });
  };
  const auto never_asked = unread();
  ASSERT_TRUE(never_asked.ok()) << never_asked.error().message;
  EXPECT_FALSE(never_asked->has_value());
  EXPECT_EQ(sized, 0);
  // On a machine that is busy, the time may be over before the row is moved.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (sized == 0 && std::chrono::steady_clock::now() < until) {
    const auto read = world.store().Reserve("pay", [](const core::TagRow&) -> Result<core::GrantSize> {
      return core::GrantSize{10, 10};
    });
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto grant = unread();
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    EXPECT_EQ(grant->has_value(), sized == 1);
  }
  EXPECT_EQ(sized, 1);
  std::this_thread::sleep_for(sql::Database::kTrustTime * 2);
  const auto too_late = unread();
  ASSERT_TRUE(too_late.ok()) << too_late.error().message;
  EXPECT_FALSE(too_late->has_value());
  EXPECT_EQ(sized, 1);
}

// With any trigger at the table, the reply to an UPDATE does not tell where the range ends.
TEST(MariaDbStore, ATableWithATrigger) {
  MariaDbWorld world("", "");
  world.Put("pay", 1, 1000);
  world.Execute("CREATE TRIGGER seen AFTER UPDATE ON leaf_alloc FOR EACH ROW SET @seen = 1");
  const auto reserve = [&] {
    return world.store().Reserve("pay", [](const core::TagRow&) -> Result<core::GrantSize> {
      return core::GrantSize{500, 500};
    });
  };
  const auto first = reserve();
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_NE(first.error().hint.find("trigger"), std::string::npos) << first.error().hint;
  for (std::uint64_t begin = 501; begin < 2001; begin += 500) {
    const auto grant = reserve();
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    EXPECT_EQ(grant->range, (IdRange{begin, begin + 500}));
  }
  world.Execute("DROP TRIGGER seen");
}

}  // namespace
}  // namespace leaf::testing
