// The database of a cluster as the code of lib/leaf/sql meets it: two servers (sql_server.h) under the faults
// of Database, and the network between them and the nodes. Connections to it are made by the simulator's own
// OpenMysql (sql_session.cc); what is on top of that is the shipped code: the connector, which chooses among
// endpoints, the pool, transactions, the segment store, and the registry.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/logger.h"
#include "leaf/sql/database.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/segment_store.h"
#include "leaf/sql/tag_orders.h"
#include "sim/database.h"
#include "sim/plan.h"
#include "sim/sql_server.h"

namespace leaf::sim {

class SqlDatabase final : public Database {
 public:
  SqlDatabase(World& world, History& history, const Plan& plan);
  ~SqlDatabase() override;

  void PutStrict(const std::string& tag) override;
  Result<core::Grant> RaiseByStep(std::uint64_t node, const std::string& tag) override;
  bool IsHeld(const std::string& tag) override;
  // An unknown client locks the row of `tag`, and keeps it until told.
  void HoldRow(const std::string& tag);
  void LetRowsGo();

  // ---- Java Leaf's fork, which has its numbers in leaf_workerid_alloc
  // Nothing if it cannot start with what the table says.
  std::optional<std::uint64_t> ForkNumber(std::uint64_t node, const std::string& address,
                                          std::int64_t now_ms);
  void ForkReport(std::uint64_t node, std::uint64_t worker, std::int64_t now_ms);
  // The ceiling that leafctl_workers has for the number of this address; 0 if there is none.
  std::int64_t CeilingOf(const std::string& address);

  // An operator writes into leafctl_workers that the node with this number is not there any more.
  void MarkGone(std::int64_t worker);

  // ---- the network
  // A process that may connect, as the user of this name.
  struct Client {
    Process* process = nullptr;
    std::uint64_t node = 0;
  };
  void Admit(const std::string& user, const Client& client) { clients_[user] = client; }
  const Client* FindClient(const std::string& user) const;
  std::vector<Endpoint> Endpoints() const;
  // The server that stands behind this endpoint, for this node, at this moment.
  std::size_t ServerBehind(const std::string& host, std::uint64_t node) const;
  bool Reaches(std::uint64_t node, std::size_t server) const;
  SqlServer& server(std::size_t index) { return *servers_[index]; }
  // Of one way between a node and a server.
  Nanos TravelTime();

  // The one of this run.
  static SqlDatabase& running();

 protected:
  const Rows& RowsOf(std::size_t server) const override;
  void Store(std::size_t server, const std::string& tag, const std::optional<core::TagRow>& row) override;
  void Overwrite(std::size_t server) override;
  void Replicate(bool all) override;
  void ForgetLog() override { log_.clear(); }
  void Log(const std::string& /*tag*/) override {}
  void KeepBackup(std::size_t most) override;
  bool LoadBackup(Nanos age) override;
  void RolesChanged() override;
  bool IsStrictOn(std::size_t server, const std::string& tag) override;

 private:
  struct LogEntry {
    Nanos at = 0;
    SqlServer::Commit commit;
  };
  void Committed(std::size_t server, const SqlServer::Commit& commit);
  void ByHand(std::size_t server, const std::string& text, const SqlServer::Binds& binds);

  const std::uint64_t endpoints_;
  std::array<std::unique_ptr<SqlServer>, 2> servers_;
  struct Kept {
    Rows rows;
    std::optional<std::uint64_t> version;
  };
  mutable std::array<Kept, 2> kept_;
  std::deque<LogEntry> log_;  // not replicated yet
  struct Dumped {
    Nanos at = 0;
    SqlServer::Dump dump;
  };
  std::deque<Dumped> dumps_;
  std::map<std::string, Client> clients_;
  std::vector<std::pair<std::size_t, std::uint64_t>> holders_;  // server, connection
};

// What a daemon has of it: as the shipped one puts it together (embed/stores.cc, embed/registries.cc).
class SqlPorts {
 public:
  SqlPorts(SqlDatabase& database, Process& process, std::uint64_t node, const Clock& clock, Logger& log,
           WatchedStore::OnReserved on_reserved);

  WatchedStore& store() { return store_; }
  sql::SqlTagOrders& orders() { return orders_; }
  // Of the registry.
  sql::Database& registry_database() { return registry_database_; }

 private:
  class Store final : public WatchedStore {
   public:
    Store(World& world, sql::Database& database, OnReserved on_reserved)
        : world_(world), store_(database), on_reserved_(std::move(on_reserved)) {}
    Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override;
    Result<std::optional<core::Grant>> ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                     const UnreadSizer& size) override;
    Result<std::vector<core::TagRow>> List() override;
    Result<core::TagRow> Describe(std::string_view tag) override;

   private:
    void Note(std::string_view tag, const Result<core::Grant>& grant);

    World& world_;
    sql::SqlSegmentStore store_;
    const OnReserved on_reserved_;
  };

  const std::shared_ptr<sql::MysqlConnector> connector_;
  sql::Database database_;
  sql::Database registry_database_;
  Store store_;
  sql::SqlTagOrders orders_;
};

}  // namespace leaf::sim
