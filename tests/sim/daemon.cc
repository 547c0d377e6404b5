#include "sim/daemon.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/check.h"
#include "leaf/sql/worker_registry.h"
#include "leaf/sys/static_registry.h"
#include "leaf/zookeeper/registry_options.h"
#include "leaf/zookeeper/session.h"

namespace leaf::sim {
namespace {

using std::chrono::milliseconds;

// As server.request_timeout and server.leaf_wait have them.
constexpr service::ParkLimits kWait{.wait = milliseconds{2000}, .wait_while_failing = milliseconds{10}};
constexpr milliseconds kSnowflakeWait{1000};
// What "auto" comes to with the default time-outs.
constexpr milliseconds kSqlClaimWatch{22'000};

zookeeper::Tree ClusterTree() {
  auto tree = zookeeper::Tree::Make("sim");
  LEAF_CHECK(tree.ok());
  return *tree;
}

std::string UrlOf(std::uint64_t node) { return "sim://" + std::to_string(node); }

class SimPeerClocks final : public core::PeerClocks {
 public:
  SimPeerClocks(const Surroundings& around, const Process& process, const Clock& clock)
      : around_(around), process_(process), clock_(clock) {}
  std::vector<core::PeerClock> Ask(std::span<const core::Peer> peers) override {
    std::vector<core::PeerClock> answers;
    around_.world.Block(process_, around_.world.dice().Between(kMilli, 20 * kMilli));
    for (const core::Peer& peer : peers) {
      if (const Machine* const machine = around_.find_peer(peer.url))
        answers.push_back({peer.address, machine->Wall() - clock_.Wall(), milliseconds{10}});
    }
    return answers;
  }

 private:
  const Surroundings& around_;
  const Process& process_;
  const Clock& clock_;
};

// A caller that waits for its answer.
template <typename T>
struct Answer {
  std::optional<Result<T>> result;
  Task* waiting = nullptr;
};

}  // namespace

std::chrono::milliseconds SegmentWatchOf(const Plan& plan) {
  return plan.claim_watch.value_or(zookeeper::kStaleMax + zookeeper::kOwnerMargin);
}

Daemon::Daemon(Surroundings& around, const DaemonSetting& setting)
    : around_(around),
      setting_(setting),
      process_(fmt::format("node{}", setting.node), around.next_process++),
      issuer_{process_.number, setting.node, setting.state.number, false},
      order_node_{
          .id = fmt::format("p{}", process_.number),
          .process = fmt::format("leafctl serve, process {} on host{}", process_.number, setting.node),
          .place = fmt::format("host{}:{}", setting.node, setting.state.number),
          .fallback = around.plan.fence == Fence::kFallback,
          .acknowledged = 0,
          .since = {}},
      log_(around.world, process_, around.loud),
      random_(around.world.dice().Next()),
      disk_(around.world, process_, setting.state.disk,
            std::chrono::duration_cast<std::chrono::nanoseconds>(around.plan.flush).count()),
      state_file_(StateDir::kPath, disk_),
      paused_file_(StateDir::kPath, disk_),
      paused_(paused_file_),
      marks_(around.world, process_, setting.state.marks, around.history, issuer_),
      sql_(around.sql == nullptr ? nullptr
                                 : std::make_unique<SqlPorts>(*around.sql, process_, setting.node,
                                                              setting.machine, log_, OnReserved())),
      plain_store_(around.sql != nullptr ? nullptr
                                         : std::make_unique<SimSegmentStore>(around.database, process_,
                                                                             setting.node, OnReserved())),
      plain_orders_(around.database, process_, setting.node),
      store_(sql_ ? sql_->store() : *plain_store_),
      zookeeper_(around.ensemble, process_, setting.node),
      tree_(ClusterTree()),
      membership_(
          tree_,
          {.host = setting.machine.name(), .process = process_.name, .watch = SegmentWatchOf(around.plan)},
          zookeeper_, marks_, setting.machine, random_, log_),
      witness_(tree_, process_.name, zookeeper_, setting.machine, &membership_),
      fence_(witness_, around.plan.fence == Fence::kFallback, setting.machine, random_, log_, &membership_),
      node_(setting.machine, log_),
      door_(around.access == nullptr
                ? nullptr
                : std::make_unique<Door>(around.world, *around.access, setting.machine, around.history,
                                         setting.node, !around.plan.RemovesTags())),
      timers_(around.world, process_, setting.machine, 1),
      workers_(around.world, process_, setting.machine, 4),
      slow_workers_(around.world, process_, setting.machine, 2),
      refresher_(around.world, process_, setting.machine, 1),
      cluster_(around.world, process_, setting.machine, 1),
      snowflake_timers_(around.world, process_, setting.machine, 1),
      ceilings_(around.world, process_, setting.machine, 1),
      registry_worker_(around.world, process_, setting.machine, 1),
      peer_worker_(around.world, process_, setting.machine, 1) {}

WatchedStore::OnReserved Daemon::OnReserved() {
  return [this](std::string_view tag, const IdRange& range) { marks_.Reserved(tag, range); };
}

Daemon::~Daemon() {
  LEAF_CHECK(ended());
  *gone_ = true;
}

void Daemon::Launch() {
  around_.world.Spawn(&process_, [this] { Main(); });
}

service::SegmentOptions Daemon::SegmentOptionsOf() {
  service::SegmentOptions options;
  if (around_.plan.fence != Fence::kNode) options.fence = &fence_;
  if (around_.plan.HasOrders()) {
    options.orders = &plain_orders_;
    if (sql_) options.orders = &sql_->orders();
    options.order_node = order_node_;
  }
  if (around_.plan.PausesTags()) options.paused = &paused_;
  options.refresh_interval = around_.plan.refresh_interval;
  options.step_policy =
      around_.plan.fixed_step ? core::StepPolicy::Kind::kFixed : core::StepPolicy::Kind::kLeaf;
  return options;
}

service::SnowflakeOptions Daemon::SnowflakeOptionsOf() {
  service::SnowflakeOptions options;
  options.cluster = {.name = "sim", .registry = "zookeeper", .layout = {}};
  options.address = setting_.address;
  options.window = around_.plan.window;
  if (!around_.plan.offline_start) options.offline_start_max = {};
  options.boot_id = setting_.machine.boot_id();
  options.machine = setting_.machine.name();
  options.accepted_offset = [this] { return setting_.machine.accepted; };
  return options;
}

void Daemon::OpenRegistry() {
  OpenRegistryOf(around_.plan.registry);
  if (around_.plan.peer_clocks && peers_ != nullptr) {
    peer_clocks_ = std::make_unique<SimPeerClocks>(around_, process_, setting_.machine);
  }
}

void Daemon::OpenRegistryOf(Registry registry) {
  if (registry == Registry::kStatic) {
    registry_ = std::make_unique<sys::StaticRegistry>(kFirstWorker + setting_.node,
                                                      std::map<std::string, std::int64_t>{});
    return;
  }
  if (registry == Registry::kMap) {
    registry_ = std::make_unique<sys::StaticRegistry>(std::nullopt, around_.workers);
    return;
  }
  if (registry == Registry::kSql) {
    sql::SqlRegistryOptions options;
    if (around_.plan.workers > 0) options.worker_end = around_.plan.workers;
    options.host = setting_.machine.name();
    options.url = UrlOf(setting_.node);
    options.claim_watch = around_.plan.claim_watch.value_or(kSqlClaimWatch);
    auto sql =
        std::make_unique<sql::SqlWorkerRegistry>(sql_->registry_database(), options, setting_.machine, log_);
    peers_ = sql.get();
    registry_ = std::move(sql);
    return;
  }
  zookeeper::RegistryOptions registry_options;
  registry_options.advertise = UrlOf(setting_.node);
  registry_options.host = setting_.machine.name();
  registry_options.lease_time = around_.plan.lease_time;
  registry_options.claim_watch = around_.plan.claim_watch;
  registry_options.window = around_.plan.window;
  if (around_.plan.workers > 0) {
    registry_options.worker_begin = kFirstWorker;
    registry_options.worker_end = kFirstWorker + around_.plan.workers;
  }
  if (registry == Registry::kFixed) {
    auto fixed =
        std::make_unique<zookeeper::FixedRegistry>(registry_options, zookeeper_, setting_.machine, log_);
    peers_ = fixed.get();
    registry_ = std::move(fixed);
  } else {
    auto lease =
        std::make_unique<zookeeper::LeaseRegistry>(registry_options, zookeeper_, setting_.machine, log_);
    peers_ = lease.get();
    registry_ = std::move(lease);
  }
}

void Daemon::Main() {
  if (around_.plan.PausesTags()) {
    if (const auto loaded = paused_.Load(); !loaded.ok()) {
      failure_ = loaded.error();
      done_ = true;
      return;
    }
  }
  node_.AddSegments({.options = SegmentOptionsOf(),
                     .store = store_,
                     .marks = marks_,
                     .random = random_,
                     .executors = {timers_, workers_, slow_workers_, refresher_, &cluster_}});
  OpenRegistry();
  std::optional<service::SnowflakePorts::Peers> peers;
  if (peer_clocks_) peers.emplace(service::SnowflakePorts::Peers{{}, *peers_, *peer_clocks_});
  node_.AddSnowflakes({.options = SnowflakeOptionsOf(),
                       .registry = *registry_,
                       .state_file = state_file_,
                       .random = random_,
                       .executors = {snowflake_timers_, ceilings_, registry_worker_},
                       .peer_worker = peer_worker_,
                       .peers = peers});
  if (door_) {
    door_->Open(node_);
    door_->Load();
  }
  node_.StartSegments();
  // As embed::Node: it waits for so long.
  const Nanos waits_until = around_.world.now() + 5 * kSecond;
  node_.StartSnowflakes([this, waits_until](const Result<void>& started) {
    if (started.ok() || around_.world.now() > waits_until) return false;
    failure_ = started.error();
    return true;
  });
  serving_ = true;
  for (std::size_t i = 0; i < setting_.seen.size(); ++i) {
    ++connections_;
    around_.world.Spawn(&process_, [this, i] { Connection(i); });
  }
  while (!terminating_ && !failure_) around_.world.Block(process_, 2 * around_.plan.look);
  if (failure_) log_.Error("cannot start: {}", failure_->message);
  terminating_ = true;
  // Drains: connections that are being served are waited for.
  while (connections_ > 0) around_.world.Block(process_, kMilli);
  StopAll();
  done_ = true;
}

void Daemon::StopAll() {
  node_.Stop();
  zookeeper_.Close();
  marks_.Close();
  // The rest of its tasks are the client's.
  process_.dead = true;
  around_.world.Kill(process_);
}

void Daemon::Connection(std::size_t index) {
  Seen& seen = setting_.seen[index];
  Dice& dice = around_.world.dice();
  std::optional<Door::Visit> visit;
  while (!terminating_) {
    around_.world.Block(process_, dice.Around(around_.plan.think_time));
    if (terminating_) break;
    const auto count = static_cast<std::uint64_t>(
        dice.Chance(0.5) ? 1 : dice.Between(1, static_cast<std::int64_t>(around_.plan.batch_max)));
    if (dice.Chance(0.5)) {
      const std::string& tag = around_.tags[dice.Below(around_.tags.size())];
      if (!IsRefused(visit, tag, count)) AskSegment(seen, tag, count, nullptr);
    } else {
      // Now and then more than a millisecond holds.
      const std::uint64_t many = dice.Chance(0.02) ? 5000 : count;
      if (!IsRefused(visit, "", many)) AskSnowflake(seen, many, nullptr);
    }
  }
  --connections_;
}

bool Daemon::IsRefused(std::optional<Door::Visit>& visit, const std::string& tag, std::uint64_t count) {
  if (!door_) return false;
  if (!visit || around_.world.dice().Chance(0.02)) visit.emplace(*door_, around_.access->DrawCredential());
  const auto error = door_->Ask(*visit, tag, count);
  if (!error) return false;
  ++around_.requests;
  ++around_.errors;
  around_.world.Trace(static_cast<std::uint64_t>(error->code));
  return true;
}

void Daemon::CheckOrder(Seen& seen, const std::string& tag, std::uint64_t first, std::uint64_t last) {
  auto& before = seen.last[tag];
  if (before != 0 && first <= before) {
    around_.history.Broken(fmt::format("P5: node {} gave {} {} after {}", setting_.node,
                                       tag.empty() ? "snowflake" : tag, first, before));
  }
  before = last;
}

void Daemon::CheckTake(const std::string& tag, std::optional<std::uint64_t> left) {
  // At a failpoint a take is overtaken by what puts an end to it.
  if (around_.plan.preemption > 0) return;
  const auto status = node_.segment()->StatusOf(tag);
  if (status && status->state == "frozen")
    around_.history.Broken(fmt::format("P4: node {} gave IDs of {}, which is frozen", setting_.node, tag));
  if (status && left && status->reserve != *left) {
    around_.history.Broken(
        fmt::format("P3: a take from {} on node {} had to leave {} IDs in reserve, and left {}", tag,
                    setting_.node, *left, status->reserve));
  }
  // One refresh may have been under way.
  if (const std::uint64_t lists = store_.ListsWithout(tag); lists > 2) {
    around_.history.Broken(
        fmt::format("P4: node {} gave IDs of {}, which its last {} looks at the table did not find",
                    setting_.node, tag, lists));
  }
}

void Daemon::CheckRefusal(const std::string& tag, const Error& error, Nanos asked_at, std::uint64_t sent) {
  if (error.code == ErrorCode::kPaused && setting_.state.pauses.ForbidsRefusal(tag, sent)) {
    around_.history.Broken(
        fmt::format("P3: node {} says that {} is paused, which it is not", setting_.node, tag));
  }
  if (error.code == ErrorCode::kFrozen && !around_.history.HasGoneBack(tag)) {
    around_.history.Broken(fmt::format("P4: node {} has frozen {}, which has never gone back: {}",
                                       setting_.node, tag, error.message));
  }
  // While grants fail a request waits for a shorter time, and says so.
  const Nanos waited = around_.world.now() - asked_at;
  if (error.code == ErrorCode::kExhausted && error.message.ends_with("no grant came in time") &&
      waited < NanosOf(kWait.wait)) {
    around_.history.Broken(
        fmt::format("P3: node {} refused a request for {} after {:.3f} s, and no grant had failed",
                    setting_.node, tag, static_cast<double>(waited) / 1e9));
  }
}

void Daemon::LeaveLine(const std::string& tag, std::uint64_t number, bool served) {
  std::set<std::uint64_t>& line = lines_[tag];
  // At a failpoint one that is served later may be told first; at the end of all numbers small requests are
  // served although a large one cannot be.
  if (served && *line.begin() < number && around_.plan.preemption == 0 && !around_.plan.near_end) {
    around_.history.Broken(fmt::format("P5: node {} served a request for {} before one that had come earlier",
                                       setting_.node, tag));
  }
  line.erase(number);
}

bool Daemon::AskSegment(Seen& seen, const std::string& tag, std::uint64_t count, std::string* why) {
  World& world = around_.world;
  ++around_.requests;
  const std::uint64_t sent = around_.history.Sent();
  const bool contiguous = around_.plan.contiguous && count % 2 == 0;
  // P3: what is in reserve is had at once: so many IDs are left then. Other takers may come in between at a
  // failpoint.
  const std::optional<std::uint64_t> must_leave = [&]() -> std::optional<std::uint64_t> {
    if (around_.plan.preemption > 0 || world.dice().Chance(0.7) || contiguous) return std::nullopt;
    const auto status = node_.segment()->StatusOf(tag);
    if (!status || status->state != "active" || status->waiting > 0 || status->reserve < count ||
        status->problem)
      return std::nullopt;
    return status->reserve - count;
  }();
  const auto deliver = [&](const IdSpans& spans) {
    if (process_.dead) return;  // no client hears it
    if (setting_.state.pauses.ForbidsIds(tag, sent)) {
      around_.history.Broken(
          fmt::format("P4: node {} gave IDs of {}, which is paused there", setting_.node, tag));
    }
    if (contiguous && spans.ranges().size() != 1) {
      around_.history.Broken(fmt::format("P5: node {} gave {} IDs of {} in {} ranges, not in one",
                                         setting_.node, count, tag, spans.ranges().size()));
    }
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    for (const IdRange& range : spans.ranges()) {
      around_.history.Issued(issuer_, tag, range);
      world.Trace(range.begin);
      if (first == 0) first = range.begin;
      last = range.end - 1;
    }
    CheckOrder(seen, tag, first, last);
    if (around_.plan.HasOrders()) around_.history.Answered(issuer_, tag, sent, first, last);
  };
  IdSpans spans;
  if (contiguous ? node_.segment()->TryNextContiguous(tag, count, spans)
                 : node_.segment()->TryNext(tag, count, spans)) {
    CheckTake(tag, must_leave);
    deliver(spans);
    return true;
  }
  if (must_leave) {
    around_.history.Broken(
        fmt::format("P3: {} of {} were in reserve on node {}, and not given", count, tag, setting_.node));
  }
  const Nanos asked_at = world.now();
  const std::uint64_t number = next_in_line_++;
  lines_[tag].insert(number);
  const auto answer = std::make_shared<Answer<IdSpans>>();
  const service::ParkedRequest parked = node_.segment()->Next(
      tag, {count, contiguous}, kWait, [this, tag, number, answer, &world](Result<IdSpans> result) {
        LEAF_CHECK(!answer->result);
        LeaveLine(tag, number, result.ok());
        answer->result = std::move(result);
        if (answer->waiting != nullptr) world.Wake(answer->waiting);
      });
  // Some leave.
  const bool impatient = world.dice().Chance(0.05);
  const Nanos left_at = world.now() + world.dice().Around(200 * kMilli);
  const Nanos stuck_at = world.now() + 60 * kSecond;
  while (!answer->result) {
    if (impatient && world.now() >= left_at) parked.Withdraw();
    if (answer->result) break;
    answer->waiting = world.current();
    world.Block(process_, impatient ? std::max(left_at - world.now(), kMilli) : 10 * kSecond);
    answer->waiting = nullptr;
    if (!answer->result && world.now() >= stuck_at) {
      around_.history.Broken(
          fmt::format("P3: a request for {} on node {} has waited for a minute", tag, setting_.node));
      return false;
    }
  }
  if (!answer->result->ok()) {
    ++around_.errors;
    world.Trace(static_cast<std::uint64_t>(answer->result->error().code));
    CheckRefusal(tag, answer->result->error(), asked_at, sent);
    if (why != nullptr) *why = answer->result->error().message;
    return false;
  }
  deliver(**answer->result);
  return true;
}

bool Daemon::AskSnowflake(Seen& seen, std::uint64_t count, std::string* why) {
  World& world = around_.world;
  ++around_.requests;
  const auto deliver = [&](const core::SnowflakeRun& run) {
    if (process_.dead) return;  // no client hears it
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    for (const IdRange& range : run.source->RangesOf(run)) {
      around_.history.IssuedSnowflake(issuer_, run.source, range, setting_.machine.Wall(),
                                      around_.plan.window);
      world.Trace(range.begin);
      if (first == 0) first = range.begin;
      last = range.end - 1;
    }
    CheckOrder(seen, "", first, last);
  };
  core::SnowflakeRun run;
  const bool must_succeed = [&] {
    if (count != 1 || waiting_for_snowflake_ > 0 || !node_.snowflake()->CanIssue().ok()) return false;
    const auto status = node_.snowflake()->Status();
    return status.lead == milliseconds{0} && status.ceiling > setting_.machine.Wall();
  }();
  if (node_.snowflake()->TryNext(count, run)) {
    deliver(run);
    return true;
  }
  if (must_succeed) {
    around_.history.Broken(fmt::format("P3: node {} could issue a snowflake ID, and did not", setting_.node));
  }
  const auto answer = std::make_shared<Answer<core::SnowflakeRun>>();
  ++waiting_for_snowflake_;
  node_.snowflake()->Next(count, kSnowflakeWait, [this, answer, &world](Result<core::SnowflakeRun> result) {
    LEAF_CHECK(!answer->result);
    answer->result = std::move(result);
    --waiting_for_snowflake_;
    if (answer->waiting != nullptr) world.Wake(answer->waiting);
  });
  const Nanos stuck_at = world.now() + 60 * kSecond;
  while (!answer->result) {
    answer->waiting = world.current();
    world.Block(process_, 10 * kSecond);
    answer->waiting = nullptr;
    if (!answer->result && world.now() >= stuck_at) {
      around_.history.Broken(
          fmt::format("P3: a snowflake request on node {} has waited for a minute", setting_.node));
      return false;
    }
  }
  if (!answer->result->ok()) {
    ++around_.errors;
    world.Trace(static_cast<std::uint64_t>(answer->result->error().code));
    if (why != nullptr) *why = answer->result->error().message;
    return false;
  }
  deliver(**answer->result);
  return true;
}

bool Daemon::SetPaused(const std::string& tag, bool paused) {
  if (!serves()) return false;
  struct Attempt {
    bool done = false;
    bool ok = false;
  };
  const auto attempt = std::make_shared<Attempt>();
  ++connections_;
  around_.world.Spawn(&process_, [this, attempt, tag, paused] {
    while (pausing_) around_.world.Block(process_, kMilli);
    pausing_ = true;
    setting_.state.pauses.Begin(tag);
    const auto set = node_.segment()->SetPaused(tag, paused, "an operator");
    if (set.ok()) setting_.state.pauses.End(tag, paused, around_.history.Sent());
    pausing_ = false;
    attempt->ok = set.ok();
    attempt->done = true;
    --connections_;
  });
  World& world = around_.world;
  const auto gone = gone_;
  while (!attempt->done && !*gone && !process_.dead) world.Sleep(5 * kMilli);
  return attempt->ok;
}

void Daemon::Reload(milliseconds refresh_interval, milliseconds reserve_time) {
  if (!serves()) return;
  ++connections_;
  around_.world.Spawn(&process_, [this, refresh_interval, reserve_time] {
    node_.segment()->Reconfigure(refresh_interval, reserve_time);
    --connections_;
  });
}

void Daemon::LoadAccess() {
  if (!serves()) return;
  ++connections_;
  around_.world.Spawn(&process_, [this] {
    door_->Load();
    --connections_;
  });
}

bool Daemon::Try(const std::string& tag, std::string& why) {
  if (!serves()) {
    why = failure_ ? failure_->message : "it does not serve";
    return false;
  }
  if (door_) door_->CheckOwner(tag);
  // A caller of its own: nothing it has seen before is above.
  struct Attempt {
    Seen seen;
    std::string why;
    bool done = false;
    bool had = false;
  };
  const auto attempt = std::make_shared<Attempt>();
  ++connections_;
  around_.world.Spawn(&process_, [this, attempt, tag] {
    attempt->had = tag.empty() ? AskSnowflake(attempt->seen, 1, &attempt->why)
                               : AskSegment(attempt->seen, tag, 1, &attempt->why);
    attempt->done = true;
    --connections_;
  });
  World& world = around_.world;
  const auto gone = gone_;
  for (int i = 0; i < 100 && !attempt->done && !*gone && !process_.dead; ++i) world.Sleep(50 * kMilli);
  why = attempt->why;
  return attempt->had;
}

std::string Daemon::Describe(const std::string& tag) {
  if (tag.empty()) {
    if (node_.snowflake() == nullptr) return "";
    const auto status = node_.snowflake()->Status();
    return fmt::format("worker {}, {}, {}", status.worker, status.state,
                       status.problem ? status.problem->message : "no problem");
  }
  const auto status = node_.segment() != nullptr ? node_.segment()->StatusOf(tag) : std::nullopt;
  if (!status) return "not known";
  return fmt::format("{}, reserve {}, max_id {}, mark {}, witness {}, {}", status->state, status->reserve,
                     status->max_id, status->mark, status->witness,
                     status->problem ? status->problem->message : "no problem");
}

}  // namespace leaf::sim
