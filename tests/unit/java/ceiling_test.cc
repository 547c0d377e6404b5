// What Java Leaf's local files say, and what it is worth.
#include "leaf/java/ceiling.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "leaf/core/java_leaf.h"
#include "leaf/java/worker_file.h"
#include "leaf/sys/static_registry.h"
#include "support/fake_registry.h"
#include "support/fakes.h"
#include "support/temp_dir.h"
#include "support/zookeeper_fakes.h"

namespace leaf {
namespace {

constexpr const char* kAddress = "127.0.0.1:8686";

class JavaFiles : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::string folder = dir_.path() + "/pay/leafconf/8686";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
    Date(name, clock_.Wall() - std::chrono::hours{1});
  }
  // When the file was written.
  void Date(const std::string& name, WallTime written) {
    const std::int64_t millis = UnixMillis(written);
    const timespec time{static_cast<time_t>(millis / 1000), static_cast<long>(millis % 1000 * 1'000'000)};
    const timespec times[2]{time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, (dir_.path() + "/pay/leafconf/8686/" + name).c_str(), times, 0), 0);
  }
  // As a node of the fork in its mode local does every 3 s.
  void ForkWrites(std::uint64_t worker) {
    Write("workerID.json", fmt::format(R"({{"ip":"127.0.0.1","port":"8686","workId":{},"timestamp":{}}})",
                                       worker, UnixMillis(clock_.Wall())));
    Date("workerID.json", clock_.Wall());
  }
  std::vector<java::JavaWorkerFile> Find() { return java::FindJavaWorkerFiles(dir_.path(), "pay", kAddress); }
  Result<core::WorkerClaim> Claim(const std::string& cluster = "pay") {
    return registry_.Claim({kAddress, "uuid"}, {cluster, "static", {}});
  }

  testing::HookedClock clock_;
  testing::RecordingLogger log_;
  testing::TempDir dir_;
  sys::StaticRegistry inner_{17, {}};
  java::JavaCeilingRegistry registry_{inner_, dir_.path(), clock_, log_};
};

TEST_F(JavaFiles, AreFoundByClusterAndPort) {
  EXPECT_TRUE(Find().empty());
  Write("workerID.properties", "workerID=17");
  ASSERT_EQ(Find().size(), 1U);
  EXPECT_EQ(Find()[0].worker, 17U);
  EXPECT_FALSE(Find()[0].time);
  EXPECT_TRUE(java::FindJavaWorkerFiles(dir_.path(), "pay", "127.0.0.1:8687").empty());
  EXPECT_TRUE(java::FindJavaWorkerFiles(dir_.path(), "other", kAddress).empty());
  EXPECT_TRUE(java::FindJavaWorkerFiles(dir_.path(), "pay", "").empty());
}

// Any user can make one there, and the node would wait for a writer.
TEST_F(JavaFiles, APipeInTheirPlaceHoldsNothingUp) {
  Write("workerID.properties", "workerID=17");
  Write("workerID.json", "{}");
  const std::string json = dir_.path() + "/pay/leafconf/8686/workerID.json";
  ASSERT_EQ(::unlink(json.c_str()), 0);
  ASSERT_EQ(::mkfifo(json.c_str(), 0666), 0);
  ASSERT_EQ(Find().size(), 1U);
  EXPECT_EQ(Find()[0].worker, 17U);
}

TEST_F(JavaFiles, OfTheForkHaveATime) {
  Write("workerID.properties", "workerID=17\nmaxTimestamp=1795174509833");
  Write("workerID.json", R"({"ip":"127.0.0.1","port":"8686","workId":5,"timestamp":1795174509834})");
  ASSERT_EQ(Find().size(), 2U);
  EXPECT_EQ(Find()[0].time, WallTimeOf(1795174509833));
  EXPECT_EQ(Find()[1].worker, 5U);
  EXPECT_EQ(Find()[1].time, WallTimeOf(1795174509834));
}

