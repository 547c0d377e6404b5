#include "sim/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "leaf/inspect/sql_workers.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/service/cluster_fence.h"
#include "leaf/service/command_part.h"
#include "leaf/service/granter.h"
#include "leaf/zookeeper/recovery.h"
#include "leaf/zookeeper/witness.h"
#include "tag_order.h"

namespace leaf::sim {
namespace {

// A number no node has: the operator's.
constexpr std::uint64_t kOperator = 1'000'000;

// As `next` waits for a grant.
constexpr std::chrono::milliseconds kCommandPatience{10'000};

Nanos Seconds(double seconds) { return static_cast<Nanos>(seconds * 1e9); }

}  // namespace

// A process that takes IDs as `leafctl next --direct` does. With a witness it takes them once.
struct Cluster::OneShots {
  OneShots(Surroundings& its_surroundings, Node& node)
      : around(its_surroundings),
        process(fmt::format("next{}", node.number), around.next_process++),
        issuer{process.number, node.number, node.state->number, false},
        state(node.state),
        machine(*node.machine),
        log(around.world, process, around.loud),
        random(around.plan.fence == Fence::kNode ? 0 : around.world.dice().Next()),
        marks(around.world, process, state->marks, around.history, issuer),
        plain_orders(around.database, process, node.number) {
    const auto reserved = [this](std::string_view tag, const IdRange& range) { marks.Reserved(tag, range); };
    if (around.sql != nullptr) {
      sql = std::make_unique<SqlPorts>(*around.sql, process, node.number, *node.machine, log, reserved);
    } else {
      plain = std::make_unique<SimSegmentStore>(around.database, process, node.number, reserved);
    }
    core::SegmentStore& store = sql ? static_cast<core::SegmentStore&>(sql->store()) : *plain;
    if (around.plan.fence != Fence::kNode) part.emplace(*this, node);
    granter.emplace(store, marks, part ? &part->fence : nullptr, machine, log,
                    std::chrono::milliseconds{4000});
  }

  // What ClusterLink is to a command.
  struct Part {
    Part(OneShots& shots, const Node& node)
        : watch(SegmentWatchOf(shots.around.plan)),
          tree(*zookeeper::Tree::Make("sim")),
          zookeeper(shots.around.ensemble, shots.process, node.number),
          membership(tree,
                     {.host = shots.machine.name(),
                      .process = shots.process.name,
                      .watch = watch,
                      .one_shot = true,
                      .is_passive = node.daemon != nullptr && !node.daemon->process().dead},
                     zookeeper, shots.marks, shots.machine, shots.random, shots.log),
          witness(tree, shots.process.name, zookeeper, shots.machine, &membership),
          fence(witness, shots.around.plan.fence == Fence::kFallback, shots.machine, shots.random, shots.log,
                &membership) {}

    const std::chrono::milliseconds watch;
    const zookeeper::Tree tree;
    SimClient zookeeper;
    zookeeper::Membership membership;
    zookeeper::ZookeeperWitness witness;
    service::ClusterFence fence;
  };

  Result<core::Grant> Obtain(const std::string& tag, std::uint64_t count) {
    std::optional<service::StrictGrant> strict;
    if (part && around.plan.HasOrders()) {
      core::TagOrders& orders = sql ? static_cast<core::TagOrders&>(sql->orders()) : plain_orders;
      LEAF_ASSIGN_OR_RETURN(const auto table, orders.Read());
      if (table && table->IsStrict(tag)) {
        strict = {.size = [count]() -> Result<core::GrantSize> {
                    return core::GrantSize{count, count};
                  },
                  .until = machine.Monotonic() + kCommandPatience};
      }
    }
    const auto obtain = [&] {
      return granter->Obtain(tag, service::ExactSizer(count), nullptr, 0, strict ? &*strict : nullptr).grant;
    };
    if (!part) return obtain();
    return service::CommandPart(
               {.fence = part->fence, .membership = part->membership, .marks = marks, .clock = machine},
               part->watch)
        .Obtain(kCommandPatience, obtain);
  }

  void Take(const std::string& tag, std::uint64_t count) {
    const std::uint64_t sent = around.history.Sent();
    const auto grant = Obtain(tag, count);
    if (!grant.ok() || process.dead) return;
    around.history.Issued(issuer, tag, grant->range);
    around.history.Answered(issuer, tag, sent, grant->range.begin, grant->range.end - 1);
    ++around.requests;
  }

  bool ended() const { return process.tasks.empty(); }

