// The checks of `leafctl doctor` that are logic: tags, and what is seen of this machine.
#include "leaf/inspect/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "leaf/inspect/tags.h"
#include "leaf/sys/file.h"
#include "leaf/sys/state_dir.h"
#include "support/temp_dir.h"

namespace leaf::inspect {
namespace {

using sys::FileHandle;
using sys::StateDirLock;
using sys::StateDirUse;
using Level = Diagnosis::Level;

core::TagRow Row(std::string tag, std::int64_t max_id = 1, std::int64_t step = 2000) {
  core::TagRow row;
  row.tag = std::move(tag);
  row.max_id = max_id;
  row.step = step;
  return row;
}

// "check/level …", in order.
std::string Found(const std::vector<core::TagRow>& rows, const std::vector<core::Mark>& marks = {}) {
  std::string out;
  for (const Diagnosis& one : InspectTags(rows, marks, WallTimeOf(1'700'000'000'000)))
    out += (out.empty() ? "" : " ") + one.check + "/" + std::string(DiagnosisLevelName(one.level));
  return out;
}

TEST(TagInspection, SoundRowsAreOneOk) {
  EXPECT_EQ(Found({}), "tags/ok");
  EXPECT_EQ(Found({Row("a"), Row("b", 0, 1), Row("c", 5, (1 << 30) - 1)}), "tags/ok");
}

TEST(TagInspection, StepsOutsideTheirRangeAreProblems) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 30})
    EXPECT_EQ(Found({Row("a", 1, step)}), "tag-step/problem") << step;
}

TEST(TagInspection, WhatJavascriptRoundsIsToldWhereThereIsARedisPort) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  const std::vector<core::TagRow> rows{Row("far", kExact / 2), Row("near", kExact - 1000),
                                       Row("on", kExact + 1)};
  EXPECT_EQ(Found(rows), "tags/ok");
  const auto found = InspectTags(rows, {}, WallTimeOf(0), true);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].check, "tag-integers");
  EXPECT_EQ(found[0].subject, "near");
  EXPECT_EQ(found[1].subject, "on");
}

