// One leafctl daemon: service::Node, as the shipped daemon and the library have it, on the ports of the
// simulation; and the callers that ask it for IDs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leaf/core/peer_clocks.h"
#include "leaf/service/cluster_fence.h"
#include "leaf/service/node.h"
#include "leaf/service/paused_tags.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/zookeeper/fixed_registry.h"
#include "leaf/zookeeper/lease_registry.h"
#include "leaf/zookeeper/membership.h"
#include "leaf/zookeeper/witness.h"
#include "sim/access.h"
#include "sim/database.h"
#include "sim/ensemble.h"
#include "sim/history.h"
#include "sim/plan.h"
#include "sim/ports.h"
#include "sim/sql_database.h"
#include "sim/state_dir.h"

namespace leaf::sim {

// What a connection has seen last, kept over restarts of a node with its state directory: order is promised
// for it (P5).
struct Seen {
  std::map<std::string, std::uint64_t> last;  // by tag; "" for snowflake
};

// What every daemon of a run works with.
struct Surroundings {
  World& world;
  const Plan& plan;
  Database& database;
  SqlDatabase* sql = nullptr;     // the same, where it is one
  AccessFiles* access = nullptr;  // null: every caller may take IDs of everything
  Ensemble& ensemble;
  History& history;
  std::vector<std::string> tags;
  std::map<std::string, std::int64_t> workers;  // of a static map: by address
  // The machine of a daemon that runs now and answers, by its URL; null if there is none.
  std::function<const Machine*(const std::string& url)> find_peer;
  bool loud = false;
  std::uint64_t next_process = 1;
  std::uint64_t requests = 0;
  std::uint64_t errors = 0;
};

struct DaemonSetting {
  std::uint64_t node = 0;
  std::string address;
  Machine& machine;
  StateDir& state;
  std::vector<Seen>& seen;  // one for each connection
};

// As segment.claim_watch.
std::chrono::milliseconds SegmentWatchOf(const Plan& plan);

class Daemon {
 public:
  Daemon(Surroundings& around, const DaemonSetting& setting);
  // Requires: ended().
  ~Daemon();

  // Starts it, on a task of its own process; `ended` tells.
  void Launch();
  // SIGTERM.
  void Terminate() { terminating_ = true; }
  // SIGKILL.
  void Kill() { around_.world.Kill(process_); }
  Process& process() { return process_; }
  bool ended() const { return process_.tasks.empty() && (process_.dead || done_); }
  // Why it could not start, if it ended for that.
  const std::optional<Error>& failure() const { return failure_; }
  bool serves() const { return serving_ && !process_.dead && !process_.stopped && !terminating_; }

  // Its entry on the table's list of nodes.
  const core::OrderNode& order_node() const { return order_node_; }

  // As `leafctl tag pause` and `resume` on this node. False if that failed, or the process ended before. From
  // a task outside.
  bool SetPaused(const std::string& tag, bool paused);
  // As SIGHUP, with another configuration.
  void Reload(std::chrono::milliseconds refresh_interval, std::chrono::milliseconds reserve_time);
  // As SIGHUP, once the operators have changed tokens or limits.
  void LoadAccess();
  // One ID of `tag` ("" for snowflake) as a caller would get it; whether there was one. From a task outside.
  bool Try(const std::string& tag, std::string& why);
  std::string Describe(const std::string& tag);

 private:
  void Main();
  void Connection(std::size_t index);
  // Whether the caller of `visit` may not have them. Another caller takes its place now and then.
  bool IsRefused(std::optional<Door::Visit>& visit, const std::string& tag, std::uint64_t count);
  // Both return whether IDs were obtained.
  bool AskSegment(Seen& seen, const std::string& tag, std::uint64_t count, std::string* why);
  bool AskSnowflake(Seen& seen, std::uint64_t count, std::string* why);
  // IDs of `tag` were just taken: was it one to take them from, and are there `left` in reserve, if that is
  // known?
  void CheckTake(const std::string& tag, std::optional<std::uint64_t> left);
  // A request for IDs of `tag` that came at `asked_at`, which was the moment `sent`, was refused: was there a
  // reason to?
  void CheckRefusal(const std::string& tag, const Error& error, Nanos asked_at, std::uint64_t sent);
  // The request that was `number`th in the line of `tag` is out of it; `served`: with IDs.
  void LeaveLine(const std::string& tag, std::uint64_t number, bool served);
  void CheckOrder(Seen& seen, const std::string& tag, std::uint64_t first, std::uint64_t last);
  service::SegmentOptions SegmentOptionsOf();
  service::SnowflakeOptions SnowflakeOptionsOf();
  void OpenRegistry();
  void OpenRegistryOf(Registry registry);
  WatchedStore::OnReserved OnReserved();
  void StopAll();

  Surroundings& around_;
  const DaemonSetting setting_;
  Process process_;
  const Issuer issuer_;
  const core::OrderNode order_node_;
  Journal log_;
  Dice random_;
  SimDisk disk_;
  sys::WorkerStateFile state_file_;
  sys::PausedTagsFile paused_file_;
  service::PausedTags paused_;
  bool pausing_ = false;  // one command at a time
  SimMarks marks_;
  std::unique_ptr<SqlPorts> sql_;                 // null without such a database
  std::unique_ptr<SimSegmentStore> plain_store_;  // null with one
  SimTagOrders plain_orders_;
  WatchedStore& store_;
  SimClient zookeeper_;
  const zookeeper::Tree tree_;
  zookeeper::Membership membership_;
  zookeeper::ZookeeperWitness witness_;
  service::ClusterFence fence_;
  std::unique_ptr<core::WorkerRegistry> registry_;
  core::PeerDirectory* peers_ = nullptr;
  std::unique_ptr<core::PeerClocks> peer_clocks_;
  // Before the threads: they end first.
  service::Node node_;
  std::unique_ptr<Door> door_;  // null: all are let in
  Threads timers_;
  Threads workers_;
  Threads slow_workers_;
  Threads refresher_;
  Threads cluster_;
  Threads snowflake_timers_;
  Threads ceilings_;
  Threads registry_worker_;
  Threads peer_worker_;
  bool serving_ = false;
  bool terminating_ = false;
  bool done_ = false;
  int connections_ = 0;
  int waiting_for_snowflake_ = 0;
  std::map<std::string, std::set<std::uint64_t>>
      lines_;  // by tag: the requests that wait, in order of arrival
  std::uint64_t next_in_line_ = 0;
  std::optional<Error> failure_;
  const std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);  // set once it is destroyed
};

}  // namespace leaf::sim