  Surroundings& around;
  Process process;
  const Issuer issuer;
  const DirPtr state;
  const Machine& machine;
  Journal log;
  Dice random;
  SimMarks marks;
  std::unique_ptr<SqlPorts> sql;
  std::unique_ptr<SimSegmentStore> plain;
  SimTagOrders plain_orders;
  std::optional<Part> part;  // where there is a witness
  std::optional<service::Granter> granter;
};

Cluster::Cluster(Surroundings& around, Process& outside)
    : around_(around),
      world_(around.world),
      outside_(outside),
      desk_(around.world, "desk"),
      operator_(around.ensemble, outside, kOperator),
      operator_log_(around.world, outside, around.loud) {
  const Plan& plan = around_.plan;
  for (std::uint64_t i = 0; i < plan.nodes + plan.java_nodes; ++i) {
    auto node = std::make_unique<Node>();
    node->number = i;
    node->java = node->java_slot = i >= plan.nodes;
    // One is a prefix of another, as addresses are.
    node->own_address = node->address = fmt::format("127.0.0.1:{}", i == 0 ? 80 : i == 1 ? 8080 : 8000 + i);
    around_.workers[node->address] = static_cast<std::int64_t>(kFirstWorker + i);
    node->machine = std::make_unique<Machine>(world_, fmt::format("host{}", i));
    node->state = std::make_shared<StateDir>(next_state_++, *node->machine, plan);
    node->seen.resize(plan.connections);
    nodes_.push_back(std::move(node));
  }
  // As the guide to migration has it: two that start on a virgin namespace would both be worker 0, whatever
  // their nodes say (leaf-compat M8, M9).
  if (plan.java_nodes > 1) {
    for (const char* const folder : {"/snowflake", "/snowflake/sim", "/snowflake/sim/forever"})
      around_.ensemble.tree().Create(folder, "");
  }
  if (around_.sql != nullptr) {
    operator_sql_ = std::make_unique<SqlPorts>(*around_.sql, outside_, kOperator, *nodes_.front()->machine,
                                               operator_log_, [](std::string_view, const IdRange&) {});
  }
  around_.find_peer = [this](const std::string& url) -> const Machine* {
    for (const auto& node : nodes_) {
      if (node->daemon && url == fmt::format("sim://{}", node->number) && !node->daemon->process().dead &&
          !node->daemon->process().stopped)
        return node->machine.get();
    }
    return nullptr;
  };
}

Cluster::~Cluster() = default;

void Cluster::Start() {
  for (const auto& node : nodes_) {
    world_.Spawn(
        &outside_, [this, &node = *node] { Supervise(node); },
        world_.dice().Chance(0.5) ? 0 : world_.dice().Between(0, 3 * kSecond));
  }
  if (!around_.plan.GoesBack()) return;
  world_.Spawn(&outside_, [this] {
    while (true) {
      world_.Block(outside_, 10 * kSecond);
      if (!lost_.empty()) RecoverWithoutTheLost();
    }
  });
}

void Cluster::Supervise(Node& node) {
  while (true) {
    while (world_.now() < node.down_until) world_.Block(outside_, 10 * kMilli);
    ++starts_;
    node.started = true;
    if (node.java) {
      node.java_leaf =
          std::make_unique<JavaLeaf>(around_, node.number, node.address, *node.machine, node.java_file);
      node.java_leaf->Launch();
      while (!node.java_leaf->ended()) world_.Block(outside_, 5 * kMilli);
      node.java_leaf.reset();
    } else {
      node.state->disk.Restart();
      EndLostOrders();
      // Processes keep a directory they began with, whatever happens to the name.
      const DirPtr state = node.state;
      node.daemon = std::make_unique<Daemon>(
          around_, DaemonSetting{node.number, node.address, *node.machine, *state, node.seen});
      node.daemon->Launch();
      while (!node.daemon->ended()) world_.Block(outside_, around_.plan.look);
      node.last_failure = node.daemon->failure();
      node.daemon.reset();
    }
    // As RestartSec of the unit.
    world_.Block(outside_, world_.dice().Between(100 * kMilli, 2 * kSecond));
  }
}

void Cluster::KillNode(Node& node, Nanos down_for) {
  node.down_until = std::max(node.down_until, world_.now() + down_for);
  if (node.daemon) node.daemon->Kill();
  if (node.java_leaf) node.java_leaf->Kill();
}

void Cluster::Forget(Node& node) {
  // Another directory is another node: nothing is promised across.
  for (Seen& seen : node.seen) seen.last.clear();
}

void Cluster::Later(Nanos delay, std::function<void()> what) {
  world_.Spawn(
      &outside_, [what = std::move(what)] { what(); }, delay);
}

void Cluster::OnceFree(const std::string& tag, std::function<void()> statement) {
  if (!around_.database.IsHeld(tag)) return statement();
  Later(kMilli, [this, tag, statement = std::move(statement)] { OnceFree(tag, statement); });
}

std::optional<core::WorkerState> Cluster::StateOf(const DirPtr& dir) {
  // A copy: a look must not be one of the calls at which the disk was to crash.
  const auto copy = dir->Copy(0, *nodes_.front()->machine);
  sys::WorkerStateFile file(StateDir::kPath, copy->disk);
  auto loaded = file.Load();
  return loaded.ok() ? *std::move(loaded) : std::nullopt;
}

// As `leafctl worker release`, by an operator that knows that the former node of this address is gone.
void Cluster::ReleaseWorkerOf(const Node& node) {
  if (around_.plan.registry == Registry::kSql) return ReleaseSqlWorkerOf(node);
  if (around_.plan.registry != Registry::kFixed) return;
  const auto tree = zookeeper::Tree::Make("sim");
  // A daemon that was killed looks alive until its session has run out.
  for (int attempt = 0; attempt < 300; ++attempt) {
    const auto snapshot = inspect::ReadSnapshot(operator_, *tree);
    if (snapshot.ok()) {
      const auto own = StateOf(node.state);
      bool done = true;
      for (const auto& [path, data] : snapshot->nodes) {
        if (!path.starts_with(tree->Owners() + "/")) continue;
        const auto owner = zookeeper::ParseOwner(data.data);
        const auto worker = zookeeper::ParseNumberName(path.substr(path.rfind('/') + 1));
        if (!owner.ok() || !worker || owner->address != node.own_address) continue;
        if (own && own->node_uuid == owner->uuid) continue;
        const auto step = inspect::PlanRelease(*snapshot, *worker, false);
        if (step.ok() && !*step) continue;
        done = step.ok() && done;
        if (!step.ok()) continue;
        const auto written = operator_.Write(inspect::OperationsOf(*tree, **step));
        done = done && written.ok() && written->done();
      }
      if (done) return;
    }
    world_.Block(outside_, 200 * kMilli);
  }
}

void Cluster::ReleaseSqlWorkerOf(const Node& node) {
  sql::Database& database = operator_sql_->registry_database();
  for (int attempt = 0; attempt < 300; ++attempt) {
    const auto tables = inspect::ReadWorkerTables(database);
    if (tables.ok()) {
      const auto own = StateOf(node.state);
      bool done = true;
      for (const inspect::OwnerRow& owner : tables->owners) {
        if (owner.ip_port != node.own_address || owner.uuid.empty()) continue;
        if (own && own->node_uuid == owner.uuid) continue;
        const auto step =
            inspect::PlanRelease(*tables, static_cast<std::uint64_t>(owner.worker), TrueWall(world_));
        if (step.ok() && !*step) continue;
        done = step.ok() && done;
        if (!step.ok()) {
          // It looks alive for as long as its clock was ahead when it reported last: only a statement by hand
          // says that it is not.
          if (WallTimeOf(owner.reported_ms) > TrueWall(world_) + std::chrono::seconds{10})
            around_.sql->MarkGone(owner.worker);
          continue;
        }
        const auto applied = inspect::ApplyStep(database, **step);
        done = done && applied.ok() && *applied;
      }
      if (done) return;
    }
    world_.Block(outside_, 200 * kMilli);
  }
}

void Cluster::Do(const Act& act) {
  ++acts_;
  world_.Trace(act.what);
  Node& node = *nodes_[act.node % nodes_.size()];
  Database& database = around_.database;
  Ensemble& ensemble = around_.ensemble;
  const Nanos time = Seconds(act.seconds);
  const std::string tag = act.tag.empty() ? around_.tags.front() : act.tag;
  const auto& what = act.what;
  if (around_.loud) {
    fmt::print("{:12.6f} -- {} node {} tag {} for {} s by {}\n", static_cast<double>(world_.now()) / 1e9,
               what, node.number, tag, act.seconds, act.figure);
  }
  if (what == "kill" || what == "java_restart") {
    KillNode(node, time);
  } else if (what == "restart") {
    node.down_until = std::max(node.down_until, world_.now() + time);
    if (node.daemon) node.daemon->Terminate();
  } else if (what == "stop" || what == "suspend") {
    // SIGSTOP; or the whole machine, whose wall clock may not have noticed.
    Process* const process = node.process();
    if (process == nullptr || process->dead || process->stopped) return;
    world_.Stop(*process);
    const std::uint64_t number = process->number;
    const Nanos since = world_.now();
    Later(time, [this, &node, number, since, suspended = what == "suspend", stood = act.figure != 0] {
      if (suspended) node.machine->Slept(world_.now() - since, stood);
      Process* const same = node.process();
      if (same != nullptr && same->number == number) world_.Continue(*same);
    });
  } else if (what == "clock_step" || what == "clock_jump") {
    node.machine->StepWall(Seconds(act.figure));
  } else if (what == "clock_strobe") {
    for (Nanos at = 0; at < time; at += 200 * kMilli) {
      const Nanos by = Seconds(act.figure) * (at / (200 * kMilli) % 2 == 0 ? 1 : -1);
      Later(at, [&node, by] { node.machine->StepWall(by); });
    }
  } else if (what == "clock_drift") {
    node.machine->SetDrift(act.figure);
  } else if (what == "reboot") {
    KillNode(node, time);
    for (const auto& shots : one_shots_) {
      if (shots->state == node.state) world_.Kill(shots->process);
    }
    node.state->disk.LosePower(world_.dice());
    if (SqliteDisk* const disk = node.state->marks.disk()) disk->LosePower();
    node.machine->Reboot();
  } else if (what == "disk_full") {
    const DirPtr state = node.state;
    state->SetFull(true);
    Later(time, [state] { state->SetFull(false); });
  } else if (what == "disk_crash") {
    node.state->disk.CrashAt(world_.dice().Below(12), world_.dice().Chance(0.5));
  } else if (what == "marks_crash") {
    SqliteDisk& disk = *node.state->marks.disk();
    disk.CrashAt(static_cast<std::uint64_t>(act.figure), act.seconds < 1);
  } else if (what == "marks_fail") {
    const DirPtr state = node.state;
    state->marks.disk()->SetFailing(true);
    Later(time, [state] { state->marks.disk()->SetFailing(false); });
  } else if (what == "state_lost") {
    if (node.java || node.own_state) return;
    if (const auto memory = node.state->marks.LoadMemory(StateDir::kCluster);
        memory.ok() && !memory->id.empty())
      lost_.insert(memory->id);
    KillNode(node, kSecond);
    node.state = std::make_shared<StateDir>(next_state_++, *node.machine, around_.plan);
    Forget(node);
    node.lost_its_state = true;
    Later(time, [this, &node] { ReleaseWorkerOf(node); });
  } else if (what == "state_copied") {
    Node& other = *nodes_[(act.node + 1) % around_.plan.nodes];
    if (&other == &node || node.java || other.java || other.own_state || node.own_state) return;
    KillNode(other, kSecond);
    other.own_state = std::exchange(other.state, DirPtr(node.state->Copy(next_state_++, *other.machine)));
    // A container started twice has its address twice, too.
    if (act.figure != 0) other.address = node.address;
    Forget(other);
  } else if (what == "same_address") {
    // A configuration that was copied to a node with a state directory of its own.
    Node& other = *nodes_[(act.node + 1) % around_.plan.nodes];
    if (&other == &node || other.java || node.own_state || other.own_state) return;
    KillNode(other, kSecond);
    other.address = node.own_address;
    Later(time, [this, &other] {
      if (other.own_state) return;
      KillNode(other, kSecond);
      other.address = other.own_address;
    });
  } else if (what == "db_away") {
    database.away = true;
    Later(time, [&database] { database.away = false; });
  } else if (what == "db_slow") {
    database.slowness = act.figure;
    Later(time, [&database] { database.slowness = 1; });
  } else if (what == "db_flaky") {
    database.refuses = act.figure;
    database.loses_reply = act.figure;
    Later(time, [&database] { database.refuses = database.loses_reply = 0; });
  } else if (what == "db_cut") {
    database.cut_off.insert(node.number);
    Later(time, [&database, number = node.number] { database.cut_off.erase(number); });
  } else if (what == "db_failover") {
    database.lag = Seconds(act.figure);
    Later(time, [&database] {
      database.FailOver();
      database.lag = 0;
    });
  } else if (what == "db_restore") {
    database.Restore(Seconds(act.figure));
  } else if (what == "db_split") {
    database.Split();
    Later(time, [&database] { database.Join(); });
  } else if (what == "db_switch") {
    database.BeginSwitch();
    Later(std::min(time, kSecond), [&database] { database.EndSwitch(); });
  } else if (what == "db_lock") {
    around_.sql->HoldRow(tag);
    Later(time, [this] { around_.sql->LetRowsGo(); });
  } else if (what == "db_lower") {
    OnceFree(tag, [&database, tag, by = static_cast<std::int64_t>(act.figure)] {
      const auto row = database.rows().find(tag);
      if (row != database.rows().end())
        database.Lower(tag, std::max<std::int64_t>(row->second.max_id - by, 0));
    });
  } else if (what == "db_wipe") {
    // An empty volume. The operator adds the tags again, as if they were new.
    for (const std::string& each : around_.tags) database.Erase(each);
    Later(time, [this] {
      for (const std::string& each : around_.tags)
        if (!around_.database.rows().contains(each)) around_.database.Put(each, 1, around_.plan.step);
    });
  } else if (what == "repair") {
    RepairTags();
  } else if (what == "pause_tag") {
    PauseTag(node, tag, time);
  } else if (what == "reload") {
    if (node.daemon)
      node.daemon->Reload(std::chrono::milliseconds{static_cast<std::int64_t>(1000 * act.seconds) + 200},
                          std::chrono::milliseconds{static_cast<std::int64_t>(1000 * act.figure)});
  } else if (what == "tag_strict") {
    MakeStrict(tag, act.node, act.figure);
  } else if (what == "one_shots") {
    RunOneShots(node, tag, time, act.figure > 0 ? act.figure : 0.1);
  } else if (what == "tag_trend") {
    MakeTrend(tag);
  } else if (what == "db_step") {
    OnceFree(tag,
             [&database, tag, step = static_cast<std::int64_t>(act.figure)] { database.SetStep(tag, step); });
  } else if (what == "db_remove") {
    OnceFree(tag, [this, tag, time, again = act.figure != 0] {
      const auto row = around_.database.rows().find(tag);
      if (row == around_.database.rows().end()) return;
      const core::TagRow removed = row->second;
      around_.database.Erase(tag);
      Later(time, [this, removed, again] {
        if (!around_.database.rows().contains(removed.tag))
          around_.database.Put(removed.tag, again ? 1 : removed.max_id, removed.step);
      });
    });
  } else if (what == "zk_away") {
    ensemble.away = true;
    Later(time, [&ensemble] { ensemble.away = false; });
  } else if (what == "zk_flaky") {
    ensemble.refuses = ensemble.loses_reply = ensemble.is_late = act.figure;
    Later(time, [&ensemble] { ensemble.refuses = ensemble.loses_reply = ensemble.is_late = 0; });
  } else if (what == "zk_cut") {
    ensemble.cut_off.insert(node.number);
    Later(time, [&ensemble, number = node.number] { ensemble.cut_off.erase(number); });
  } else if (what == "zk_restore") {
    ensemble.Restore(Seconds(act.figure));
    EndLostOrders();
  } else if (what == "zk_wipe") {
    ensemble.Wipe();
    EndLostOrders();
  } else if (what == "both_restore") {
    ensemble.Restore(Seconds(act.figure));
    database.Restore(Seconds(act.figure));
    EndLostOrders();
    // So that there is something to repeat by the next time.
    Later(time + 40 * kSecond, [this] { RepairTags(); });
  } else if (what == "zk_expire") {
    ensemble.Expire(node.number);
  } else if (what == "zk_behind") {
    ensemble.is_behind = 0.5;
    Later(time, [&ensemble] { ensemble.is_behind = 0; });
    ensemble.Expire(node.number);
  } else if (what == "change_access") {
    around_.access->Change();
    for (const auto& each : nodes_) {
      Later(world_.dice().Between(0, 2 * kSecond), [&each] {
        if (each->daemon) each->daemon->LoadAccess();
      });
    }
  } else if (what == "swap") {
    // A place of Java's is taken over by leafctl, with its address, or given back.
    if (!node.java_slot) return;
    if (node.java) {
      KillNode(node, time);
    } else {
      // Java knows no ceiling: it must not start before a daemon's last ID has passed.
      node.down_until = world_.now() + time + NanosOf(around_.plan.window) + 5 * kSecond;
      if (node.daemon) node.daemon->Terminate();
    }
    node.java = !node.java;
  }
}

Act Cluster::Draw(const std::string& kind) {
  Dice& dice = world_.dice();
  const Plan& plan = around_.plan;
  Act act;
  act.what = kind;
  act.node = dice.Below(plan.nodes);
  act.tag = around_.tags[dice.Below(around_.tags.size())];
  act.seconds = dice.Chance(0.7) ? 3 * dice.Real() : 30 * dice.Real();
  // Those that know more must not all be down for longer than the watch, be it in one go or in several.
  if (plan.GoesBack()) {
    static const std::set<std::string> kEnd = {"kill", "restart", "reboot", "state_lost"};
    const Nanos down_until = nodes_[act.node]->down_until;
    const bool again = down_until > 0 && world_.now() < down_until + 10 * kSecond;
    act.seconds = again && kEnd.contains(kind) ? 0 : std::min(act.seconds, 12.0);
  }
  const auto either_way = [&](double most) { return (dice.Chance(0.5) ? 1 : -1) * most * dice.Real(); };
  if (kind == "java_restart" || kind == "swap")
    act.node = plan.java_nodes == 0 ? 0 : plan.nodes + dice.Below(plan.java_nodes);
  if (kind == "clock_step") act.figure = either_way(dice.Chance(0.7) ? 4 : 15);
  if (kind == "clock_jump") act.figure = either_way(3600);
  if (kind == "clock_strobe") act.figure = 4 * dice.Real();
  if (kind == "clock_drift") act.figure = either_way(0.05);
  if (kind == "tag_order") {
    act.what = dice.Chance(0.7) ? "tag_strict" : "tag_trend";
    act.figure = dice.Chance(0.5) ? 2 : 0;
  }
  if (kind == "suspend" || kind == "state_copied" || kind == "db_remove")
    act.figure = dice.Chance(0.5) ? 1 : 0;
  // Two live copies of one identity are told apart as long as both reach the registry in time.
  static const std::set<std::string> kHideInZookeeper = {"zk_away",   "zk_flaky", "zk_cut", "zk_expire",
                                                         "zk_behind", "stop",     "suspend"};
  static const std::set<std::string> kHideInSql = {"db_away", "db_slow", "db_flaky",
                                                   "db_cut",  "stop",    "suspend"};
  const std::set<std::string>& hide = plan.registry == Registry::kSql ? kHideInSql : kHideInZookeeper;
  if (kind == "state_copied" && std::any_of(plan.faults.begin(), plan.faults.end(),
                                            [&](const auto& other) { return hide.contains(other); }))
    act.figure = 0;
  // No node knows how far ahead of true time a lost directory had got: clocks are right where one is lost.
  static const std::set<std::string> kWrongClocks = {"clock_step", "clock_jump", "clock_strobe",
                                                     "clock_drift", "suspend"};
  if (kind == "state_lost" && (plan.registry == Registry::kFixed || plan.registry == Registry::kSql) &&
      std::any_of(plan.faults.begin(), plan.faults.end(),
                  [](const auto& other) { return kWrongClocks.contains(other); }))
    act.what = "kill";
  // What ZooKeeper may forget of it, all others remember.
  if (kind == "state_lost" && plan.GoesBack() && !DoOthersRemember(act.node)) act.what = "kill";
  if (kind == "marks_crash") act.figure = static_cast<double>(dice.Below(30));
  if (kind == "reload") act.figure = dice.Chance(0.5) ? 0 : 5 * dice.Real();
  if (kind == "db_slow") act.figure = dice.Chance(0.5) ? 20 : 2000;
  if (kind == "db_flaky" || kind == "zk_flaky") act.figure = 0.3 * dice.Real();
  if (kind == "db_failover") act.figure = act.seconds;
  if (kind == "db_restore" || kind == "zk_restore") act.figure = 60 * dice.Real();
  // The last seconds of both, lost at once, are known only to nodes that have claimed meanwhile.
  if (kind == "both_restore") act.figure = 60 * dice.Real();
  if (kind == "zk_restore" || kind == "both_restore") act.figure = std::max(act.figure, 12.0);
  if (kind == "db_lower") act.figure = static_cast<double>(dice.Between(1, 20 * plan.step));
  if (kind == "db_step") {
    const double odd[] = {0, -5, 1, 1U << 30};
    act.figure = dice.Chance(0.2) ? odd[dice.Below(4)] : static_cast<double>(dice.Between(1, 4 * plan.step));
  }
  return act;
}

bool Cluster::DoOthersRemember(std::uint64_t node) const {
  const auto lost = nodes_[node]->state->marks.LoadMemory(StateDir::kCluster);
  if (!lost.ok()) return false;
  if (lost->incarnation == 0) return true;  // it has claimed nothing
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
    if (other->number == node) return true;
    const auto memory = other->state->marks.LoadMemory(StateDir::kCluster);
    return memory.ok() &&
           (std::find(memory->others.begin(), memory->others.end(), lost->id) != memory->others.end() ||
            std::any_of(memory->covered.begin(), memory->covered.end(),
                        [&](const auto& covered) { return covered.first == lost->id; }));
  });
}

