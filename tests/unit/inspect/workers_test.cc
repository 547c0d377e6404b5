// What is found in hand-made and random namespaces and tables, and what the plans do to them.
#include "leaf/inspect/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "leaf/inspect/sql_workers.h"
#include "leaf/inspect/worker_json.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/sql/worker_registry.h"
#include "support/scale.h"
#include "support/temp_dir.h"
#include "support/zookeeper_fakes.h"

namespace leaf::testing {
namespace {

using inspect::RepairChange;
using inspect::RepairStep;
using inspect::Snapshot;
using inspect::WorkerFinding;
using inspect::WorkerInspection;
using std::chrono::milliseconds;
using zookeeper::CeilingRecord;
using zookeeper::LeaseRecord;
using zookeeper::Operation;
using zookeeper::Tree;

constexpr std::int64_t kNowMillis = 1'795'000'000'000;
const WallTime kNow = WallTimeOf(kNowMillis);
constexpr std::int64_t kHour = 3'600'000;
constexpr std::string_view kUuid = "11111111-2222-3333-4444-555555555555";
constexpr std::string_view kOtherUuid = "99999999-2222-3333-4444-555555555555";

std::string Codes(const std::vector<WorkerFinding>& findings) {
  std::string text;
  for (const WorkerFinding& finding : findings)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", finding.code, finding.subject);
  return text;
}

// A cluster's namespace in memory, and all that write to it.
class World {
 public:
  explicit World(const std::string& cluster = "pay")
      : tree(Tree::Make(cluster).value()),
        properties{{cluster, "zookeeper", core::IdLayout()}, false},
        client(servers) {
    options.now = kNow;
    for (const std::string& folder : tree.Folders()) servers.Create(folder, "");
  }

  std::uint64_t Java(const std::string& address, std::int64_t timestamp = kNowMillis - 1000) {
    const std::string path = servers.CreateSequential(
        tree.ForeverPrefix(address), zookeeper::FormatForeverData(address, WallTimeOf(timestamp)));
    return zookeeper::ParseForeverName(path.substr(path.rfind('/') + 1))->worker;
  }
  std::string ForeverPath(const std::string& address, std::uint64_t worker) const {
    return tree.ForeverNode(zookeeper::FormatForeverName(address, worker));
  }
  // Does nothing if it exists.
  void Put(const std::string& path, const std::string& data) {
    servers.Apply({Operation::Create(path, data)}, 0);
  }
  void Own(std::uint64_t worker, const std::string& address, std::string_view uuid = kUuid) {
    Put(tree.Owner(worker), zookeeper::FormatOwner({std::string(uuid), address, "alpha", kNow}));
    Put(tree.Address(address), zookeeper::FormatAddress({std::string(uuid), worker}));
  }
  void Ceiling(std::uint64_t worker, std::int64_t millis) {
    Put(tree.Ceiling(worker), zookeeper::FormatCeiling({std::string(kUuid), 2, WallTimeOf(millis), 0, 0}));
  }
  void Lease(std::uint64_t worker, std::string_view uuid, std::optional<WallTime> ceiling) {
    Put(tree.Lease(worker), zookeeper::FormatLease({3, std::string(uuid), "192.0.2.99:1", ceiling}));
  }
  // Held by the session of `client`.
  void Live(const std::string& address, std::uint64_t worker, std::string_view uuid = kUuid) {
    const std::string data = zookeeper::FormatTemporary({"http://" + address, worker, std::string(uuid)});
    ASSERT_TRUE(client.Write({Operation::CreateEphemeral(tree.Temporary(address), data)})->done());
  }

  // The snapshot that a command with credentials reads.
  Snapshot ReadWithAccess() {
    Snapshot snapshot = Read();
    snapshot.open = inspect::ReadOpenNodes(client, tree).value();
    return snapshot;
  }
  Snapshot Read() { return inspect::ReadSnapshot(client, tree).value(); }
  WorkerInspection Inspect() { return inspect::Inspect(Read(), options, properties); }
  bool Apply(const RepairStep& step) { return inspect::ApplyStep(client, tree, step).value(); }
  void Repair() {
    for (const RepairStep& step : Inspect().steps) ASSERT_TRUE(Apply(step)) << step.what;
  }
  std::map<std::string, std::string> Everything() {
    std::map<std::string, std::string> data;
    for (const auto& [path, node] : servers.Snapshot()) data.emplace(path, node.data);
    return data;
  }
  std::optional<std::int64_t> CeilingMillis(std::uint64_t worker) {
    const auto data = servers.Data(tree.Ceiling(worker));
    if (!data) return std::nullopt;
    const auto record = zookeeper::ParseCeiling(*data);
    if (!record.ok() || !record->ceiling) return std::nullopt;
    return UnixMillis(*record->ceiling);
  }

