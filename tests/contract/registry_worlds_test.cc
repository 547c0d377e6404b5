// The worlds in which the registries' contract is tested: the static registry, and a registry in memory,
// fixed and leased, which is the reference for those to come and shows that the suite can be passed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "contract/worker_registry_contract.h"
#include "leaf/sys/static_registry.h"

namespace leaf::testing {
namespace {

class StaticWorld final : public RegistryWorld {
 public:
  bool leased() const override { return false; }
  std::uint64_t capacity() const override { return 3; }
  std::unique_ptr<core::WorkerRegistry> Connect(int) override {
    std::map<std::string, std::int64_t> workers;
    for (int node = 1; node <= 3; ++node) workers[Identity(node).address] = 10 + node;
    return std::make_unique<sys::StaticRegistry>(std::nullopt, workers);
  }
};

// The outside world of MemoryRegistry: one record a number.
class MemoryRegistryWorld final : public RegistryWorld {
 public:
  explicit MemoryRegistryWorld(bool leased) : leased_(leased) {}

  bool leased() const override { return leased_; }
  std::uint64_t capacity() const override { return 8; }
  std::unique_ptr<core::WorkerRegistry> Connect(int) override { return std::make_unique<Connection>(*this); }
  void PassLease() override {
    const std::lock_guard lock(mutex_);
    for (auto& [worker, record] : records_) record.expired = true;
  }
  void SetDown(bool down) override {
    const std::lock_guard lock(mutex_);
    down_ = down;
  }
  void LoseNextReply() override {
    const std::lock_guard lock(mutex_);
    lose_reply_ = true;
  }

 private:
  struct Record {
    std::string owner;  // uuid; "" once released
    std::uint64_t generation = 0;
    std::optional<WallTime> ceiling;
    bool expired = false;
  };

  class Connection final : public core::WorkerRegistry {
   public:
    explicit Connection(MemoryRegistryWorld& world) : world_(world) {}
    std::string_view kind() const override { return "memory"; }
    bool leased() const override { return world_.leased_; }

    Result<core::WorkerClaim> Claim(const core::NodeIdentity& node, const core::ClusterProperties&) override {
      const std::lock_guard lock(world_.mutex_);
      if (world_.down_) return Away();
      std::optional<std::uint64_t> chosen;
      for (std::uint64_t worker = 0; worker < world_.capacity(); ++worker) {
        const Record& record = world_.records_[worker];
        // One's own first, then what is free.
        if (record.owner == node.uuid) chosen = worker;
        if (chosen && world_.records_[*chosen].owner == node.uuid) break;
        const bool free =
            record.generation == 0 || (world_.leased_ && (record.owner.empty() || record.expired));
        if (free && !chosen) chosen = worker;
      }
      if (!chosen) return Error{ErrorCode::kExhausted, "all numbers are taken", ""};
      Record& record = world_.records_[*chosen];
      record.owner = node.uuid;
      ++record.generation;
      record.expired = false;
      if (std::exchange(world_.lose_reply_, false))
        return Error{ErrorCode::kOutcomeUnknown, "reply lost", ""};
      return core::WorkerClaim{*chosen, record.generation, record.ceiling};
    }
    Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override {
      return Write(claim, [&](Record& record) {
        record.ceiling = std::max(record.ceiling.value_or(ceiling), ceiling);
        record.expired = false;
      });
    }
    Result<void> Release(const core::WorkerClaim& claim, WallTime end) override {
      return Write(claim, [&](Record& record) {
        record.ceiling = end;
        if (world_.leased_) record.owner.clear();
      });
    }

   private:
    template <typename Change>
    Result<void> Write(const core::WorkerClaim& claim, Change change) {
      const std::lock_guard lock(world_.mutex_);
      if (world_.down_) return Away();
      Record& record = world_.records_[claim.worker];
      if (record.generation != claim.generation) return Error{ErrorCode::kNotOwner, "lost", ""};
      change(record);
      return {};
    }
    static Error Away() { return {ErrorCode::kUnavailable, "the registry is away", ""}; }

    MemoryRegistryWorld& world_;
  };