void Cluster::Heal() {
  Database& database = around_.database;
  Ensemble& ensemble = around_.ensemble;
  database.away = false;
  database.slowness = 1;
  database.refuses = database.loses_reply = 0;
  database.cut_off.clear();
  database.lag = 0;
  database.EndSwitch();
  database.Join();
  if (around_.sql != nullptr) around_.sql->LetRowsGo();
  ensemble.away = false;
  ensemble.refuses = ensemble.loses_reply = ensemble.is_late = ensemble.is_behind = 0;
  ensemble.cut_off.clear();
  for (const auto& node : nodes_) {
    node->machine->SetRight();
    node->state->Mend();
    if (node->own_state) {
      // The copy was found out: the node gets its own back.
      for (const auto& other : nodes_) {
        if (other->address == node->address) KillNode(*other, kSecond);
      }
      node->state = std::move(node->own_state);
      node->state->Mend();
      node->own_state.reset();
      node->address = node->own_address;
      Forget(*node);
    } else if (node->address != node->own_address) {
      KillNode(*node, kSecond);
      node->address = node->own_address;
    }
    if (Process* const process = node->process(); process != nullptr && process->stopped)
      world_.Continue(*process);
    node->machine->accepted = core::ClockGuard::OffsetOf(node->machine->Wall(), node->machine->Boot());
  }
  world_.Block(outside_, 5 * kSecond);
  RepairTags();
  // A registry that went back after the release says again that the number is the lost directory's.
  for (const auto& node : nodes_) {
    if (node->lost_its_state) Later(0, [this, &node = *node] { ReleaseWorkerOf(node); });
  }
}

