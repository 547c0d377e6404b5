// What is wrong with a node, one entry for each cause.
#include "leaf/service/causes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/service/id_service.h"

namespace leaf::service {
namespace {

using Strings = std::vector<std::string>;

TagStatus Tag(const std::string& name, std::uint64_t reserve, double rate,
              std::optional<Error> problem = std::nullopt, std::int64_t since = 0) {
  TagStatus tag;
  tag.tag = name;
  tag.state = problem && problem->code == ErrorCode::kFrozen ? "frozen" : "active";
  tag.reserve = reserve;
  tag.ids_per_second = rate;
  tag.problem = std::move(problem);
  if (tag.problem) tag.problem_since = WallTimeOf(since);
  return tag;
}

const Error kAway{ErrorCode::kUnavailable, "cannot connect to db:3306", "look after it"};

std::vector<Cause> CausesOf(std::vector<Problem> node, const std::vector<TagStatus>& tags) {
  std::vector<Problem> problems = node;
  for (const TagStatus& tag : tags) AddProblems(tag, node, problems);
  return GroupByCause(problems, tags);
}

Strings TitlesOf(const std::vector<Cause>& causes) {
  Strings titles;
  for (const Cause& cause : causes) titles.push_back(cause.title);
  return titles;
}

TEST(Causes, ADatabaseThatIsAwayIsOneWhateverItDoesToTags) {
  const std::vector<TagStatus> tags{Tag("order", 100, 1, kAway, 2000), Tag("pay", 310, 10, kAway, 1500),
                                    Tag("quiet", 0, 0, kAway, 3000), Tag("well", 500, 1)};
  const Problem away{"unavailable", kAway.message, kAway.hint, "", "database", WallTimeOf(1000)};
  const auto causes = CausesOf({away}, tags);
  ASSERT_EQ(causes.size(), 1U);
  const Cause& cause = causes[0];
  EXPECT_EQ(cause.title, "database unreachable");
  EXPECT_TRUE(cause.urgent);
  EXPECT_FALSE(cause.not_ready);
  EXPECT_EQ(cause.since, WallTimeOf(1000));
  EXPECT_EQ(cause.message, kAway.message);
  EXPECT_EQ(cause.hint, kAway.hint);
  EXPECT_EQ(cause.tags, (Strings{"order", "pay", "quiet"}));
  ASSERT_TRUE(cause.shortest_reserve.has_value());
  EXPECT_EQ(cause.shortest_reserve->tag, "pay");
  EXPECT_EQ(cause.shortest_reserve->seconds, 31);
  // The reason for not being ready is the same cause, and says what that means.
  Problem reason{"segment_unavailable", "segment mode: no tag has a reserve, and ...", "", "",
                 CauseOfReason("segment_unavailable", {away})};
  reason.not_ready = true;
  const auto not_ready = CausesOf({away, reason}, tags);
  ASSERT_EQ(not_ready.size(), 1U);
  EXPECT_TRUE(not_ready[0].not_ready);
  EXPECT_EQ(not_ready[0].message, kAway.message);
  EXPECT_NE(not_ready[0].effect, cause.effect);
}

TEST(Causes, TagsAreCountedByWhatIsWrongWithThem) {
  const Error frozen{ErrorCode::kFrozen, "tag is frozen", "leafctl tag repair a"};
  const Error refused{ErrorCode::kRefused, "a row that is locked", ""};
  const auto causes = CausesOf({}, {Tag("a", 0, 0, frozen, 5000), Tag("b", 0, 0, frozen, 4000),
                                    Tag("c", 20, 2, refused, 10), Tag("d", 1, 9), Tag("e", 5, 1, kAway, 10)});
  EXPECT_EQ(TitlesOf(causes),
            (Strings{"2 tags are frozen", "tag 'c' gets no new IDs", "tag 'e' gets no new IDs"}));
  EXPECT_EQ(causes[0].since, WallTimeOf(4000));
  EXPECT_EQ(causes[0].hint, "leafctl tag repair a");
  EXPECT_EQ(causes[0].shortest_reserve, std::nullopt);
  // Of those that it concerns.
  ASSERT_TRUE(causes[1].shortest_reserve.has_value());
  EXPECT_EQ(causes[1].shortest_reserve->seconds, 10);
}

// A tag near its end has a reserve, and does not live on it.
TEST(Causes, OnlyTagsThatGetNoGrantsLiveOnTheirReserve) {
  TagStatus tag = Tag("pay", 100, 10);
  tag.max_id = std::numeric_limits<std::int64_t>::max() - 100;
  tag.near_exhaustion = true;
  const auto causes = CausesOf({}, {tag});
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].name, "near_exhaustion");
  EXPECT_FALSE(causes[0].shortest_reserve.has_value());
}

