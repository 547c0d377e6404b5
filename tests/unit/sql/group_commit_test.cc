#include "leaf/sql/group_commit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace leaf::sql {
namespace {

// Writes down the groups; those that are not the first fail with `error`, if there is one. The first waits
// for Open().
class Gate {
 public:
  Result<void> Write(const std::vector<const int*>& items) {
    if (groups_.empty()) {
      begun_.set_value();
      opened_.get_future().wait();
    }
    groups_.emplace_back();
    for (const int* item : items) groups_.back().insert(*item);
    if (groups_.size() > 1 && error) return *error;
    return {};
  }
  // Returns once the first write is under way.
  void WaitForFirst() { begun_.get_future().wait(); }
  void Open() { opened_.set_value(); }

  std::optional<Error> error;
  const std::vector<std::multiset<int>>& groups() const { return groups_; }

 private:
  std::promise<void> begun_;
  std::promise<void> opened_;
  std::vector<std::multiset<int>> groups_;
};

// Item 0 is being written; 1 to 10 come meanwhile. What became of each.
std::vector<Result<void>> RunEleven(Gate& gate) {
  GroupCommit<int> commit([&](const std::vector<const int*>& items) { return gate.Write(items); });
  std::vector<Result<void>> results(11, Error{ErrorCode::kInternal, "not run", ""});
  std::vector<std::thread> tasks;
  const auto start = [&](std::size_t item) {
    tasks.emplace_back([&, item] { results[item] = commit.Run(static_cast<int>(item)); });
  };
  start(0);
  gate.WaitForFirst();
  for (std::size_t item = 1; item <= 10; ++item) start(item);
  while (commit.waiting() != 10) std::this_thread::yield();
  gate.Open();
  for (std::thread& task : tasks) task.join();
  EXPECT_EQ(commit.waiting(), 0U);
  return results;
}

TEST(GroupCommit, WhatComesDuringAWriteIsOneGroup) {
  Gate gate;
  for (const Result<void>& result : RunEleven(gate)) EXPECT_TRUE(result.ok());
  ASSERT_EQ(gate.groups().size(), 2U);
  EXPECT_EQ(gate.groups()[0], std::multiset<int>({0}));
  EXPECT_EQ(gate.groups()[1], std::multiset<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(GroupCommit, AFailureIsThatOfEachInItsGroup) {
  Gate gate;
  gate.error = Error{ErrorCode::kUnavailable, "disk full", ""};
  const auto results = RunEleven(gate);
  EXPECT_TRUE(results[0].ok());
  for (std::size_t item = 1; item <= 10; ++item) {
    ASSERT_FALSE(results[item].ok());
    EXPECT_EQ(results[item].error().message, "disk full");
  }
}

TEST(GroupCommit, EachItemIsWrittenOnceBeforeItsTaskGoesOn) {
  constexpr int kTasks = 8;
  constexpr int kItems = 300;
  std::vector<std::atomic<int>> written(kTasks * kItems);
  std::atomic<int> writers{0};
  GroupCommit<int> commit([&](const std::vector<const int*>& items) -> Result<void> {
    EXPECT_EQ(writers.fetch_add(1), 0);
    EXPECT_FALSE(items.empty());
    bool odd = false;
    for (const int* item : items) {
      ++written[static_cast<std::size_t>(*item)];
      odd = odd || *item % 7 == 0;
    }
    writers.fetch_sub(1);
    if (odd) return Error{ErrorCode::kUnavailable, "not written", ""};
    return {};
  });
  std::vector<std::thread> tasks;
  for (int task = 0; task < kTasks; ++task) {
    tasks.emplace_back([&, task] {
      for (int i = 0; i < kItems; ++i) {
        const int item = task * kItems + i;
        const bool ok = commit.Run(item).ok();
        EXPECT_EQ(written[static_cast<std::size_t>(item)].load(), 1);
        if (item % 7 == 0) {
          EXPECT_FALSE(ok);
        }
      }
    });
  }
  for (std::thread& task : tasks) task.join();
}

}  // namespace
}  // namespace leaf::sql