std::optional<zookeeper::WitnessRecord> Cluster::WitnessOf(const std::string& tag) const {
  const auto tree = zookeeper::Tree::Make("sim");
  const auto node = around_.ensemble.tree().Find(tree->Witness(tag));
  if (!node) return std::nullopt;
  auto record = zookeeper::ParseWitness(node->data);
  return record.ok() ? std::optional(*std::move(record)) : std::nullopt;
}

// Rows that are missing or lower than what was granted, as far as marks and witnesses tell.
void Cluster::RepairTags() {
  Database& database = around_.database;
  for (const std::string& tag : around_.tags) {
    std::uint64_t known = 0;
    for (const auto& node : nodes_) {
      if (const auto mark = node->state->marks.Load(tag); mark.ok()) known = std::max(known, mark->end);
    }
    if (const auto record = WitnessOf(tag)) known = std::max(known, record->end);
    // As an operator adds it again: above what was inserted elsewhere.
    if (known == 0 && !lost_.empty()) known = database.HighestOf(tag);
    if (!database.rows().contains(tag)) {
      database.Put(tag, static_cast<std::int64_t>(std::max<std::uint64_t>(known, 1)), around_.plan.step);
    }
    database.RaiseTo(tag, known);
    database.SetStep(tag, around_.plan.step);
  }
}