TEST(Causes, TheGravestGoesFirst) {
  const auto problem = [](const std::string& cause, const std::string& tag = "") {
    return Problem{"code", "message of " + cause, "", tag, cause};
  };
  Problem draining = problem("draining");
  draining.not_ready = true;
  Problem disabled = problem("disabled");
  disabled.not_ready = true;
  EXPECT_EQ(
      TitlesOf(GroupByCause({problem("paused", "x"), problem("reload_failed"), problem("registry"), draining,
                             problem("database"), problem("paused", "w"), problem("frozen", "f"), disabled},
                            {})),
      (Strings{"no mode is enabled", "tag 'f' is frozen", "database unreachable", "shutting down",
               "registry unreachable", "the new configuration was not applied", "2 tags are paused"}));
}

TEST(Causes, TwoThingsThatTheNodeSaysOfOneCauseAreBothTold) {
  const auto causes =
      GroupByCause({{"unavailable", "no session", "", "", "registry", WallTimeOf(7)},
                    {"unavailable", "no session", "", "", "registry", WallTimeOf(7)},
                    {"clock", "worker 3: the last ceiling was not told", "h", "", "registry"}},
                   {});
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].message, "no session; worker 3: the last ceiling was not told");
  EXPECT_EQ(causes[0].hint, "h");
}

TEST(Causes, EveryOneHasWords) {
  for (const char* cause : {"state_dir_lost", "frozen", "database", "witness", "segment", "snowflake",
                            "disabled", "draining", "registry", "table", "grants_refused", "near_exhaustion",
                            "codes_near_end", "exhaustion_near", "reload_failed", "paused"}) {
    for (const Strings& tags : {Strings{"a"}, Strings{"a", "b"}}) {
      std::vector<Problem> problems;
      for (const std::string& tag : tags) problems.push_back({"code", "m", "", tag, cause});
      const auto causes = GroupByCause(problems, {});
      ASSERT_EQ(causes.size(), 1U) << cause;
      EXPECT_FALSE(causes[0].title.empty());
      EXPECT_TRUE(causes[0].effect.ends_with(".")) << cause;
      EXPECT_TRUE(causes[0].title != "no IDs of tags" || std::string(cause) == "segment") << cause;
    }
  }
}

TEST(Causes, SinceIsWhenItWasSeenFirst) {
  IdService ids(nullptr);
  Dependency registry;
  registry.name = "registry";
  registry.up = true;
  ids.Watch([&registry] { return registry; });
  ids.ConfigRead(WallTimeOf(1));
  const auto since_of = [&](const std::string& cause) -> std::optional<WallTime> {
    for (const Cause& known : ids.Causes(ids.Problems({}), {})) {
      if (known.name == cause) return known.since;
    }
    return std::nullopt;
  };
  ids.ObserveProblems(WallTimeOf(1000));
  EXPECT_EQ(since_of("registry"), std::nullopt);
  registry.up = false;
  registry.problem = kAway;
  ids.ObserveProblems(WallTimeOf(2000));
  ids.ObserveProblems(WallTimeOf(3000));
  EXPECT_EQ(since_of("registry"), WallTimeOf(2000));
  EXPECT_EQ(since_of("disabled"), WallTimeOf(1000));
  registry.up = true;
  ids.ObserveProblems(WallTimeOf(4000));
  registry.up = false;
  ids.ObserveProblems(WallTimeOf(5000));
  EXPECT_EQ(since_of("registry"), WallTimeOf(5000)) << "it was back meanwhile";
  ids.ConfigRead(WallTimeOf(5500), Error{ErrorCode::kConfig, "bad", ""});
  ids.ObserveProblems(WallTimeOf(6000));
  EXPECT_EQ(since_of("reload_failed"), WallTimeOf(6000));
}

}  // namespace
}  // namespace leaf::service
