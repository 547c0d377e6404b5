#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "leaf/sys/boot_id.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/grant_lock.h"
#include "leaf/sys/secret_file.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/thread_pool.h"
#include "support/temp_dir.h"

namespace leaf::sys {
namespace {

using std::chrono::milliseconds;

TEST(StateDir, IsMadeForItsOwnerOnly) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/a/b/state";
  ASSERT_TRUE(EnsureStateDir(path).ok());
  ASSERT_TRUE(EnsureStateDir(path).ok());
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST(StateDir, IsItsOwnersAloneAlsoWithSlashesAtTheEnd) {
  testing::TempDir dir;
  for (const std::string end : {"/", "//"}) {
    const std::string path = dir.path() + "/a/state" + std::to_string(end.size());
    ASSERT_TRUE(EnsureStateDir(path + end).ok());
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U) << end;
  }
}

TEST(StateDir, AFileInTheWayIsNamed) {
  testing::TempDir dir;
  std::ofstream(dir.path() + "/file") << "x";
  const auto made = EnsureStateDir(dir.path() + "/file");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find(dir.path() + "/file"), std::string::npos);
}

TEST(StateDir, OneThatAllUsersMayWriteToIsRefused) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/state";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  for (const mode_t good : {mode_t{0700}, mode_t{0755}, mode_t{0770}}) {
    ASSERT_EQ(chmod(path.c_str(), good), 0);
    EXPECT_TRUE(EnsureStateDir(path).ok());
  }
  for (const mode_t bad : {mode_t{0777}, mode_t{01777}, mode_t{0702}}) {
    ASSERT_EQ(chmod(path.c_str(), bad), 0);
    const auto refused = EnsureStateDir(path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
    EXPECT_NE(refused.error().message.find(path), std::string::npos);
  }
}

TEST(StateDir, WhatIsNoRegularFileIsNamedAndLeftAlone) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/state";
  ASSERT_TRUE(EnsureStateDir(path).ok());
  const std::string victim = dir.path() + "/victim";
  std::ofstream(victim) << "precious";
  for (const char* name : {"lock", "grants.lock", "leaf.db", "marks.db", "snowflake.state", "paused-tags",
                           "clock-accepted", "leaf.db-wal", "marks.db-journal"}) {
    const std::string link = path + "/" + name;
    ASSERT_EQ(symlink(victim.c_str(), link.c_str()), 0);
    const auto refused = EnsureStateDir(path);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
    EXPECT_NE(refused.error().message.find(link), std::string::npos) << refused.error().message;
    ASSERT_EQ(unlink(link.c_str()), 0);
  }
  ASSERT_EQ(mkfifo((path + "/marks.db").c_str(), 0600), 0);
  EXPECT_FALSE(EnsureStateDir(path).ok());
  ASSERT_EQ(unlink((path + "/marks.db").c_str()), 0);
  // One that appears after the look is not followed either.
  ASSERT_EQ(symlink(victim.c_str(), (path + "/lock").c_str()), 0);
  EXPECT_FALSE(StateDirLock::Take(path, StateDirUse::kCommand).ok());
  std::string text;
  std::getline(std::ifstream(victim), text);
  EXPECT_EQ(text, "precious");
}

TEST(StateDir, AFolderInItIsMadeOnce) {
  testing::TempDir dir;
  ASSERT_TRUE(EnsureStateDir(dir.path() + "/state").ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(EnsureFolderIn(dir.path() + "/state", "repairs").ok());
  const std::string file = dir.path() + "/state/file";
  std::ofstream(file) << "x";
  const auto refused = EnsureFolderIn(dir.path() + "/state", "file");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(file), std::string::npos);
  ASSERT_EQ(symlink(dir.path().c_str(), (dir.path() + "/state/link").c_str()), 0);
  EXPECT_FALSE(EnsureFolderIn(dir.path() + "/state", "link").ok());
}