// 0: none. 1: those of `node`, although it runs. 2: those whose process has ended.
std::vector<std::string> Cluster::GoneNodes(std::uint64_t node, double gone) {
  std::vector<std::string> ids;
  if (gone == 0) return ids;
  const auto listed = operator_sql_->orders().Nodes();
  if (!listed.ok()) return ids;
  for (const core::OrderNode& each : *listed) {
    const auto runs = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& other) {
      return other->daemon && other->daemon->order_node().id == each.id && !other->daemon->process().dead;
    });
    if (gone == 1 ? runs != nodes_.end() && (*runs)->number == node : runs == nodes_.end())
      ids.push_back(each.id);
  }
  return ids;
}

// The operator resumes the tag also if the pause has failed: it may be in force at the next start.
void Cluster::PauseTag(Node& node, const std::string& tag, Nanos time) {
  if (node.java || !node.daemon) return;
  node.daemon->SetPaused(tag, true);
  Later(time, [this, &node, tag] {
    for (int attempt = 0; attempt < 20; ++attempt) {
      if (node.java || (node.daemon && node.daemon->SetPaused(tag, false))) return;
      world_.Block(outside_, 500 * kMilli);
    }
  });
}

void Cluster::MakeStrict(const std::string& tag, std::uint64_t node, double gone) {
  if (!ordering_.insert(tag).second) return;
  WithOrderDesk([&](cmd::TagOrderDesk& desk) { MakeStrictAt(desk, tag, node, gone); });
  ordering_.erase(tag);
}

