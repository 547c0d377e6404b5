#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "sim/cluster.h"

namespace leaf::sim {
namespace {

// How soon everything has to work again: back-offs, sessions, leases and a refresh, one after the other.
constexpr Nanos kRecovery = 180 * kSecond;

}  // namespace

Outcome Simulate(const Plan& plan, bool loud) {
  World world(plan.seed);
  world.set_preemption(plan.preemption);
  History history(world, plan.fence == Fence::kCluster ? History::Scope::kCluster : History::Scope::kNode);
  Process outside("outside", 0);
  Outcome outcome;
  {
    std::unique_ptr<SqlDatabase> sql;
    if (plan.sql) sql = std::make_unique<SqlDatabase>(world, history, plan);
    Database plain(world, history);
    Database& database = sql ? *sql : plain;
    Ensemble ensemble(world);
    const auto needs_backups = [](const std::string& kind) {
      return kind == "zk_restore" || kind == "both_restore";
    };
    ensemble.keeps_backups = std::any_of(plan.faults.begin(), plan.faults.end(), needs_backups) ||
                             std::any_of(plan.acts.begin(), plan.acts.end(),
                                         [&](const Act& act) { return needs_backups(act.what); });
    Surroundings around{.world = world,
                        .plan = plan,
                        .database = database,
                        .sql = sql.get(),
                        .access = nullptr,
                        .ensemble = ensemble,
                        .history = history,
                        .tags = {},
                        .workers = {},
                        .find_peer = nullptr,
                        .loud = loud};
    for (std::uint64_t i = 0; i < plan.tags; ++i) {
      // The second is a prefix of the third, and case tells the rest apart.
      static const char* const kNames[] = {"pay", "order", "order-item", "Pay", "shi\xC3\xB6p", "x"};
      around.tags.push_back(i < std::size(kNames) ? kNames[i] : fmt::format("tag{}", i));
      const bool near_end = plan.near_end && i == 0;
      database.Put(around.tags.back(),
                   near_end ? static_cast<std::int64_t>(kMaxIdLimit) - 300 * plan.step : 1, plan.step);
      if (i < plan.strict) {
        database.PutStrict(around.tags.back());
        history.OrderBegins(around.tags.back());
      }
    }
    std::optional<AccessFiles> access;
    if (plan.HasAccess()) around.access = &access.emplace(world, around.tags);
    Cluster cluster(around, outside);

    bool done = false;
    bool trouble = true;
    world.Spawn(&outside, [&] { database.Live(outside); });
    world.Spawn(&outside, [&] { ensemble.Live(outside); });
    cluster.Start();
    for (const Act& act : plan.acts)
      world.Spawn(
          &outside, [&] { cluster.Do(act); }, act.at);
    for (const std::string& kind : plan.faults) {
      world.Spawn(&outside, [&, kind] {
        while (true) {
          world.Block(outside, world.dice().Around(plan.fault_interval));
          if (!trouble) return;
          // No node can tell that a clock was wrong before its first start.
          if (const Act act = cluster.Draw(kind); cluster.HasStarted(act.node)) cluster.Do(act);
        }
      });
    }
    Costs before;
    const auto costs_now = [&] {
      Costs costs = world.costs();
      costs.grants = history.grants();
      return costs;
    };
    // By then all have started, and found each other. One task more is another history of a seed.
    if (plan.counts_costs) {
      world.Spawn(
          &outside, [&] { before = costs_now(); }, plan.trouble / 2);
    }
    world.Spawn(
        &outside,
        [&] {
          trouble = false;
          outcome.costs = costs_now().Since(before);
          outcome.costs_seconds = static_cast<double>(plan.trouble - plan.trouble / 2) / 1e9;
          if (loud)
            fmt::print("{:12.6f} -- everything is put right\n", static_cast<double>(world.now()) / 1e9);
          // What was begun ends by itself; what it would undo is undone after that.
          world.Block(outside, 35 * kSecond);
          cluster.Heal();
          cluster.CheckRecovery(kRecovery);
          cluster.CheckNumbers();
          cluster.CheckAlarms();
          done = true;
        },
        plan.trouble);
    world.Run([&] { return done; });
    if (!done) history.Broken("P3: nothing is left to happen");
    outcome.node_seconds =
        static_cast<double>(world.now()) / 1e9 * static_cast<double>(plan.nodes + plan.java_nodes);
    outcome.acts = cluster.acts();
    outcome.starts = cluster.starts();
    outcome.requests = around.requests;
    outcome.errors = around.errors;
    // Everything ends: supervisors first, so that nothing is started again.
    world.Kill(outside);
    cluster.KillAll();
    world.Run([] { return false; });
  }
  history.Check();
  outcome.violations = history.violations();
  outcome.trace = world.trace();
  outcome.steps = world.steps();
  outcome.ids = history.ids();
  outcome.grants = history.grants();
  outcome.regressions = history.regressions();
  outcome.orders_begun = history.orders_begun();
  outcome.strict_requests = history.strict_requests();
  outcome.strict_pairs = history.strict_pairs();
  return outcome;
}

}  // namespace leaf::sim