  const Tree tree;
  zookeeper::PropertiesRecord properties;
  inspect::InspectionOptions options;
  MemoryZooKeeper servers;
  MemoryClient client;
};

// The one finding there is, with what the plan does about it.
void ExpectOnly(World& world, const std::string& code, const std::string& subject, bool repairable) {
  const WorkerInspection inspection = world.Inspect();
  ASSERT_EQ(Codes(inspection.findings), code + " " + subject);
  const WorkerFinding& finding = inspection.findings.front();
  EXPECT_EQ(finding.repairable, repairable);
  EXPECT_EQ(finding.left.empty(), repairable);
  EXPECT_FALSE(finding.cause.empty() || finding.consequence.empty() || finding.remedy.empty());
  EXPECT_EQ(inspection.steps.empty(), !repairable);
}

// ---- the snapshot

TEST(WorkerSnapshot, HoldsAllButWhatIsBelowForeignFolders) {
  World world;
  world.Java("192.0.2.1:80");
  world.servers.Create(world.tree.Forever() + "/lock", "x");
  world.servers.Create(world.tree.Forever() + "/lock/a", "y");
  world.servers.Create(world.tree.Base() + "/other", "z");
  world.servers.Create(world.tree.Base() + "/other/below", "not ours");
  world.servers.Create("/snowflake/neighbour", "");
  for (int i = 0; i < 200; ++i) world.Lease(static_cast<std::uint64_t>(i), kUuid, kNow);
  const Snapshot snapshot = world.Read();
  EXPECT_EQ(snapshot.Children(world.tree.Leases()).size(), 200U);
  EXPECT_EQ(snapshot.Below(world.tree.Forever()).size(), 3U);
  EXPECT_NE(snapshot.Find(world.tree.Base() + "/other"), nullptr);
  EXPECT_EQ(snapshot.Find(world.tree.Base() + "/other/below"), nullptr);
  EXPECT_EQ(snapshot.Find("/snowflake/neighbour"), nullptr);
}

TEST(WorkerSnapshot, OfNothingIsEmpty) {
  MemoryZooKeeper servers;
  MemoryClient client(servers);
  EXPECT_TRUE(inspect::ReadSnapshot(client, Tree::Make("pay").value())->nodes.empty());
}

TEST(WorkerSnapshot, ToleratesNodesThatComeAndGoBetweenAnyTwoCalls) {
  World counted;
  counted.Java("192.0.2.1:80");
  counted.Own(0, "192.0.2.1:80");
  const int before = counted.client.calls();
  counted.Read();
  const int calls = counted.client.calls() - before;
  for (int at = 0; at < calls; ++at) {
    for (const bool all : {false, true}) {
      World world;
      world.Java("192.0.2.1:80");
      world.Own(0, "192.0.2.1:80");
      world.client.BeforeCall(at, [&] {
        world.Java("192.0.2.2:80");
        world.servers.Delete(world.tree.Owner(0));
        world.servers.Delete(world.tree.Address("192.0.2.1:80"));
        if (all) world.servers.Delete(world.ForeverPath("192.0.2.1:80", 0));
      });
      const auto snapshot = inspect::ReadSnapshot(world.client, world.tree);
      ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
    }
  }
}

TEST(WorkerSnapshot, NeverShowsTheOwnerOfAFirstClaimWithoutItsNumber) {
  World counted;
  const int before = counted.client.calls();
  counted.Read();
  const int calls = counted.client.calls() - before;
  for (int at = 0; at < calls; ++at) {
    World world;
    world.client.BeforeCall(at, [&] { world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80"); });
    EXPECT_EQ(Codes(world.Inspect().findings), "") << "at call " << at;
  }
}

// ---- findings

TEST(WorkerInspection, AHealthyClusterHasNone) {
  World world;
  world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80");
  world.Java("192.0.2.2:80", kNowMillis + 4000);  // a clock that is a little ahead
  world.Ceiling(0, kNowMillis + 3000);
  world.Live("192.0.2.1:80", 0);
  world.Lease(1023, kUuid, kNow + milliseconds(3000));
  const WorkerInspection inspection = world.Inspect();
  EXPECT_EQ(Codes(inspection.findings), "");
  ASSERT_EQ(inspection.entries.size(), 3U);
  EXPECT_TRUE(inspection.entries[0].live);
  EXPECT_EQ(inspection.entries[0].owner, kUuid);
  EXPECT_EQ(inspection.entries[0].ceiling, kNow + milliseconds(3000));
  EXPECT_EQ(inspection.entries[0].records.size(), 5U);
  EXPECT_EQ(inspection.entries[2].kind, inspect::NumberKind::kLease);
  EXPECT_EQ(inspection.entries[2].generation, 3U);
}

TEST(WorkerInspection, AJavaNodeIsLiveWhileItReports) {
  World world;
  const std::string path = world.ForeverPath("192.0.2.1:80", world.Java("192.0.2.1:80", kNowMillis + kHour));
  const std::string used = world.tree.RecycleUsed() + "/workId:7";
  const std::string unused = world.tree.RecycleUnused() + "/workId:8";
  world.Put(world.tree.Base() + "/recycle", "");
  world.Put(world.tree.RecycleUsed(), "");
  world.Put(world.tree.RecycleUnused(), "");
  for (const auto& [name, worker] : {std::pair(used, 7), std::pair(unused, 8)}) {
    world.Put(
        name,
        fmt::format(R"({{"workId":{},"lastUsedIp":"192.0.2.9","lastUsedPort":"80","lastUsedTimestamp":{}}})",
                    worker, kNowMillis));
  }
  Snapshot snapshot = world.Read();
  // Which of the three are live, if all were written so long ago by the servers' clocks.
  const auto live = [&](milliseconds ago) {
    for (const std::string& name : {path, used, unused})
      snapshot.nodes.at(name).stat.modified_at = kNow - ago;
    std::string text;
    for (const inspect::WorkerEntry& entry :
         inspect::Inspect(snapshot, world.options, world.properties).entries) {
      EXPECT_EQ(entry.live, entry.java);
      text += fmt::format("{}:{} ", entry.worker, entry.live);
    }
    return text;
  };
  EXPECT_EQ(live(milliseconds(2900)), "0:true 7:true 8:false ");
  EXPECT_EQ(live(milliseconds(-2000)), "0:true 7:true 8:false ");
  EXPECT_EQ(live(inspect::kLiveReport - milliseconds(1)), "0:true 7:true 8:false ");
  EXPECT_EQ(live(inspect::kLiveReport), "0:false 7:false 8:false ");
  EXPECT_EQ(live(milliseconds(kHour)), "0:false 7:false 8:false ");
}

TEST(WorkerInspection, AReportOfLeafctlIsNoneOfJava) {
  World world;
  const std::uint64_t worker = world.Java("192.0.2.1:80", kNowMillis);
  const std::string path = world.ForeverPath("192.0.2.1:80", worker);
  world.Own(worker, "192.0.2.1:80");
  const auto inspect = [&](std::int64_t leaf_timestamp) {
    Snapshot snapshot = world.Read();
    snapshot.nodes.at(path).stat.modified_at = kNow;
    snapshot.nodes[world.tree.Ceiling(worker)].data =
        zookeeper::FormatCeiling({std::string(kUuid), 2, kNow, 0, leaf_timestamp});
    return inspect::Inspect(snapshot, world.options, world.properties).entries.at(0);
  };
  EXPECT_FALSE(inspect(kNowMillis).live);        // a leafctl wrote it, and has ended
  EXPECT_TRUE(inspect(kNowMillis - 3000).java);  // Java Leaf has written since
  world.Live("192.0.2.1:80", worker);
  EXPECT_TRUE(inspect(kNowMillis - 3000).live);
  EXPECT_FALSE(inspect(kNowMillis - 3000).java);
}

TEST(WorkerInspection, NamesThatBreakJavaAreToldFromThoseThatMayHoldANumber) {
  World world;
  const std::string forever = world.tree.Forever() + "/";
  for (const char* const name : {"lock", "a-b", "x-0000000001", "_c_3f-9-lock-0000000002", "192.0.2.1:80-",
                                 "192.0.2.1:80-99999999999", "192.0.2.1-0000000003"}) {
    world.servers.Create(forever + name, "");
    ExpectOnly(world, "foreign-child", forever + name, true);
    world.Repair();
    EXPECT_EQ(world.servers.Data(forever + name), std::nullopt);
  }
  world.servers.Create(forever + "web-1:80-0000000003", zookeeper::FormatForeverData("web-1:80", kNow));
  ExpectOnly(world, "dashed-address", forever + "web-1:80-0000000003", false);
  world.servers.Delete(forever + "web-1:80-0000000003");
  world.servers.Create(forever + "192.0.2.1:80-7", zookeeper::FormatForeverData("192.0.2.1:80", kNow));
  ExpectOnly(world, "malformed-name", forever + "192.0.2.1:80-7", false);
}

TEST(WorkerInspection, AForeignChildThatASessionHoldsIsLeft) {
  World world;
  const std::string path = world.tree.Forever() + "/lock";
  ASSERT_TRUE(world.client.Write({Operation::CreateEphemeral(path, "")})->done());
  ExpectOnly(world, "foreign-child", path, false);
}

TEST(WorkerInspection, AForeignFolderGoesWithAllThatIsBelow) {
  World world;
  const std::string path = world.tree.Forever() + "/locks";
  for (const char* const below : {"", "/a", "/a/b", "/c"}) world.servers.Create(path + below, "data");
  world.Repair();
  EXPECT_TRUE(world.servers.Children(world.tree.Forever()).empty());
}

TEST(WorkerInspection, ATimeInTheFutureIsTakenBackOnlyIfNoNodeNeedsIt) {
  const std::int64_t future = kNowMillis + kHour;
  {
    World world;
    world.Java("192.0.2.1:80", future);
    ExpectOnly(world, "future-time", world.ForeverPath("192.0.2.1:80", 0), false);
    world.options.java_retired = true;
    ExpectOnly(world, "future-time", world.ForeverPath("192.0.2.1:80", 0), true);
    world.Repair();
    EXPECT_EQ(world.CeilingMillis(0), future + 4000);
    // The record says that it covers what stands there now: a claim finds its ceiling without further ado.
    const auto ceiling = zookeeper::ParseCeiling(*world.servers.Data(world.tree.Ceiling(0)));
    const auto node = world.client.Get(world.ForeverPath("192.0.2.1:80", 0)).value();
    EXPECT_EQ(ceiling->leaf_version, node->stat.version);
    EXPECT_EQ(ceiling->leaf_timestamp_ms, kNowMillis);
    ExpectOnly(world, "future-ceiling", world.tree.Ceiling(0), false);
  }
  {
    World world;  // owned
    world.options.java_retired = true;
    world.Own(world.Java("192.0.2.1:80", future), "192.0.2.1:80");
    ExpectOnly(world, "future-time", world.ForeverPath("192.0.2.1:80", 0), false);
  }
  {
    World world;  // running
    world.options.java_retired = true;
    world.Java("192.0.2.1:80", future);
    world.options.moving.insert(world.ForeverPath("192.0.2.1:80", 0));
    ExpectOnly(world, "future-time", world.ForeverPath("192.0.2.1:80", 0), false);
  }
  {
    World world;  // a higher ceiling than that
    world.options.java_retired = true;
    world.Java("192.0.2.1:80", future);
    world.Ceiling(0, future + kHour);
    world.Repair();
    EXPECT_EQ(world.CeilingMillis(0), future + kHour);
  }
  {
    World world;  // what no ceiling can hold
    world.options.java_retired = true;
    world.Java("192.0.2.1:80", core::kEpochMillisMax);
    ExpectOnly(world, "future-time", world.ForeverPath("192.0.2.1:80", 0), false);
  }
  {
    World world;  // only Java ran here: leafctl's folders are missing
    for (const std::string& folder : {world.tree.Owners(), world.tree.Addresses(), world.tree.Ceilings(),
                                      world.tree.Leases(), world.tree.Temporaries(), world.tree.Own()})
      ASSERT_TRUE(world.servers.Delete(folder));
    world.options.java_retired = true;
    world.Java("192.0.2.1:80", future);
    world.Repair();
    EXPECT_EQ(world.CeilingMillis(0), future + 4000);
  }
}

TEST(WorkerInspection, MalformedDataIsWrittenAnewButItsFutureTimeIsNotForgotten) {
  World world;
  const std::string path = world.ForeverPath("192.0.2.1:80", world.Java("192.0.2.1:80"));
  for (const char* const data :
       {"", "null", "[]", "{", "{\"ip\":\"a\",\"port\":\"1\",\"timestamp\":1,\"zone\":2}", "\xff"}) {
    world.servers.Set(path, data);
    ExpectOnly(world, "malformed-data", path, true);
    world.options.moving = {path};
    ExpectOnly(world, "malformed-data", path, false);
    world.options.moving.clear();
    world.Repair();
    EXPECT_EQ(world.servers.Data(path), R"({"ip":"192.0.2.1","port":"80","timestamp":1795000000000})");
  }
  world.servers.Set(path, fmt::format(R"({{"timestamp":{},"zone":2}})", kNowMillis + kHour));
  ExpectOnly(world, "future-time", path, false);
  world.servers.Set(path, R"({"timestamp":18446744073709551615})");
  ExpectOnly(world, "future-time", path, false);
  world.servers.Set(path, R"({"timestamp":1e300,"x":1})");
  ExpectOnly(world, "future-time", path, false);
  // Java takes digits in quotes for a number.
  world.servers.Set(path, fmt::format(R"({{"ip":"192.0.2.1","timestamp":" {} "}})", kNowMillis + kHour));
  ExpectOnly(world, "future-time", path, false);
  for (const char* const unread : {R"({"timestamp":"soon","x":1})", R"({"timestamp":[9],"x":1})"}) {
    world.servers.Set(path, unread);
    ExpectOnly(world, "malformed-data", path, false);
  }
}

TEST(WorkerInspection, NumbersAndAddressesThatAreThereTwice) {
  World world;
  world.Java("192.0.2.1:80");
  world.Java("192.0.2.1:80");
  ExpectOnly(world, "duplicate-address", "192.0.2.1:80", false);
  world.servers.Delete(world.ForeverPath("192.0.2.1:80", 1));
  world.servers.Create(world.ForeverPath("192.0.2.2:80", 0),
                       zookeeper::FormatForeverData("192.0.2.2:80", kNow));
  ExpectOnly(world, "duplicate-number", "0", false);
}

TEST(WorkerInspection, NumbersOutsideTheLayoutAndTheRange) {
  World world;
  world.servers.Create(world.ForeverPath("192.0.2.1:80", 1024),
                       zookeeper::FormatForeverData("192.0.2.1:80", kNow));
  ExpectOnly(world, "number-too-large", world.ForeverPath("192.0.2.1:80", 1024), false);
  world.servers.Delete(world.ForeverPath("192.0.2.1:80", 1024));
  world.options.worker_begin = 512;
  world.Java("192.0.2.2:80");
  EXPECT_EQ(world.Inspect().findings.at(0).code, "number-outside-range");
  // The range is that of leases then.
  world.properties.recycle = true;
  EXPECT_EQ(Codes(world.Inspect().findings), "");
}

TEST(WorkerInspection, TheNextAddressGetsANumberThatDoesNotFit) {
  World world;
  for (int i = 0; i < 1024; ++i) {
    const std::string address = fmt::format("host{}:80", i);
    world.Java(address);
    if (i < 1023) {
      world.servers.Delete(world.ForeverPath(address, static_cast<std::uint64_t>(i)));
    }
  }
  ExpectOnly(world, "numbers-exhausted", world.tree.Forever(), false);
}

TEST(WorkerInspection, AddressesThatManyMachinesHave) {
  for (const char* const address :
       {"172.17.0.1:80", "127.0.0.1:80", ":80", "localhost:80", "169.254.1.1:80"}) {
    World world;
    world.Java(address);
    ExpectOnly(world, "shared-address", world.ForeverPath(address, 0), false);
  }
}

// An owner that is cut off shows no sign of life, and may issue all the same: without its record the number
// could be given to another node. Only an operator knows whether it is gone for good.
TEST(WorkerInspection, AnOwnerWithoutItsNumberIsLeftToWorkerRelease) {
  World world;
  world.Own(7, "192.0.2.1:80");
  world.Ceiling(7, kNowMillis);
  const char* const both =
      "orphaned-owner /snowflake/pay/leafctl/owners/7; "
      "orphaned-hold /snowflake/pay/leafctl/addresses/192.0.2.1:80";
  EXPECT_EQ(Codes(world.Inspect().findings), both);
  world.Live("192.0.2.1:80", 7);
  EXPECT_TRUE(world.Inspect().steps.empty());
  world.client.Expire();
  const WorkerInspection inspection = world.Inspect();
  EXPECT_EQ(Codes(inspection.findings), both);
  EXPECT_TRUE(inspection.steps.empty());
  for (const WorkerFinding& finding : inspection.findings)
    EXPECT_NE(finding.remedy.find("leafctl worker release 7"), std::string::npos) << finding.remedy;

  const auto release = inspect::PlanRelease(world.Read(), 7, false);
  ASSERT_TRUE(release.ok());
  EXPECT_TRUE(world.Apply(**release));
  EXPECT_EQ(Codes(world.Inspect().findings), "");
  EXPECT_EQ(world.CeilingMillis(7), kNowMillis);
}

TEST(WorkerInspection, AHoldWithoutItsNumberAndItsOwnerGoesUnlessItsNodeIsLive) {
  World world;
  world.Own(7, "192.0.2.1:80");
  world.servers.Delete(world.tree.Owner(7));
  world.Live("192.0.2.1:80", 7);
  EXPECT_TRUE(world.Inspect().steps.empty());
  world.client.Expire();
  ExpectOnly(world, "orphaned-hold", world.tree.Address("192.0.2.1:80"), true);
  world.Repair();
  EXPECT_EQ(Codes(world.Inspect().findings), "");
}

// The operator takes his time to say yes; a daemon starts meanwhile, and makes the node again: of the same
// version.
TEST(WorkerInspection, AStepIsNotDoneToANodeThatWasMadeAgain) {
  World world;
  const std::string path = world.tree.Temporary("192.0.2.1:80");
  const std::string data = zookeeper::FormatTemporary({"http://192.0.2.1:80", 0, std::string(kUuid)});
  world.servers.Create(path, data);
  const WorkerInspection inspection = world.Inspect();
  ASSERT_EQ(Codes(inspection.findings), "dead-temporary " + path);
  ASSERT_TRUE(
      world.client.Write({Operation::Delete(path, 0), Operation::CreateEphemeral(path, data)})->done());
  EXPECT_FALSE(world.Apply(inspection.steps.at(0)));
  EXPECT_TRUE(world.servers.Data(path).has_value()) << "the sign of life of a node that runs";
  EXPECT_TRUE(world.Inspect().steps.empty());
}

TEST(WorkerInspection, AFirstClaimUnderWayIsNoFinding) {
  World world;
  world.servers.Create(world.tree.Address("192.0.2.1:80"),
                       zookeeper::FormatAddress({std::string(kUuid), {}}));
  EXPECT_EQ(Codes(world.Inspect().findings), "");
}

TEST(WorkerInspection, OwnersThatDisagreeAreLeft) {
  World world;
  world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80");
  world.servers.Set(world.tree.Address("192.0.2.1:80"),
                    zookeeper::FormatAddress({std::string(kOtherUuid), 0}));
  ExpectOnly(world, "owners-disagree", world.tree.Owner(0), false);
  world.servers.Delete(world.tree.Address("192.0.2.1:80"));
  ExpectOnly(world, "owners-disagree", world.tree.Owner(0), false);
}

TEST(WorkerInspection, TwoThatAreLiveWithOneNumber) {
  World world;
  world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80");
  world.Live("192.0.2.1:80", 0, kOtherUuid);
  ExpectOnly(world, "live-not-owner", world.tree.Temporary("192.0.2.1:80"), false);
}

TEST(WorkerInspection, ALeaseAtOrBelowASuffix) {
  const auto world_with = [](std::string_view uuid) {
    auto world = std::make_unique<World>();
    for (int i = 0; i < 5; ++i) world->Java(fmt::format("192.0.2.{}:80", i));
    world->Lease(4, uuid, kNow - milliseconds(5));
    world->Lease(5, "", kNow);
    return world;
  };
  auto world = world_with("");
  ExpectOnly(*world, "lease-below-forever", world->tree.Lease(4), true);
  world->Repair();
  EXPECT_EQ(world->servers.Data(world->tree.Lease(4)), std::nullopt);
  EXPECT_EQ(world->CeilingMillis(4), kNowMillis - 5);
  EXPECT_EQ(Codes(world->Inspect().findings), "");
  world = world_with(kUuid);
  ExpectOnly(*world, "lease-below-forever", world->tree.Lease(4), false);
  world = world_with("");
  world->Own(4, "192.0.2.4:80");
  ExpectOnly(*world, "lease-below-forever", world->tree.Lease(4), false);
  world = world_with("");
  world->Live("192.0.2.99:1", 4);
  ExpectOnly(*world, "lease-below-forever", world->tree.Lease(4), false);
}

// A suffix that an operator made by hand is no number that Leaf's counter has passed: once the lease was
// gone, the number would be leased again, without its ceiling.
TEST(WorkerInspection, ALeaseThatCouldBeLeasedAgainIsNotRemoved) {
  World world;
  world.servers.Create(world.ForeverPath("192.0.2.1:80", 900),
                       zookeeper::FormatForeverData("192.0.2.1:80", kNow));
  world.Lease(800, "", kNow);
  ExpectOnly(world, "lease-below-forever", world.tree.Lease(800), false);
}

TEST(WorkerInspection, ATemporaryThatNoSessionHoldsGoes) {
  World world;
  world.servers.Create(world.tree.Temporary("192.0.2.1:80"), "anything");
  ExpectOnly(world, "dead-temporary", world.tree.Temporary("192.0.2.1:80"), true);
  EXPECT_FALSE(world.Inspect().entries.size() > 0);
  world.Repair();
  EXPECT_EQ(Codes(world.Inspect().findings), "");
}

TEST(WorkerInspection, DamagedRecordsOfOursAreNotGuessedAt) {
  World world;
  world.Java("192.0.2.1:80");
  world.Own(0, "192.0.2.1:80");
  world.Ceiling(0, kNowMillis);
  world.Lease(900, "", kNow);
  for (const std::string& path : {world.tree.Owner(0), world.tree.Address("192.0.2.1:80"),
                                  world.tree.Ceiling(0), world.tree.Lease(900)}) {
    const std::string good = *world.servers.Data(path);
    world.servers.Set(path, good + "x");
    ExpectOnly(world, "malformed-record", path, false);
    world.servers.Set(path, good);
  }
  world.servers.Create(world.tree.Owners() + "/07", "");
  ExpectOnly(world, "malformed-name", world.tree.Owners() + "/07", false);
}

TEST(WorkerInspection, AMissingForeverIsMadeUnlessItsNumbersAreInUse) {
  World world;
  ASSERT_TRUE(world.servers.Delete(world.tree.Forever()));
  ExpectOnly(world, "virgin-namespace", world.tree.Forever(), true);
  world.Ceiling(3, kNowMillis);
  ExpectOnly(world, "forever-missing", world.tree.Forever(), false);

  MemoryZooKeeper empty;
  MemoryClient client(empty);
  const Snapshot nothing = inspect::ReadSnapshot(client, world.tree).value();
  const WorkerInspection inspection = inspect::Inspect(nothing, world.options, world.properties);
  ASSERT_EQ(inspection.steps.size(), 1U);
  EXPECT_TRUE(inspect::ApplyStep(client, world.tree, inspection.steps[0]).value());
  EXPECT_TRUE(client.Exists(world.tree.Forever()).value());
}

// ---- access rules

std::set<std::string> Open(const MemoryZooKeeper& servers, const Tree& tree) {
  std::set<std::string> open;
  for (const auto& [path, node] : servers.Snapshot()) {
    if (tree.IsOwn(path) && node.open) open.insert(path);
  }
  return open;
}

TEST(WorkerAccess, OpenNodesOfOursAreOneFindingAndOneStepClosesThem) {
  World world;
  world.client.Authenticate();
  const std::uint64_t worker = world.Java("192.0.2.1:80");
  world.Own(worker, "192.0.2.1:80");
  world.servers.Create(world.tree.Witnesses(), "");
  world.servers.Create(world.tree.Witness("order"), "whatever it says");
  EXPECT_TRUE(world.Inspect().findings.empty()) << "rules are looked at only where there are credentials";
  // Some are protected already.
  ASSERT_TRUE(world.servers.Protect(world.tree.Leases(), 0));

  const WorkerInspection inspection =
      inspect::Inspect(world.ReadWithAccess(), world.options, world.properties);
  ASSERT_EQ(Codes(inspection.findings), "open-to-everyone " + world.tree.Own());
  const WorkerFinding& finding = inspection.findings.front();
  EXPECT_TRUE(finding.repairable);
  for (const std::string name : {"leafctl,", "leafctl/owners,", "leafctl/owners/0,", "leafctl/witness/order"})
    EXPECT_NE(finding.cause.find(name), std::string::npos) << finding.cause;
  EXPECT_EQ(finding.cause.find("leafctl/leases"), std::string::npos) << finding.cause;
  EXPECT_EQ(finding.cause.find("forever"), std::string::npos) << "Java has to write there";
  ASSERT_EQ(inspection.steps.size(), 1U);
  const RepairStep& step = inspection.steps.front();
  std::set<std::string> changed;
  for (const RepairChange& change : step.changes) {
    EXPECT_EQ(change.kind, RepairChange::Kind::kProtect);
    EXPECT_EQ(change.before.facts.at(0), std::pair(std::string("access"), std::string("world:anyone:cdrwa")));
    changed.insert(change.before.name);
  }
  EXPECT_EQ(changed, Open(world.servers, world.tree));

  const auto before = world.Everything();
  EXPECT_TRUE(world.Apply(step));
  EXPECT_EQ(world.Everything(), before);
  EXPECT_TRUE(Open(world.servers, world.tree).empty());
  EXPECT_TRUE(world.servers.Find(world.ForeverPath("192.0.2.1:80", worker))->open);
  EXPECT_TRUE(world.servers.Find(world.tree.Forever())->open);
  EXPECT_TRUE(inspect::Inspect(world.ReadWithAccess(), world.options, world.properties).findings.empty());
}

TEST(WorkerAccess, RulesThatChangedSinceAreLeftAndTheRestIsDone) {
  World world;
  world.client.Authenticate();
  world.Ceiling(5, kNowMillis);
  world.Ceiling(6, kNowMillis);
  const WorkerInspection inspection =
      inspect::Inspect(world.ReadWithAccess(), world.options, world.properties);
  ASSERT_EQ(inspection.steps.size(), 1U);
  // An operator sets other rules on one node, and another node is deleted.
  ASSERT_TRUE(world.servers.Protect(world.tree.Ceiling(5), 0));
  ASSERT_TRUE(world.servers.Delete(world.tree.Ceiling(6)));
  EXPECT_FALSE(world.Apply(inspection.steps[0]));
  EXPECT_EQ(world.servers.Find(world.tree.Ceiling(5))->access_version, 1) << "written over";
  EXPECT_TRUE(Open(world.servers, world.tree).empty());
}

// Such a daemon could not write its ceiling any more, and would stop.
TEST(WorkerAccess, NothingIsClosedWhileADaemonWithoutCredentialsRuns) {
  World world;
  world.Live("192.0.2.1:80", 0);
  MemoryClient us(world.servers);
  us.Authenticate();
  const auto inspect = [&] {
    Snapshot snapshot = world.Read();
    snapshot.open = inspect::ReadOpenNodes(us, world.tree).value();
    return inspect::Inspect(snapshot, world.options, world.properties);
  };
  WorkerInspection inspection = inspect();
  ASSERT_EQ(Codes(inspection.findings), "open-to-everyone " + world.tree.Own());
  EXPECT_FALSE(inspection.findings[0].repairable);
  EXPECT_NE(inspection.findings[0].left.find("leafctl/temporary/192.0.2.1:80"), std::string::npos);
  EXPECT_TRUE(inspection.steps.empty());
  // It comes back with credentials.
  world.client.Authenticate();
  world.client.Expire();
  world.Live("192.0.2.1:80", 0);
  inspection = inspect();
  ASSERT_EQ(inspection.findings.size(), 1U);
  EXPECT_TRUE(inspection.findings[0].repairable);
}

TEST(WorkerAccess, ManyNodesAreNamedInPart) {
  World world;
  world.client.Authenticate();
  for (std::uint64_t i = 0; i < 200; ++i) world.Ceiling(i, kNowMillis);
  const auto open = inspect::ReadOpenNodes(world.client, world.tree).value();
  EXPECT_EQ(open.size(), Open(world.servers, world.tree).size());
  const auto finding = inspect::InspectAccess(world.tree, open);
  ASSERT_TRUE(finding);
  EXPECT_NE(finding->cause.find(fmt::format("and {} more", open.size() - 20)), std::string::npos)
      << finding->cause;
  EXPECT_FALSE(inspect::InspectAccess(world.tree, {}));
}

TEST(WorkerAccess, WhatARepairMakesIsProtectedToo) {
  World world;
  world.client.Authenticate();
  world.Java("192.0.2.1:80", kNowMillis + kHour);
  for (const std::string& folder : {world.tree.Owners(), world.tree.Addresses(), world.tree.Ceilings(),
                                    world.tree.Leases(), world.tree.Temporaries(), world.tree.Own()})
    ASSERT_TRUE(world.servers.Delete(folder));
  world.options.java_retired = true;
  world.Repair();
  ASSERT_TRUE(world.servers.Data(world.tree.Ceiling(0)));
  EXPECT_EQ(Open(world.servers, world.tree), std::set<std::string>{});
}

TEST(WorkerInspection, TheForksTreeIsOnlyRead) {
  World world;
  const auto add = [&](const std::string& folder, int worker, const std::string& timestamp) {
    world.servers.Create(
        fmt::format("{}/workId:{}", folder, worker),
        fmt::format(R"({{"workId":{},"lastUsedIp":null,"lastUsedPort":null,"lastUsedTimestamp":{}}})", worker,
                    timestamp));
  };
  const std::string unused = world.tree.RecycleUnused();
  const std::string used = world.tree.RecycleUsed();
  for (const std::string& folder : {world.tree.Base() + "/recycle", unused, used})
    world.servers.Create(folder, "");
  add(unused, 1, "null");
  add(used, 2, std::to_string(kNowMillis - 2 * kHour));
  EXPECT_EQ(Codes(world.Inspect().findings), "");
  add(unused, 1024, "null");
  add(used, 3, "null");
  add(unused, 2, "null");
  add(unused, 9, std::to_string(kNowMillis + kHour));
  for (int i = 0; i < 5; ++i) world.Java(fmt::format("192.0.2.{}:80", i));
  add(used, 4, std::to_string(kNowMillis - 2 * kHour));
  world.servers.Create(unused + "/x", "");
  const WorkerInspection inspection = world.Inspect();
  EXPECT_TRUE(inspection.steps.empty());
  std::multiset<std::string> codes;
  for (const WorkerFinding& finding : inspection.findings) codes.insert(finding.code);
  EXPECT_EQ(codes, (std::multiset<std::string>{"future-time", "malformed-name", "recycled-lost",
                                               "recycled-too-large", "recycled-twice", "two-number-spaces",
                                               "two-number-spaces", "two-number-spaces"}));
}

TEST(WorkerInspection, NumbersOfRunningNodesOfTheForkAreNamed) {
  for (const bool recycle : {false, true}) {
    World world;
    world.properties.recycle = recycle;
    for (const std::string& folder :
         {world.tree.Base() + "/recycle", world.tree.RecycleUnused(), world.tree.RecycleUsed()})
      world.servers.Create(folder, "");
    const auto add = [&](std::uint64_t worker, std::int64_t timestamp) {
      const std::string data = fmt::format(
          R"({{"workId":{},"lastUsedIp":"192.0.2.9","lastUsedPort":"80","lastUsedTimestamp":{}}})", worker,
          timestamp);
      world.servers.Create(world.tree.RecycleUsed(worker), data);
    };
    add(2, kNowMillis - 3000);
    add(3, kNowMillis - 2 * kHour);
    add(700, kNowMillis - kHour);
    world.Lease(3, "", kNow);  // free: not one number in two trees
    ExpectOnly(world, "fork-running", world.tree.RecycleUsed(), false);
    const WorkerFinding finding = world.Inspect().findings.front();
    EXPECT_NE(finding.cause.find("2 (192.0.2.9:80), 700 (192.0.2.9:80)"), std::string::npos) << finding.cause;
    EXPECT_EQ(finding.consequence.find("repeat") == std::string::npos, recycle) << finding.consequence;
  }
}

TEST(WorkerInspection, DashesInTheClustersName) {
  World world("pay-core");
  ExpectOnly(world, "dashed-cluster", "/snowflake/pay-core", false);
}

// ---- release

TEST(WorkerRelease, OfAFixedNumberTakesOwnerAndHoldAndLeavesTheCeiling) {
  World world;
  world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80");
  world.Ceiling(0, kNowMillis);
  const auto step = inspect::PlanRelease(world.Read(), 0, false);
  ASSERT_TRUE(step.ok() && *step);
  const auto before = world.Everything();
  EXPECT_TRUE(world.Apply(**step));
  auto expected = before;
  expected.erase(world.tree.Owner(0));
  expected.erase(world.tree.Address("192.0.2.1:80"));
  EXPECT_EQ(world.Everything(), expected);
  EXPECT_FALSE(inspect::PlanRelease(world.Read(), 0, false).value());
  EXPECT_EQ(inspect::PlanRelease(world.Read(), 1, false).error().code, ErrorCode::kNotFound);
}

TEST(WorkerRelease, IsRefusedWhileItsNodeIsLiveAndFailsIfItComesUpMeanwhile) {
  World world;
  world.Own(world.Java("192.0.2.1:80"), "192.0.2.1:80");
  const auto step = inspect::PlanRelease(world.Read(), 0, false);
  ASSERT_TRUE(step.ok() && *step);
  world.Live("192.0.2.1:80", 0);
  const auto before = world.Everything();
  EXPECT_FALSE(world.Apply(**step));
  EXPECT_EQ(world.Everything(), before);
  EXPECT_EQ(inspect::PlanRelease(world.Read(), 0, false).error().code, ErrorCode::kRefused);
}

TEST(WorkerRelease, OfALeaseRaisesItsGenerationAndKeepsItsCeiling) {
  World world;
  world.Lease(9, kUuid, kNow);
  const auto step = inspect::PlanRelease(world.Read(), 9, true);
  ASSERT_TRUE(step.ok() && *step);
  ASSERT_TRUE(world.Apply(**step));
  EXPECT_EQ(zookeeper::ParseLease(*world.servers.Data(world.tree.Lease(9))).value(),
            (LeaseRecord{4, "", "192.0.2.99:1", kNow}));
  EXPECT_FALSE(inspect::PlanRelease(world.Read(), 9, true).value());
}

// A pod that was killed comes back at its address with another lease.
TEST(WorkerRelease, OfALeaseWhoseLastHolderHasAnotherOneByNow) {
  World world;
  world.Lease(9, kUuid, kNow);
  world.Live("192.0.2.99:1", 8);
  const auto inspection = world.Inspect();
  const auto entry = std::find_if(inspection.entries.begin(), inspection.entries.end(),
                                  [](const auto& each) { return each.worker == 9; });
  ASSERT_NE(entry, inspection.entries.end());
  EXPECT_FALSE(entry->live);
  const auto step = inspect::PlanRelease(world.Read(), 9, true);
  ASSERT_TRUE(step.ok()) << step.error().message;
  ASSERT_TRUE(*step);
  EXPECT_TRUE(world.Apply(**step));
  world.Lease(8, kUuid, kNow);
  EXPECT_EQ(inspect::PlanRelease(world.Read(), 8, true).error().code, ErrorCode::kRefused);
}

// ---- random namespaces

void Fill(World& world, std::mt19937_64& random) {
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  const auto any = [&](std::uint64_t end) { return random() % end; };
  const auto time = [&] { return kNowMillis + static_cast<std::int64_t>(any(4 * kHour)) - 3 * kHour; };
  const auto uuid = [&] { return chance(30) ? std::string() : std::string(chance(50) ? kUuid : kOtherUuid); };
  const std::vector<std::string> hosts{"192.0.2.1", "192.0.2.2", "192.0.2.3", "172.17.0.1", "", "web-1"};
  const auto address = [&] { return fmt::format("{}:{}", hosts[any(hosts.size())], 80 + any(3)); };
  for (std::uint64_t i = any(12); i > 0; --i) {
    const std::string name = address();
    const std::string path = world.servers.CreateSequential(world.tree.ForeverPrefix(name), "");
    if (chance(80)) world.servers.Set(path, zookeeper::FormatForeverData(name, WallTimeOf(time())));
    if (chance(10)) world.servers.Set(path, fmt::format(R"({{"timestamp":{},"a":1}})", time()));
    if (chance(20)) world.options.moving.insert(path);
    if (chance(15)) world.servers.Delete(path);
  }
  for (std::uint64_t i = any(3); i > 0; --i)
    world.Put(fmt::format("{}/lock{}", world.tree.Forever(), any(5)), "x");
  if (chance(30))
    world.Put(world.ForeverPath(address(), any(2000)), zookeeper::FormatForeverData("a:1", kNow));
  for (std::uint64_t i = any(8); i > 0; --i) {
    const std::uint64_t worker = any(20);
    const std::string name = address();
    if (chance(60)) {
      world.Put(world.tree.Owner(worker),
                chance(10) ? "x" : zookeeper::FormatOwner({std::string(kUuid), name, "alpha", kNow}));
    }
    if (chance(60)) {
      world.Put(world.tree.Address(name),
                zookeeper::FormatAddress(
                    {std::string(kUuid), chance(20) ? std::optional<std::uint64_t>() : worker}));
    }
    if (chance(60)) world.Ceiling(worker, time());
    if (chance(10)) world.servers.Set(world.tree.Ceiling(any(20)), "x");
    if (chance(40))
      world.Lease(any(40), uuid(), chance(20) ? std::nullopt : std::optional(WallTimeOf(time())));
    if (chance(20)) world.Put(world.tree.Temporary(address()), "x");
  }
  for (std::uint64_t i = any(3); i > 0; --i) {
    const std::string data = zookeeper::FormatTemporary({"", any(20), uuid()});
    EXPECT_TRUE(world.client.Write({Operation::CreateEphemeral(world.tree.Temporary(address()), data)}).ok());
  }
  if (chance(50)) world.options.java_retired = true;
}

// The latest time that is known to bound what a number issued, wherever it stands.
std::map<std::uint64_t, std::int64_t> Bounds(const MemoryZooKeeper::Nodes& nodes, const Tree& tree) {
  std::map<std::uint64_t, std::int64_t> bounds;
  const auto raise = [&](std::uint64_t worker, std::optional<WallTime> time) {
    if (time) bounds[worker] = std::max(bounds[worker], UnixMillis(*time));
  };
  for (const auto& [path, node] : nodes) {
    const std::string folder = path.substr(0, path.rfind('/'));
    const std::string name = path.substr(path.rfind('/') + 1);
    if (folder == tree.Ceilings()) {
      if (const auto record = zookeeper::ParseCeiling(node.data); record.ok())
        raise(*zookeeper::ParseNumberName(name), record->ceiling);
    } else if (folder == tree.Leases()) {
      if (const auto record = zookeeper::ParseLease(node.data); record.ok())
        raise(*zookeeper::ParseNumberName(name), record->ceiling);
    } else if (folder == tree.Forever()) {
      const auto parsed = zookeeper::ParseForeverName(name);
      const auto record = zookeeper::ParseForeverData(node.data);
      if (parsed && record.ok()) raise(parsed->worker, WallTimeOf(record->timestamp_ms));
    }
  }
  return bounds;
}

TEST(WorkerRepair, OfRandomNamespacesLowersNothingRemovesNoNumberAndLeavesOnlyWhatItSaid) {
  int steps = 0;
  for (std::uint64_t seed = 0; seed < testing::Scaled(250U); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    World world;
    Fill(world, random);
    const auto before = world.servers.Snapshot();
    const WorkerInspection first = world.Inspect();
    for (const RepairStep& step : first.steps) ASSERT_TRUE(world.Apply(step)) << step.what;
    steps += static_cast<int>(first.steps.size());
    const auto after = world.servers.Snapshot();

    const auto bounds = Bounds(after, world.tree);
    for (const auto& [worker, bound] : Bounds(before, world.tree)) {
      const auto found = bounds.find(worker);
      ASSERT_TRUE(found != bounds.end() && found->second >= bound) << "number " << worker << " was lowered";
    }
    for (const auto& [path, node] : before) {
      if (after.count(path) > 0) continue;
      const std::string name = path.substr(path.rfind('/') + 1);
      if (path.starts_with(world.tree.Forever())) {
        EXPECT_TRUE(name.starts_with("lock")) << path << " was removed";
      }
      EXPECT_EQ(node.stat.ephemeral_owner, 0) << path;
    }
    for (const std::string& path : world.options.moving)
      EXPECT_EQ(after.count(path) == 0 ? "" : after.at(path).data,
                before.count(path) == 0 ? "" : before.at(path).data);

    const WorkerInspection second = world.Inspect();
    EXPECT_TRUE(second.steps.empty()) << second.steps.front().what;
    std::set<std::string> left;
    for (const WorkerFinding& finding : first.findings) {
      if (!finding.repairable) left.insert(finding.code + " " + finding.subject);
    }
    for (const WorkerFinding& finding : second.findings) {
      // A time that became a ceiling is said as that.
      if (finding.code == "future-ceiling") continue;
      EXPECT_TRUE(left.count(finding.code + " " + finding.subject) > 0)
          << finding.code << " " << finding.subject << " is new: " << finding.cause;
    }
  }
  EXPECT_GT(steps, testing::Scaled(250)) << "the namespaces are too healthy to show anything";
}

TEST(WorkerRepair, AStepWhoseRecordsHaveChangedMeanwhileDoesNothingAtAll) {
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    World world;
    Fill(world, random);
    for (const RepairStep& step : world.Inspect().steps) {
      const RepairChange& change = step.changes[random() % step.changes.size()];
      const std::string& path = change.before.name;
      if (change.kind == RepairChange::Kind::kCreate) {
        world.servers.Create(path, "another client's");
      } else {
        world.servers.Set(path, *world.servers.Data(path));
      }
      const auto before = world.Everything();
      EXPECT_FALSE(world.Apply(step)) << step.what;
      EXPECT_EQ(world.Everything(), before) << step.what;
      ++changed;
    }
  }
  EXPECT_GT(changed, 100);
}

// ---- tables

class Tables : public ::testing::Test {
 protected:
  Tables() { options_.now = kNow; }

  inspect::NumberRow Number(std::int64_t id, const std::string& address, std::int64_t timestamp) {
    return {id, "192.0.2.1", "80", address, timestamp, std::nullopt, std::nullopt};
  }
  inspect::OwnerRow Owner(std::int64_t worker, const std::string& address, std::string_view uuid) {
    return {worker, address, std::string(uuid), "alpha", "", 2, kNowMillis - 9000, kNowMillis - 60'000, 0, 0};
  }
  WorkerInspection Inspect() { return inspect::Inspect(tables_, options_, cluster_); }

  inspect::InspectionOptions options_;
  core::ClusterProperties cluster_{"pay", "sql", core::IdLayout()};
  inspect::WorkerTables tables_;
};

TEST_F(Tables, HealthyOnesHaveNoFinding) {
  tables_.numbers = {Number(1, "192.0.2.1:80", kNowMillis), Number(2, "192.0.2.2:80", kNowMillis)};
  tables_.owners = {Owner(1, "192.0.2.1:80", kUuid),
                    Owner(7, "192.0.2.7:80", "")};  // a ceiling that is remembered
  const WorkerInspection inspection = Inspect();
  EXPECT_EQ(Codes(inspection.findings), "");
  EXPECT_EQ(inspection.entries.size(), 3U);
}

TEST_F(Tables, ANodeOfTheForkIsLiveWhileItReports) {
  constexpr std::int64_t kLimit = inspect::kLiveReport.count();
  tables_.numbers = {Number(1, "192.0.2.1:80", kNowMillis - 3000),
                     Number(2, "192.0.2.2:80", kNowMillis - kLimit),
                     Number(3, "192.0.2.3:80", kNowMillis + 3000), Number(4, "192.0.2.4:80", kNowMillis)};
  tables_.owners = {Owner(4, "192.0.2.4:80", kUuid)};
  tables_.owners[0].reported_ms = kNowMillis;  // by a leafctl that has ended
  std::string text;
  for (const inspect::WorkerEntry& entry : Inspect().entries)
    text += fmt::format("{}:{},{} ", entry.worker, entry.live, entry.java);
  EXPECT_EQ(text, "1:true,true 2:false,false 3:true,true 4:false,false ");
  tables_.owners[0].reported_ms = kNowMillis - 3000;
  EXPECT_TRUE(Inspect().entries.at(3).java);
}

// As in ZooKeeper: it may be cut off, and issue.
TEST_F(Tables, AnOwnerWithoutItsNumberIsLeftToWorkerRelease) {
  tables_.owners = {Owner(7, "192.0.2.7:80", kUuid)};
  const WorkerInspection inspection = Inspect();
  ASSERT_EQ(Codes(inspection.findings), "orphaned-owner leafctl_workers/7");
  EXPECT_TRUE(inspection.steps.empty());
  EXPECT_NE(inspection.findings[0].remedy.find("leafctl worker release 7"), std::string::npos);
  const auto release = inspect::PlanRelease(tables_, 7, kNow);
  ASSERT_TRUE(release.ok());
  const auto after = nlohmann::json::parse((*release)->changes.at(0).after);
  EXPECT_EQ(after["uuid"], "");
  EXPECT_EQ(after["claims"], 3);
  EXPECT_EQ(after["ceiling_ms"], kNowMillis - 9000);
  tables_.owners[0].live = 1;
  tables_.owners[0].reported_ms = kNowMillis - 3000;
  EXPECT_TRUE(Inspect().steps.empty());
  EXPECT_EQ(Inspect().findings[0].left, "its node is live");
}

TEST_F(Tables, AFutureTimeBecomesACeilingOnceTheForkIsRetired) {
  tables_.numbers = {Number(1, "192.0.2.1:80", kNowMillis + kHour)};
  EXPECT_TRUE(Inspect().steps.empty());
  options_.java_retired = true;
  const WorkerInspection inspection = Inspect();
  ASSERT_EQ(inspection.steps.size(), 1U);
  EXPECT_EQ(nlohmann::json::parse(inspection.steps[0].changes.at(0).after)["ceiling_ms"],
            kNowMillis + kHour + 4000);
  options_.moving = {"leaf_workerid_alloc/1"};
  EXPECT_TRUE(Inspect().steps.empty());
  options_.moving.clear();
  tables_.owners = {Owner(1, "192.0.2.1:80", kUuid)};
  EXPECT_TRUE(Inspect().steps.empty());
}

TEST_F(Tables, AddressesThatOnlyDifferInCase) {
  tables_.numbers = {Number(1, "Web:80", kNowMillis), Number(2, "web:80 ", kNowMillis)};
  EXPECT_EQ(Codes(Inspect().findings), "duplicate-address web:80");
}

TEST_F(Tables, AStepIsDoneOnceAndOnlyToTheRowsThatWereSeen) {
  TempDir directory;
  sql::Database database(sql::SqliteOptions{.path = directory.path() + "/leaf.db", .create_tables = true});
  FakeClock clock;
  RecordingLogger log;
  sql::SqlWorkerRegistry registry(database, {}, clock, log);
  const auto claim = registry.Claim({"192.0.2.1:80", std::string(kUuid)}, cluster_);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  const auto renewed = registry.Renew(*claim, clock.Wall() + milliseconds(3000));
  ASSERT_TRUE(renewed.ok()) << renewed.error().message;
  tables_ = inspect::ReadWorkerTables(database).value();
  const std::int64_t ceiling = tables_.owners.at(0).ceiling_ms;
  EXPECT_EQ(inspect::PlanRelease(tables_, claim->worker, clock.Wall()).error().code, ErrorCode::kRefused);
  const auto step = inspect::PlanRelease(tables_, claim->worker, clock.Wall() + inspect::kLiveReport * 2);
  ASSERT_TRUE(step.ok() && *step);
  EXPECT_TRUE(inspect::ApplyStep(database, **step).value());
  EXPECT_FALSE(inspect::ApplyStep(database, **step).value());
  tables_ = inspect::ReadWorkerTables(database).value();
  EXPECT_EQ(tables_.owners.at(0).uuid, "");
  EXPECT_EQ(tables_.owners.at(0).ceiling_ms, ceiling);
  EXPECT_EQ(registry.Renew(*claim, clock.Wall() + milliseconds(9000)).error().code, ErrorCode::kNotOwner);
  // And another state directory may have it, above the ceiling.
  sql::SqlWorkerRegistry other(database, {}, clock, log);
  const auto next = other.Claim({"192.0.2.1:80", std::string(kOtherUuid)}, cluster_);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->worker, claim->worker);
  EXPECT_EQ(next->ceiling, WallTimeOf(ceiling) + core::UntoldMax(milliseconds{0}));
}

// What a daemon tells of its registry, and what a command makes of it.
inspect::WorkerList AList() {
  inspect::WorkerEntry fixed;
  fixed.worker = 7;
  fixed.address = "192.0.2.1:80";
  fixed.reported = WallTimeOf(kNowMillis - 5000);
  fixed.live = true;
  fixed.url = "http://192.0.2.1:80";
  fixed.owner = kUuid;
  fixed.host = "alpha";
  fixed.since = WallTimeOf(kNowMillis - kHour);
  fixed.ceiling = WallTimeOf(kNowMillis + 3000);
  fixed.generation = 4;
  inspect::WorkerEntry java;
  java.worker = 8;
  java.address = "192.0.2.2:80";
  java.reported = WallTimeOf(kNowMillis);
  java.live = true;
  java.java = true;
  inspect::WorkerEntry unused;
  unused.kind = inspect::NumberKind::kRecycled;
  unused.worker = 1024;
  return {"zookeeper", "pay", kNow, {fixed, java, unused}};
}

TEST(WorkerListAsJson, ComesBackAsItWas) {
  const std::string text = inspect::WorkerListJson(AList()).dump();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["time_ms"], kNowMillis);
  EXPECT_EQ(json["workers"][0]["age_ms"], 5000);
  EXPECT_EQ(json["workers"][0]["lead_ms"], 3000);
  EXPECT_EQ(json["workers"][1]["program"], "java");
  const auto list = inspect::ParseWorkerList(text);
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(inspect::WorkerListJson(*list).dump(), text);
  EXPECT_TRUE(list->entries.at(1).java);
  EXPECT_FALSE(list->entries.at(2).reported.has_value());
}

TEST(WorkerListAsJson, NothingOfAnAnswerIsBelieved) {
  const auto good = inspect::WorkerListJson(AList());
  const auto is_list = [](const nlohmann::ordered_json& json) {
    return inspect::ParseWorkerList(json.dump()).ok();
  };
  ASSERT_TRUE(is_list(good));
  for (const char* const text : {"", "null", "[]", "{}", "7", "{\"workers\":[]}", "[[[["})
    EXPECT_EQ(inspect::ParseWorkerList(text).error().code, ErrorCode::kInternal) << text;
  // Whatever a member becomes, it is a list with a right member or none at all.
  for (const auto& [name, value] : good.items()) {
    auto bad = good;
    bad[name] = nlohmann::json::array({nlohmann::json::object()});
    EXPECT_EQ(is_list(bad), name == "time") << name;
    bad.erase(name);
    EXPECT_EQ(is_list(bad), name == "time") << name;
  }
  const std::set<std::string> shown_only{"reported", "age_ms", "since", "ceiling", "lead_ms"};
  for (const auto& [name, value] : good["workers"][0].items()) {
    auto bad = good;
    bad["workers"][0][name] = nlohmann::json::object();
    EXPECT_EQ(is_list(bad), shown_only.contains(name)) << name;
    bad["workers"][0].erase(name);
    EXPECT_EQ(is_list(bad), shown_only.contains(name)) << name;
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"kind", "of our own"},
                                                           {"worker", -1},
                                                           {"worker", 1.5},
                                                           {"reported_ms", "1"},
                                                           {"ceiling_ms", 9'223'372'036'854'775'807},
                                                           {"since_ms", 18'446'744'073'709'551'615U}}) {
    auto bad = good;
    bad["workers"][0][name] = value;
    EXPECT_FALSE(is_list(bad)) << name << " " << value;
  }
  // What a registry may hold is told, however odd it is.
  auto odd = good;
  odd["workers"][0]["reported_ms"] = std::int64_t{-1} << 60;
  EXPECT_TRUE(is_list(odd));
}

TEST(WorkerNames, AreStableAndTellAllApart) {
  EXPECT_EQ(NumberKindName(inspect::NumberKind::kFixed), "fixed");
  EXPECT_EQ(NumberKindName(inspect::NumberKind::kLease), "lease");
  EXPECT_EQ(NumberKindName(inspect::NumberKind::kRecycled), "recycled");
  using Kind = RepairChange::Kind;
  std::set<std::string_view> names;
  for (const Kind kind : {Kind::kAbsent, Kind::kCreate, Kind::kWrite, Kind::kRemove, Kind::kProtect})
    names.insert(RepairChangeName(kind));
  EXPECT_EQ(names, (std::set<std::string_view>{"absent", "create", "write", "remove", "protect"}));
}

}  // namespace
}  // namespace leaf::testing
