// Worker numbers from the configuration: one number, or a map from address to number that all nodes share
// (the local mode of Leaf's best-known fork). Only the operator watches over it: two nodes that are given one
// number in one cluster repeat each other's IDs. Or, in a private cluster, a number that is as random as the
// name of the state directory, and as lasting.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "leaf/core/worker_ports.h"

namespace leaf::sys {

// Immutable. A number is fixed and remembers no ceiling: the state directory does.
class StaticRegistry final : public core::WorkerRegistry {
 public:
  // `workers`: "ip:port" to number; where it names the node's address it goes before `worker`.
  StaticRegistry(std::optional<std::uint64_t> worker, std::map<std::string, std::int64_t> workers);
  // For a private cluster: the number is drawn from [begin, end) by the state directory's uuid. Requires:
  // begin < end.
  static StaticRegistry OfPrivateCluster(std::uint64_t begin, std::uint64_t end);

  std::string_view kind() const override { return "static"; }
  bool leased() const override { return false; }
  bool remote() const override { return false; }

  // Errors: kConfig if there is no number for the node, or the map gives its number to another one (as well).
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override;

 private:
  Result<void> CheckIsFree(std::uint64_t worker, const std::string& own_address) const;

  const std::optional<std::uint64_t> worker_;
  std::uint64_t drawn_begin_ = 0;
  std::uint64_t drawn_end_ = 0;  // as drawn_begin_: none is drawn
  const std::map<std::string, std::int64_t> workers_;
};

}  // namespace leaf::sys
