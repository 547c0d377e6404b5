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
enum class Registry { kFixed, kRecycling };

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
  std::uint64_t nodes = 3;
  std::uint64_t java_nodes = 0;
  std::uint64_t tags = 3;
  std::int64_t step = 100;
  Fence fence = Fence::kCluster;
  Registry registry = Registry::kFixed;
  bool peer_clocks = false;
  bool fixed_step = false;
  bool near_end = false;  // one tag has few numbers left
  std::chrono::milliseconds refresh_interval{5000};
  std::chrono::milliseconds window{3000};
  std::chrono::milliseconds lease_time{10'000};
  // As snowflake.claim_watch; nothing for "auto".
  std::optional<std::chrono::milliseconds> claim_watch{0};
  std::chrono::milliseconds flush{5};  // the longest that one flush of the state file takes
  std::uint64_t workers = 0;           // numbers there are, from kFirstWorker on; 0: all of the layout
  double preemption = 0;               // at failpoints
  std::uint64_t connections = 3;       // of each node
  Nanos think_time = 20 * kMilli;      // between two requests of one
  std::uint64_t batch_max = 20;
  Nanos trouble = 60 * kSecond;  // how long things go wrong, before all is mended
  // Kinds of faults that happen, each again and again; and what happens at a fixed time.
  std::set<std::string> faults;
  Nanos fault_interval = 8 * kSecond;  // of each kind
  std::vector<Act> acts;

  // Every option is drawn from `seed`; some kinds of faults are left out, so that others get further.
  static Plan Draw(std::uint64_t seed);
  // Errors: kConfig that names what is wrong with it.
  static Result<Plan> Load(const std::string& path);
  // One line, for a person who wants to know what is being run.
  std::string Text() const;
};

// Every kind that can be drawn.
const std::vector<std::string>& FaultKinds();

}  // namespace leaf::sim
