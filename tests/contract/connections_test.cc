// How many connections a process has to a MariaDB, and what it does with one that lets in no more.
#include <gtest/gtest.h>
#include <pwd.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract/mariadb.h"
#include "leaf/base/limits.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/schema.h"
#include "leaf/sql/segment_store.h"
#include "support/fakes.h"

namespace leaf::testing {
namespace {

using std::chrono::seconds;

std::string TagName(int number) { return "tag" + std::to_string(number); }

class MariaDbConnections : public ::testing::Test {
 protected:
  static constexpr int kTags = 64;

  MariaDbConnections()
      : root_(*soci::factory_mysql(), std::string("user='") + getpwuid(getuid())->pw_name +
                                          "' unix_socket='" + std::getenv("LEAF_MYSQL_SOCKET") + "'") {
    sql::MysqlOptions options = Options();
    connector_ = std::make_shared<sql::MysqlConnector>(options, clock_, &log_);
    database_ = std::make_unique<sql::Database>(connector_);
    store_ = std::make_unique<sql::SqlSegmentStore>(*database_);
    Execute("DROP TABLE IF EXISTS leaf_alloc");
    EXPECT_TRUE(sql::InitSchema(*database_).ok());
    for (int i = 0; i < kTags; ++i)
      Execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('" + TagName(i) + "', 1, 10)");
    // Connections of tests that have ended may still be on their way out.
    AwaitConnections(1);
    root_ << "FLUSH STATUS";
  }
  ~MariaDbConnections() override { root_ << "SET GLOBAL max_connections = 500"; }