TEST(StateDir, OneDirectoryIsOneDaemon) {
  testing::TempDir dir;
  {
    const auto first = StateDirLock::Take(dir.path(), StateDirUse::kDaemon);
    ASSERT_TRUE(first.ok());
    const auto second = StateDirLock::Take(dir.path(), StateDirUse::kDaemon);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kRefused);
    EXPECT_NE(second.error().message.find(fmt::format("leafctl serve (pid {})", getpid())),
              std::string::npos);
    EXPECT_EQ(second.error().hint, "give each daemon a state_dir of its own");
  }
  EXPECT_TRUE(StateDirLock::Take(dir.path(), StateDirUse::kDaemon).ok());
}

TEST(StateDir, AHolderSaysWhatItIs) {
  testing::TempDir dir;
  EXPECT_FALSE(StateDirLock::HolderOf(dir.path()));
  for (const StateDirUse use : {StateDirUse::kCommand, StateDirUse::kDaemon, StateDirUse::kLibrary}) {
    const auto lock = StateDirLock::Take(dir.path(), use);
    ASSERT_TRUE(lock.ok());
    const auto holder = StateDirLock::HolderOf(dir.path());
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->pid, getpid());
    EXPECT_EQ(holder->use, use);
    const auto refused = StateDirLock::Take(dir.path(), StateDirUse::kDaemon);
    EXPECT_EQ(refused.error().hint == "it ends soon: retry", use == StateDirUse::kCommand);
  }
}

TEST(StateDir, WhatIsNoHoldersWordIsNone) {
  testing::TempDir dir;
  // Lines of the previous version, cut off, and nonsense.
  for (const char* const text : {"", "1\n", "1 serve", "-1 serve\n", "0 serve\n", "1 sing\n", "x serve\n"}) {
    std::ofstream(dir.path() + "/lock") << text;
    EXPECT_FALSE(StateDirLock::HolderOf(dir.path())) << text;
  }
}

TEST(StateDir, AHolderThatIsNotSeenHereIsToldFromOneThatIs) {
  testing::TempDir dir;
  for (const pid_t pid : {getpid(), 999999999}) {
    std::ofstream(dir.path() + "/lock") << pid << " command\n";
    const auto holder = StateDirLock::HolderOf(dir.path());
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->use, StateDirUse::kCommand);
    EXPECT_EQ(holder->is_seen, pid == getpid());
  }
}

TEST(StateDir, ALockKnowsWhetherItsFileIsStillThere) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/state";
  ASSERT_TRUE(EnsureStateDir(path).ok());
  const auto lock = StateDirLock::Take(path, StateDirUse::kDaemon);
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(lock->Check().ok());
  ASSERT_EQ(rename(path.c_str(), (path + ".away").c_str()), 0);
  auto lost = lock->Check();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(lost.error().message.find(path + " was deleted"), std::string::npos) << lost.error().message;
  ASSERT_TRUE(EnsureStateDir(path).ok());
  EXPECT_FALSE(lock->Check().ok());
  ASSERT_TRUE(StateDirLock::Take(path, StateDirUse::kDaemon).ok()) << "the new lock is free";
  lost = lock->Check();
  ASSERT_FALSE(lost.ok());
  EXPECT_NE(lost.error().message.find(path + " was replaced"), std::string::npos) << lost.error().message;
}

TEST(StateDir, TheWatchTellsOnce) {
  const testing::TempDir dir;
  const SystemClock clock;
  const auto lock = StateDirLock::Take(dir.path(), StateDirUse::kDaemon);
  ASSERT_TRUE(lock.ok());
  std::atomic<int> told{0};
  const StateDirWatch watch(*lock, clock, [&](const Error&) { ++told; });
  ASSERT_EQ(unlink((dir.path() + "/lock").c_str()), 0);
  while (told == 0) std::this_thread::sleep_for(milliseconds{1});
  std::this_thread::sleep_for(3 * kStateDirLook);
  EXPECT_EQ(told, 1);
}

