#include "leaf/service/waiting_line.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace leaf::service {
namespace {

using Line = WaitingLine<WaitingRequest<std::string>>;

std::uint64_t Add(Line& line, std::uint64_t count) {
  return line.Add({.ticket = 0, .count = count, .deadline = {}, .done = nullptr});
}

TEST(WaitingLine, TicketsRiseAndTheFirstLeavesFirst) {
  Line line;
  EXPECT_TRUE(line.empty());
  EXPECT_EQ(Add(line, 5), 1U);
  EXPECT_EQ(Add(line, 7), 2U);
  EXPECT_EQ(line.size(), 2U);
  EXPECT_EQ(line.ids(), 12U);
  EXPECT_EQ(line.front().count, 5U);
  EXPECT_EQ(line.RemoveFront().ticket, 1U);
  EXPECT_EQ(line.ids(), 7U);
  EXPECT_EQ(Add(line, 1), 3U) << "a ticket is given once";
}

TEST(WaitingLine, ALineThatWasNeverUsedIsEmpty) {
  Line line;
  EXPECT_TRUE(line.empty());
  EXPECT_EQ(line.size(), 0U);
  EXPECT_EQ(line.ids(), 0U);
  EXPECT_EQ(line.last_ticket(), 0U);
  EXPECT_TRUE(line.begin() == line.end());
  EXPECT_EQ(line.Find(1), nullptr);
  EXPECT_FALSE(line.Remove(1).has_value());
  EXPECT_TRUE(line.RemoveAll().empty());
  EXPECT_EQ(Add(line, 3), 1U);
  EXPECT_EQ(line.RemoveAll().size(), 1U);
  EXPECT_EQ(line.ids(), 0U);
  EXPECT_EQ(line.last_ticket(), 1U);
  EXPECT_EQ(Add(line, 4), 2U) << "a ticket is given once";
}

TEST(WaitingLine, ARequestIsFoundAndRemovedByItsTicketUntilItHasLeft) {
  Line line;
  for (const std::uint64_t count : {10U, 20U, 30U}) Add(line, count);
  ASSERT_NE(line.Find(2), nullptr);
  EXPECT_EQ(line.Find(2)->count, 20U);
  const auto removed = line.Remove(2);
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(removed->count, 20U);
  EXPECT_EQ(line.ids(), 40U);
  for (const std::uint64_t gone : {0U, 2U, 4U}) {
    EXPECT_EQ(line.Find(gone), nullptr) << gone;
    EXPECT_FALSE(line.Remove(gone).has_value()) << gone;
  }
  EXPECT_EQ(line.RemoveFront().count, 10U);
  EXPECT_EQ(line.Find(1), nullptr);
  EXPECT_NE(line.Find(3), nullptr);
}

TEST(WaitingLine, WhatIsRemovedOnTheWayThroughLeavesTheRestInOrder) {
  Line line;
  for (const std::uint64_t count : {1U, 2U, 3U, 4U}) Add(line, count);
  std::vector<std::uint64_t> left;
  for (auto place = line.begin(); place != line.end();) {
    if (place->count % 2 == 0) {
      place = line.Remove(place).second;
    } else {
      left.push_back(place++->count);
    }
  }
  EXPECT_EQ(left, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(line.ids(), 4U);
  EXPECT_EQ(line.RemoveAll().size(), 2U);
  EXPECT_TRUE(line.empty());
  EXPECT_EQ(line.ids(), 0U);
}

}  // namespace
}  // namespace leaf::service
