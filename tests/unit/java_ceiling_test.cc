// What Java Leaf's local files say, and what it is worth.
#include "leaf/embed/java_ceiling.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "leaf/sys/java_worker_file.h"
#include "leaf/sys/static_registry.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf {
namespace {

constexpr const char* kAddress = "127.0.0.1:8686";

class JavaFiles : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::string folder = dir_.path() + "/pay/leafconf/8686";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  }
  std::vector<sys::JavaWorkerFile> Find() { return sys::FindJavaWorkerFiles(dir_.path(), "pay", kAddress); }
  Result<core::WorkerClaim> Claim(const std::string& cluster = "pay") {
    sys::StaticRegistry inner(17, {});
    embed::JavaCeilingRegistry registry(inner, dir_.path(), log_);
    return registry.Claim({kAddress, "uuid"}, {cluster, "static", {}});
  }

  testing::RecordingLogger log_;
  testing::TempDir dir_;
};

TEST_F(JavaFiles, AreFoundByClusterAndPort) {
  EXPECT_TRUE(Find().empty());
  Write("workerID.properties", "workerID=17");
  ASSERT_EQ(Find().size(), 1U);
  EXPECT_EQ(Find()[0].worker, 17U);
  EXPECT_FALSE(Find()[0].time);
  EXPECT_TRUE(sys::FindJavaWorkerFiles(dir_.path(), "pay", "127.0.0.1:8687").empty());
  EXPECT_TRUE(sys::FindJavaWorkerFiles(dir_.path(), "other", kAddress).empty());
  EXPECT_TRUE(sys::FindJavaWorkerFiles(dir_.path(), "pay", "").empty());
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
    for (const sys::JavaWorkerFile& file : Find()) {
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
  EXPECT_EQ(Claim()->ceiling, WallTimeOf(1795174509833) + embed::kJavaFileMargin);
  EXPECT_FALSE(Claim("other")->ceiling);
  // The later of the two.
  Write("workerID.json", R"({"ip":"127.0.0.1","port":"8686","workId":17,"timestamp":1795174509000})");
  EXPECT_EQ(Claim()->ceiling, WallTimeOf(1795174509833) + embed::kJavaFileMargin);
}

}  // namespace
}  // namespace leaf
