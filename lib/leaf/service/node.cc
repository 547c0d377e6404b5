#include "leaf/service/node.h"

#include <utility>

#include "leaf/base/check.h"

namespace leaf::service {

void Node::AddSegments(const SegmentPorts& ports) {
  LEAF_CHECK(!segment_);
  segment_.emplace(ports.options, ports.store, ports.marks, clock_, ports.random, ports.executors, log_);
  const SegmentExecutors& executors = ports.executors;
  executors_.insert(executors_.end(),
                    {&executors.timers, &executors.workers, &executors.slow_workers, &executors.refresher});
  if (executors.cluster != nullptr) executors_.push_back(executors.cluster);
}

void Node::AddSnowflakes(const SnowflakePorts& ports) {
  LEAF_CHECK(!snowflake_);
  SnowflakeOptions options = ports.options;
  if (ports.peers) {
    peer_clocks_.emplace(ports.peers->options, ports.peers->directory, ports.peers->clocks, clock_,
                         ports.executors.timers, ports.peer_worker, log_);
    options.check_peers = [this] { return peer_clocks_->CheckAtStart(); };
    options.peers_verdict = [this] { return peer_clocks_->Verdict(); };
    options.older_peers = [this] { return peer_clocks_->Status().older; };
  }
  snowflake_.emplace(std::move(options), ports.registry, ports.state_file, clock_, ports.random,
                     ports.executors, log_);
  const SnowflakeExecutors& executors = ports.executors;
  executors_.insert(executors_.end(),
                    {&executors.timers, &executors.ceilings, &executors.registry, &ports.peer_worker});
}

void Node::StartSnowflakes(SnowflakeService::Started started) {
  if (peer_clocks_) peer_clocks_->Start();
  snowflake_->StartInBackground(std::move(started));
}

void Node::Halt(const Error& why) {
  if (segment_) segment_->Halt(why);
  if (snowflake_) snowflake_->Halt(why);
}

void Node::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (segment_) segment_->Stop();
  if (peer_clocks_) peer_clocks_->Stop();
  if (snowflake_) snowflake_->Stop();
  for (Executor* const executor : executors_) executor->Stop();
  if (!segment_) return;
  // Nothing is granted any more that could be missed.
  segment_->LeaveCluster();
  segment_->LeaveOrders();
  if (const auto recorded = segment_->RecordUnissued(); !recorded.ok())
    log_.Warning("cannot record what was left in reserve: {}", recorded.error().message);
}

}  // namespace leaf::service
