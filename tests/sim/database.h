// The database of a cluster: a primary with the table leaf_alloc and a replica that lags, and everything that
// can happen to both. Each node asks it through a store of its own. This one is two maps and is asked for
// grants; sql_database.h has one that the code of lib/leaf/sql works with.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/ports.h"
#include "leaf/core/tag_orders.h"
#include "sim/history.h"
#include "sim/world.h"

namespace leaf::sim {

class Database {
 public:
  using Rows = std::map<std::string, core::TagRow>;

  Database(World& world, History& history) : world_(world), history_(history) {}
  virtual ~Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void Put(const std::string& tag, std::int64_t max_id, std::int64_t step);
  // The tag is strict from its first ID on; before there are nodes, or replicas.
  virtual void PutStrict(const std::string& tag);
  // Replicates and keeps backups; a task of its own.
  void Live(const Process& outside);

  // ---- what goes wrong, until it is said again
  bool away = false;
  double slowness = 1;              // times the usual latency
  double refuses = 0;               // probability of a call that fails before anything happened
  double loses_reply = 0;           // of a commit that happened, or not; the client is not told
  Nanos lag = 0;                    // of the replica
  std::set<std::uint64_t> cut_off;  // nodes that do not reach it

  // The replica takes over as it is.
  void FailOver();
  // A planned change of primaries: the old one takes no writes any more; once the replica has everything it
  // takes over.
  void BeginSwitch();
  void EndSwitch();
  // As it was `age` ago.
  void Restore(Nanos age);
  // Both take writes from now on, each from the nodes of one parity; Join() keeps one of them.
  void Split();
  void Join();
  bool split() const { return split_; }
  // By hand.
  void Erase(const std::string& tag);
  void SetStep(const std::string& tag, std::int64_t step);
  void Lower(const std::string& tag, std::int64_t max_id);
  // As `leafctl tag repair`: never down.
  void RaiseTo(const std::string& tag, std::uint64_t max_id);

  const Rows& rows() const { return RowsOf(primary_); }
  // Whether each server that takes writes says that `tag` is strict.
  bool IsStrict(const std::string& tag);

  // The orders of tags, and the nodes that keep to them, of a server of two maps.
  struct Orders {
    core::TagOrderTable table;
    std::map<std::string, core::OrderNode> nodes;
  };
  const Orders& OrdersFor(std::uint64_t node) const { return orders_[ServerOf(node)]; }
  void ChangeOrders(std::uint64_t node, const std::function<void(Orders&)>& change);
  // Whether a transaction holds the row of `tag` on the primary: every other statement waits for it.
  virtual bool IsHeld(const std::string& /*tag*/) { return false; }
  // The highest max_id a tag ever had on any server.
  std::uint64_t HighestOf(const std::string& tag) const;

  // What a transaction does, at one moment: rows are locked in between.
  // One statement of `node`: raises the row by what `size` wants, if it is at `seen` or above. Nothing if it
  // is not, or if not as much is left: the row has to be read again.
  Result<std::optional<core::Grant>> Raise(std::uint64_t node, const core::TagRow& seen,
                                           const core::GrantSize& size);
  // Java Leaf's transaction: raises the row by its step.
  virtual Result<core::Grant> RaiseByStep(std::uint64_t node, const std::string& tag);
  const Rows& RowsFor(std::uint64_t node) const { return RowsOf(ServerOf(node)); }
  World& world() { return world_; }

 protected:
  // ---- how it is kept
  virtual const Rows& RowsOf(std::size_t server) const { return servers_[server]; }
  // By hand; nothing: deleted.
  virtual void Store(std::size_t server, const std::string& tag, const std::optional<core::TagRow>& row);
  // Becomes what the other one is.
  virtual void Overwrite(std::size_t server) {
    servers_[server] = servers_[1 - server];
    orders_[server] = orders_[1 - server];
  }
  // What the replica has not got yet, up to its lag; every 100 ms, and `all` of it.
  virtual void Replicate(bool all);
  virtual void ForgetLog() { log_.clear(); }
  virtual void Log(const std::string& tag);
  virtual void KeepBackup(std::size_t most);
  // Both servers become what they were `age` ago; false if there is no backup.
  virtual bool LoadBackup(Nanos age);
  // The primary has changed, or whether it takes writes, or whether there are two servers that do.
  virtual void RolesChanged() {}
  virtual bool IsStrictOn(std::size_t server, const std::string& tag);
  bool switching() const { return switching_; }

