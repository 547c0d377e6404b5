#include "leaf/sys/static_registry.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::sys {

namespace {

// FNV-1a with splitmix64's end, by which each character reaches every bit. The same with every compiler,
// since a node keeps the number.
std::uint64_t HashOf(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31U);
}

}  // namespace

StaticRegistry::StaticRegistry(std::optional<std::uint64_t> worker,
                               std::map<std::string, std::int64_t> workers)
    : worker_(worker), workers_(std::move(workers)) {}

StaticRegistry StaticRegistry::OfPrivateCluster(std::uint64_t begin, std::uint64_t end) {
  LEAF_CHECK(begin < end);
  StaticRegistry registry(std::nullopt, {});
  registry.drawn_begin_ = begin;
  registry.drawn_end_ = end;
  return registry;
}

// A file that all nodes share has one worker_id, for those that the map leaves out. An address with a slip of
// the pen is left out, too.
Result<void> StaticRegistry::CheckIsFree(std::uint64_t worker, const std::string& own_address) const {
  for (const auto& [address, number] : workers_) {
    if (number < 0 || static_cast<std::uint64_t>(number) != worker) continue;
    return Error{
        ErrorCode::kConfig,
        fmt::format("snowflake.worker_id is {}, which snowflake.workers gives to {}, and this node is {}",
                    worker, Quoted(address),
                    own_address.empty() ? "without an address" : Quoted(own_address)),
        "add this node to snowflake.workers, or set another worker_id"};
  }
  return {};
}

Result<core::WorkerClaim> StaticRegistry::Claim(const core::NodeIdentity& node,
                                                const core::ClusterProperties&) {
  const auto found = workers_.find(node.address);
  if (found == workers_.end()) {
    if (worker_) {
      LEAF_RETURN_IF_ERROR(CheckIsFree(*worker_, node.address));
      return core::WorkerClaim{*worker_, 0, std::nullopt};
    }
    if (drawn_begin_ < drawn_end_) {
      return core::WorkerClaim{drawn_begin_ + HashOf(node.uuid) % (drawn_end_ - drawn_begin_), 0,
                               std::nullopt};
    }
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
                 fmt::format("snowflake.workers gives {} the number {}, which is not a worker number",
                             Quoted(node.address), found->second),
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