  static sql::MysqlOptions Options() {
    sql::MysqlOptions options = MysqlFromEnvironment();
    return options;
  }
  void Execute(const std::string& statement) {
    const auto done = database_->Run("prepare the test", [&](soci::session& session) -> Result<void> {
      session << statement;
      return {};
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  // Connections of all clients except this test's own.
  int Connections() {
    int count = 0;
    root_ << "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'leaf'", soci::into(count);
    return count;
  }
  void AwaitConnections(int count) {
    while (Connections() != count) std::this_thread::yield();
  }
  long long Status(const std::string& name) {
    std::string same_name;
    long long value = -1;
    root_ << "SHOW GLOBAL STATUS LIKE '" + name + "'", soci::into(same_name), soci::into(value);
    return value;
  }
  // Connections that were asked for and not made. One that the server refuses before it makes a thread for it
  // is not counted among its connections.
  long long NotMade() {
    return Status("Connection_errors_max_connections") + Status("Connections") -
           static_cast<long long>(database_->State().connections);
  }
  // The same since FillUp.
  long long Refused() { return NotMade() - not_made_before_; }
  Result<core::Grant> Reserve(const std::string& tag) {
    return store_->Reserve(tag, [](const core::TagRow&) -> Result<core::GrantSize> {
      return core::GrantSize{10, 10};
    });
  }
  // Reserves for every tag at once, `rounds` times. Returns how many grants failed.
  int Burst(int rounds) {
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kTags; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < rounds; ++round) {
          const auto grant = Reserve(TagName(i));
          if (grant.ok()) continue;
          ++failed;
          const std::lock_guard lock(mutex_);
          problem_ = grant.error().message;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failed.load();
  }
  // Calls that keep the connections that they get until EndBusy.
  void BeBusy(int calls) {
    for (int i = 0; i < calls; ++i) {
      threads_.emplace_back([this] {
        const auto done = database_->Run("be busy", [&](soci::session&) -> Result<void> {
          ++busy_;
          while (!end_.load()) std::this_thread::yield();
          return {};
        });
        EXPECT_TRUE(done.ok()) << done.error().message;
      });
    }
  }
  void AwaitBusy(int calls) {
    while (busy_.load() != calls) std::this_thread::yield();
  }
  void AwaitWaiting(std::size_t calls) {
    while (connector_->pool().waiting() != calls) std::this_thread::yield();
  }
  void EndBusy() {
    end_.store(true);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    busy_.store(0);
    end_.store(false);
  }
  void AwaitRefused(long long times) {
    while (Refused() < times) std::this_thread::yield();
  }
  // Other clients, until the server lets in no more but `left`.
  std::vector<std::unique_ptr<soci::session>> FillUp(int left) {
    constexpr int kServerMax = 20;
    root_ << "SET GLOBAL max_connections = " + std::to_string(kServerMax);
    std::vector<std::unique_ptr<soci::session>> others;
    // The test's own connection counts as well. It is the extra one that the server keeps for root, and takes
    // no place from others.
    const sql::MysqlOptions options = Options();
    while (Connections() + 1 < kServerMax - left) {
      auto other = sql::OpenMysql(options, options.endpoints.front());
      EXPECT_TRUE(other.ok()) << other.error().message;
      if (!other.ok()) break;
      others.push_back(std::move(*other));
    }
    not_made_before_ = NotMade();
    return others;
  }

  soci::session root_;
  FakeClock clock_;
  RecordingLogger log_;
  std::shared_ptr<sql::MysqlConnector> connector_;
  std::unique_ptr<sql::Database> database_;
  std::unique_ptr<sql::SqlSegmentStore> store_;
  long long not_made_before_ = 0;
  std::atomic<bool> end_{false};
  std::atomic<int> busy_{0};
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::string problem_;  // of a burst; guarded by mutex_ while it lasts
};

TEST_F(MariaDbConnections, ABurstHasNoMoreThanItMayAndTwoAreLeftAtRest) {
  EXPECT_EQ(Burst(10), 0) << problem_;
  EXPECT_LE(Status("Max_used_connections"), 1 + 8) << "the test's own, and those of the burst";
  EXPECT_LE(*database_->State().open, 8U);
  clock_.Advance(kIdleConnectionTime);
  database_->CloseIdle();
  EXPECT_LE(*database_->State().open, 2U);
  while (Connections() > 2) std::this_thread::yield();
  EXPECT_EQ(Burst(1), 0) << problem_;
}

TEST_F(MariaDbConnections, AFullServerGrantsOverTheConnectionsThatAreUp) {
  auto others = FillUp(2);
  BeBusy(3);
  AwaitBusy(3);
  BeBusy(1);
  AwaitRefused(1);
  AwaitWaiting(1);
  BeBusy(4);
  AwaitWaiting(5);
  EndBusy();
  EXPECT_EQ(Burst(20), 0) << problem_;
  EXPECT_EQ(Refused(), 1) << "no task asks before the pause is over";
  EXPECT_EQ(*database_->State().open, 3U);
  EXPECT_TRUE(database_->State().up);
  EXPECT_EQ(log_.Count(LogLevel::kWarning), 1U);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "1040"), 1U);

  clock_.Advance(sql::ConnectionPool::kPauseMin);
  BeBusy(8);
  AwaitRefused(2);
  EndBusy();
  EXPECT_EQ(Refused(), 2);
  EXPECT_EQ(*database_->State().open, 3U);

  others.clear();
  while (Connections() > 3) std::this_thread::yield();
  clock_.Advance(sql::ConnectionPool::kPauseMax);
  BeBusy(8);
  AwaitBusy(8);
  EndBusy();
  EXPECT_EQ(Burst(1), 0) << problem_;
  EXPECT_EQ(log_.Count(LogLevel::kInfo, "accepts new connections again"), 1U);
  EXPECT_EQ(database_->State().failures, 0U);
}

TEST_F(MariaDbConnections, AFullServerIsNotAskedAgainAtOnceWhereThereIsNoConnection) {
  // Nothing rests: the next grant needs a connection.
  connector_->pool().DropIdle();
  AwaitConnections(0);
  auto others = FillUp(0);
  EXPECT_EQ(Burst(5), kTags * 5);
  EXPECT_NE(problem_.find("1040"), std::string::npos) << problem_;
  EXPECT_EQ(Reserve(TagName(0)).error().code, ErrorCode::kUnavailable);
  EXPECT_LE(Refused(), 8);
  EXPECT_FALSE(database_->State().up);

  others.clear();
  AwaitConnections(0);
  EXPECT_FALSE(Reserve(TagName(0)).ok()) << "it is too early to ask";
  clock_.Advance(sql::ConnectionPool::kPauseMax);
  EXPECT_EQ(Burst(1), 0) << problem_;
  EXPECT_TRUE(database_->State().up);
}

// Of a slow link every round trip counts.
TEST_F(MariaDbConnections, AGrantIsTwoStatementsOverAConnectionThatIsUp) {
  constexpr int kGrants = 20;
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  const long long before = Status("Questions");
  const long long between = Status("Questions");
  for (int i = 0; i < kGrants; ++i) ASSERT_TRUE(Reserve(TagName(0)).ok());
  EXPECT_EQ(Status("Questions") - between, 2 * kGrants + (between - before));
}

// What a server is set up with does not change what statements mean.
class MariaDbSettings : public MariaDbConnections {
 protected:
  // For connections that are made from now on.
  void Set(const std::string& setting) {
    root_ << "SET GLOBAL " + setting;
    connector_->pool().DropIdle();
  }
  long long MaxId(const std::string& tag) {
    long long max_id = 0;
    root_ << "SELECT max_id FROM " + Schema() + ".leaf_alloc WHERE biz_tag = :tag", soci::use(tag, "tag"),
        soci::into(max_id);
    return max_id;
  }
  static std::string Schema() { return Options().database; }
  ~MariaDbSettings() override {
    root_ << "SET GLOBAL sql_mode = DEFAULT, completion_type = DEFAULT, sql_select_limit = DEFAULT, "
             "init_connect = '', sql_safe_updates = DEFAULT, sql_big_selects = DEFAULT";
  }
};

// The schedule: the server cuts off what the column cannot hold, but tells the end that was asked for; the
// next node begins at the column's limit, inside the first one's range.
TEST_F(MariaDbSettings, AColumnThatIsFullRefusesAGrantAlsoWithoutAStrictMode) {
  Set("sql_mode = ''");
  Execute("ALTER TABLE leaf_alloc MODIFY max_id int NOT NULL");
  Execute("UPDATE leaf_alloc SET max_id = 2147483640");
  const auto refused = Reserve(TagName(0));
  ASSERT_FALSE(refused.ok()) << refused->range.begin << " to " << refused->range.end;
  EXPECT_EQ(MaxId(TagName(0)), 2147483640);
}

// The schedule: a COMMIT begins the next transaction, the connection's next grant is a part of it, and is
// told and issued; then the connection ends, and the row goes back.
TEST_F(MariaDbSettings, AGrantIsCommittedWhereACommitBeginsTheNextTransaction) {
  Set("completion_type = 1");
  const auto done = database_->Transact("change a row", sql::Database::Finish::kCommit,
                                        [](soci::session& session) -> Result<void> {
                                          session << "UPDATE leaf_alloc SET step = 10 WHERE biz_tag = 'tag1'";
                                          return {};
                                        });
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto grant = Reserve(TagName(0));
  ASSERT_TRUE(grant.ok()) << grant.error().message;
  EXPECT_EQ(MaxId(TagName(0)), static_cast<long long>(grant->range.end));
}

TEST_F(MariaDbSettings, NamesAreUtf8WhereTheServerReadsAnotherCharacterSet) {
  const std::string tag = "订单";
  Execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('" + tag + "', 1, 10)");
  Set("init_connect = 'SET NAMES gbk'");
  const auto grant = Reserve(tag);
  ASSERT_TRUE(grant.ok()) << grant.error().message;
}

// MariaDB 12 has words where others have numbers.
TEST_F(MariaDbSettings, AServerThatIsReadOnlySaysSoInAWordOrANumber) {
  const auto judge = [&](const std::string& value) {
    std::string question(sql::kMysql.read_only);
    const std::string variable = "@@global.read_only";
    question.replace(question.find(variable), variable.size(), value);
    int read_only = -1;
    root_ << "SELECT " + question, soci::into(read_only);
    return read_only;
  };
  for (const char* const value : {"0", "'0'", "'OFF'"}) EXPECT_EQ(judge(value), 0) << value;
  for (const char* const value : {"1", "'1'", "'ON'", "'NO_LOCK'", "'NO_LOCK_NO_ADMIN'"})
    EXPECT_EQ(judge(value), 1) << value;
}

// leafctl's own statements change rows by columns that are no keys: of the nodes, for instance.
TEST_F(MariaDbSettings, RowsAreChangedAlsoWhereTheServerAsksForAKey) {
  Set("sql_safe_updates = 1, sql_big_selects = 0");
  Execute("UPDATE leaf_alloc SET step = 12 WHERE step = 10");
  EXPECT_EQ(store_->Describe(TagName(0))->step, 12);
}

// What a table that another program made allows.
TEST_F(MariaDbSettings, ARowWhoseNumbersAreNoneHidesNoOtherTag) {
  Execute("ALTER TABLE leaf_alloc MODIFY step int NULL, MODIFY max_id bigint unsigned NULL");
  Execute("UPDATE leaf_alloc SET step = NULL WHERE biz_tag = '" + TagName(1) + "'");
  Execute("UPDATE leaf_alloc SET max_id = 9223372036854775808 WHERE biz_tag = '" + TagName(2) + "'");
  Execute("UPDATE leaf_alloc SET max_id = NULL WHERE biz_tag = '" + TagName(3) + "'");
  const auto rows = store_->List();
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->size(), static_cast<std::size_t>(kTags));
  EXPECT_TRUE(Reserve(TagName(0)).ok());
  for (int odd = 1; odd <= 3; ++odd) {
    const auto refused = Reserve(TagName(odd));
    ASSERT_FALSE(refused.ok()) << odd;
    const char* const why = odd == 1 ? "step is -1" : odd == 2 ? "0 are left" : "max_id is -1";
    EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
    EXPECT_TRUE(store_->Describe(TagName(odd)).ok());
  }
  // And the commands that the hints name put them right.
  core::TagChange change;
  change.step = 100;
  EXPECT_TRUE(store_->Update(TagName(1), change, core::WriteMode::kCommit).ok());
  EXPECT_TRUE(Reserve(TagName(1)).ok());
  EXPECT_TRUE(store_->Advance(TagName(3), 5000, core::WriteMode::kCommit).ok());
  EXPECT_TRUE(Reserve(TagName(3)).ok());
  EXPECT_EQ(store_->Advance(TagName(2), 5000, core::WriteMode::kCommit).error().code, ErrorCode::kRefused)
      << "that would be back";
}

TEST_F(MariaDbSettings, AllTagsAreListedWhereTheServerHasALimitOfRows) {
  Set("sql_select_limit = 3");
  const auto rows = store_->List();
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->size(), static_cast<std::size_t>(kTags));
}

// The user may write all the same: the server would not stop it.
TEST_F(MariaDbConnections, NothingIsGrantedByAServerThatWasMadeReadOnly) {
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  root_ << "GRANT READ_ONLY ADMIN ON *.* TO leaf";
  connector_->pool().DropIdle();  // the right comes with the next connection
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  const auto row = store_->Describe(TagName(0));
  ASSERT_TRUE(row.ok());
  root_ << "SET GLOBAL read_only = 1";
  bool judged = false;
  const auto refused = store_->Reserve(TagName(0), [&](const core::TagRow&) -> Result<core::GrantSize> {
    judged = true;
    return core::GrantSize{10, 10};
  });
  const auto unknown = Reserve("unknown");
  root_ << "SET GLOBAL read_only = 0";
  root_ << "REVOKE READ_ONLY ADMIN ON *.* FROM leaf";
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << refused.error().message;
  EXPECT_FALSE(judged) << "its row is not the one in use";
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnavailable) << "it may be lacking here alone";
  EXPECT_EQ(store_->Describe(TagName(0))->max_id, row->max_id);
  EXPECT_EQ(Reserve("unknown").error().code, ErrorCode::kNotFound);
}