void Cluster::MakeTrend(const std::string& tag) {
  if (!ordering_.insert(tag).second) return;
  around_.history.OrderEnds(tag);
  WithOrderDesk([&](cmd::TagOrderDesk& desk) {
    if (const auto ended = desk.End(tag, true); !ended.ok()) operator_log_.Info("{}", ended.error().message);
  });
  ordering_.erase(tag);
}

// A process that starts cannot know of what neither database nor ZooKeeper nor a state directory has.
void Cluster::EndLostOrders() {
  around_.history.EndLostOrders([this](const std::string& tag) { return IsRemembered(tag); });
}

bool Cluster::IsRemembered(const std::string& tag) const {
  if (around_.plan.fence != Fence::kCluster) return false;
  const auto record = WitnessOf(tag);
  if (record && record->strict) return true;
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    const auto orders = node->state->marks.LoadOrders();
    return orders.ok() && std::any_of(orders->begin(), orders->end(), [&](const core::OrderRow& row) {
             return row.tag == tag && row.order == core::TagOrder::kStrict;
           });
  });
}

void Cluster::WithOrderDesk(const std::function<void(cmd::TagOrderDesk&)>& work) {
  const auto tree = zookeeper::Tree::Make("sim");
  zookeeper::ZookeeperWitness witness(*tree, "operator", operator_, desk_);
  service::ClusterFence fence(witness, false, desk_, world_.dice(), operator_log_);
  cmd::TagOrderDesk::Ports ports{.orders = operator_sql_->orders(),
                                 .clock = desk_,
                                 .daemons = nullptr,
                                 .look = nullptr,
                                 .patience = std::chrono::seconds{20},
                                 .fallback = false};
  if (around_.plan.fence == Fence::kCluster) {
    ports.fence = &fence;
    ports.daemons = [this]() -> Result<std::vector<zookeeper::DaemonRecord>> {
      world_.Block(outside_, kMilli);
      if (around_.ensemble.away) return Error{ErrorCode::kUnavailable, "ZooKeeper is away", ""};
      std::vector<zookeeper::DaemonRecord> daemons;
      for (const auto& each : nodes_) {
        if (each->daemon && !each->daemon->process().dead)
          daemons.push_back({each->machine->name(), each->daemon->order_node().process, {}});
      }
      return daemons;
    };
  }
  cmd::TagOrderDesk desk(std::move(ports));
  work(desk);
}

