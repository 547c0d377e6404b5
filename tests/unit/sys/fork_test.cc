// What a child of fork must not have of its parent, and what a parent keeps.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "leaf/core/snowflake.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/grant_lock.h"
#include "leaf/sys/process_file.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/thread_pool.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace leaf::sys {
namespace {

using std::chrono::milliseconds;
using testing::IdleChild;
using testing::InChild;

TEST(ForkGuard, RunsInTheChildAndNowhereElse) {
  int calls = 0;
  int ended_calls = 0;
  const auto count = [](void* object) { ++*static_cast<int*>(object); };
  { const ForkGuard ended(count, &ended_calls); }
  const ForkGuard first(count, &calls);
  const ForkGuard second(count, &calls);
  EXPECT_EQ(InChild([&] { return calls * 10 + ended_calls; }), 20);
  EXPECT_EQ(calls, 0);
}

// Parent and child would issue the same IDs: the child has nothing to issue from.
TEST(ForkGuard, ClosesAGeneratorInTheChildOnly) {
  const WallTime now = WallTimeOf(1'795'000'000'000);
  core::Snowflake generator(core::IdLayout{}, 1, now, milliseconds{3000}, 1);
  generator.RaiseCeiling(generator.CeilingAt(now));
  const ForkGuard guard([](void* object) { static_cast<core::Snowflake*>(object)->Close(); }, &generator);
  const auto take = [&] {
    core::SnowflakeRun run;
    return generator.Take(1, now, run).outcome;
  };
  EXPECT_EQ(InChild([&] { return take() == core::Snowflake::Outcome::kClosed ? 0 : 1; }), 0);
  EXPECT_EQ(take(), core::Snowflake::Outcome::kTaken);
}

TEST(ForkCount, ACountOfAnotherProcessIsAnother) {
  const std::uint64_t here = WatchForks();
  EXPECT_EQ(InChild([&] {
              const std::uint64_t child = ForkCount();
              if (child != here + 1) return 1;
              return InChild([&] { return ForkCount() == child + 1 ? 0 : 1; });
            }),
            0);
  EXPECT_EQ(ForkCount(), here);
}

// The child has the lock's file open, too, for as long as it lives.
TEST(StateDirLock, IsGivenBackThoughAChildOfForkLives) {
  testing::TempDir dir;
  std::optional<IdleChild> child;
  {
    const auto lock = StateDirLock::Take(dir.path(), StateDirUse::kLibrary);
    ASSERT_TRUE(lock.ok());
    child.emplace();
    ASSERT_TRUE(child->is_there());
    EXPECT_EQ(StateDirLock::Take(dir.path(), StateDirUse::kLibrary).error().code, ErrorCode::kRefused);
  }
  const auto again = StateDirLock::Take(dir.path(), StateDirUse::kLibrary);
  EXPECT_TRUE(again.ok()) << again.error().message;
}

TEST(StateDirLock, IsTheParentsStillOnceAChildHasDestroyedIts) {
  testing::TempDir dir;
  std::optional<Result<StateDirLock>> lock(StateDirLock::Take(dir.path(), StateDirUse::kLibrary));
  ASSERT_TRUE(lock->ok());
  EXPECT_EQ(InChild([&] {
              lock.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(StateDirLock::Take(dir.path(), StateDirUse::kLibrary).error().code, ErrorCode::kRefused);
}

TEST(GrantLock, IsGivenBackThoughAChildOfForkLives) {
  testing::TempDir dir;
  const SystemClock clock;
  std::optional<IdleChild> child;
  {
    const auto lock = GrantLock::Take(dir.path(), "pay", clock, milliseconds{0});
    ASSERT_TRUE(lock.ok());
    child.emplace();
    ASSERT_TRUE(child->is_there());
  }
  EXPECT_TRUE(GrantLock::Take(dir.path(), "pay", clock, milliseconds{0}).ok());
}

TEST(ProcessFile, IsRefusedToAChildWhoseParentHadItOpen) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/leaf.db";
  std::ofstream(path) << "there";
  const std::string link = dir.path() + "/link.db";
  std::filesystem::create_symlink(path, link);
  const auto noted = ProcessFile::Note(path);
  ASSERT_TRUE(noted.ok());
  // Two generators of one process may share a file.
  EXPECT_TRUE(ProcessFile::Note(path).ok());
  EXPECT_EQ(InChild([&] {
              for (const std::string& name : {path, link}) {
                const auto refused = ProcessFile::Note(name);
                if (refused.ok() || refused.error().code != ErrorCode::kRefused) return 1;
                if (refused.error().message.find(name) == std::string::npos) return 2;
              }
              const auto own = ProcessFile::Note(dir.path() + "/own.db");
              if (!own.ok() || !ProcessFile::Note(dir.path() + "/own.db").ok()) return 3;
              // Of a child of the child, both are a parent's.
              return InChild([&] {
                return !ProcessFile::Note(path).ok() && !ProcessFile::Note(dir.path() + "/own.db").ok() ? 0
                                                                                                        : 4;
              });
            }),
            0);
  EXPECT_TRUE(ProcessFile::Note(path).ok());
}

TEST(ProcessFile, AChildMayOpenWhatItsParentHadClosed) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/leaf.db";
  { const auto noted = ProcessFile::Note(path); }
  EXPECT_EQ(InChild([&] { return ProcessFile::Note(path).ok() ? 0 : 1; }), 0);
}

// What a child destroys of its parent's is in SQLite's table there still.
TEST(ProcessFile, AChildThatDestroysItsParentsIsRefusedStill) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/leaf.db";
  std::optional<Result<ProcessFile>> noted(ProcessFile::Note(path));
  EXPECT_EQ(InChild([&] {
              noted.reset();
              return ProcessFile::Note(path).ok() ? 1 : 0;
            }),
            0);
}

TEST(ThreadPool, SaysThatNoThreadCanBeStarted) {
  EXPECT_EQ(InChild([] {
              // Root may have any number of threads.
              const rlimit none{0, 0};
              if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
              if (setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
              const SystemClock clock;
              try {
                ThreadPool pool("some-name", 2, clock);
              } catch (const std::system_error& failed) {
                const std::string what = failed.what();
                return what.starts_with("cannot start a thread (some-name)") ? 0 : 3;
              }
              return 4;
            }),
            0);
}

}  // namespace
}  // namespace leaf::sys