// Between the two statements of a grant, over which a slow link or a stopped process can take any time.
TEST_F(MariaDbConnections, NothingIsGrantedByAServerThatIsMadeReadOnlyMeanwhile) {
  root_ << "GRANT READ_ONLY ADMIN ON *.* TO leaf";
  connector_->pool().DropIdle();  // the right comes with the next connection
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  const auto row = store_->Describe(TagName(0));
  ASSERT_TRUE(row.ok());
  const auto lost = store_->Reserve(TagName(0), [&](const core::TagRow&) -> Result<core::GrantSize> {
    root_ << "SET GLOBAL read_only = 1";
    return core::GrantSize{10, 10};
  });
  root_ << "SET GLOBAL read_only = 0";
  const auto after = Reserve(TagName(0));
  const long long before = Status("Questions");
  const long long between = Status("Questions");
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  const long long questions = Status("Questions") - between - (between - before);
  root_ << "REVOKE READ_ONLY ADMIN ON *.* FROM leaf";
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kOutcomeUnknown) << lost.error().message;
  EXPECT_NE(lost.error().message.find("read-only"), std::string::npos) << lost.error().message;
  ASSERT_TRUE(after.ok()) << after.error().message;
  const auto end = static_cast<std::uint64_t>(row->max_id) + 20;
  EXPECT_EQ(after->range, (IdRange{end - 10, end}))
      << "a replica that is told the statement raises its row, too";
  EXPECT_EQ(questions, 2) << "it is no reason to take the server for one that does not tell where ranges end";
}

