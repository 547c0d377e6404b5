// What every WorkerRegistry promises. An implementation brings a world: nodes that claim, time that passes,
// and an outside that fails.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "leaf/core/worker_ports.h"

namespace leaf::testing {

class RegistryWorld {
 public:
  virtual ~RegistryWorld() = default;

  virtual bool leased() const = 0;
  virtual std::uint64_t capacity() const = 0;  // numbers there are

  // The registry as node number `index` sees it; a new connection each time, as after a restart. Nodes have
  // different addresses and state directories.
  virtual std::unique_ptr<core::WorkerRegistry> Connect(int index) = 0;
  static core::NodeIdentity Identity(int index) {
    return {"127.0.0." + std::to_string(index) + ":8080", "uuid-" + std::to_string(index)};
  }
  // Lets so much time pass that a lease that is not renewed has run out.
  virtual void PassLease() {}
  // Nothing answers until further notice.
  virtual void SetDown(bool /*down*/) {}
  // The next call has its effect, but its reply is lost.
  virtual void LoseNextReply() {}
};

using MakeRegistryWorld = std::function<std::unique_ptr<RegistryWorld>()>;
using NamedRegistryWorld = std::pair<std::string, MakeRegistryWorld>;

inline std::string RegistryWorldName(const ::testing::TestParamInfo<NamedRegistryWorld>& world) {
  return world.param.first;
}

class WorkerRegistryContract : public ::testing::TestWithParam<NamedRegistryWorld> {
 protected:
  void SetUp() override { world_ = GetParam().second(); }

  core::WorkerClaim Claim(core::WorkerRegistry& registry, int index) {
    auto claim = registry.Claim(RegistryWorld::Identity(index), cluster_);
    EXPECT_TRUE(claim.ok()) << claim.error().message;
    return claim.ok() ? *claim : core::WorkerClaim{};
  }

  core::ClusterProperties cluster_{"test", "", core::IdLayout{}};
  const WallTime now_ = WallTimeOf(1'795'000'000'000);
  std::unique_ptr<RegistryWorld> world_;
};

// What only some kinds promise: each world joins the suites of what it can do.
class FixedRegistryContract : public WorkerRegistryContract {};   // a number belongs to its node for good
class LeasedRegistryContract : public WorkerRegistryContract {};  // a number is lost and recycled
class AssigningRegistryContract : public WorkerRegistryContract {
};  // finds free numbers by itself, up to capacity
class RememberingRegistryContract : public WorkerRegistryContract {};  // keeps ceilings
class OutageRegistryContract : public WorkerRegistryContract {};       // needs a backend that can be away
class FallibleRegistryContract : public WorkerRegistryContract {};     // … and whose replies can be lost

}  // namespace leaf::testing
