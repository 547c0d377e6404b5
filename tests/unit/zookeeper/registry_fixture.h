// Registries on a ZooKeeper in memory, and Java Leaf's node beside them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "leaf/zookeeper/fixed_registry.h"
#include "leaf/zookeeper/lease_registry.h"
#include "support/zookeeper_fakes.h"

namespace leaf::zookeeper {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MemoryClient;
using testing::MemoryZooKeeper;
using Fault = MemoryClient::Fault;

inline constexpr int kCallsMax =
    40;  // more than any claim makes; each test sees to it that it has seen the last one
inline const std::string kAddress = "127.0.0.1:8080";

// One process: a client and a registry on it.
template <typename Registry>
struct Process {
  Process(MemoryZooKeeper& server, const RegistryOptions& options, const Clock& clock, Logger& log)
      : client(server), registry(options, client, clock, log) {}
  MemoryClient client;
  Registry registry;
};

class ZooKeeperRegistryTest : public ::testing::Test {
 protected:
  const core::ClusterProperties cluster_{"test", "zookeeper", core::IdLayout{}};
  const Tree tree_ = *Tree::Make("test");
  testing::HookedClock clock_;
  testing::RecordingLogger log_;

  RegistryOptions Options() const {
    RegistryOptions options;
    options.advertise = "http://" + kAddress;
    options.host = "host-a";
    return options;
  }
  // Everything the tests start with is made anew for each round.
  template <typename Registry>
  std::unique_ptr<Process<Registry>> Start(MemoryZooKeeper& server, RegistryOptions options) {
    return std::make_unique<Process<Registry>>(server, options, clock_, log_);
  }
  std::unique_ptr<Process<FixedRegistry>> Fixed(MemoryZooKeeper& server) {
    return Start<FixedRegistry>(server, Options());
  }
  std::unique_ptr<Process<LeaseRegistry>> Leased(MemoryZooKeeper& server) {
    return Start<LeaseRegistry>(server, Options());
  }

  template <typename P>
  Result<core::WorkerClaim> Claim(P& process, const std::string& uuid,
                                  const std::string& address = kAddress) {
    return process.registry.Claim({address, uuid}, cluster_);
  }
  // A claim that has to succeed.
  template <typename P>
  core::WorkerClaim Get(P& process, const std::string& uuid, const std::string& address = kAddress) {
    const auto claim = Claim(process, uuid, address);
    EXPECT_TRUE(claim.ok()) << claim.error().message;
    return claim.ok() ? *claim : core::WorkerClaim{};
  }
  template <typename Registry>
  static ErrorCode RenewCode(Process<Registry>& process, const core::WorkerClaim& claim, WallTime ceiling) {
    const auto renewed = process.registry.Renew(claim, ceiling);
    return renewed.ok() ? ErrorCode::kInternal : renewed.error().code;
  }

  // Java Leaf's start with our address: its own node if there is one, else a new one. Its number.
  struct Java {
    std::string path;
    std::uint64_t worker = 0;
  };
  Java StartJava(MemoryZooKeeper& server, const std::string& address = kAddress) const {
    for (const std::string& child : server.Children(tree_.Forever())) {
      if (child.substr(0, child.find('-')) == address) return {tree_.ForeverNode(child), Suffix(child)};
    }
    for (const std::string& folder : {std::string("/snowflake"), tree_.Base(), tree_.Forever()}) {
      if (!server.Data(folder)) server.Create(folder, "");
    }
    const std::string path =
        server.CreateSequential(tree_.ForeverPrefix(address), FormatForeverData(address, clock_.Wall()));
    return {path, Suffix(path)};
  }
  static std::uint64_t Suffix(const std::string& name) { return ParseForeverName(name)->worker; }
  void Heartbeat(MemoryZooKeeper& server, const Java& java) {
    server.Set(java.path, FormatForeverData(kAddress, clock_.Wall()));
  }
  // It reports every 3 s of whatever time passes.
  void LetJavaLive(MemoryZooKeeper& server, const Java& java) {
    auto next = std::make_shared<BootTime>(clock_.Boot() + seconds{3});
    clock_.OnWait([this, &server, java, next] {
      if (clock_.Boot() < *next) return;
      *next = clock_.Boot() + seconds{3};
      Heartbeat(server, java);
    });
  }
};

class FixedRegistryTest : public ZooKeeperRegistryTest {
 protected:
  std::vector<std::string> Forever(MemoryZooKeeper& server) { return server.Children(tree_.Forever()); }
  CeilingRecord CeilingOf(MemoryZooKeeper& server, std::uint64_t worker) {
    return *ParseCeiling(server.Data(tree_.Ceiling(worker)).value());
  }
};

}  // namespace leaf::zookeeper