TEST(TagInspection, TheEndOfTheCodesIsSeenFromAfar) {
  const auto found = [](std::int64_t max_id, const std::vector<core::Mark>& marks, std::vector<int> lengths) {
    const std::vector<core::TagRow> rows{Row("a", max_id)};
    const std::vector<core::CodeRecord> codes{
        {.tag = "a", .alphabet = "decimal", .check = true, .lengths = std::move(lengths), .key = ""}};
    const auto all = InspectTags(rows, marks, WallTimeOf(1'700'000'000'000), false, codes);
    return all.front().check + "/" + std::string(DiagnosisLevelName(all.front().level));
  };
  EXPECT_EQ(found(899'999, {}, {6}), "tags/ok");
  EXPECT_EQ(found(900'000, {}, {6}), "tag-codes/warning");
  EXPECT_EQ(found(1'000'000, {}, {6}), "tag-codes/problem");
  EXPECT_EQ(found(1'000'000, {}, {6, 8}), "tags/ok");
  EXPECT_EQ(found(std::int64_t{1} << 60, {}, {19}), "tags/ok");
  // Watched for ten days.
  core::Mark mark;
  mark.tag = "a";
  mark.end = 10'000;
  mark.base = {0, WallTimeOf(1'700'000'000'000) - std::chrono::hours{24 * 10}};
  EXPECT_EQ(found(10'000, {mark}, {6}), "tags/ok") << "990 days";
  EXPECT_EQ(found(800'000, {mark}, {6}), "tag-codes/warning") << "three days";
}

TEST(TagInspection, TheEndOfTheNumbersIsSeenFromAfar) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Found({Row("a", kEnd - 1'000'000)}), "tag-exhaustion/warning");
  EXPECT_EQ(Found({Row("a", kEnd)}), "tag-exhaustion/problem");
  EXPECT_EQ(Found({Row("a", -1)}), "tag-exhaustion/problem");
  // Half of all IDs within a day: the other half lasts a day.
  core::Mark mark;
  mark.tag = "a";
  mark.end = 1;
  mark.base = {0, WallTimeOf(1'700'000'000'000) - std::chrono::hours{24}};
  const std::vector<core::TagRow> rows{Row("a", kEnd / 2)};
  const std::vector<core::Mark> marks{mark};
  const auto found = InspectTags(rows, marks, WallTimeOf(1'700'000'000'000));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].found.find("none from 2023-11-15 on"), std::string::npos) << found[0].found;
}

TEST(TagInspection, ADatabaseThatWentBackIsAProblem) {
  core::Mark mark;
  mark.tag = "a";
  mark.end = 5000;
  EXPECT_EQ(Found({Row("a", 4999)}, {mark}), "tag-went-back/problem");
  EXPECT_EQ(Found({Row("a", 5000)}, {mark}), "tags/ok");
  EXPECT_EQ(Found({Row("b", 1)}, {mark}), "tags/ok");
}

TEST(TagInspection, NamesThatLookAlikeOrAreCut) {
  EXPECT_EQ(Found({Row("pay"), Row("Pay")}), "tag-alike/warning");
  EXPECT_EQ(Found({Row("pay"), Row("pay ")}), "tag-alike/warning");
  EXPECT_EQ(Found({Row("pay ")}), "tag-alike/warning");
  EXPECT_EQ(Found({Row("pay"), Row("pay")}), "tag-unique/problem");
  EXPECT_EQ(Found({Row("v1.0")}), "tag-dotted/warning");
  EXPECT_EQ(Found({Row("a/b")}), "tag-name/warning");
  EXPECT_EQ(Found({Row("")}), "tag-name/problem");
  EXPECT_EQ(Found({Row("a\nb")}), "tag-name/problem");
}

TEST(TagInspection, AHundredOfAKindAreToldInShort) {
  std::vector<core::TagRow> rows;
  for (int i = 0; i < 100; ++i) rows.push_back(Row("t" + std::to_string(i), 1, 0));
  const auto found = InspectTags(rows, {}, WallTimeOf(0));
  EXPECT_EQ(found.size(), kTagDiagnosesMax + 1);
  EXPECT_EQ(found.back().found, "and 80 more tags of this kind");
}

class HostInspectionTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  testing::TempDir dir_;
};

Level Worst(const std::vector<Diagnosis>& found) {
  return std::max_element(found.begin(), found.end(),
                          [](const auto& a, const auto& b) { return a.level < b.level; })
      ->level;
}

TEST_F(HostInspectionTest, FilesOthersCanChangeOrReadAreProblems) {
  EXPECT_EQ(InspectConfigFile(Write("a", "", 0644)).level, Level::kOk);
  EXPECT_EQ(InspectConfigFile(Write("a", "", 0664)).level, Level::kProblem);
  EXPECT_EQ(InspectConfigFile(dir_.path() + "/none").level, Level::kProblem);
  EXPECT_EQ(InspectSecretFile("x", Write("b", "s", 0600)).level, Level::kOk);
  EXPECT_EQ(InspectSecretFile("x", Write("b", "s", 0640)).level, Level::kProblem);
}

TEST_F(HostInspectionTest, TheStateDirectoryIsItsOwners) {
  EXPECT_EQ(Worst(InspectStateDir(dir_.path() + "/none")), Level::kOk);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0700), 0);
  EXPECT_EQ(Worst(InspectStateDir(dir_.path())), Level::kOk);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0770), 0);
  EXPECT_EQ(Worst(InspectStateDir(dir_.path())), Level::kProblem);
  EXPECT_EQ(Worst(InspectStateDir(Write("file", "", 0600))), Level::kProblem);
  // As serve and the commands have it.
  ASSERT_EQ(chmod(dir_.path().c_str(), 0700), 0);
  ASSERT_EQ(symlink("file", (dir_.path() + "/lock").c_str()), 0);
  const auto found = InspectStateDir(dir_.path());
  EXPECT_EQ(Worst(found), Level::kProblem);
  EXPECT_NE(found.front().found.find("lock is a symbolic link"), std::string::npos) << found.front().found;
}