  const bool leased_;
  std::mutex mutex_;
  bool down_ = false;
  bool lose_reply_ = false;
  std::map<std::uint64_t, Record> records_;
};

NamedRegistryWorld Static() {
  return {"Static", [] { return std::make_unique<StaticWorld>(); }};
}
NamedRegistryWorld MemoryFixed() {
  return {"MemoryFixed", [] { return std::make_unique<MemoryRegistryWorld>(false); }};
}
NamedRegistryWorld MemoryLeased() {
  return {"MemoryLeased", [] { return std::make_unique<MemoryRegistryWorld>(true); }};
}

INSTANTIATE_TEST_SUITE_P(Kinds, WorkerRegistryContract,
                         ::testing::Values(Static(), MemoryFixed(), MemoryLeased()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, FixedRegistryContract, ::testing::Values(Static(), MemoryFixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, LeasedRegistryContract, ::testing::Values(MemoryLeased()), RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, AssigningRegistryContract, ::testing::Values(MemoryFixed(), MemoryLeased()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, RememberingRegistryContract, ::testing::Values(MemoryFixed(), MemoryLeased()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, OutageRegistryContract, ::testing::Values(MemoryFixed(), MemoryLeased()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(Kinds, FallibleRegistryContract, ::testing::Values(MemoryFixed(), MemoryLeased()),
                         RegistryWorldName);

// ---- what only the static registry has
// -------------------------------------------------------------------------

const core::ClusterProperties kCluster{"test", "static", core::IdLayout{}};

TEST(StaticRegistry, TheMapGoesBeforeTheNumber) {
  sys::StaticRegistry registry(9, {{"127.0.0.1:80", 3}, {"127.0.0.2:80", 4}});
  EXPECT_EQ(registry.Claim({"127.0.0.2:80", "u"}, kCluster)->worker, 4U);
  EXPECT_EQ(registry.Claim({"127.0.0.9:80", "u"}, kCluster)->worker, 9U);
  EXPECT_EQ(registry.Claim({"", "u"}, kCluster)->worker, 9U);
}

TEST(StaticRegistry, WithoutANumberItSaysWhatToSet) {
  sys::StaticRegistry none(std::nullopt, {});
  const auto unset = none.Claim({"127.0.0.1:80", "u"}, kCluster);
  ASSERT_FALSE(unset.ok());
  EXPECT_EQ(unset.error().code, ErrorCode::kConfig);
  EXPECT_NE(unset.error().hint.find("worker_id"), std::string::npos);
  sys::StaticRegistry map(std::nullopt, {{"127.0.0.1:80", 3}});
  const auto unknown = map.Claim({"127.0.0.2:80", "u"}, kCluster);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kConfig);
  EXPECT_NE(unknown.error().message.find("127.0.0.2:80"), std::string::npos);
}

TEST(StaticRegistry, APrivateClustersNumberIsDrawnByTheDirectorysName) {
  auto registry = sys::StaticRegistry::OfPrivateCluster(8, 1000);
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = fmt::format("3d500be2-7404-4a61-a929-657a49f8{:04x}", i);
    const auto claim = registry.Claim({"127.0.0.1:80", uuid}, kCluster);
    ASSERT_TRUE(claim.ok());
    EXPECT_GE(claim->worker, 8U);
    EXPECT_LT(claim->worker, 1000U);
    EXPECT_EQ(registry.Claim({"", uuid}, kCluster)->worker, claim->worker) << "it is kept";
    numbers.insert(claim->worker);
  }
  // Of 1000 balls in 992 boxes about 630 boxes have one.
  EXPECT_GT(numbers.size(), 550U);
}

TEST(StaticRegistry, OneNumberForTwoAddressesIsRefused) {
  sys::StaticRegistry registry(std::nullopt,
                               {{"127.0.0.1:80", 3}, {"127.0.0.2:80", 3}, {"127.0.0.3:80", -1}});
  const auto twice = registry.Claim({"127.0.0.1:80", "u"}, kCluster);
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("127.0.0.2:80"), std::string::npos);
  EXPECT_FALSE(registry.Claim({"127.0.0.3:80", "u"}, kCluster).ok());
}

}  // namespace
}  // namespace leaf::testing