TEST(PlaceId, ACopyOfAFolderIsAnotherPlace) {
  const testing::TempDir dir;
  const testing::TempDir copy;
  // With this machine's machine-id, if it has one, without one, and with another one.
  const std::string none = dir.path() + "/none";
  const std::string some = dir.path() + "/some";
  std::ofstream(some) << "0123456789abcdef0123456789abcdef\n";
  for (const char* const file : {"/etc/machine-id", none.c_str(), some.c_str()}) {
    const std::string place = ReadPlaceId(dir.path(), file);
    EXPECT_FALSE(place.empty());
    EXPECT_EQ(place.find('\n'), std::string::npos);
    EXPECT_EQ(ReadPlaceId(dir.path(), file), place);
    EXPECT_NE(ReadPlaceId(copy.path(), file), place);
    EXPECT_EQ(ReadPlaceId(none, file), "");
  }
  // Two folders of two file systems can have one inode number.
  EXPECT_NE(ReadPlaceId(dir.path(), some.c_str()).find('@'), std::string::npos);
  // A container gets another name whenever it is made anew, and keeps its volume.
  EXPECT_EQ(ReadPlaceId(dir.path(), none.c_str()).find("host:"), std::string::npos);
}

TEST(GrantLock, ExcludesThreadsAndEndsWithItsHolder) {
  testing::TempDir dir;
  const SystemClock clock;
  {
    const auto held = GrantLock::Take(dir.path(), "pay", clock, milliseconds{1000});
    ASSERT_TRUE(held.ok());
    const auto refused = GrantLock::Take(dir.path(), "pay", clock, milliseconds{20});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(GrantLock::Take(dir.path(), "other", clock, milliseconds{20}).ok());
  }
  EXPECT_TRUE(GrantLock::Take(dir.path(), "pay", clock, milliseconds{20}).ok());
}