void Cluster::MakeStrictAt(cmd::TagOrderDesk& desk, const std::string& tag, std::uint64_t node, double gone) {
  constexpr int kAttempts = 5;
  const auto make = [&]() -> Result<void> {
    LEAF_ASSIGN_OR_RETURN(const auto begun, desk.Await(tag, GoneNodes(node, gone)));
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t since, desk.Complete(tag, begun));
    operator_log_.Info("tag {} is strict from {} on", tag, since);
    // The row may be lost by now.
    const bool is_there = around_.database.IsStrict(tag);
    if (is_there || IsRemembered(tag)) around_.history.OrderBegins(tag);
    if (!is_there) around_.history.OrderLost(tag);
    return {};
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto made = make();
    if (made.ok()) break;
    operator_log_.Info("{}", made.error().message);
    if (made.error().code == ErrorCode::kRefused) break;
    world_.Block(outside_, 200 * kMilli);
  }
}

void Cluster::RunOneShots(Node& node, const std::string& tag, Nanos time, double disturbed) {
  const Nanos until = world_.now() + time;
  if (around_.plan.fence != Fence::kNode) {
    world_.Spawn(&outside_, [this, &node, tag, until, disturbed] {
      while (world_.now() < until) {
        world_.Block(outside_, world_.dice().Around(10 * around_.plan.think_time));
        TakeOnce(node, tag, disturbed);
      }
    });
    return;
  }
  one_shots_.push_back(std::make_unique<OneShots>(around_, node));
  OneShots& shots = *one_shots_.back();
  world_.Spawn(&shots.process, [this, &shots, tag, until] {
    Dice& dice = world_.dice();
    while (world_.now() < until) {
      world_.Block(shots.process, dice.Around(around_.plan.think_time));
      shots.Take(tag, static_cast<std::uint64_t>(dice.Between(1, 3)));
    }
    shots.marks.Close();
  });
}

void Cluster::TakeOnce(Node& node, const std::string& tag, double disturbed) {
  Dice& dice = world_.dice();
  one_shots_.push_back(std::make_unique<OneShots>(around_, node));
  OneShots& shots = *one_shots_.back();
  world_.Spawn(&shots.process, [&shots, tag, count = static_cast<std::uint64_t>(dice.Between(1, 3))] {
    shots.Take(tag, count);
    shots.part->zookeeper.Close();
    shots.marks.Close();
    // The rest of its tasks are the client's.
    shots.around.world.Kill(shots.process);
  });
  // One takes 10 to 30 ms, unless something is in its way.
  if (dice.Chance(disturbed)) {
    world_.Block(outside_, dice.Between(0, 30 * kMilli));
    if (dice.Chance(0.5)) {
      world_.Kill(shots.process);
    } else {
      world_.Stop(shots.process);
      world_.Block(outside_, dice.Between(0, 20 * kSecond));
      world_.Continue(shots.process);
    }
  }
  while (!shots.ended()) world_.Block(outside_, around_.plan.look);
  std::erase_if(one_shots_, [&](const auto& each) { return each.get() == &shots; });
}

void Cluster::RecoverWithoutTheLost() {
  Database& database = around_.database;
  const auto tree = zookeeper::Tree::Make("sim");
  const Machine machine(world_, "operator");
  zookeeper::ZookeeperWitness witness(*tree, "operator", operator_, machine);
  service::ClusterFence fence(witness, false, machine, world_.dice(), operator_log_);
  std::vector<core::TagRow> rows;
  zookeeper::Recovery recovery(zookeeper::RecoveryPorts{
      .list = [&]() -> Result<std::vector<core::TagRow>> {
        rows.clear();
        for (const auto& [tag, row] : database.rows()) rows.push_back(row);
        return rows;
      },
      .removed = [] { return std::vector<std::pair<std::string, std::uint64_t>>(); },
      .advance = [&](const std::string& tag, std::uint64_t to) -> Result<void> {
        database.RaiseTo(tag, to);
        return {};
      },
      .raise = [&](const std::string& tag, std::uint64_t to) -> Result<void> {
        LEAF_ASSIGN_OR_RETURN(auto seen, witness.Load(tag));
        return fence.CatchUp(tag, std::move(seen), to);
      },
      .witness = witness,
      .witness_name = "the tree",
      .client = operator_,
      .tree = *tree,
      .clock = machine,
  });
  // The others come back by themselves.
  const auto& missing = recovery.missing();
  const auto only_lost_are_missing = [&] {
    return !missing.empty() && std::all_of(missing.begin(), missing.end(),
                                           [this](const auto& node) { return lost_.contains(node.id); });
  };
  if (!recovery.Read().ok() || !only_lost_are_missing()) return;
  if (!recovery.Await(/*without=*/true, SegmentWatchOf(around_.plan)).ok() || !only_lost_are_missing())
    return;
  const auto known = recovery.Plan(0);
  if (!known.ok()) return;
  // What the lost ones were granted above that, as an operator knows from what was inserted elsewhere.
  std::uint64_t beyond = 0;
  for (const std::string& tag : around_.tags) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const auto& each) { return each.tag == tag; });
    std::uint64_t base =
        row == rows.end() ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(row->max_id, 0));
    const auto seen = witness.Load(tag);
    // Of a tag that is known by nothing the command can move nothing: see RepairTags.
    if (row == rows.end() && !(seen.ok() && seen->version)) continue;
    if (seen.ok()) base = std::max(base, seen->end);
    const std::uint64_t highest = database.HighestOf(tag);
    if (highest > base) beyond = std::max(beyond, highest - base);
  }
  const auto plan = recovery.Plan(beyond);
  if (!plan.ok()) return operator_log_.Error("cannot recover: {}", plan.error().message);
  if (const auto done = recovery.Apply(*plan, "operator"); !done.ok())
    operator_log_.Error("cannot recover: {}", done.error().message);
}

