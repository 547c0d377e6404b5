#include "sim/ensemble.h"

#include <utility>

#include "leaf/zookeeper/session.h"

namespace leaf::sim {
namespace {

constexpr std::size_t kOldTrees = 8;
constexpr Nanos kTreeBackupInterval = kSecond;
constexpr Nanos kOldestTreeBackup = 120 * kSecond;

Error ZooKeeperAway() { return {ErrorCode::kUnavailable, "ZooKeeper is away", ""}; }
Error ReplyLost() { return {ErrorCode::kOutcomeUnknown, "the reply of ZooKeeper was lost", ""}; }

}  // namespace

void Ensemble::Live(const Process& outside) {
  while (true) {
    world_.Block(outside, 500 * kMilli);
    if (is_behind > 0) {
      old_trees_.push_back(tree_.Snapshot());
      if (old_trees_.size() > kOldTrees) old_trees_.pop_front();
    }
    if (keeps_backups && (backups_.empty() || world_.now() - backups_.back().at >= kTreeBackupInterval)) {
      backups_.push_back({world_.now(), tree_.Snapshot()});
      if (world_.now() - backups_.front().at > kOldestTreeBackup) backups_.pop_front();
    }
    std::erase_if(orphans_, [&](const auto& orphan) {
      if (world_.now() < orphan.second) return false;
      tree_.EndSession(orphan.first);
      return true;
    });
    // Servers that are away count no time: sessions go on when they are back.
    if (away) {
      for (auto& [id, session] : sessions_) session.heard_at = world_.now();
    }
    std::vector<std::int64_t> run_out;
    for (const auto& [id, session] : sessions_) {
      if (world_.now() - session.heard_at > kSessionTimeout) run_out.push_back(id);
    }
    for (const std::int64_t id : run_out) End(id);
  }
}

void Ensemble::GoBack() {
  ++incarnation_;
  went_back_at_ = world_.now();
  for (const auto& [id, session] : sessions_) orphans_.emplace(id, world_.now() + kSessionTimeout);
  sessions_.clear();
  old_trees_.clear();
}

void Ensemble::Restore(Nanos age) {
  if (backups_.empty()) return;
  while (backups_.size() > 1 && backups_.back().at > world_.now() - age) backups_.pop_back();
  GoBack();
  tree_.Restore(backups_.back().nodes);
  // Sessions of the backup that had ended since: the servers know them again, and no client speaks in them.
  for (const auto& [path, node] : backups_.back().nodes) {
    if (node.stat.ephemeral_owner != 0) orphans_[node.stat.ephemeral_owner] = world_.now() + kSessionTimeout;
  }
}

void Ensemble::Wipe() {
  GoBack();
  tree_.Wipe();
}

std::int64_t Ensemble::Open(std::uint64_t node) {
  const std::int64_t id = tree_.NewSession();
  sessions_[id] = {node, world_.now()};
  return id;
}

void Ensemble::End(std::int64_t session) {
  if (sessions_.erase(session) > 0) tree_.EndSession(session);
}

void Ensemble::Expire(std::uint64_t node) {
  std::vector<std::int64_t> of_node;
  for (const auto& [id, session] : sessions_) {
    if (session.node == node) of_node.push_back(id);
  }
  for (const std::int64_t id : of_node) End(id);
}

std::optional<testing::MemoryZooKeeper::Nodes> Ensemble::SomeOldTree() {
  if (old_trees_.empty() || !world_.dice().Chance(is_behind)) return std::nullopt;
  return old_trees_[world_.dice().Below(old_trees_.size())];
}

SimClient::SimClient(Ensemble& ensemble, Process& process, std::uint64_t node)
    : ensemble_(ensemble), process_(process), node_(node) {
  if (Reaches()) Open();
  ensemble_.world().Spawn(&process_, [this] { Keep(); });
}

// One that died leaves its session to run out.
SimClient::~SimClient() {
  if (!process_.dead) Close();
}

void SimClient::Open() {
  session_ = ensemble_.Open(node_);
  incarnation_ = ensemble_.incarnation_;
}

void SimClient::Close() { ensemble_.End(std::exchange(session_, 0)); }

void SimClient::Keep() {
  World& world = ensemble_.world();
  while (true) {
    world.Block(process_, Ensemble::kSessionTimeout / 4);
    if (!Reaches()) continue;
    if (incarnation_ != ensemble_.incarnation_ &&
        world.now() < ensemble_.went_back_at_ + NanosOf(zookeeper::kStaleMax))
      continue;
    if (ensemble_.Lives(session_)) {
      ensemble_.sessions_[session_].heard_at = world.now();
      continue;
    }
    Open();
    behind_ = ensemble_.SomeOldTree();
    behind_until_ = world.now() + world.dice().Around(kSecond);
    for (const auto& [id, listener] : std::map(listeners_)) listener();
  }
}

void SimClient::Travel() {
  World& world = ensemble_.world();
  world.Block(process_, world.dice().Between(100 * kMicro, 2 * kMilli));
}

Result<void> SimClient::Ask() {
  World& world = ensemble_.world();
  if (process_.dead) {
    world.Block(process_, 0);
    return ZooKeeperAway();
  }
  Travel();
  if (!Reaches() || process_.dead) {
    world.Block(process_, world.dice().Chance(0.5) ? kMilli : 2 * kSecond);
    return ZooKeeperAway();
  }
  if (!ensemble_.Lives(session_) || world.dice().Chance(ensemble_.refuses)) return ZooKeeperAway();
  ensemble_.sessions_[session_].heard_at = world.now();
  if (world.now() >= behind_until_) behind_.reset();
  return {};
}

std::optional<zookeeper::NodeData> SimClient::Look(const std::string& path) const {
  const auto found = behind_ ? testing::MemoryZooKeeper::FindIn(*behind_, path) : ensemble_.tree_.Find(path);
  if (!found) return std::nullopt;
  return zookeeper::NodeData{found->data, found->stat};
}

Result<std::optional<zookeeper::NodeData>> SimClient::Get(const std::string& path) {
  LEAF_RETURN_IF_ERROR(Ask());
  ++ensemble_.world().costs().reads;
  auto node = Look(path);
  Travel();
  return node;
}

Result<std::optional<zookeeper::NodeStat>> SimClient::Exists(const std::string& path) {
  LEAF_RETURN_IF_ERROR(Ask());
  ++ensemble_.world().costs().reads;
  const auto node = Look(path);
  Travel();
  return node ? std::optional(node->stat) : std::nullopt;
}

Result<std::optional<std::vector<std::string>>> SimClient::Children(const std::string& path) {
  LEAF_RETURN_IF_ERROR(Ask());
  std::optional<std::vector<std::string>> children;
  if (Look(path)) {
    children =
        behind_ ? testing::MemoryZooKeeper::ChildrenIn(*behind_, path) : ensemble_.tree_.Children(path);
  }
  Costs& costs = ensemble_.world().costs();
  ++costs.lists;
  if (children) costs.names += children->size();
  Travel();
  return children;
}

Result<std::vector<std::optional<zookeeper::NodeData>>> SimClient::GetAll(
    const std::vector<std::string>& paths) {
  LEAF_RETURN_IF_ERROR(Ask());
  ensemble_.world().costs().reads += paths.size();
  std::vector<std::optional<zookeeper::NodeData>> nodes;
  for (const std::string& path : paths) nodes.push_back(Look(path));
  Travel();
  return nodes;
}

Result<zookeeper::WriteOutcome> SimClient::Write(const std::vector<zookeeper::Operation>& operations) {
  LEAF_RETURN_IF_ERROR(Ask());
  World& world = ensemble_.world();
  ++world.costs().writes;
  if (world.dice().Chance(ensemble_.is_late)) {
    Ensemble& ensemble = ensemble_;
    world.Spawn(
        nullptr,
        [&ensemble, operations, session = session_] {
          // Of a session that has ended the servers take no write.
          if (ensemble.Lives(session)) ensemble.tree_.Apply(operations, session);
        },
        world.dice().Around(kSecond));
    Travel();
    return ReplyLost();
  }
  behind_.reset();
  auto outcome = ensemble_.tree_.Apply(operations, session_);
  world.Trace(outcome.done() ? 1 : 2);
  Travel();
  if (world.dice().Chance(ensemble_.loses_reply)) return ReplyLost();
  return outcome;
}

std::unique_ptr<zookeeper::Client::Subscription> SimClient::OnNewSession(std::function<void()> listener) {
  class Held final : public Subscription {
   public:
    Held(SimClient& client, int id) : client_(client), id_(id) {}
    ~Held() override { client_.listeners_.erase(id_); }

   private:
    SimClient& client_;
    const int id_;
  };
  listeners_.emplace(++next_listener_, std::move(listener));
  return std::make_unique<Held>(*this, next_listener_);
}

}  // namespace leaf::sim