TEST_F(HostInspectionTest, TheLockIsSeenAndNotTaken) {
  EXPECT_FALSE(FindLockHolder(dir_.path()));
  {
    const auto lock = StateDirLock::Take(dir_.path(), StateDirUse::kDaemon);
    ASSERT_TRUE(lock.ok());
    const auto holder = FindLockHolder(dir_.path());
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->pid, std::to_string(getpid()));
  }
  EXPECT_FALSE(FindLockHolder(dir_.path()));
}

TEST_F(HostInspectionTest, AListeningPortIsInUse) {
  const FileHandle socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_FALSE(IsPortInUse(ntohs(address.sin_port)));
  ASSERT_EQ(listen(socket_fd.get(), 1), 0);
  EXPECT_TRUE(IsPortInUse(ntohs(address.sin_port)));
}

TEST_F(HostInspectionTest, TheShippedUnitIsSound) {
  std::ifstream file(std::string(LEAF_SOURCE_DIR) + "/config/systemd/leafctl.service");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string shipped = "ExecStart=/usr/bin/leafctl serve";
  ASSERT_NE(text.find(shipped), std::string::npos);
  text.replace(text.find(shipped), shipped.size(), "ExecStart=/bin/true serve");
  const auto found = InspectUnitText("unit", text, {"/var/lib/leafctl", "", 20000});
  EXPECT_EQ(Worst(found), Level::kOk) << found[0].found << found[0].cause;
  EXPECT_EQ(Worst(InspectUnitText("unit", text, {"/var/lib/other", "", 20000})), Level::kWarning);
  EXPECT_EQ(Worst(InspectUnitText("unit", text + "LimitNOFILE=100\n", {"/var/lib/leafctl", "", 20000})),
            Level::kWarning);
  EXPECT_EQ(Worst(InspectUnitText("unit", text + "Type=simple\n", {"/var/lib/leafctl", "", 1})),
            Level::kWarning);
  EXPECT_EQ(Worst(InspectUnitText("unit", text + "ExecStart=/no/such serve\n", {"/var/lib/leafctl", "", 1})),
            Level::kProblem);
  EXPECT_EQ(Worst(InspectUnitText("unit", "", {"", "", 1})), Level::kProblem);
}

std::vector<std::string> OrdersFound(const core::TagOrderTable& table,
                                     const std::vector<core::OrderNode>& nodes, bool fallback = false) {
  std::vector<std::string> found;
  for (const Diagnosis& one : InspectOrders(table, nodes, fallback))
    found.push_back(fmt::format("{}: {}", DiagnosisLevelName(one.level), one.found));
  return found;
}

TEST(Orders, AreSoundOrNot) {
  using core::TagOrder;
  const core::OrderNode up_to_date{.id = "a", .process = "A", .place = "a", .acknowledged = 7};
  const core::OrderNode behind{.id = "b", .process = "B", .place = "b", .acknowledged = 4};
  const core::OrderNode falling_back{
      .id = "c", .process = "C", .place = "c", .fallback = true, .acknowledged = 7};
  const core::TagOrderTable trend{.version = 9, .rows = {{"old", TagOrder::kTrend, std::nullopt, 9}}};
  EXPECT_TRUE(OrdersFound(trend, {behind}, true).empty());
  const core::TagOrderTable strict{.version = 9, .rows = {{"pay", TagOrder::kStrict, 77, 5}}};
  EXPECT_EQ(OrdersFound(strict, {up_to_date}),
            std::vector<std::string>{"ok: a tag is strict; 1 node keeps to that"});
  EXPECT_EQ(OrdersFound(strict, {up_to_date, behind}),
            std::vector<std::string>{"warning: B has not read the order of all tags"});
  EXPECT_EQ(OrdersFound(strict, {falling_back}, true),
            std::vector<std::string>{
                "problem: segment.witness_fallback is true on this node, C, and a tag is strict"});
  const core::TagOrderTable pending{.version = 9, .rows = {{"pay", TagOrder::kStrict, std::nullopt, 9}}};
  EXPECT_EQ(OrdersFound(pending, {up_to_date}),
            std::vector<std::string>{"warning: tag 'pay': to be strict, and not acknowledged by all nodes"});
}

}  // namespace
}  // namespace leaf::inspect
