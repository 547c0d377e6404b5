// Which daemon is asked first.
#include "leaf/client/server_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace leaf::client {
namespace {

using std::chrono::seconds;
using Order = std::vector<std::size_t>;

MonotonicTime At(int second) { return MonotonicTime{seconds{second}}; }

TEST(ServerGroups, NearOnesComeFirst) {
  const ServerGroups groups({{"a", "b"}, {"c"}}, seconds{5});
  EXPECT_EQ(groups.Order(At(100)), (Order{0, 1, 2}));
  EXPECT_EQ(groups.name(2), "c");
}

TEST(ServerGroups, AServerThatDidNotAnswerIsTriedLastAndComesBack) {
  ServerGroups groups({{"a", "b"}, {"c"}}, seconds{5});
  groups.DidNotAnswer(0, At(100));
  EXPECT_EQ(groups.Order(At(100)), (Order{1, 2, 0}));
  groups.DidNotAnswer(1, At(103));
  EXPECT_EQ(groups.Order(At(104)), (Order{2, 0, 1}));
  EXPECT_EQ(groups.Order(At(105)), (Order{0, 2, 1}));
  EXPECT_EQ(groups.Order(At(108)), (Order{0, 1, 2}));
  groups.DidNotAnswer(0, At(109));
  groups.Answered(0);
  EXPECT_EQ(groups.Order(At(109)), (Order{0, 1, 2}));
}

TEST(ServerGroups, AllAreTriedIfAllAreAway) {
  ServerGroups groups({{"a"}, {"b"}}, seconds{5});
  groups.DidNotAnswer(0, At(1));
  groups.DidNotAnswer(1, At(1));
  EXPECT_EQ(groups.Order(At(2)), (Order{0, 1}));
}

TEST(ServerGroups, WhateverHappensEachIsTriedOnceAndNoneThatIsAwayBeforeOneThatIsNot) {
  std::mt19937 random(20261122);
  ServerGroups groups({{"a", "b"}, {"c", "d", "e"}, {"f"}}, seconds{10});
  std::vector<int> away_until(6, 0);
  for (int now = 1; now < 2000; ++now) {
    const std::size_t chosen = random() % 6;
    if (random() % 2 == 0) {
      groups.DidNotAnswer(chosen, At(now));
      away_until[chosen] = now + 10;
    } else {
      groups.Answered(chosen);
      away_until[chosen] = 0;
    }
    const Order order = groups.Order(At(now));
    ASSERT_EQ(std::set(order.begin(), order.end()).size(), 6U);
    const auto rank = [&](std::size_t server) { return std::pair(away_until[server] > now, server); };
    ASSERT_TRUE(
        std::is_sorted(order.begin(), order.end(), [&](auto a, auto b) { return rank(a) < rank(b); }));
  }
}

}  // namespace
}  // namespace leaf::client
