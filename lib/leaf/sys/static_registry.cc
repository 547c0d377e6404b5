#include "leaf/sys/static_registry.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/text.h"

namespace leaf::sys {

StaticRegistry::StaticRegistry(std::optional<std::uint64_t> worker,
                               std::map<std::string, std::int64_t> workers)
    : worker_(worker), workers_(std::move(workers)) {}

Result<core::WorkerClaim> StaticRegistry::Claim(const core::NodeIdentity& node,
                                                const core::ClusterProperties&) {
  const auto found = workers_.find(node.address);
  if (found == workers_.end()) {
    if (worker_) return core::WorkerClaim{*worker_, 0, std::nullopt};
    if (workers_.empty()) {
      return Error{ErrorCode::kConfig, "no worker number is configured",
                   "set snowflake.worker_id, to a number that no other node of the cluster has"};
    }
    return Error{ErrorCode::kConfig,
                 fmt::format("snowflake.workers has no number for this node, {}", Quoted(node.address)),
                 "add it, or set snowflake.address"};
  }
  if (found->second < 0) {
    return Error{ErrorCode::kConfig,
                 fmt::format("snowflake.workers gives {} the number {}, which is none", Quoted(node.address),
                             found->second),
                 ""};
  }
  for (const auto& [address, number] : workers_) {
    if (number == found->second && address != node.address) {
      return Error{ErrorCode::kConfig,
                   fmt::format("snowflake.workers gives the number {} to {} and to {}", number,
                               Quoted(node.address), Quoted(address)),
                   "give each node a number of its own"};
    }
  }
  return core::WorkerClaim{static_cast<std::uint64_t>(found->second), 0, std::nullopt};
}

Result<void> StaticRegistry::Renew(const core::WorkerClaim&, WallTime) { return {}; }

Result<void> StaticRegistry::Release(const core::WorkerClaim&, WallTime) { return {}; }

}  // namespace leaf::sys
