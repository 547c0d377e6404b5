#include "leaf/zookeeper/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/fakes.h"
#include "support/scale.h"

namespace leaf::zookeeper {
namespace {

TEST(TreeTest, PathsAreLeafs) {
  const Tree tree = *Tree::Make("com.sankuai.leaf-test");
  EXPECT_EQ(tree.Forever(), "/snowflake/com.sankuai.leaf-test/forever");
  EXPECT_EQ(tree.ForeverPrefix("127.0.0.2:9001"), "/snowflake/com.sankuai.leaf-test/forever/127.0.0.2:9001-");
  EXPECT_EQ(tree.Properties(), "/snowflake/com.sankuai.leaf-test/leafctl/cluster");
  EXPECT_EQ(tree.Owner(7), "/snowflake/com.sankuai.leaf-test/leafctl/owners/7");
  EXPECT_EQ(tree.Address("127.0.0.1:80"), "/snowflake/com.sankuai.leaf-test/leafctl/addresses/127.0.0.1:80");
  EXPECT_EQ(tree.Ceiling(0), "/snowflake/com.sankuai.leaf-test/leafctl/ceilings/0");
  EXPECT_EQ(tree.Lease(1023), "/snowflake/com.sankuai.leaf-test/leafctl/leases/1023");
  EXPECT_EQ(tree.Temporary("[::1]:80"), "/snowflake/com.sankuai.leaf-test/leafctl/temporary/[::1]:80");
  EXPECT_EQ(tree.Node("a1"), "/snowflake/com.sankuai.leaf-test/leafctl/nodes/a1");
  EXPECT_EQ(tree.Incarnation(), "/snowflake/com.sankuai.leaf-test/leafctl/incarnation");
  EXPECT_EQ(tree.RecycleUsed(), "/snowflake/com.sankuai.leaf-test/recycle/inuse");
}

TEST(TreeTest, FoldersComeParentsFirstAndForeverAsEarlyAsItCan) {
  const auto folders = Tree::Make("c", "/a/b")->Folders();
  const std::vector<std::string> begin{"/a", "/a/b", "/a/b/c", "/a/b/c/forever", "/a/b/c/leafctl"};
  ASSERT_GT(folders.size(), begin.size());
  EXPECT_TRUE(std::equal(begin.begin(), begin.end(), folders.begin()));
  EXPECT_EQ(Tree::Make("c")->Folders().front(), "/snowflake");
  EXPECT_EQ(Tree::Make("c", "")->Folders().front(), "/c");
}

TEST(TreeTest, ANodesFolderIsMadeBeforeARangeIsClaimed) {
  const Tree tree = *Tree::Make("c");
  const auto folders = tree.SegmentFolders();
  const auto own = std::find(folders.begin(), folders.end(), tree.Own());
  EXPECT_NE(std::find(own, folders.end(), tree.Nodes()), folders.end());
  EXPECT_TRUE(tree.IsOwn(tree.Node("a")));
  EXPECT_TRUE(tree.IsOwn(tree.Incarnation()));
}

TEST(TreeTest, LeafctlsOwnFolderIsToldFromLeafs) {
  // A cluster may have the folder's name.
  for (const std::string name : {"pay", "leafctl"}) {
    const Tree tree = Tree::Make(name).value();
    for (const std::string& path :
         {tree.Own(), tree.Owners(), tree.Owner(7), tree.Witness("a"), tree.Properties()})
      EXPECT_TRUE(tree.IsOwn(path)) << path;
    for (const std::string& path : {std::string("/"), tree.Base(), tree.Forever(),
                                    tree.ForeverNode("h:1-0000000000"), tree.RecycleUsed(7), tree.Own() + "2",
                                    tree.Own() + "2/owners", std::string("/snowflake/other/leafctl/owners")})
      EXPECT_FALSE(tree.IsOwn(path)) << path;
  }
}

TEST(TreeTest, ANameThatCannotStandInAPathIsRefused) {
  for (const std::string& name :
       std::vector<std::string>{"", ".", "..", "a/b", "/", "a\n", "\xff", "a\x7f", std::string(256, 'x')}) {
    const auto tree = Tree::Make(name);
    ASSERT_FALSE(tree.ok()) << name;
    EXPECT_EQ(tree.error().code, ErrorCode::kConfig);
  }
  for (const std::string root : {"a", "/", "//", "/a/", "/a//b", "/a/.."})
    EXPECT_FALSE(Tree::Make("c", root).ok()) << root;
}

TEST(TreeTest, AddressesThatWouldBreakJavaAreRefused) {
  for (const std::string good : {"127.0.0.1:80", "[2001:db8::1]:65535", "host.example:1"})
    EXPECT_TRUE(ValidateAddress(good).ok()) << good;
  for (const std::string bad : {"", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:080",
                                "127.0.0.1:65536", "my-host:80", "a/b:80", "a:80\n", "127.0.0.1:+80"}) {
    const auto valid = ValidateAddress(bad);
    ASSERT_FALSE(valid.ok()) << bad;
    EXPECT_EQ(valid.error().code, ErrorCode::kConfig);
  }
}

// A value with another key behind it is copied when the object grows, and a deep one was copied by recursion.
TEST(TreeTest, ARecordThatIsNestedDeeplyIsRefusedAndCopiesNothing) {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  const auto lease = ParseLease(R"({"generation":2,"uuid":)" + deep + R"(,"a":1,"b":2,"c":3,"d":4})");
  ASSERT_FALSE(lease.ok());
  EXPECT_EQ(lease.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(lease.error().message.find("nested too deeply"), std::string::npos) << lease.error().message;
  EXPECT_FALSE(ParseForeverData(R"({"ip":)" + deep + R"(,"a":1,"b":2,"c":3,"d":4})").ok());
}

TEST(TreeTest, TheAddressIsWhatStandsBeforeTheLastDash) {
  EXPECT_EQ(ParseForeverName("127.0.0.2:9001-0000000007"), (ForeverName{"127.0.0.2:9001", 7, true}));
  EXPECT_EQ(ParseForeverName("my-host:80-0000001024"), (ForeverName{"my-host:80", 1024, false}));
  EXPECT_EQ(ParseForeverName("127.0.0.1:80-7"), (ForeverName{"127.0.0.1:80", 7, false}));
  EXPECT_EQ(ParseForeverName(":80-0000000000"), (ForeverName{":80", 0, false}));
  for (const std::string none :
       {"lock", "", "-", "127.0.0.1:80-", "127.0.0.1:80-x", "a-1x", "a- 1", "a-2147483648"})
    EXPECT_FALSE(ParseForeverName(none).has_value()) << none;
  EXPECT_EQ(FormatForeverName("127.0.0.1:80", 7), "127.0.0.1:80-0000000007");
  EXPECT_EQ(ParseForeverName(FormatForeverName("127.0.0.1:80", 1023)),
            (ForeverName{"127.0.0.1:80", 1023, true}));
}

TEST(TreeTest, NumberNames) {
  EXPECT_EQ(ParseNumberName("0"), 0U);
  EXPECT_EQ(ParseNumberName("1023"), 1023U);
  for (const std::string none : {"", "01", "-1", "+1", "1 ", "x", "99999999999999999999"})
    EXPECT_FALSE(ParseNumberName(none).has_value()) << none;
  EXPECT_EQ(ParseRecycleName("workId:1024"), 1024U);
  EXPECT_FALSE(ParseRecycleName("workId:").has_value());
  EXPECT_FALSE(ParseRecycleName("7").has_value());
}

// A witness can be told whose it is, and no name that WitnessName does not make is taken for one.
TEST(TreeTest, TheNameOfAWitnessSaysItsTag) {
  for (const std::string& tag :
       std::vector<std::string>{"pay", "a/b", "a%2Fb", ".", "..", ".a", "a.b", "A", "a b", "订单", "%", "%2",
                                std::string("a\0b", 3), "\xff", "zookeeper", std::string(128, '/')}) {
    const std::string name = WitnessName(tag);
    EXPECT_EQ(name.find('/'), std::string::npos) << name;
    EXPECT_EQ(ParseWitnessName(name), tag) << name;
  }
  EXPECT_EQ(WitnessName("a/b"), "a%2Fb");
  EXPECT_EQ(WitnessName(".a"), "%2Ea");
  for (const std::string& none :
       std::vector<std::string>{"", ".", "..", ".a", "a b", "a%2fb", "a%", "a%2", "a%2G", "%61", "a%2Eb",
                                "a%+2", "a%-1", "a% 2", "订", "a%0x1", "a%%2F"})
    EXPECT_FALSE(ParseWitnessName(none).has_value()) << none;
}

TEST(TreeTest, TheNextNumberIsHowManyWereEverCreated) {
  EXPECT_EQ(NextForeverNumber(0, 0), 0U);
  EXPECT_EQ(NextForeverNumber(3, 3), 3U);      // three created
  EXPECT_EQ(NextForeverNumber(3 + 2, 1), 3U);  // two of them deleted
}

TEST(TreeTest, LeafsJsonIsExact) {
  EXPECT_EQ(FormatForeverData("127.0.0.2:9001", WallTimeOf(1795173800515)),
            R"({"ip":"127.0.0.2","port":"9001","timestamp":1795173800515})");
  EXPECT_EQ(FormatForeverData("[::1]:80", WallTimeOf(1)), R"({"ip":"[::1]","port":"80","timestamp":1})");
  EXPECT_EQ(*ParseForeverData(FormatForeverData("127.0.0.2:9001", WallTimeOf(5))),
            (ForeverData{"127.0.0.2", "9001", 5}));
}

TEST(TreeTest, WhatJavaToleratesIsTolerated) {
  const ForeverData data{"127.0.0.4", "80", 5};
  EXPECT_EQ(*ParseForeverData(R"({"timestamp":5,"port":"80","ip":"127.0.0.4"})"), data);
  EXPECT_EQ(*ParseForeverData(R"( {"ip":"127.0.0.4","port":80,"timestamp":5.9} )"), data);
  EXPECT_EQ(*ParseForeverData(R"({"ip":"127.0.0.4","port":"80"})"), (ForeverData{"127.0.0.4", "80", 0}));
  EXPECT_EQ(*ParseForeverData(R"({"ip":null,"port":"80","timestamp":-1})"), (ForeverData{"", "80", -1}));
}

TEST(TreeTest, WhatMakesJavaFailIsMalformed) {
  for (const std::string bad :
       {"", "{", "null", "[]", "7", R"({"ip":"1","port":"80","timestamp":5,"lease":1})",
        R"({"timestamp":"x"})", R"({"timestamp":18446744073709551615})", R"({"timestamp":1e300})",
        R"({"ip":{}})", R"({"ip":"1","ip":"2"})"}) {
    const auto parsed = ParseForeverData(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(TreeTest, OurRecordsComeBackAsTheyWereWritten) {
  const PropertiesRecord properties{{"pay-1", "zookeeper", *core::IdLayout::Make(40, 11, 12, 5)}, true};
  const auto read = ParseProperties(FormatProperties(properties));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(CheckSameProperties(*read, properties, "here").ok());
  EXPECT_EQ(FormatProperties(properties),
            R"({"name":"pay-1","registry":"zookeeper","layout":"40-11-12","epoch_ms":5,"recycle":true})");

  const OwnerRecord owner{"u-1", "127.0.0.4:80", "host \"x\"", WallTimeOf(1795000000000)};
  EXPECT_EQ(*ParseOwner(FormatOwner(owner)), owner);
  for (const AddressRecord& address : {AddressRecord{"u", 7}, AddressRecord{"u", std::nullopt}})
    EXPECT_EQ(*ParseAddress(FormatAddress(address)), address);
  for (const CeilingRecord& ceiling :
       {CeilingRecord{"u", 3, WallTimeOf(9), 4, 8}, CeilingRecord{"u", 1, std::nullopt, 0, 0}})
    EXPECT_EQ(*ParseCeiling(FormatCeiling(ceiling)), ceiling);
  for (const LeaseRecord& lease :
       {LeaseRecord{3, "u", "127.0.0.4:80", WallTimeOf(9)}, LeaseRecord{1, "", "", std::nullopt}})
    EXPECT_EQ(*ParseLease(FormatLease(lease)), lease);
  for (const auto& strict :
       {std::optional<core::StrictMark>(), std::optional(core::StrictMark{7, std::nullopt}),
        std::optional(core::StrictMark{8, kMaxIdLimit})}) {
    const WitnessRecord witness{11, "c", "b", WallTimeOf(9), strict};
    EXPECT_EQ(*ParseWitness(FormatWitness(witness)), witness);
  }
  EXPECT_EQ(FormatWitness({11, "c", "b", WallTimeOf(9), std::nullopt}),
            R"({"end":"11","claim":"c","by":"b","at_ms":9})")
      << "as every version reads it";
  const TemporaryRecord temporary{"http://127.0.0.4:80", 7, "u"};
  EXPECT_EQ(*ParseTemporary(FormatTemporary(temporary)), temporary);
}

TEST(TreeTest, OurRecordsAreReadStrictly) {
  const std::string good = R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":5})";
  ASSERT_TRUE(ParseLease(good).ok());
  for (const std::string bad :
       {"", "x", "[]", "null", R"({"generation":1,"uuid":"u","address":"a"})",
        R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":5,"more":1})",
        R"({"generation":1,"generation":1,"uuid":"u","address":"a","ceiling_ms":5})",
        R"({"generation":-1,"uuid":"u","address":"a","ceiling_ms":5})",
        R"({"generation":1.5,"uuid":"u","address":"a","ceiling_ms":5})",
        R"({"generation":"1","uuid":"u","address":"a","ceiling_ms":5})",
        R"({"generation":1,"uuid":7,"address":"a","ceiling_ms":5})",
        R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":-5})",
        R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":18446744073709551615})",
        R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":5} {})"}) {
    const auto parsed = ParseLease(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("lease"), std::string::npos);
  }
  EXPECT_FALSE(
      ParseProperties(R"({"name":"n","registry":"r","layout":"99-1-1","epoch_ms":5,"recycle":true})").ok());
  EXPECT_FALSE(
      ParseProperties(R"({"name":"n","registry":"r","layout":"41-10-12","epoch_ms":5,"recycle":1})").ok());
  EXPECT_FALSE(ParseAddress(R"({"uuid":"","worker":1})").ok());
  const std::string witness = R"({"end":"11","claim":"c","by":"b","at_ms":9)";
  for (const std::string bad : {R"(,"strict_since":"1"})", R"(,"strict_version":"7"})",
                                R"(,"strict_version":-7})", R"(,"strict_version":7,"strict_since":1})",
                                R"(,"strict_version":7,"strict_since":"x"})", R"(,"strict":true})"})
    EXPECT_FALSE(ParseWitness(witness + bad).ok()) << bad;
  EXPECT_TRUE(ParseWitness(witness + R"(,"strict_version":7})").ok());
  EXPECT_FALSE(ParseOwner(R"({"uuid":"","address":"","host":"","since_ms":1})").ok());
}

TEST(TreeTest, WhatANodeHasMadeKnownComesBackAsItWasWritten) {
  for (const NodeRecord& node :
       {NodeRecord{7, 12, true, true, "d-1", "host \"x\"", "leafctl serve, process 7", WallTimeOf(9)},
        NodeRecord{0, 0, false, false, "", "", "", WallTimeOf(0)},
        NodeRecord{std::uint64_t{1} << 62, std::uint64_t{1} << 62, true, false, "", "h", "p", WallTimeOf(1)}})
    EXPECT_EQ(*ParseNode(FormatNode(node)), node);
  EXPECT_EQ(
      FormatNode({7, 12, true, false, "d", "h", "p", WallTimeOf(9)}),
      R"({"contributed":7,"beat":12,"claims":true,"left":false,"daemon":"d","host":"h","process":"p","at_ms":9})");
  for (const IncarnationRecord& incarnation :
       {IncarnationRecord{1, true, "the first node", "p", WallTimeOf(9)},
        IncarnationRecord{std::uint64_t{1} << 62, false, "", "", WallTimeOf(0)}})
    EXPECT_EQ(*ParseIncarnation(FormatIncarnation(incarnation)), incarnation);
  EXPECT_EQ(FormatIncarnation({2, false, "w", "b", WallTimeOf(9)}),
            R"({"number":2,"settled":false,"why":"w","by":"b","at_ms":9})");
}

TEST(TreeTest, WhatANodeHasMadeKnownIsReadStrictly) {
  const std::string good =
      R"({"contributed":1,"beat":2,"claims":true,"left":false,"daemon":"","host":"h","process":"p","at_ms":5})";
  ASSERT_TRUE(ParseNode(good).ok());
  std::vector<std::string> all_bad{"", "x", "[]", "null", "{}", good + " {}"};
  for (const auto& [part, instead] : std::vector<std::pair<std::string, std::string>>{
           {R"("contributed":1,)", ""},
           {R"("contributed":1)", R"("contributed":-1)"},
           {R"("contributed":1)", R"("contributed":1.5)"},
           {R"("contributed":1)", R"("contributed":"1")"},
           {R"("contributed":1)", R"("contributed":4611686018427387905)"},
           {R"("beat":2,)", ""},
           {R"("beat":2)", R"("beat":-2)"},
           {R"("beat":2)", R"("beat":"2")"},
           {R"("beat":2)", R"("beat":4611686018427387905)"},
           {R"("claims":true,)", ""},
           {R"("claims":true)", R"("claims":1)"},
           {R"("left":false)", R"("left":0)"},
           {R"("left":false)", R"("left":null)"},
           {R"("left":false)", R"("left":false,"left":false)"},
           {R"("daemon":"")", R"("daemon":null)"},
           {R"("host":"h")", R"("host":7)"},
           {R"(,"at_ms":5)", ""},
           {R"("at_ms":5)", R"("at_ms":-5)"},
           {R"("at_ms":5)", R"("at_ms":"5")"},
           {R"("at_ms":5)", R"("at_ms":5,"more":1)"}}) {
    std::string bad = good;
    ASSERT_NE(good.find(part), std::string::npos) << part;
    all_bad.push_back(bad.replace(good.find(part), part.size(), instead));
  }
  for (const std::string& bad : all_bad) {
    const auto parsed = ParseNode(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("node"), std::string::npos);
  }
  ASSERT_TRUE(ParseIncarnation(R"({"number":1,"settled":true,"why":"w","by":"b","at_ms":5})").ok());
  for (const std::string bad :
       {"", "x", "[]", "null", "{}", R"({"number":1,"settled":true,"why":"w","by":"b"})",
        R"({"number":0,"settled":true,"why":"w","by":"b","at_ms":5})",
        R"({"number":-1,"settled":true,"why":"w","by":"b","at_ms":5})",
        R"({"number":4611686018427387905,"settled":true,"why":"w","by":"b","at_ms":5})",
        R"({"number":"1","settled":true,"why":"w","by":"b","at_ms":5})",
        R"({"number":1,"number":1,"settled":true,"why":"w","by":"b","at_ms":5})",
        R"({"number":1,"settled":"true","why":"w","by":"b","at_ms":5})",
        R"({"number":1,"settled":true,"why":null,"by":"b","at_ms":5})",
        R"({"number":1,"settled":true,"why":"w","by":["b"],"at_ms":5})",
        R"({"number":1,"settled":true,"why":"w","by":"b","at_ms":5,"more":1})"}) {
    const auto parsed = ParseIncarnation(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("incarnation"), std::string::npos);
  }
}

TEST(TreeTest, AnotherKindOfNumbersIsAnotherCluster) {
  const PropertiesRecord fixed{{"c", "zookeeper", {}}, false};
  PropertiesRecord leased = fixed;
  leased.recycle = true;
  EXPECT_TRUE(CheckSameProperties(fixed, fixed, "here").ok());
  const auto differ = CheckSameProperties(fixed, leased, "here");
  ASSERT_FALSE(differ.ok());
  EXPECT_EQ(differ.error().code, ErrorCode::kRefused);
  EXPECT_NE(differ.error().message.find("recycle"), std::string::npos);
}

TEST(TreeTest, TheForksRecycleNodes) {
  EXPECT_EQ(
      *ParseRecycleData(R"({"workId":0,"lastUsedIp":null,"lastUsedPort":null,"lastUsedTimestamp":null})"),
      (RecycleData{}));
  EXPECT_EQ(
      *ParseRecycleData(R"({"workId":3,"lastUsedIp":"127.0.0.4","lastUsedPort":"80","lastUsedTimestamp":5})"),
      (RecycleData{3, "127.0.0.4", "80", 5}));
  EXPECT_FALSE(ParseRecycleData(R"({"lastUsedIp":"127.0.0.4"})").ok());
  EXPECT_FALSE(ParseRecycleData(R"({"workId":null})").ok());
  EXPECT_FALSE(ParseRecycleData(R"({"workId":3,"lastUsedIp":7})").ok());
}

// Whatever is in a node: an error or a record, never an exception.
TEST(TreeTest, NoBytesBreakAParser) {
  testing::FakeRandom random(7);
  const std::string seed =
      R"({"generation":1,"uuid":"u","address":"a","ceiling_ms":5,"ip":"1","port":[],"timestamp":1e9})";
  for (int i = 0; i < testing::Scaled(5'000); ++i) {
    std::string text = seed;
    for (std::uint64_t changes = random.Below(6) + 1; changes > 0; --changes) {
      const std::size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text.erase(at, random.Below(20) + 1);
          break;
        default:
          text.insert(at, text.substr(random.Below(text.size()), random.Below(12)));
      }
      if (text.empty()) break;
    }
    (void)ParseForeverData(text).ok();
    (void)ParseProperties(text).ok();
    (void)ParseOwner(text).ok();
    (void)ParseAddress(text).ok();
    (void)ParseCeiling(text).ok();
    (void)ParseLease(text).ok();
    (void)ParseTemporary(text).ok();
    (void)ParseRecycleData(text).ok();
    (void)ParseNode(text).ok();
    (void)ParseIncarnation(text).ok();
    (void)ParseWitnessName(text);
    (void)ParseForeverName(text);
  }
}

}  // namespace
}  // namespace leaf::zookeeper
