// What a run is made of: drawn from its seed, or written down in a scenario.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "sim/world.h"

namespace leaf::sim {

enum class Fence { kCluster, kFallback, kNode };
// kFixed and kRecycling: ZooKeeper's. kStatic, kMap: a number of its own in each node's configuration, or one
// map in all of them. kSql: SqlWorkerRegistry.
enum class Registry { kFixed, kRecycling, kStatic, kMap, kSql };

// Where a short range of worker numbers begins: above what Leaf's own tree gives out, and the margin.
inline constexpr std::uint64_t kFirstWorker = 100;

// One thing that happens. What the figures mean depends on what it is; see cluster.cc.
struct Act {
  Nanos at = 0;
  std::string what;
  std::uint64_t node = 0;
  std::string tag;
  double seconds = 0;
  double figure = 0;
};

struct Plan {
  std::uint64_t seed = 0;
  std::string scenario;  // "" for one that was drawn
  // Promises ("P1") that the program is known to break here: a scenario succeeds if one of its seeds shows
  // it, and no other promise is broken.
  std::set<std::string> expected;
  std::uint64_t nodes = 3;
  std::uint64_t java_nodes = 0;
  std::uint64_t tags = 3;
  std::int64_t step = 100;
  Fence fence = Fence::kCluster;
  Registry registry = Registry::kFixed;
  // Behind the segment store stands lib/leaf/sql on simulated servers, instead of two maps. The registry kSql
  // needs them.
  bool sql = false;
  std::uint64_t endpoints = 1;  // 1: the primary's, wherever that is; 2: one of each server
  bool privileged = false;      // the nodes' user writes to a server that says it takes no writes
  bool trigger = false;         // the table has one, and replies do not tell where a range ends
  bool peer_clocks = false;
  bool fixed_step = false;
  bool near_end = false;    // one tag has few numbers left
  bool contiguous = false;  // some batches are of IDs without a gap
  // So many tags, from the first on, are strict from their first ID on.
  std::uint64_t strict = 0;
  std::chrono::milliseconds refresh_interval{5000};
  std::chrono::milliseconds window{3000};
  std::chrono::milliseconds lease_time{10'000};
  // As snowflake.claim_watch; nothing for "auto".
  std::optional<std::chrono::milliseconds> claim_watch{0};
  std::chrono::milliseconds flush{5};  // the longest that one flush of the state file takes
  // The longest that one flush of marks in SQLite takes. 0: no time passes in it, and transactions do not
  // meet.
  std::chrono::milliseconds marks_flush{0};
  // Whether a node starts with the number of its state directory while the registry is away
  // (snowflake.offline_start_max).
  bool offline_start = true;
  std::uint64_t workers = 0;       // numbers there are, from kFirstWorker on; 0: all of the layout
  double preemption = 0;           // at failpoints
  std::uint64_t connections = 3;   // of each node
  Nanos think_time = 20 * kMilli;  // between two requests of one
  std::uint64_t batch_max = 20;
  // How often what starts and ends processes looks whether they have: seldom where there are very many.
  Nanos look = 5 * kMilli;
  Nanos trouble = 60 * kSecond;  // how long things go wrong, before all is mended
  bool counts_costs = false;     // Outcome::costs
  // Kinds of faults that happen, each again and again; and what happens at a fixed time.
  std::set<std::string> faults;
  Nanos fault_interval = 8 * kSecond;  // of each kind
  std::vector<Act> acts;

  // Whether ZooKeeper forgets something in it.
  bool GoesBack() const;
  // Whether operators pause tags.
  bool PausesTags() const { return Has("pause_tag"); }
  // Whether there are tokens, and limits, which operators change.
  bool HasAccess() const { return Has("change_access"); }
  // Whether a tag may be forgotten by a daemon that runs.
  bool RemovesTags() const { return Has("db_remove") || Has("db_wipe"); }
  // Whether the database has a table of orders.
  bool HasOrders() const;
  bool HasLocalNumbers() const { return registry == Registry::kStatic || registry == Registry::kMap; }

  // Whether it happens at random, or at a fixed time.
  bool Has(const std::string& kind) const;

  // Every option is drawn from `seed`; some kinds of faults are left out, so that others get further.
  static Plan Draw(std::uint64_t seed);
  // What is trusted goes back, in every combination: (database, ZooKeeper) x (restored, wiped, split) x nodes
  // (up, down) x state directories (none, one, all lost). Where nothing is left that could know, P1 is
  // expected to be broken.
  static std::vector<Plan> Combinations();
  // Errors: kConfig that names what is wrong with it.
  static Result<Plan> Load(const std::string& path);
  // One line, for a user that wants to know what is being run.
  std::string Text() const;
};

// Every kind there is, but for those of SqlFaultKinds, OperatorKinds, MarksKinds and OrderKinds.
const std::vector<std::string>& FaultKinds();
// What takes a database that is more than two maps.
const std::vector<std::string>& SqlFaultKinds();
// What operators do to a node that runs: a tag is paused for a while, and a configuration is loaded again.
// And to all of them: tokens or limits are changed, and loaded by each node a little later.
const std::vector<std::string>& OperatorKinds();
// What goes wrong with marks in SQLite alone: the process that uses them dies at a system call.
const std::vector<std::string>& MarksKinds();
// Commands that change the order of tags, which take such a database, too: to strict, to trend, and either.
const std::vector<std::string>& OrderKinds();

}  // namespace leaf::sim