  // A row that `server` has now, because it was committed there.
  void Changed(std::size_t server, const std::string& tag);
  std::size_t ServerOf(std::uint64_t node) const { return split_ && node % 2 == 1 ? 1 - primary_ : primary_; }
  std::size_t primary() const { return primary_; }

 private:
  struct Change {
    Nanos at = 0;
    std::string tag;
    std::optional<core::TagRow> row;  // nothing: deleted
    std::optional<Orders> orders;     // what all of them were then; nothing: a change of `row`
  };
  // The table is no longer what it was: notes every tag that is lower than it was once, or has lost its
  // order.
  void NoteRegressions();

  World& world_;
  History& history_;
  std::array<Rows, 2> servers_;
  std::array<Orders, 2> orders_;
  std::size_t primary_ = 0;
  bool split_ = false;
  bool switching_ = false;
  std::deque<Change> log_;  // not replicated yet
  struct Backup {
    Nanos at = 0;
    Rows rows;
    Orders orders;
  };
  std::deque<Backup> backups_;
  std::optional<Nanos> backed_up_at_;
  std::map<std::string, std::uint64_t> highest_;
};

// A store that knows what its process has seen.
class WatchedStore : public core::SegmentStore {
 public:
  // A range that was reserved and may become a grant.
  using OnReserved = std::function<void(std::string_view tag, const IdRange& range)>;

  // How often this process has read the whole table since it last saw `tag` in it.
  std::uint64_t ListsWithout(const std::string& tag) const;

 protected:
  void Saw(std::string_view tag) { seen_[std::string(tag)] = lists_; }
  void SawAll(const std::vector<core::TagRow>& rows);

 private:
  std::uint64_t lists_ = 0;                    // answered
  std::map<std::string, std::uint64_t> seen_;  // lists_ when the tag was there
};

// One process's way to a database of two maps.
class WayToDatabase {
 public:
  WayToDatabase(Database& database, const Process& process, std::uint64_t node)
      : database_(database), process_(process), node_(node) {}

  // The way there, and whether the database answers.
  Result<void> Ask();
  void Travel();
  bool Reaches() const;

 private:
  Database& database_;
  const Process& process_;
  const std::uint64_t node_;
};

class SimSegmentStore final : public WatchedStore {
 public:
  SimSegmentStore(Database& database, const Process& process, std::uint64_t node, OnReserved on_reserved)
      : database_(database),
        node_(node),
        way_(database, process, node),
        on_reserved_(std::move(on_reserved)) {}

  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override;
  // Nothing: sql_database.h has the real one.
  Result<std::optional<core::Grant>> ReserveUnread(std::string_view /*tag*/, std::uint64_t /*floor*/,
                                                   const UnreadSizer& /*size*/) override {
    return std::optional<core::Grant>();
  }
  Result<std::vector<core::TagRow>> List() override;
  Result<core::TagRow> Describe(std::string_view tag) override;

 private:
  Result<core::Grant> RaiseFrom(std::string_view tag, const core::GrantSizer& sizer);

  Database& database_;
  const std::uint64_t node_;
  WayToDatabase way_;
  const OnReserved on_reserved_;
};

// The same for the orders of tags. Which tags are strict does not change in this database: commands work with
// the one of sql_database.h.
class SimTagOrders final : public core::TagOrders {
 public:
  SimTagOrders(Database& database, const Process& process, std::uint64_t node)
      : database_(database), node_(node), way_(database, process, node) {}

  Result<std::optional<core::TagOrderTable>> Enter(const core::OrderNode& node) override;
  Result<std::optional<Look>> LookAt(const std::string& node) override;
  Result<std::optional<core::TagOrderTable>> Read() override;
  Result<void> Restore(const core::OrderRow& row) override;
  Result<bool> Acknowledge(const std::string& node, const core::TagOrderTable& table) override;
  Result<void> Leave(const std::string& node) override;

 private:
  // Takes effect or not, as any commit.
  Result<void> Write(const std::function<void(Database::Orders&)>& change);

  Database& database_;
  const std::uint64_t node_;
  WayToDatabase way_;
};

}  // namespace leaf::sim
