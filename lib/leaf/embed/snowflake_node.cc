#include "leaf/embed/snowflake_node.h"

#include <algorithm>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leaf/client/clock_probe.h"
#include "leaf/sys/boot_id.h"
#include "leaf/sys/clock_acceptance.h"

namespace leaf::embed {
namespace {

constexpr std::chrono::milliseconds kLockWait{1000};
constexpr std::chrono::milliseconds kLockPoll{2};

service::SnowflakeOptions SnowflakeOptionsOf(const config::Config& config, const core::IdLayout& layout) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  service::SnowflakeOptions options;
  options.cluster = {snowflake.cluster, snowflake.registry, layout};
  options.address = snowflake.address;
  options.private_cluster = IsPrivateCluster(config);
  const WorkerNumbers numbers = WorkerNumbersOf(config);
  options.worker_begin = numbers.begin;
  options.worker_end = numbers.end;
  options.window = snowflake.window;
  options.start_wait = snowflake.start_wait;
  options.clock_jump_max = snowflake.clock_jump_max;
  options.boot_id = sys::ReadBootId();
  options.machine = sys::ReadPlaceId(config.state_dir);
  options.offline_start_max = snowflake.offline_start_max;
  options.accepted_offset = [state_dir = config.state_dir, boot_id = options.boot_id] {
    return sys::LoadAcceptedOffset(state_dir, boot_id);
  };
  return options;
}

// How long a peer may take to tell its time.
constexpr std::chrono::milliseconds kPeerTimeout{1000};
// How long `serve` waits for the first claim before it goes on without a number.
constexpr std::chrono::seconds kFirstClaimWait{5};

// core::PeerClocks over HTTP.
class HttpPeerClocks final : public core::PeerClocks {
 public:
  explicit HttpPeerClocks(const Clock& clock) : clock_(clock) {}

  std::vector<core::PeerClock> Ask(std::span<const core::Peer> peers) override {
    std::vector<std::string> urls;
    urls.reserve(peers.size());
    for (const core::Peer& peer : peers) urls.push_back(peer.url);
    const auto readings = client::ReadClocks(urls, kPeerTimeout, clock_);
    std::vector<core::PeerClock> answers;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (readings[i]) answers.push_back({peers[i].address, readings[i]->ahead, readings[i]->uncertainty});
    }
    return answers;
  }

 private:
  const Clock& clock_;
};

}  // namespace

Result<core::IdLayout> LayoutOf(const config::Config& config) {
  auto layout = core::IdLayout::Parse(config.snowflake.layout, config.snowflake.epoch_ms);
  if (!layout.ok()) return Error{ErrorCode::kConfig, layout.error().message, "set snowflake.layout"};
  return layout;
}

SnowflakeNode::SnowflakeNode(Setting& setting, const config::Config& config, const core::IdLayout& layout,
                             std::optional<sys::StateDirLock> lock)
    : setting_(setting),
      config_(config),
      clock_(setting.ClockInUse()),
      lock_(std::move(lock)),
      options_(SnowflakeOptionsOf(config, layout)),
      state_file_(config.state_dir, file_ops_),
      timers_("leaf-sf-timers", 1, setting.ClockInUse()),
      workers_("leaf-ceiling", 1, setting.ClockInUse()),
      registry_worker_("leaf-registry", 1, setting.ClockInUse()),
      peer_worker_("leaf-peers", 1, setting.ClockInUse()) {}

SnowflakeNode::~SnowflakeNode() { Stop(); }

void SnowflakeNode::Stop() {
  if (watch_) watch_->Stop();
  if (service_) service_->Stop();
  timers_.Stop();
  workers_.Stop();
  registry_worker_.Stop();
  peer_worker_.Stop();
}

Result<std::unique_ptr<SnowflakeNode>> SnowflakeNode::Open(Setting& setting,
                                                           std::chrono::milliseconds timeout) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, setting.Config());
  const config::Config& config = resolved->config;
  if (!config.snowflake.enabled) {
    return Error{ErrorCode::kDisabled, "snowflake mode is disabled", "set snowflake.enabled = true"};
  }
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(config));
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  const MonotonicTime deadline = setting.ClockInUse().Monotonic() + std::min(kLockWait, timeout);
  while (true) {
    auto lock = sys::StateDirLock::Take(config.state_dir, sys::StateDirUse::kCommand);
    if (lock.ok())
      return std::unique_ptr<SnowflakeNode>(new SnowflakeNode(setting, config, layout, std::move(*lock)));
    if (lock.error().code != ErrorCode::kRefused || setting.ClockInUse().Monotonic() >= deadline)
      return std::move(lock).error();
    setting.ClockInUse().WaitUntil(setting.ClockInUse().Monotonic() + kLockPoll);
  }
}

Result<std::unique_ptr<SnowflakeNode>> SnowflakeNode::OpenLocked(Setting& setting) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, setting.Config());
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(resolved->config));
  return std::unique_ptr<SnowflakeNode>(new SnowflakeNode(setting, resolved->config, layout, std::nullopt));
}

Result<void> SnowflakeNode::Prepare(Logger& log) {
  LEAF_ASSIGN_OR_RETURN(registry_, OpenRegistry(setting_, config_, log));
  if (registry_->peers() != nullptr) {
    peer_clocks_ = std::make_unique<HttpPeerClocks>(clock_);
    watch_.emplace(service::PeerClockOptions{.threshold = config_.snowflake.peer_clock_threshold},
                   *registry_->peers(), *peer_clocks_, clock_, timers_, peer_worker_, log);
    options_.check_peers = [this] { return watch_->CheckAtStart(); };
    options_.peers_verdict = [this] { return watch_->Verdict(); };
  }
  service_.emplace(options_, registry_->registry(), state_file_, clock_, random_,
                   service::SnowflakeExecutors{timers_, workers_, registry_worker_}, log);
  // In a child of this process the generator must not go on.
  fork_guard_.emplace([](void* service) { static_cast<service::SnowflakeService*>(service)->Abandon(); },
                      &*service_);
  return {};
}

service::Dependency SnowflakeNode::Registry() const {
  service::Dependency dependency = registry_->Dependency();
  const service::SnowflakeStatus status = service_->Status();
  if (status.leased && status.has_worker && status.last_contact) {
    dependency.lease_left = std::max(config_.snowflake.lease_time - (clock_.Wall() - *status.last_contact),
                                     std::chrono::milliseconds{0});
  }
  return dependency;
}

Result<void> SnowflakeNode::Start(Logger& log) {
  options_.says_always_that_it_is_private = false;
  LEAF_RETURN_IF_ERROR(Prepare(log));
  return service_->Start();
}

Result<void> SnowflakeNode::StartInBackground() {
  // Shared with a task that may outlive the wait.
  const auto first = std::make_shared<std::promise<Result<void>>>();
  auto answer = first->get_future();
  if (watch_) watch_->Start();
  service_->StartInBackground([first](Result<void> result) { first->set_value(std::move(result)); });
  if (answer.wait_for(kFirstClaimWait) != std::future_status::ready) return {};
  return answer.get();
}

}  // namespace leaf::embed
