#include "leaf/base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace leaf {
namespace {

struct Counter {
  SmallMutex mutex;
  int count LEAF_GUARDED_BY(mutex) = 0;
};
static_assert(sizeof(SmallMutex) == 4);

TEST(SmallMutex, OneThreadAtATimeHoldsIt) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const MutexLock lock(counter.mutex);
        const int seen = counter.count;
        // So that others come while it is held, and have to wait.
        if (round % 64 == 0) std::this_thread::yield();
        counter.count = seen + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, kThreads * kRounds);
}

// More than one sleeps: each unlock has to wake the next one.
TEST(SmallMutex, AllThatWaitGetTheirTurn) {
  constexpr int kThreads = 8;
  Counter counter;
  std::atomic<int> came{0};
  std::vector<std::thread> threads;
  {
    const MutexLock lock(counter.mutex);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ++came;
        const MutexLock own(counter.mutex);
        ++counter.count;
      });
    }
    while (came.load() < kThreads) std::this_thread::yield();
    // Time to fall asleep. If it is not enough, less is tested, and nothing fails.
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    EXPECT_EQ(counter.count, 0);
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, kThreads);
}

}  // namespace
}  // namespace leaf