bool Cluster::ClocksAreGuarded() const {
  static const std::set<std::string> kForget = {"reboot",     "state_lost", "state_copied",
                                                "disk_crash", "swap",       "suspend"};
  return std::none_of(kForget.begin(), kForget.end(),
                      [this](const std::string& kind) { return around_.plan.Has(kind); });
}

bool Cluster::IsBurnt(Node& node) {
  if (ClocksAreGuarded()) return false;
  const WallTime limit = TrueWall(world_) + std::chrono::seconds{10};
  const auto state = StateOf(node.state);
  if (state && state->ceiling > limit) return true;
  if (around_.plan.registry == Registry::kSql)
    return WallTimeOf(around_.sql->CeilingOf(node.address)) > limit;
  if (around_.plan.registry != Registry::kFixed) return false;
  // Or another directory did, under the number that this address has.
  const auto tree = zookeeper::Tree::Make("sim");
  const auto hold = around_.ensemble.tree().Find(tree->Address(node.address));
  const auto address = hold ? zookeeper::ParseAddress(hold->data) : Error{};
  if (!address.ok() || !address->worker) return false;
  const auto record = around_.ensemble.tree().Find(tree->Ceiling(*address->worker));
  const auto ceiling = record ? zookeeper::ParseCeiling(record->data) : Error{};
  return ceiling.ok() && ceiling->ceiling && *ceiling->ceiling > limit;
}

void Cluster::CheckRecovery(Nanos patience) {
  const Nanos deadline = world_.now() + patience;
  std::size_t checking = 0;
  for (const auto& node : nodes_) {
    if (node->java) continue;
    ++checking;
    world_.Spawn(&outside_, [this, &node = *node, deadline, &checking] {
      CheckRecoveryOf(node, deadline);
      --checking;
    });
  }
  while (checking > 0) world_.Block(outside_, 100 * kMilli);
}

void Cluster::CheckRecoveryOf(Node& node, Nanos deadline) {
  std::vector<std::string> wanted = around_.tags;
  if (around_.plan.near_end) std::erase(wanted, around_.tags.front());
  wanted.emplace_back();
  const bool burnt = IsBurnt(node);
  for (const std::string& tag : wanted) {
    std::string why;
    while (!node.daemon || !node.daemon->Try(tag, why)) {
      if (!node.daemon && node.last_failure) why = node.last_failure->message;
      // Its number is that of a directory which is lost, or of a copy.
      if (why.find("belongs to another state directory") != std::string::npos ||
          why.find("belongs to state directory") != std::string::npos)
        ReleaseWorkerOf(node);
      if (node.daemon && why.find("is paused on this node") != std::string::npos)
        node.daemon->SetPaused(tag, false);
      // It has stopped rather than repeat, until an operator starts it again.
      if (tag.empty() && node.daemon &&
          (why.find("another node has used the number") != std::string::npos ||
           why.find("is no longer this node's") != std::string::npos ||
           why.find("while the registry could not be asked") != std::string::npos ||
           why.find("and the registry gives it") != std::string::npos))
        node.daemon->Terminate();
      if (world_.now() >= deadline) {
        // A daemon whose snowflake mode cannot start does not start.
        if (burnt || IsBurnt(node)) break;
        around_.history.Broken(
            fmt::format("P7: node {} gives no {} long after everything was put right: {} ({})", node.number,
                        tag.empty() ? "snowflake ID" : tag, why,
                        node.daemon ? node.daemon->Describe(tag) : "not running"));
        break;
      }
      world_.Block(outside_, 200 * kMilli);
    }
  }
}

// An incarnation that was raised although ZooKeeper never went back.
void Cluster::CheckAlarms() {
  if (around_.plan.GoesBack()) return;
  const auto node = around_.ensemble.tree().Find(zookeeper::Tree::Make("sim")->Incarnation());
  if (!node) return;
  const auto record = zookeeper::ParseIncarnation(node->data);
  if (!record.ok() || record->number != 1) {
    around_.history.Broken(fmt::format("P4: the incarnation was raised, and ZooKeeper never went back: {}",
                                       record.ok() ? record->why : record.error().message));
  }
}

void Cluster::CheckNumbers() {
  // Java may make one for an address at the same moment.
  if (around_.plan.java_nodes > 0) return;
  const auto tree = zookeeper::Tree::Make("sim");
  std::map<std::string, int> numbers;
  for (const std::string& name : around_.ensemble.tree().Children(tree->Forever())) {
    if (const auto parsed = zookeeper::ParseForeverName(name)) ++numbers[parsed->address];
  }
  for (const auto& [address, count] : numbers) {
    if (count > 1)
      around_.history.Broken(fmt::format("P8: {} has used up {} numbers of Leaf's tree", address, count));
  }
}

void Cluster::KillAll() {
  for (const auto& node : nodes_) {
    if (Process* const process = node->process()) world_.Kill(*process);
  }
  for (const auto& shots : one_shots_) world_.Kill(shots->process);
}

}  // namespace leaf::sim
