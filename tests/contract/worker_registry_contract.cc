#include "contract/worker_registry_contract.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace leaf::testing {

using std::chrono::seconds;

TEST_P(WorkerRegistryContract, AClaimGivesANumber) {
  const auto registry = world_->Connect(1);
  EXPECT_EQ(registry->leased(), world_->leased());
  EXPECT_FALSE(registry->kind().empty());
  const core::WorkerClaim claim = Claim(*registry, 1);
  EXPECT_LT(claim.worker, cluster_.layout.worker_end());
  EXPECT_TRUE(registry->Renew(claim, now_).ok());
  EXPECT_TRUE(registry->Release(claim, now_).ok());
}

TEST_P(WorkerRegistryContract, DifferentNodesHaveDifferentNumbers) {
  std::set<std::uint64_t> workers;
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  for (int node = 1; node <= 3; ++node) {
    connections.push_back(world_->Connect(node));
    workers.insert(Claim(*connections.back(), node).worker);
  }
  EXPECT_EQ(workers.size(), 3U);
}

TEST_P(FixedRegistryContract, AFixedNumberComesBackAfterARestart) {
  const std::uint64_t first = Claim(*world_->Connect(1), 1).worker;
  const std::uint64_t other = Claim(*world_->Connect(2), 2).worker;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Claim(*world_->Connect(1), 1).worker, first);
    EXPECT_EQ(Claim(*world_->Connect(2), 2).worker, other);
  }
  // After a release, too: it is fixed.
  const auto registry = world_->Connect(1);
  const core::WorkerClaim claim = Claim(*registry, 1);
  ASSERT_TRUE(registry->Release(claim, now_).ok());
  EXPECT_EQ(Claim(*world_->Connect(1), 1).worker, first);
}

TEST_P(RememberingRegistryContract, ARenewedCeilingIsFoundByTheNextClaim) {
  const auto registry = world_->Connect(1);
  const core::WorkerClaim claim = Claim(*registry, 1);
  ASSERT_TRUE(registry->Renew(claim, now_ + seconds{10}).ok());
  // Never lowered.
  ASSERT_TRUE(registry->Renew(claim, now_ + seconds{5}).ok());
  world_->PassLease();
  const core::WorkerClaim next = Claim(*world_->Connect(1), 1);
  ASSERT_TRUE(next.ceiling.has_value());
  EXPECT_GE(*next.ceiling, now_ + seconds{10});
}

TEST_P(RememberingRegistryContract, AReleaseLeavesTheExactEnd) {
  const auto registry = world_->Connect(1);
  const core::WorkerClaim claim = Claim(*registry, 1);
  ASSERT_TRUE(registry->Renew(claim, now_ + seconds{10}).ok());
  ASSERT_TRUE(registry->Release(claim, now_ + seconds{8}).ok());
  const core::WorkerClaim next = Claim(*world_->Connect(1), 1);
  ASSERT_EQ(next.worker, claim.worker);
  EXPECT_EQ(next.ceiling, now_ + seconds{8});
}

TEST_P(LeasedRegistryContract, ALostLeaseCannotBeRenewed) {
  // All numbers are taken, so that the next node gets the lost one.
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  std::vector<core::WorkerClaim> claims;
  for (int node = 1; node <= static_cast<int>(world_->capacity()); ++node) {
    connections.push_back(world_->Connect(node));
    claims.push_back(Claim(*connections.back(), node));
    ASSERT_TRUE(connections.back()->Renew(claims.back(), now_ + seconds{node}).ok());
  }
  world_->PassLease();
  const auto late = world_->Connect(100);
  const core::WorkerClaim taken = Claim(*late, 100);
  const auto loser = std::find_if(claims.begin(), claims.end(), [&](const core::WorkerClaim& claim) {
    return claim.worker == taken.worker;
  });
  ASSERT_NE(loser, claims.end());
  EXPECT_GT(taken.generation, loser->generation);
  // It begins above everything the loser may have issued …
  ASSERT_TRUE(taken.ceiling.has_value());
  const auto index = static_cast<std::size_t>(loser - claims.begin());
  EXPECT_GE(*taken.ceiling, now_ + seconds{index + 1});
  // … and the loser, however late it wakes up, gets no further.
  const auto renewed = connections[index]->Renew(*loser, now_ + seconds{60});
  ASSERT_FALSE(renewed.ok());
  EXPECT_EQ(renewed.error().code, ErrorCode::kNotOwner);
  const auto released = connections[index]->Release(*loser, now_);
  ASSERT_FALSE(released.ok());
  EXPECT_EQ(released.error().code, ErrorCode::kNotOwner);
  EXPECT_TRUE(late->Renew(taken, now_ + seconds{60}).ok());
}

