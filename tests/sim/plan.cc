#include "sim/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>

namespace leaf::sim {
namespace {

std::string_view NameOf(Fence fence) {
  switch (fence) {
    case Fence::kCluster:
      return "cluster";
    case Fence::kFallback:
      return "fallback";
    case Fence::kNode:
      break;
  }
  return "node";
}

constexpr std::pair<std::string_view, Registry> kRegistries[] = {{"fixed", Registry::kFixed},
                                                                 {"recycling", Registry::kRecycling},
                                                                 {"static", Registry::kStatic},
                                                                 {"map", Registry::kMap},
                                                                 {"sql", Registry::kSql}};

std::string_view NameOf(Registry registry) {
  const auto* const found = std::find_if(std::begin(kRegistries), std::end(kRegistries),
                                         [&](const auto& named) { return named.second == registry; });
  return found->first;
}

// Over what a database is to lib/leaf/sql, and what registries there are besides ZooKeeper's. With dice of
// its own, so that the other options are what they were before there was any of this.
void DrawDatabase(std::uint64_t seed, Plan& plan) {
  // Takers that are held up meet the most where grants come fast.
  if (plan.preemption > 0) return;
  Dice dice(seed ^ 0xDA7ABA5EU);
  const double registry = dice.Real();
  plan.sql = dice.Chance(0.35);
  if (registry < 0.08) {
    plan.registry = Registry::kStatic;
  } else if (registry < 0.16) {
    plan.registry = Registry::kMap;
  } else if (registry < 0.3) {
    plan.registry = Registry::kSql;
    plan.sql = true;
  }
  plan.endpoints = dice.Chance(0.5) ? 2 : 1;
  plan.privileged = dice.Chance(0.5);
  plan.trigger = dice.Chance(0.2);
  for (const std::string& kind : SqlFaultKinds()) {
    if (dice.Chance(0.3) && plan.sql) plan.faults.insert(kind);
  }
  // Only the operator that wrote such a number down watches over it, and only the state directory remembers
  // how far it got.
  if (plan.HasLocalNumbers()) {
    plan.faults.erase("state_lost");
    plan.faults.erase("state_copied");
  }
  // Two primaries give one number to two nodes. One that loses what it has committed does not, as long as
  // owners come back within the watch of a fresh claim.
  if (plan.registry != Registry::kSql) return;
  plan.faults.erase("db_split");
  if (dice.Chance(0.5)) {
    for (const char* const kind : {"db_failover", "db_restore"}) plan.faults.erase(kind);
    return;
  }
  plan.claim_watch.reset();
  plan.offline_start = false;
  plan.trouble += 60 * kSecond;
  plan.java_nodes = 0;
  for (const char* const kind : {"stop", "suspend", "state_lost", "state_copied", "db_cut", "db_away",
                                 "db_slow", "db_flaky", "db_lock", "java_restart", "swap"})
    plan.faults.erase(kind);
}

Error Bad(const std::string& path, std::string_view why) {
  return {ErrorCode::kConfig, fmt::format("scenario {}: {}", path, why), ""};
}

}  // namespace

const std::vector<std::string>& FaultKinds() {
  static const std::vector<std::string> kinds = {
      "kill",         "restart",    "stop",      "suspend",   "clock_step",   "clock_strobe",
      "clock_drift",  "clock_jump", "reboot",    "disk_full", "disk_crash",   "state_lost",
      "state_copied", "db_away",    "db_slow",   "db_flaky",  "db_cut",       "db_failover",
      "db_restore",   "db_split",   "db_lower",  "db_step",   "db_remove",    "zk_away",
      "zk_flaky",     "zk_cut",     "zk_expire", "zk_behind", "java_restart", "swap",
  };
  return kinds;
}

const std::vector<std::string>& SqlFaultKinds() {
  static const std::vector<std::string> kinds = {"db_switch", "db_lock"};
  return kinds;
}

const std::vector<std::string>& OperatorKinds() {
  static const std::vector<std::string> kinds = {"pause_tag", "reload", "change_access"};
  return kinds;
}

const std::vector<std::string>& MarksKinds() {
  static const std::vector<std::string> kinds = {"marks_crash", "marks_fail"};
  return kinds;
}

const std::vector<std::string>& OrderKinds() {
  static const std::vector<std::string> kinds = {"tag_order", "tag_strict", "tag_trend"};
  return kinds;
}

namespace {

// ZooKeeper that goes back, in some of the runs, and with the fence of a cluster the database, too, at any
// other time. What it cannot be held against is left out: an owner that is away for longer than the watch,
// and starts without asking; state directories that are lost with what only they knew (Cluster::Draw), and
// Java, which takes what number there is.
void DrawForgetfulZookeeper(std::uint64_t seed, Plan& plan) {
  Dice dice(seed ^ 0xF0E6E7U);
  const bool zookeeper = plan.registry == Registry::kFixed || plan.registry == Registry::kRecycling;
  if (!dice.Chance(0.2) || !zookeeper) return;
  for (const char* const kind : {"stop", "suspend", "state_copied", "zk_cut", "java_restart", "swap"})
    plan.faults.erase(kind);
  plan.java_nodes = 0;
  // The others remember that a node which has lost its directory was there, if there are any.
  if (plan.nodes < 2 || plan.fence == Fence::kNode) plan.faults.erase("state_lost");
  if (plan.faults.contains("state_lost")) plan.near_end = false;
  // Without that fence a node knows of the database what its own marks say. A privileged user's commit can be
  // lost in a switch.
  if (plan.fence != Fence::kCluster) {
    for (const char* const kind :
         {"db_failover", "db_restore", "db_split", "db_lower", "db_remove", "db_switch"})
      plan.faults.erase(kind);
    plan.privileged = false;
  } else if (dice.Chance(0.7)) {
    plan.faults.insert(dice.Chance(0.6) ? "both_restore" : "db_restore");
  }
  // Where the ceiling of a lease is forgotten whose holder is gone, clocks are all there is.
  if (plan.registry == Registry::kRecycling) {
    for (const char* const kind : {"clock_step", "clock_jump", "clock_strobe", "clock_drift"})
      plan.faults.erase(kind);
  }
  plan.claim_watch.reset();
  plan.offline_start = false;
  plan.trouble += 60 * kSecond;
  plan.faults.insert(dice.Chance(0.7) ? "zk_restore" : "zk_wipe");
}

// Strict tags, in some of the runs: from their first ID on, and made so, and trend again, by commands.
void DrawOrders(std::uint64_t seed, Plan& plan) {
  Dice dice(seed ^ 0x57121C7U);
  // What is served without the witness while that is away has no order.
  if (!dice.Chance(0.5) || plan.fence == Fence::kFallback) return;
  // Without a witness the table alone says what was granted.
  if (plan.fence == Fence::kNode) {
    for (const char* const kind :
         {"db_failover", "db_restore", "db_split", "db_lower", "db_remove", "both_restore"})
      plan.faults.erase(kind);
    plan.privileged = false;
  }
  plan.strict = dice.Below(plan.tags + 1);
  if (plan.sql) plan.faults.insert("tag_order");
}

}  // namespace

Plan Plan::Draw(std::uint64_t seed) {
  Dice dice(seed ^ 0x5EEDF00DU);
  Plan plan;
  plan.seed = seed;
  plan.nodes = static_cast<std::uint64_t>(dice.Between(1, 5));
  plan.java_nodes = dice.Chance(0.3) ? static_cast<std::uint64_t>(dice.Between(1, 2)) : 0;
  plan.tags = static_cast<std::uint64_t>(dice.Between(1, 6));
  plan.step = dice.Chance(0.2) ? 1 : dice.Between(5, 500);
  const double fence = dice.Real();
  plan.fence = fence < 0.6 ? Fence::kCluster : fence < 0.8 ? Fence::kFallback : Fence::kNode;
  plan.registry = dice.Chance(0.5) ? Registry::kFixed : Registry::kRecycling;
  plan.peer_clocks = dice.Chance(0.3);
  plan.fixed_step = dice.Chance(0.3);
  plan.near_end = dice.Chance(0.1);
  plan.refresh_interval = std::chrono::milliseconds{dice.Between(500, 20'000)};
  plan.window = std::chrono::milliseconds{dice.Chance(0.5) ? 3000 : dice.Between(200, 5000)};
  plan.lease_time = std::chrono::milliseconds{dice.Between(10'000, 30'000)};
  if (dice.Chance(0.25)) plan.preemption = 0.02 + 0.1 * dice.Real();
  plan.connections = static_cast<std::uint64_t>(dice.Between(1, 5));
  plan.think_time = dice.Between(2, 60) * kMilli;
  plan.batch_max = static_cast<std::uint64_t>(dice.Chance(0.3) ? 1 : dice.Between(2, 100));
  plan.trouble = dice.Between(30, 120) * kSecond;
  plan.fault_interval = dice.Between(4, 20) * kSecond;
  const double share = 0.15 + 0.5 * dice.Real();
  for (const std::string& kind : FaultKinds()) {
    if (dice.Chance(share)) plan.faults.insert(kind);
  }
  DrawDatabase(seed, plan);
  DrawForgetfulZookeeper(seed, plan);
  // The seeds by which planted bugs are caught stay what they were before there was any of this.
  constexpr std::uint64_t kOldSeeds = 1000;
  plan.contiguous = seed >= kOldSeeds && Dice(seed ^ 0xC0471600U).Chance(0.5);
  if (seed < kOldSeeds) return plan;
  DrawOrders(seed, plan);
  Dice operators(seed ^ 0x0BE4A704U);
  for (const std::string& kind : OperatorKinds()) {
    if (operators.Chance(0.3)) plan.faults.insert(kind);
  }
  if (!plan.sql) return plan;
  Dice marks(seed ^ 0x3A4C5D15U);
  if (marks.Chance(0.5)) plan.marks_flush = std::chrono::milliseconds{marks.Between(1, 30)};
  for (const std::string& kind : MarksKinds()) {
    if (marks.Chance(0.4)) plan.faults.insert(kind);
  }
  return plan;
}

bool Plan::Has(const std::string& kind) const {
  return faults.contains(kind) ||
         std::any_of(acts.begin(), acts.end(), [&](const Act& act) { return act.what == kind; });
}

bool Plan::GoesBack() const { return Has("zk_restore") || Has("zk_wipe") || Has("both_restore"); }

bool Plan::HasOrders() const {
  return strict > 0 || faults.contains("tag_order") ||
         std::any_of(acts.begin(), acts.end(), [](const Act& act) { return act.what.starts_with("tag_"); });
}

std::vector<Plan> Plan::Combinations() {
  enum class Lost { kNone, kOne, kAll };
  // Nodes that are new have waited, and all have claims, long before the backup; then the stores go back by
  // so many seconds.
  constexpr double kAt = 80;
  constexpr double kAge = 35;
  constexpr std::uint64_t kNodes = 3;
  const auto combine = [&](std::string_view database, std::string_view zookeeper, bool up, Lost lost) {
    Plan plan;
    plan.seed = 1;
    plan.scenario = fmt::format("database {}, ZooKeeper {}, nodes {}, state directories lost: {}", database,
                                zookeeper, up ? "up" : "down",
                                lost == Lost::kNone  ? "none"
                                : lost == Lost::kOne ? "one"
                                                     : "all");
    plan.nodes = kNodes;
    plan.step = 200;
    plan.claim_watch.reset();
    plan.trouble = 190 * kSecond;
    const auto act = [&plan](double at, const char* what, std::uint64_t node, double seconds, double figure) {
      plan.acts.push_back({static_cast<Nanos>(at * 1e9), what, node, "", seconds, figure});
    };
    if (!up) {
      // One of them has been down for a while, and comes back last.
      act(kAt - 15, "kill", 1, 29, 0);
      for (const unsigned node : {0U, 2U}) act(kAt - 3, "kill", node, 10, 0);
    }
    for (std::uint64_t node = 0; node < kNodes; ++node) {
      if (lost == Lost::kAll || (lost == Lost::kOne && node == 0)) act(kAt - 1, "state_lost", node, 1, 0);
    }
    if (database == "restored") act(kAt, "db_restore", 0, 0, kAge);
    if (database == "wiped") act(kAt, "db_wipe", 0, 2, 0);
    if (database == "split") act(kAt - 15, "db_split", 0, 16, 0);
    if (zookeeper == "restored") act(kAt, "zk_restore", 0, 0, kAge);
    if (zookeeper == "wiped") act(kAt, "zk_wipe", 0, 0, 0);
    if (zookeeper == "split") {
      // Its minority answers no client.
      for (const unsigned node : {1U, 2U}) act(kAt - 15, "zk_cut", node, 30, 0);
    }
    act(kAt + 50, "repair", 0, 0, 0);
    // Neither store nor a directory knows what was granted since.
    if (lost == Lost::kAll && zookeeper != "split") plan.expected.insert("P1");
    return plan;
  };
  std::vector<Plan> plans;
  for (const std::string_view database : {"restored", "wiped", "split"}) {
    for (const std::string_view zookeeper : {"restored", "wiped", "split"}) {
      for (const bool up : {true, false}) {
        for (const Lost lost : {Lost::kNone, Lost::kOne, Lost::kAll}) {
          Plan plan = combine(database, zookeeper, up, lost);
          if (plans.size() % 2 == 1) plan.registry = Registry::kRecycling;
          plan.sql = plans.size() / 6 % 2 == 1;
          plans.push_back(std::move(plan));
        }
      }
    }
  }
  return plans;
}

std::string Plan::Text() const {
  return fmt::format(
      "{}nodes {}, Java {}, tags {}{}, step {}{}{}, fence {}, registry {}{}{}{}{}, refresh {} ms, window {} "
      "ms, "
      "lease {} "
      "ms, preemption {:.3f}, {} connections a node every {} ms, batches up to {}{}, {} s of trouble, each "
      "kind "
      "every {} s: {}",
      scenario.empty() ? "" : fmt::format("scenario {}: ", scenario), nodes, java_nodes, tags,
      strict > 0 ? fmt::format(" ({} strict)", strict) : "", step, fixed_step ? " (fixed)" : "",
      near_end ? " (one near the end)" : "", NameOf(fence), NameOf(registry), claim_watch ? "" : " watched",
      workers > 0 ? fmt::format(" of {} numbers", workers) : "", peer_clocks ? " with peers' clocks" : "",
      sql ? fmt::format(", SQL with {} endpoint{}{}{}{}", endpoints, endpoints == 1 ? "" : "s",
                        privileged ? ", a privileged user" : "", trigger ? ", a trigger" : "",
                        marks_flush.count() > 0
                            ? fmt::format(", marks flushed in {} ms at most", marks_flush.count())
                            : "")
          : "",
      refresh_interval.count(), window.count(), lease_time.count(), preemption, connections,
      think_time / kMilli, batch_max, contiguous ? " (some contiguous)" : "", trouble / kSecond,
      fault_interval / kSecond,
      faults.empty() ? "no random faults" : fmt::format("{}", fmt::join(faults, " ")));
}

Result<Plan> Plan::Load(const std::string& path) {
  const toml::parse_result parsed = [&]() -> toml::parse_result {
    try {
      return toml::parse_file(path);
    } catch (const toml::parse_error& error) {
      toml::table table;
      table.insert("!", std::string(error.description()));
      return table;
    }
  }();
  const toml::table& file = parsed;
  if (const auto* why = file.get("!")) return Bad(path, why->value_or<std::string>(""));

  Plan plan;
  plan.scenario = path.substr(path.rfind('/') + 1);
  plan.faults.clear();
  std::optional<Error> problem;
  const auto number = [&](const toml::table& table, std::string_view key, auto& out) {
    using Out = std::remove_reference_t<decltype(out)>;
    const toml::node* const node = table.get(key);
    if (node == nullptr) return;
    const auto value = node->value<double>();
    if (!value) {
      problem = Bad(path, fmt::format("{} is no number", key));
    } else {
      out = static_cast<Out>(*value);
    }
  };
  const auto millis = [&](std::string_view key, std::chrono::milliseconds& out) {
    std::int64_t value = out.count();
    number(file, key, value);
    out = std::chrono::milliseconds{value};
  };
  number(file, "seed", plan.seed);
  number(file, "nodes", plan.nodes);
  number(file, "java_nodes", plan.java_nodes);
  number(file, "tags", plan.tags);
  number(file, "strict", plan.strict);
  number(file, "step", plan.step);
  number(file, "workers", plan.workers);
  number(file, "preemption", plan.preemption);
  number(file, "endpoints", plan.endpoints);
  number(file, "connections", plan.connections);
  number(file, "batch_max", plan.batch_max);
  plan.peer_clocks = file["peer_clocks"].value_or(false);
  plan.privileged = file["privileged"].value_or(false);
  plan.trigger = file["trigger"].value_or(false);
  if (const toml::array* const expected = file["expected"].as_array()) {
    for (const toml::node& node : *expected) {
      const auto promise = node.value_or<std::string>("");
      if (promise.size() != 2 || promise[0] != 'P' || promise[1] < '1' || promise[1] > '9')
        return Bad(path, "expected " + promise);
      plan.expected.insert(promise);
    }
  } else if (file.contains("expected")) {
    return Bad(path, "expected is no list of promises");
  }
  plan.fixed_step = file["fixed_step"].value_or(false);
  plan.near_end = file["near_end"].value_or(false);
  plan.contiguous = file["contiguous"].value_or(false);
  millis("refresh_interval_ms", plan.refresh_interval);
  millis("window_ms", plan.window);
  millis("lease_time_ms", plan.lease_time);
  millis("flush_ms", plan.flush);
  millis("marks_flush_ms", plan.marks_flush);
  if (file["claim_watch"].value_or<std::string>("") == "auto") plan.claim_watch.reset();
  double trouble_s = 30;
  double look_ms = 5;
  double think_ms = 20;
  double interval_s = 8;
  number(file, "trouble_s", trouble_s);
  number(file, "think_ms", think_ms);
  number(file, "look_ms", look_ms);
  number(file, "fault_interval_s", interval_s);
  plan.trouble = static_cast<Nanos>(trouble_s * 1e9);
  plan.think_time = static_cast<Nanos>(think_ms * 1e6);
  plan.look = static_cast<Nanos>(look_ms * 1e6);
  plan.fault_interval = static_cast<Nanos>(interval_s * 1e9);
  const auto fence = file["fence"].value_or<std::string>("cluster");
  if (fence != "cluster" && fence != "fallback" && fence != "node") return Bad(path, "fence " + fence);
  plan.fence = fence == "cluster" ? Fence::kCluster : fence == "fallback" ? Fence::kFallback : Fence::kNode;
  const auto registry = file["registry"].value_or<std::string>("fixed");
  const auto* const known_registry = std::find_if(std::begin(kRegistries), std::end(kRegistries),
                                                  [&](const auto& named) { return named.first == registry; });
  if (known_registry == std::end(kRegistries)) return Bad(path, "registry " + registry);
  plan.registry = known_registry->second;
  const auto database =
      file["database"].value_or<std::string>(plan.registry == Registry::kSql ? "sql" : "maps");
  if (database != "maps" && database != "sql") return Bad(path, "database " + database);
  plan.sql = database == "sql";
  if (plan.registry == Registry::kSql && !plan.sql) return Bad(path, "registry sql without database sql");
  if (plan.endpoints < 1 || plan.endpoints > 2) return Bad(path, "endpoints: 1 or 2");

  // Not among those that are drawn at any time: a mistake in a configuration, which lasts until it is mended,
  // and what needs the watch of fresh claims.
  const auto known = [&](const std::string& kind) {
    const auto is_one_of = [&](const std::vector<std::string>& kinds) {
      return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    return kind == "same_address" || kind == "zk_restore" || kind == "zk_wipe" || kind == "both_restore" ||
           kind == "db_wipe" || kind == "repair" || kind == "one_shots" || is_one_of(FaultKinds()) ||
           is_one_of(OperatorKinds()) ||
           (plan.sql && (is_one_of(SqlFaultKinds()) || is_one_of(MarksKinds()) || is_one_of(OrderKinds())));
  };
  if (const toml::array* const faults = file["faults"].as_array()) {
    for (const toml::node& node : *faults) {
      const auto kind = node.value_or<std::string>("");
      if (!known(kind)) return Bad(path, "unknown fault '" + kind + "'");
      plan.faults.insert(kind);
    }
  }
  if (const toml::array* const acts = file["act"].as_array()) {
    for (const toml::node& node : *acts) {
      const toml::table* const table = node.as_table();
      if (table == nullptr) return Bad(path, "an act is no table");
      Act act;
      double at_s = 0;
      number(*table, "at", at_s);
      act.at = static_cast<Nanos>(at_s * 1e9);
      act.what = (*table)["do"].value_or<std::string>("");
      if (!known(act.what)) return Bad(path, "unknown act '" + act.what + "'");
      act.tag = (*table)["tag"].value_or<std::string>("");
      number(*table, "node", act.node);
      number(*table, "for", act.seconds);
      number(*table, "by", act.figure);
      plan.acts.push_back(std::move(act));
    }
  }
  for (const auto& [key, value] : file) {
    static const std::set<std::string_view> keys = {
        "about",      "found",       "seed",       "nodes",         "java_nodes", "tags",
        "step",       "workers",     "preemption", "connections",   "batch_max",  "peer_clocks",
        "fixed_step", "near_end",    "fence",      "registry",      "database",   "endpoints",
        "privileged", "trigger",     "expected",   "faults",        "act",        "refresh_interval_ms",
        "window_ms",  "think_ms",    "trouble_s",  "lease_time_ms", "flush_ms",   "fault_interval_s",
        "caught_by",  "claim_watch", "contiguous", "strict",        "look_ms",    "marks_flush_ms"};
    if (!keys.contains(key.str())) return Bad(path, fmt::format("unknown key '{}'", key.str()));
  }
  if (problem) return *problem;
  if (plan.nodes == 0 || plan.tags == 0 || plan.step < 1) return Bad(path, "nothing to do");
  if (plan.HasOrders() && plan.fence == Fence::kFallback)
    return Bad(path, "no tag is strict where nodes go on without the witness");
  return plan;
}

}  // namespace leaf::sim
