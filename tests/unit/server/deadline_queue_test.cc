#include "leaf/server/net/deadline_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace leaf::server {
namespace {

using Ids = std::vector<std::uint64_t>;
using Member = DeadlineQueue::Member;

MonotonicTime At(int ms) { return MonotonicTime{std::chrono::milliseconds{ms}}; }

TEST(DeadlineQueue, TellsEachDeadlineOnce) {
  DeadlineQueue queue;
  Member member(queue, 7);
  EXPECT_EQ(queue.TakeDue(At(1'000'000)), Ids{});
  member.Set(At(10));
  EXPECT_EQ(queue.TakeDue(At(9)), Ids{});
  EXPECT_EQ(queue.TakeDue(At(10)), Ids{7});
  EXPECT_EQ(queue.TakeDue(At(11)), Ids{});
  EXPECT_EQ(member.deadline(), DeadlineQueue::kNever);
  member.Set(At(5));  // past already
  EXPECT_EQ(queue.TakeDue(At(12)), Ids{7});
}

TEST(DeadlineQueue, FollowsADeadlineEitherWay) {
  DeadlineQueue queue;
  Member member(queue, 1);
  member.Set(At(600'000));  // idle
  member.Set(At(10'000));   // a request
  EXPECT_EQ(queue.TakeDue(At(9'999)), Ids{});
  member.Set(DeadlineQueue::kNever);  // parked
  EXPECT_EQ(queue.TakeDue(At(10'000)), Ids{});
  member.Set(At(20'000));
  member.Set(At(620'000));
  EXPECT_EQ(queue.TakeDue(At(20'000)), Ids{});
  EXPECT_EQ(queue.TakeDue(At(619'999)), Ids{});
  EXPECT_EQ(queue.TakeDue(At(620'000)), Ids{1});
}

TEST(DeadlineQueue, ForgetsAMemberThatIsGone) {
  DeadlineQueue queue;
  {
    Member member(queue, 1);
    member.Set(At(1));
    EXPECT_EQ(queue.size(), 1U);
  }
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_EQ(queue.TakeDue(At(2)), Ids{});
}

TEST(DeadlineQueue, LeavesABusyMemberWhereItIs) {
  // Busy members make no work for the others: the queue holds one entry a member, however often its deadline
  // is set.
  DeadlineQueue queue;
  std::vector<std::unique_ptr<Member>> members;
  for (std::uint64_t id = 0; id < 100; ++id) members.push_back(std::make_unique<Member>(queue, id));
  for (int ms = 0; ms < 1000; ++ms) {
    for (const auto& member : members) {
      member->Set(At(ms + 10'000));
      member->Set(At(ms + 600'000));
    }
  }
  EXPECT_EQ(queue.size(), members.size());
  EXPECT_EQ(queue.TakeDue(At(600'998)), Ids{});
  EXPECT_EQ(queue.TakeDue(At(600'999)).size(), members.size());
}

TEST(DeadlineQueue, AgreesWithLookingAtEveryMember) {
  std::mt19937 random(11);
  DeadlineQueue queue;
  std::vector<std::unique_ptr<Member>> members(50);
  std::vector<MonotonicTime> expected(members.size(), DeadlineQueue::kNever);
  int now_ms = 0;
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t chosen = random() % members.size();
    const auto what = random() % 20;
    if (what == 0) {
      members[chosen] = nullptr;
      expected[chosen] = DeadlineQueue::kNever;
    } else if (what < 3) {
      now_ms += static_cast<int>(random() % 50);
      Ids due;
      for (std::size_t id = 0; id < members.size(); ++id) {
        if (expected[id] > At(now_ms)) continue;
        due.push_back(id);
        expected[id] = DeadlineQueue::kNever;
      }
      Ids taken = queue.TakeDue(At(now_ms));
      std::sort(taken.begin(), taken.end());
      ASSERT_EQ(taken, due) << "step " << step;
    } else {
      if (!members[chosen]) members[chosen] = std::make_unique<Member>(queue, chosen);
      expected[chosen] =
          what == 3 ? DeadlineQueue::kNever : At(now_ms - 10 + static_cast<int>(random() % 500));
      members[chosen]->Set(expected[chosen]);
      ASSERT_EQ(members[chosen]->deadline(), expected[chosen]);
    }
    ASSERT_LE(queue.size(), members.size());
  }
}

}  // namespace
}  // namespace leaf::server
