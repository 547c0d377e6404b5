#include "leaf/embed/node.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <utility>

namespace leaf::embed {
namespace {

// For a lock that no command holds: its holder may be ending.
constexpr std::chrono::milliseconds kLockWait{1000};
constexpr std::chrono::milliseconds kLockPoll{2};
// How long a start waits for the first claim before it goes on without a number.
constexpr std::chrono::seconds kFirstClaimWait{5};

}  // namespace

Result<sys::StateDirLock> LockStateDirForCommand(Environment& environment,
                                                 std::chrono::milliseconds timeout) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const std::string& state_dir = resolved->config.state_dir;
  const Clock& clock = environment.ClockInUse();
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(state_dir));
  const MonotonicTime begun = clock.Monotonic();
  while (true) {
    auto lock = sys::StateDirLock::Take(state_dir, sys::StateDirUse::kCommand);
    if (lock.ok() || lock.error().code != ErrorCode::kRefused) return lock;
    const auto holder = sys::StateDirLock::HolderOf(state_dir);
    const bool is_command = holder && holder->use == sys::StateDirUse::kCommand;
    const MonotonicTime now = clock.Monotonic();
    if (now >= begun + (is_command ? timeout : std::min(kLockWait, timeout))) return lock;
    clock.WaitUntil(now + kLockPoll);
  }
}

Result<std::unique_ptr<Node>> Node::Open(Environment& environment, const Plan& plan, Logger& log) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  std::unique_ptr<Node> node(new Node(environment.ClockInUse(), resolved->config.snowflake.lease_time, log));
  if (plan.segment) {
    LEAF_ASSIGN_OR_RETURN(node->segment_, SegmentAdapters::Open(environment, plan.process, log));
    node->node_.AddSegments(node->segment_->Ports());
  }
  if (plan.snowflake) {
    LEAF_ASSIGN_OR_RETURN(node->snowflake_, SnowflakeAdapters::Open(environment, plan.one_shot, log));
    node->node_.AddSnowflakes(node->snowflake_->Ports());
    // In a child of this process the generator must not go on.
    node->fork_guard_.emplace(
        [](void* service) { static_cast<service::SnowflakeService*>(service)->Abandon(); },
        node->node_.snowflake());
  }
  return node;
}

Node::~Node() { Stop(); }

void Node::WatchDependencies(service::IdService& ids) {
  if (segment_) ids.Watch([this] { return DependencyOf(segment_->store().database(), "database"); });
  if (cluster() != nullptr) ids.Watch([this] { return cluster()->Dependency(); });
  if (snowflake_ && snowflake_->registry().registry().remote()) ids.Watch([this] { return Registry(); });
}

service::Dependency Node::Registry() {
  service::Dependency dependency = snowflake_->registry().Dependency();
  const service::SnowflakeStatus status = snowflake()->Status();
  if (status.leased && status.has_worker && status.last_contact) {
    const auto age = clock_.Wall() - *status.last_contact;
    dependency.lease_left = std::max(lease_time_ - age, std::chrono::milliseconds{0});
  }
  return dependency;
}

Result<void> Node::StartSnowflakes() {
  // Shared with a task that may outlive the wait.
  struct First {
    std::promise<Result<void>> answer;
    std::atomic<bool> is_settled{false};  // by the answer, or by the end of the wait
  };
  const auto first = std::make_shared<First>();
  auto answer = first->answer.get_future();
  node_.StartSnowflakes([first](const Result<void>& result) {
    if (first->is_settled.exchange(true)) return false;
    first->answer.set_value(result);
    return true;
  });
  if (answer.wait_for(kFirstClaimWait) != std::future_status::ready && !first->is_settled.exchange(true))
    return {};
  return answer.get();
}

void Node::Announce(std::vector<std::string> urls) {
  if (cluster() == nullptr) return;
  announced_ = true;
  segment_->slow_workers().Post([this, urls = std::move(urls)] { cluster()->Announce(urls); });
}

void Node::RefreshEntry() {
  // One at a time: it waits for ZooKeeper.
  if (!announced_ || entry_refreshing_.exchange(true)) return;
  segment_->slow_workers().Post([this] {
    cluster()->Refresh();
    entry_refreshing_.store(false);
  });
}

void Node::Stop() {
  node_.Stop();
  if (std::exchange(announced_, false)) cluster()->Withdraw();
}

}  // namespace leaf::embed
