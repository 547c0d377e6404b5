// What nodes of a cluster have to agree on.
#include "leaf/core/worker_ports.h"

#include <gtest/gtest.h>

#include <string>

namespace leaf::core {
namespace {

TEST(CheckSameCluster, NamesWhatDiffersWithBothValues) {
  const ClusterProperties ours{"pay", "zookeeper", IdLayout()};
  EXPECT_TRUE(CheckSameCluster(ours, ours, "it").ok());
  struct Case {
    ClusterProperties theirs;
    std::string what;
    std::string before;
    std::string now;
  };
  const std::int64_t epoch = kLeafEpochMillis;
  for (const Case& each : {Case{{"order", "zookeeper", IdLayout()}, "name", "'order'", "'pay'"},
                           Case{{"pay", "sql", IdLayout()}, "registry", "'sql'", "'zookeeper'"},
                           Case{{"pay", "zookeeper", IdLayout::Make(40, 11, 12, epoch).value()},
                                "layout",
                                "40-11-12",
                                "41-10-12"},
                           Case{{"pay", "zookeeper", IdLayout::Make(41, 10, 12, epoch + 1).value()},
                                "epoch_ms",
                                std::to_string(epoch + 1),
                                std::to_string(epoch)}}) {
    const auto checked = CheckSameCluster(each.theirs, ours, "/s/snowflake.state");
    ASSERT_FALSE(checked.ok()) << each.what;
    EXPECT_EQ(checked.error().code, ErrorCode::kRefused);
    for (const std::string& part : {std::string("/s/snowflake.state"), each.what, each.before, each.now})
      EXPECT_NE(checked.error().message.find(part), std::string::npos) << checked.error().message;
  }
}

TEST(IsSamePlace, OneMayTellMoreThanTheOther) {
  EXPECT_TRUE(IsSamePlace("m:12@5.0", "m:12@5.0"));
  EXPECT_FALSE(IsSamePlace("m:12@5.0", "m:12@6.0"));
  EXPECT_TRUE(IsSamePlace("m:12", "m:12@5.0"));
  EXPECT_TRUE(IsSamePlace("m:12@5.0", "m:12"));
  EXPECT_FALSE(IsSamePlace("m:1", "m:12@5.0"));
  EXPECT_FALSE(IsSamePlace("m:12@5.0", "m:13"));
  EXPECT_FALSE(IsSamePlace("", "m:12@5.0"));
}

}  // namespace
}  // namespace leaf::core