TEST_F(JavaFiles, ThatMakeNoSenseSayNothing) {
  for (const char* text :
       {"", "workerID=x\nmaxTimestamp=y", "workerID=-1\nmaxTimestamp=-5",
        "workerID=99999999999999999999\nmaxTimestamp=9223372036854775807", "{", "[]", "=\n=="}) {
    Write("workerID.properties", text);
    Write("workerID.json", text);
    for (const java::JavaWorkerFile& file : Find()) {
      EXPECT_FALSE(file.worker) << text;
      EXPECT_FALSE(file.time) << text;
    }
    ASSERT_TRUE(Claim().ok());
    EXPECT_FALSE(Claim()->ceiling) << text;
  }
}

TEST_F(JavaFiles, AreACeilingForTheirNumberAlone) {
  EXPECT_FALSE(Claim()->ceiling);
  Write("workerID.properties", "workerID=17");
  EXPECT_FALSE(Claim()->ceiling);
  Write("workerID.properties", "workerID=16\nmaxTimestamp=1795174509833");
  EXPECT_FALSE(Claim()->ceiling);
  Write("workerID.properties", "workerID=17\nmaxTimestamp=1795174509833");
  EXPECT_EQ(Claim()->ceiling, WallTimeOf(1795174509833) + core::kJavaMargin);
  EXPECT_FALSE(Claim("other")->ceiling);
  // The later of the two.
  Write("workerID.json", R"({"ip":"127.0.0.1","port":"8686","workId":17,"timestamp":1795174509000})");
  EXPECT_EQ(Claim()->ceiling, WallTimeOf(1795174509833) + core::kJavaMargin);
}

// S2
TEST_F(JavaFiles, ANodeThatStillWritesIsNotTakenOver) {
  ForkWrites(17);
  const MonotonicTime begin = clock_.Monotonic();
  MonotonicTime next = begin + std::chrono::seconds{3};
  clock_.OnWait([&] {
    if (clock_.Monotonic() < next) return;
    next += std::chrono::seconds{3};
    ForkWrites(17);
  });
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto refused = Claim();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
    EXPECT_NE(refused.error().message.find("workerID.json"), std::string::npos) << refused.error().message;
  }
  // It stops: its last time is what counts.
  clock_.OnWait(nullptr);
  const WallTime last = clock_.Wall();
  const auto claim = Claim();
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_LE(claim->ceiling, last + core::kJavaMargin);
  EXPECT_GT(claim->ceiling, last);
}