TEST(GrantLock, ExcludesOtherProcessesAndEndsWhenTheyDie) {
  testing::TempDir dir;
  const SystemClock clock;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto held = GrantLock::Take(dir.path(), "pay", clock, milliseconds{1000});
    const char ok = held.ok() ? 'y' : 'n';
    if (write(ready[1], &ok, 1) == 1) pause();
    _exit(0);
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  EXPECT_FALSE(GrantLock::Take(dir.path(), "pay", clock, milliseconds{20}).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(GrantLock::Take(dir.path(), "pay", clock, milliseconds{1000}).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(SecretFile, RefusesWhatOthersMayRead) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/secret";
  std::ofstream(path) << "pass word'\\\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const auto read = ReadSecretFile(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, "pass word'\\");
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const auto refused = ReadSecretFile(path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
    EXPECT_EQ(refused.error().message.find("pass"), std::string::npos);
  }
  EXPECT_EQ(ReadSecretFile(dir.path() + "/none").error().code, ErrorCode::kConfig);
}

TEST(NewFile, AppearsWholeAndReplacesNothingUnasked) {
  testing::TempDir dir;
  FileOps ops;
  const std::string path = dir.path() + "/new";
  ASSERT_TRUE(WriteNewFile(ops, path, "one", 0600, Existing::kRefuse).ok());
  EXPECT_EQ(**ReadWholeFile(ops, path, 100), "one");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  const auto again = WriteNewFile(ops, path, "two", 0600, Existing::kRefuse);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(**ReadWholeFile(ops, path, 100), "one");
  ASSERT_TRUE(WriteNewFile(ops, path, "two", 0600, Existing::kReplace).ok());
  EXPECT_EQ(**ReadWholeFile(ops, path, 100), "two");
  EXPECT_FALSE(WriteNewFile(ops, dir.path() + "/none/new", "x", 0600, Existing::kRefuse).ok());
  // No draft is left.
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) EXPECT_EQ(entry.path(), path);
}

// Two processes make the same file: one of them does, and it is the one that says so.
TEST(NewFile, HasTheContentOfTheProcessThatMadeIt) {
  struct KilledOps : FileOps {
    int Link(const char*, const char*) override {
      is_dead = true;
      errno = EIO;
      return -1;
    }
    int Unlink(const char* path) override { return is_dead ? 0 : FileOps::Unlink(path); }
    bool is_dead = false;
  };
  struct DelayedOps : FileOps {
    int Link(const char* from, const char* to) override {
      before_link();
      return FileOps::Link(from, to);
    }
    std::function<void()> before_link;
  };
  testing::TempDir dir;
  const std::string path = dir.path() + "/key";
  KilledOps killed;
  DelayedOps delayed;
  delayed.before_link = [&] {
    // It has its draft, and does not come to name it.
    EXPECT_FALSE(WriteNewFile(killed, path, "two", 0600, Existing::kRefuse).ok());
  };
  ASSERT_TRUE(WriteNewFile(delayed, path, "one", 0600, Existing::kRefuse).ok());
  FileOps ops;
  EXPECT_EQ(**ReadWholeFile(ops, path, 100), "one");
}

TEST(ThreadPool, RunsTasksAndTimersInOrderOfTime) {
  const SystemClock clock;
  ThreadPool pool("pool", 1, clock);
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> left{4};
  const auto add = [&](int number) {
    return [&, number] {
      const std::lock_guard lock(mutex);
      order.push_back(number);
      left.fetch_sub(1);
    };
  };
  // The thread has begun the task before any timer is posted, however slow the machine is, and
  // looks for the next one after all of them are.
  std::atomic<bool> begun{false};
  std::atomic<bool> posted{false};
  pool.Post([&] {
    begun.store(true);
    while (!posted.load()) std::this_thread::yield();
    add(1)();
  });
  while (!begun.load()) std::this_thread::yield();
  const MonotonicTime now = clock.Monotonic();
  pool.PostAt(now + milliseconds{40}, add(3));
  pool.PostAt(now + milliseconds{20}, add(2));
  pool.PostAt(now + milliseconds{60}, add(4));
  posted.store(true);
  while (left.load() > 0) std::this_thread::yield();
  pool.Stop();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

// An idle thread waits for the timers, also while the other threads are busy. The timers come in any order.
TEST(ThreadPool, ATimerIsSeenToWhileOtherThreadsAreBusy) {
  const SystemClock clock;
  ThreadPool pool("pool", 3, clock);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> due{0};
    std::atomic<bool> release{false};
    std::atomic<int> busy{0};
    const MonotonicTime now = clock.Monotonic();
    const auto count = [&] { due.fetch_add(1); };
    const auto block = [&] {
      busy.fetch_add(1);
      while (!release.load()) std::this_thread::yield();
    };
    if (round % 2 == 0) pool.Post(block);
    pool.PostAt(now + milliseconds{3}, count);
    pool.PostAt(now + milliseconds{1}, count);
    if (round % 3 == 0) pool.Post(block);
    pool.PostAt(now + milliseconds{2}, count);
    if (round % 5 == 0) pool.PostAt(now, block);
    const int blocked = (round % 2 == 0) + (round % 3 == 0) + (round % 5 == 0);
    // All three may be busy: then none is left for the timers.
    if (blocked == 3) release.store(true);
    while (due.load() < 3) std::this_thread::yield();
    release.store(true);
    while (busy.load() < blocked) std::this_thread::yield();
    std::atomic<bool> probed{false};
    pool.Probe([&] { probed.store(true); });
    while (!probed.load()) std::this_thread::yield();
  }
}

TEST(ThreadPool, StopWaitsForWhatRunsAndDropsTheRest) {
  const SystemClock clock;
  ThreadPool pool("pool", 2, clock);
  std::atomic<bool> begun{false};
  std::atomic<bool> finished{false};
  std::atomic<bool> dropped_ran{false};
  pool.Post([&] {
    begun.store(true);
    clock.WaitUntil(clock.Monotonic() + milliseconds{30});
    finished.store(true);
  });
  pool.PostAt(clock.Monotonic() + std::chrono::hours{1}, [&] { dropped_ran.store(true); });
  while (!begun.load()) std::this_thread::yield();
  pool.Stop();
  EXPECT_TRUE(finished.load());
  pool.Post([&] { dropped_ran.store(true); });
  pool.Stop();
  EXPECT_FALSE(dropped_ran.load());
}

}  // namespace
}  // namespace leaf::sys