TEST_P(LeasedRegistryContract, AReleasedLeaseIsRecycled) {
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  std::vector<core::WorkerClaim> claims;
  for (int node = 1; node <= static_cast<int>(world_->capacity()); ++node) {
    connections.push_back(world_->Connect(node));
    claims.push_back(Claim(*connections.back(), node));
  }
  ASSERT_TRUE(connections[1]->Release(claims[1], now_ + seconds{3}).ok());
  const core::WorkerClaim next = Claim(*world_->Connect(200), 200);
  EXPECT_EQ(next.worker, claims[1].worker);
  EXPECT_EQ(next.ceiling, now_ + seconds{3});
}

TEST_P(AssigningRegistryContract, WhenAllNumbersAreTakenTheNextNodeIsRefused) {
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  for (int node = 1; node <= static_cast<int>(world_->capacity()); ++node) {
    connections.push_back(world_->Connect(node));
    Claim(*connections.back(), node);
  }
  const auto refused = world_->Connect(300)->Claim(RegistryWorld::Identity(300), cluster_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
}

TEST_P(AssigningRegistryContract, NodesThatClaimAtOnceGetDifferentNumbers) {
  const int nodes = static_cast<int>(world_->capacity());
  std::mutex mutex;
  std::set<std::uint64_t> workers;
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  for (int node = 0; node < nodes; ++node) connections.push_back(world_->Connect(node));
  std::vector<std::thread> threads;
  for (int node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      core::WorkerRegistry& registry = *connections[static_cast<std::size_t>(node)];
      auto claim = registry.Claim(RegistryWorld::Identity(node), cluster_);
      // On a busy machine a node's turn may not come in time: nodes try again.
      for (int i = 0; i < 20 && !claim.ok() && claim.error().code == ErrorCode::kUnavailable; ++i)
        claim = registry.Claim(RegistryWorld::Identity(node), cluster_);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(claim.ok()) << claim.error().message;
      if (claim.ok()) workers.insert(claim->worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(workers.size(), static_cast<std::size_t>(nodes));
}

TEST_P(OutageRegistryContract, AnOutageIsUnavailableAndChangesNothing) {
  const auto registry = world_->Connect(1);
  const core::WorkerClaim claim = Claim(*registry, 1);
  ASSERT_TRUE(registry->Renew(claim, now_ + seconds{1}).ok());
  world_->SetDown(true);
  for (const auto& failed : {registry->Renew(claim, now_ + seconds{2}), registry->Release(claim, now_)}) {
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  }
  world_->SetDown(false);
  EXPECT_TRUE(registry->Renew(claim, now_ + seconds{3}).ok());
}

TEST_P(FallibleRegistryContract, AClaimWhoseReplyWasLostIsFoundAgain) {
  const auto registry = world_->Connect(1);
  world_->LoseNextReply();
  const auto lost = registry->Claim(RegistryWorld::Identity(1), cluster_);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kOutcomeUnknown);
  const core::WorkerClaim claim = Claim(*registry, 1);
  EXPECT_TRUE(registry->Renew(claim, now_).ok());
  // It took no second number.
  std::vector<std::unique_ptr<core::WorkerRegistry>> connections;
  for (int node = 2; node <= static_cast<int>(world_->capacity()); ++node) {
    connections.push_back(world_->Connect(node));
    Claim(*connections.back(), node);
  }
}

}  // namespace leaf::testing