// Nor by one that said a moment ago that it takes writes, and is written to unasked.
TEST_F(MariaDbConnections, NothingIsGrantedUnreadByAServerThatIsMadeReadOnlyMeanwhile) {
  root_ << "GRANT READ_ONLY ADMIN ON *.* TO leaf";
  connector_->pool().DropIdle();  // the right comes with the next connection
  bool sized = false;
  std::optional<Result<std::optional<core::Grant>>> lost;
  // On a machine that is busy, the server may have to be asked again.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!sized && std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(Reserve(TagName(0)).ok());
    lost = store_->ReserveUnread(TagName(0), 0, [&]() -> Result<core::GrantSize> {
      sized = true;
      root_ << "SET GLOBAL read_only = 1";
      return core::GrantSize{10, 10};
    });
  }
  root_ << "SET GLOBAL read_only = 0";
  root_ << "REVOKE READ_ONLY ADMIN ON *.* FROM leaf";
  ASSERT_TRUE(sized);
  ASSERT_FALSE(lost->ok());
  EXPECT_EQ(lost->error().code, ErrorCode::kOutcomeUnknown) << lost->error().message;
}

TEST_F(MariaDbConnections, AConnectionThatWasEndedCostsNoGrant) {
  ASSERT_TRUE(Reserve(TagName(0)).ok());
  int id = 0;
  root_ << "SELECT id FROM information_schema.processlist WHERE user = 'leaf'", soci::into(id);
  root_ << "KILL " + std::to_string(id);
  AwaitConnections(0);
  const auto grant = Reserve(TagName(0));
  ASSERT_TRUE(grant.ok()) << grant.error().message;
  EXPECT_EQ(grant->range, (IdRange{11, 21})) << "and no number";
  EXPECT_EQ(database_->State().reconnects, 1U);
}

