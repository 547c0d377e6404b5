// The worlds in which the registries' contract is tested with a database: SQLite and MariaDB.
#include <gtest/gtest.h>
#include <soci/soci.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "contract/mariadb.h"
#include "contract/worker_registry_contract.h"
#include "leaf/sql/database.h"
#include "leaf/sql/schema.h"
#include "leaf/sql/worker_registry.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf::testing {
namespace {

using std::chrono::milliseconds;

// Numbers begin at 1, as the fork's do.
constexpr std::uint64_t kCapacity = 8;

class SqlRegistryWorld : public RegistryWorld {
 public:
  bool leased() const override { return false; }
  std::uint64_t capacity() const override { return kCapacity; }
  std::unique_ptr<core::WorkerRegistry> Connect(int index) override {
    return std::make_unique<sql::SqlWorkerRegistry>(
        database_,
        sql::SqlRegistryOptions{.worker_begin = 1,
                                .worker_end = kCapacity + 1,
                                .host = "host-" + std::to_string(index),
                                .url = "http://127.0.0." + std::to_string(index) + ":8080"},
        clock_, log_);
  }
  // Another client holds the lock that every call needs, longer than any call waits.
  void SetDown(bool down) override {
    if (down) {
      blocker_ = std::make_unique<Blocker>(*this);
    } else {
      blocker_.reset();
    }
  }

 protected:
  template <typename... Arguments>
  explicit SqlRegistryWorld(const Arguments&... arguments) : database_(arguments...), other_(arguments...) {}
  void Execute(sql::Database& database, const std::string& statement) {
    const auto done = database.Run("prepare the test", [&](soci::session& session) -> Result<void> {
      session << statement;
      return {};
    });
    if (!done.ok()) throw std::runtime_error(done.error().message);
  }
  virtual std::string lock_statement() const = 0;
  virtual std::string unlock_statement() const = 0;

  FakeClock clock_;
  RecordingLogger log_;
  sql::Database database_;
  sql::Database other_;

 private:
  struct Blocker {
    explicit Blocker(SqlRegistryWorld& its_world) : world(its_world) {
      world.Execute(world.other_, world.lock_statement());
    }
    ~Blocker() { world.Execute(world.other_, world.unlock_statement()); }
    SqlRegistryWorld& world;
  };
  std::unique_ptr<Blocker> blocker_;
};

class SqliteRegistryWorld final : public SqlRegistryWorld {
 public:
  SqliteRegistryWorld() : SqliteRegistryWorld(std::make_unique<TempDir>()) {}
  ~SqliteRegistryWorld() override { SetDown(false); }

 private:
  explicit SqliteRegistryWorld(std::unique_ptr<TempDir> dir)
      : SqlRegistryWorld(sql::SqliteOptions{
            .path = dir->path() + "/leaf.db", .create_tables = true, .busy_timeout = milliseconds{2000}}),
        dir_(std::move(dir)) {}
  std::string lock_statement() const override { return "BEGIN IMMEDIATE"; }
  std::string unlock_statement() const override { return "ROLLBACK"; }
  const std::unique_ptr<TempDir> dir_;
};

class MariaDbRegistryWorld final : public SqlRegistryWorld {
 public:
  explicit MariaDbRegistryWorld(const sql::MysqlOptions& options) : SqlRegistryWorld(options, kSystemClock) {
    sql::Database patient(MysqlFromEnvironment(), kSystemClock);
    for (const char* table : {"leaf_workerid_alloc", "leafctl_workers", "leafctl_cluster"}) {
      Execute(patient, std::string("DROP TABLE IF EXISTS ") + table);
    }
    const auto made = sql::InitSchema(patient);
    if (!made.ok()) throw std::runtime_error(made.error().message);
  }
  ~MariaDbRegistryWorld() override { SetDown(false); }

 private:
  std::string lock_statement() const override { return "LOCK TABLES leafctl_workers WRITE"; }
  std::string unlock_statement() const override { return "UNLOCK TABLES"; }
};

NamedRegistryWorld Sqlite() {
  return {"Sqlite", [] { return std::make_unique<SqliteRegistryWorld>(); }};
}
NamedRegistryWorld MariaDb() {
  return {"Tables", [] { return std::make_unique<MariaDbRegistryWorld>(MysqlFromEnvironment()); }};
}
// Calls that nothing answers end.
NamedRegistryWorld MariaDbThatGoesAway() {
  return {"Tables",
          [] { return std::make_unique<MariaDbRegistryWorld>(MysqlFromEnvironment(milliseconds{2000})); }};
}
std::string RegistryWorldName(const ::testing::TestParamInfo<NamedRegistryWorld>& world) {
  return world.param.first;
}

INSTANTIATE_TEST_SUITE_P(Sqlite, WorkerRegistryContract, ::testing::Values(Sqlite()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Sqlite, FixedRegistryContract, ::testing::Values(Sqlite()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Sqlite, AssigningRegistryContract, ::testing::Values(Sqlite()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Sqlite, RememberingRegistryContract, ::testing::Values(Sqlite()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Sqlite, OutageRegistryContract, ::testing::Values(Sqlite()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(MariaDb, WorkerRegistryContract, ::testing::Values(MariaDb()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(MariaDb, FixedRegistryContract, ::testing::Values(MariaDb()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(MariaDb, AssigningRegistryContract, ::testing::Values(MariaDb()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(MariaDb, RememberingRegistryContract, ::testing::Values(MariaDb()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(MariaDb, OutageRegistryContract, ::testing::Values(MariaDbThatGoesAway()),
                         RegistryWorldName);

}  // namespace
}  // namespace leaf::testing
