#include "sim/java_leaf.h"

#include <fmt/format.h>

#include <utility>

namespace leaf::sim {

JavaLeaf::JavaLeaf(Surroundings& around, std::uint64_t node, std::string address, Machine& machine,
                   std::optional<std::uint64_t>& local_worker)
    : around_(around),
      node_(node),
      address_(std::move(address)),
      machine_(machine),
      local_worker_(local_worker),
      process_(fmt::format("java{}", node), around.next_process++),
      // One that restarts is another issuer: nothing is promised of it.
      issuer_{process_.number, node, 1'000'000 + process_.number, true} {}

void JavaLeaf::Launch() {
  around_.world.Spawn(&process_, [this] {
    worker_ = Register();
    if (worker_ && *worker_ >= layout_.worker_end()) worker_.reset();
    if (!path_.empty()) around_.world.Spawn(&process_, [this] { Report(); });
    Serve();
  });
}

bool JavaLeaf::Reaches() const { return !around_.ensemble.away && !around_.ensemble.cut_off.contains(node_); }

std::optional<std::uint64_t> JavaLeaf::Register() {
  const auto worker = TryRegister();
  if (worker) local_worker_ = worker;
  // Any trouble at all: the number in the local file, without a look at any clock.
  return worker ? worker : local_worker_;
}

std::optional<std::uint64_t> JavaLeaf::TryRegister() {
  World& world = around_.world;
  if (around_.plan.registry == Registry::kSql) return TryRegisterInTable();
  testing::MemoryZooKeeper& tree = around_.ensemble.tree();
  const auto travel = [&] { world.Block(process_, world.dice().Between(kMilli, 5 * kMilli)); };
  travel();
  if (!Reaches()) return std::nullopt;
  const std::string forever = "/snowflake/sim/forever";
  const std::string data = zookeeper::FormatForeverData(address_, machine_.Wall());
  if (!tree.Find(forever)) {
    // The race of the first start: the number of the node that it makes is not looked at.
    tree.Apply({zookeeper::Operation::Create("/snowflake", "")}, 0);
    tree.Apply({zookeeper::Operation::Create("/snowflake/sim", "")}, 0);
    travel();
    tree.Apply({zookeeper::Operation::Create(forever, "")}, 0);
    path_ = tree.CreateSequential(forever + "/" + address_ + "-", data);
    return 0;
  }
  travel();
  for (const std::string& name : tree.Children(forever)) {
    // Java splits at the dash; a name without one ends its start.
    const std::size_t dash = name.find('-');
    if (dash == std::string::npos) return std::nullopt;
    if (name.substr(0, dash) != address_) continue;
    const auto node = tree.Find(forever + "/" + name);
    if (!node) return std::nullopt;
    const auto known = zookeeper::ParseForeverData(node->data);
    if (!known.ok() || known->timestamp_ms > UnixMillis(machine_.Wall())) return std::nullopt;
    path_ = forever + "/" + name;
    return std::stoull(name.substr(dash + 1));
  }
  travel();
  path_ = tree.CreateSequential(forever + "/" + address_ + "-", data);
  return std::stoull(path_.substr(path_.rfind('-') + 1));
}

// Leaf's best-known fork (leaf-compat 3.4).
std::optional<std::uint64_t> JavaLeaf::TryRegisterInTable() {
  World& world = around_.world;
  world.Block(process_, world.dice().Between(kMilli, 5 * kMilli));
  if (!ReachesDatabase()) return std::nullopt;
  const auto worker = around_.sql->ForkNumber(node_, address_, UnixMillis(machine_.Wall()));
  if (worker) around_.world.Spawn(&process_, [this, number = *worker] { ReportInTable(number); });
  world.Block(process_, world.dice().Between(kMilli, 5 * kMilli));
  return worker;
}

bool JavaLeaf::ReachesDatabase() const {
  return !around_.database.away && !around_.database.cut_off.contains(node_);
}

void JavaLeaf::ReportInTable(std::uint64_t worker) {
  World& world = around_.world;
  while (true) {
    world.Block(process_, 3 * kSecond);
    if (const WallTime now = machine_.Wall(); ReachesDatabase() && now >= reported_at_) {
      around_.sql->ForkReport(node_, worker, UnixMillis(now));
      reported_at_ = now;
    }
  }
}

void JavaLeaf::Report() {
  World& world = around_.world;
  world.Block(process_, kSecond);
  while (true) {
    if (const WallTime now = machine_.Wall(); Reaches() && now >= reported_at_) {
      around_.ensemble.tree().Apply(
          {zookeeper::Operation::Set(path_, zookeeper::FormatForeverData(address_, now),
                                     zookeeper::Operation::kAnyVersion)},
          0);
      reported_at_ = now;
    }
    world.Block(process_, 3 * kSecond);
  }
}

void JavaLeaf::Serve() {
  World& world = around_.world;
  while (true) {
    world.Block(process_, world.dice().Around(30 * kMilli));
    if (world.dice().Chance(0.5)) {
      TakeSegment();
    } else {
      TakeSnowflake();
    }
  }
}

void JavaLeaf::TakeSegment() {
  World& world = around_.world;
  const std::string& tag = around_.tags[world.dice().Below(around_.tags.size())];
  IdRange& range = ranges_[tag];
  if (range.empty()) {
    world.Block(process_, world.dice().Between(kMilli, 5 * kMilli));
    if (!ReachesDatabase()) return;
    const auto grant = around_.database.RaiseByStep(node_, tag);
    if (!grant.ok()) return;
    range = grant->range;
    around_.history.Granted(issuer_, tag, range);
  }
  around_.history.Issued(issuer_, tag, {range.begin, range.begin + 1});
  ++range.begin;
}

void JavaLeaf::TakeSnowflake() {
  if (!worker_) return;
  const std::int64_t now = UnixMillis(machine_.Wall()) - layout_.epoch_ms();
  if (now < last_time_) return;  // "clock moved backwards"
  if (now == last_time_) {
    if (++sequence_ >= layout_.sequence_end()) return;
  } else {
    sequence_ = around_.world.dice().Below(100);
  }
  last_time_ = now;
  const std::uint64_t id = layout_.ComposeChecked(now, *worker_, sequence_);
  around_.history.IssuedSnowflake(issuer_, this, {id, id + 1}, machine_.Wall(), std::chrono::milliseconds{0});
}

}  // namespace leaf::sim