// Rows that another client holds, more of them than there are connections.
TEST_F(MariaDbConnections, LockedRowsLeaveConnectionsToTheOthers) {
  constexpr int kLocked = 20;
  const sql::MysqlOptions options = Options();
  auto holder = sql::OpenMysql(options, options.endpoints.front());
  ASSERT_TRUE(holder.ok()) << holder.error().message;
  **holder << "START TRANSACTION";
  for (int i = 0; i < kLocked; ++i)
    **holder << "SELECT max_id FROM leaf_alloc WHERE biz_tag = '" + TagName(i) + "' FOR UPDATE";
  std::atomic<int> granted{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < kLocked; ++i) {
    waiting.emplace_back([&, i] {
      if (Reserve(TagName(i)).ok()) ++granted;
    });
  }
  // Half of them stand before a row, and all the others are in line for that.
  AwaitWaiting(kLocked - 4);
  for (int i = kLocked; i < kTags; ++i) {
    const auto grant = Reserve(TagName(i));
    EXPECT_TRUE(grant.ok()) << grant.error().message;
  }
  EXPECT_EQ(granted.load(), 0);
  **holder << "ROLLBACK";
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(granted.load(), kLocked) << "each of them once the row was free";
  EXPECT_LE(*database_->State().open, 8U);
}

// What keeps a worker number alive works while every other connection is busy.
TEST_F(MariaDbConnections, AnUrgentCallDoesNotWaitForABurst) {
  sql::Database registry(connector_, sql::Use::kUrgent);
  BeBusy(32);
  AwaitBusy(7);
  AwaitWaiting(32 - 7);
  EXPECT_TRUE(registry
                  .Run("report",
                       [](soci::session& session) -> Result<void> {
                         session << "SELECT 1";
                         return {};
                       })
                  .ok());
  EXPECT_EQ(busy_.load(), 7) << "of all others each still has its connection";
  EndBusy();
}

// As servers are from MariaDB 11.6 on, unless they are configured otherwise.
TEST_F(MariaDbConnections, ATransactionThatWasOvertakenIsTriedAgain) {
  int attempts = 0;
  const auto raise = [&](soci::session& session) -> Result<void> {
    session << "SET SESSION innodb_snapshot_isolation = ON";
    long long max_id = 0;
    session << "SELECT max_id FROM leaf_alloc WHERE biz_tag = 'tag0'", soci::into(max_id);
    if (++attempts == 1) root_ << "UPDATE leaf.leaf_alloc SET max_id = 500 WHERE biz_tag = 'tag0'";
    session << "UPDATE leaf_alloc SET max_id = max_id + 1 WHERE biz_tag = 'tag0'";
    return {};
  };
  const auto done = database_->Transact("raise a tag", sql::Database::Finish::kCommit, raise);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(store_->Describe("tag0")->max_id, 501);
}

}  // namespace
}  // namespace leaf::testing