TEST_F(JavaFiles, OnlyAFileThatWasJustWrittenIsWatched) {
  ForkWrites(17);
  for (const auto& [age, watched] : {std::pair{java::kJavaFileRecent, false},
                                     {java::kJavaFileRecent - std::chrono::seconds{1}, true},
                                     {std::chrono::milliseconds{-60'000}, true}}) {
    Date("workerID.json", clock_.Wall() - age);
    const MonotonicTime begin = clock_.Monotonic();
    ASSERT_TRUE(Claim().ok());
    EXPECT_EQ(clock_.Monotonic() - begin, watched ? core::kJavaWatch : std::chrono::milliseconds{0})
        << age.count();
  }
  // Another node's file is no concern of this one.
  ForkWrites(16);
  const MonotonicTime begin = clock_.Monotonic();
  ASSERT_TRUE(Claim().ok());
  EXPECT_EQ(clock_.Monotonic(), begin);
}

// S3
TEST_F(JavaFiles, ANodeThatStartsLaterIsNoticedByARenewal) {
  ForkWrites(17);
  Date("workerID.json", clock_.Wall() - std::chrono::hours{1});
  const auto claim = Claim();
  ASSERT_TRUE(claim.ok());
  ForkWrites(16);
  ASSERT_TRUE(registry_.Renew(*claim, clock_.Wall()).ok());
  ForkWrites(17);
  const auto refused = registry_.Renew(*claim, clock_.Wall());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_FALSE(registry_.Renew(*claim, clock_.Wall()).ok()) << "until the next claim";
  const auto again = Claim();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(registry_.Renew(*again, clock_.Wall()).ok());
}

// S4
TEST_F(JavaFiles, AreLookedAtWhereTheRegistryIsAway) {
  testing::FakeRegistryRecords records;
  testing::FakeRegistry away{records, false, clock_};
  away.down = true;
  java::JavaCeilingRegistry registry{away, dir_.path(), clock_, log_};
  core::NodeIdentity node{kAddress, "uuid"};
  node.held_ceiling = clock_.Wall() - std::chrono::minutes{10};
  const auto code = [&] { return registry.Claim(node, {"pay", "fake", {}}).error().code; };
  const auto written = [&](WallTime time, WallTime at) {
    Write("workerID.json",
          fmt::format(R"({{"ip":"127.0.0.1","port":"8686","workId":17,"timestamp":{}}})", UnixMillis(time)));
    Date("workerID.json", at);
  };
  const WallTime now = clock_.Wall();
  written(now + std::chrono::minutes{1}, now - std::chrono::hours{1});
  EXPECT_EQ(code(), ErrorCode::kUnavailable) << "it has no number to go on with";
  node.held = 17;
  EXPECT_EQ(code(), ErrorCode::kClock);
  node.held_ceiling = now + std::chrono::minutes{1} + core::kJavaMargin;
  EXPECT_EQ(code(), ErrorCode::kUnavailable) << "it begins above that";
  node.held = 16;
  node.held_ceiling = {};
  EXPECT_EQ(code(), ErrorCode::kUnavailable) << "the file is another number's";
  node.held = 17;
  written(now - core::kJavaMargin, now - std::chrono::hours{1});
  EXPECT_EQ(code(), ErrorCode::kUnavailable);

  ForkWrites(17);
  MonotonicTime next = clock_.Monotonic() + std::chrono::seconds{3};
  clock_.OnWait([&] {
    if (clock_.Monotonic() < next) return;
    next += std::chrono::seconds{3};
    ForkWrites(17);
  });
  EXPECT_EQ(code(), ErrorCode::kRefused);
  node.former_uuid = "former";
  EXPECT_EQ(code(), ErrorCode::kUnavailable) << "a copy does not start without the registry anyway";
}

TEST_F(JavaFiles, AWatchCanBeInterrupted) {
  ForkWrites(17);
  clock_.OnWait([&] { registry_.Interrupt(); });
  EXPECT_EQ(Claim().error().code, ErrorCode::kUnavailable);
}

// The registry knows the directory by its new name, and the watch may fail.
TEST_F(JavaFiles, AClaimOfAMovedDirectoryIsMadeKnownBeforeTheWatch) {
  ForkWrites(17);
  clock_.OnWait([&] { registry_.Interrupt(); });
  core::NodeIdentity node{kAddress, "uuid"};
  std::optional<std::uint64_t> known;
  node.on_claimed = [&](const core::WorkerClaim& claim) -> Result<void> {
    known = claim.worker;
    return {};
  };
  EXPECT_FALSE(registry_.Claim(node, {"pay", "static", {}}).ok());
  EXPECT_EQ(known, 17U);
}

TEST_F(JavaFiles, LowerNoCeilingThatTheRegistryKnows) {
  testing::FakeRegistryRecords records;
  testing::FakeRegistry inner(records, false, clock_);
  java::JavaCeilingRegistry registry(inner, dir_.path(), clock_, log_);
  Write("workerID.properties", "workerID=0\nmaxTimestamp=1795174509833");
  const WallTime of_java = WallTimeOf(1795174509833) + core::kJavaMargin;
  records.records[0].owner = "uuid";
  for (const int ms : {-1, 0, 1}) {
    const std::chrono::milliseconds ahead{ms};
    records.records[0].ceiling = of_java + ahead;
    EXPECT_EQ(registry.Claim({kAddress, "uuid"}, {"pay", "fake", {}})->ceiling,
              std::max(of_java, of_java + ahead));
  }
}

}  // namespace
}  // namespace leaf
