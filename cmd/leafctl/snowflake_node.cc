#include "snowflake_node.h"

#include <charconv>
#include <utility>

#include "leaf/sys/boot_id.h"
#include "leaf/sys/clock_acceptance.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kLockWait{1000};
constexpr std::chrono::milliseconds kLockPoll{2};

// The configuration has checked its form.
void ParseWorkerRange(const std::string& text, std::uint64_t& begin, std::uint64_t& end) {
  std::uint64_t last = 0;
  const char* const text_end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), text_end, begin);
  std::from_chars(first.ptr + 1, text_end, last);
  end = last + 1;
}

service::SnowflakeOptions OptionsOf(const config::Config& config, const core::IdLayout& layout) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  service::SnowflakeOptions options;
  options.cluster = {snowflake.cluster, snowflake.registry, layout};
  options.address = snowflake.address;
  ParseWorkerRange(snowflake.worker_range, options.worker_begin, options.worker_end);
  options.window = snowflake.window;
  options.start_wait = snowflake.start_wait;
  options.clock_jump_max = snowflake.clock_jump_max;
  options.boot_id = sys::ReadBootId();
  options.accepted_offset = [state_dir = config.state_dir, boot_id = options.boot_id] {
    return sys::LoadAcceptedOffset(state_dir, boot_id);
  };
  return options;
}

// A private cluster has one node.
std::optional<std::uint64_t> WorkerOf(const config::Config::Snowflake& snowflake) {
  if (snowflake.worker_id >= 0) return static_cast<std::uint64_t>(snowflake.worker_id);
  if (snowflake.cluster.empty() && snowflake.workers.empty()) return 0;
  return std::nullopt;
}

}  // namespace

Result<core::IdLayout> LayoutOf(const config::Config& config) {
  auto layout = core::IdLayout::Parse(config.snowflake.layout, config.snowflake.epoch_ms);
  if (!layout.ok()) return Error{ErrorCode::kConfig, layout.error().message, "set snowflake.layout"};
  return layout;
}

SnowflakeNode::SnowflakeNode(CommandContext& context, const config::Config& config,
                             const core::IdLayout& layout, std::optional<sys::StateDirLock> lock)
    : clock_(context.clock),
      lock_(std::move(lock)),
      options_(OptionsOf(config, layout)),
      state_file_(config.state_dir, file_ops_),
      registry_(WorkerOf(config.snowflake), config.snowflake.workers),
      timers_("leaf-sf-timers", 1, context.clock),
      workers_("leaf-ceiling", 1, context.clock) {}

SnowflakeNode::~SnowflakeNode() {
  if (service_) service_->Stop();
  timers_.Stop();
  workers_.Stop();
}

Result<std::unique_ptr<SnowflakeNode>> SnowflakeNode::Open(CommandContext& context,
                                                           std::chrono::milliseconds timeout) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Config& config = resolved->config;
  if (!config.snowflake.enabled) {
    return Error{ErrorCode::kDisabled, "snowflake mode is disabled", "set snowflake.enabled = true"};
  }
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(config));
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(config.state_dir));
  const MonotonicTime deadline = context.clock.Monotonic() + std::min(kLockWait, timeout);
  while (true) {
    auto lock = sys::StateDirLock::Take(config.state_dir);
    if (lock.ok())
      return std::unique_ptr<SnowflakeNode>(new SnowflakeNode(context, config, layout, std::move(*lock)));
    if (lock.error().code != ErrorCode::kRefused || context.clock.Monotonic() >= deadline)
      return std::move(lock).error();
    context.clock.WaitUntil(context.clock.Monotonic() + kLockPoll);
  }
}

Result<std::unique_ptr<SnowflakeNode>> SnowflakeNode::OpenLocked(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const core::IdLayout layout, LayoutOf(resolved->config));
  return std::unique_ptr<SnowflakeNode>(new SnowflakeNode(context, resolved->config, layout, std::nullopt));
}

Result<void> SnowflakeNode::Start(Logger& log) {
  service_.emplace(options_, registry_, state_file_, clock_, random_, timers_, workers_, log);
  // In a child of this process the generator must not go on.
  fork_guard_.emplace([](void* service) { static_cast<service::SnowflakeService*>(service)->Abandon(); },
                      &*service_);
  return service_->Start();
}

}  // namespace leaf::cmd
