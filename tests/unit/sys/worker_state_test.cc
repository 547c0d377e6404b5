#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "leaf/sys/boot_id.h"
#include "leaf/sys/clock_acceptance.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/worker_state_file.h"
#include "support/snowflake_fakes.h"
#include "support/temp_dir.h"

namespace leaf::sys {
namespace {

core::WorkerState SomeState() {
  core::WorkerState state;
  state.cluster = {"pay cluster", "static", *core::IdLayout::Make(40, 11, 12, 1'600'000'000'000)};
  state.node_uuid = "6fa1";
  state.worker = 2047;
  state.ceiling = WallTimeOf(1'795'000'003'000);
  state.boot_id = "b-1";
  state.clock_offset = std::chrono::milliseconds{1'794'000'000'000};
  state.highest = WallTimeOf(1'795'000'004'000);
  state.leased = true;
  state.machine = "m-1";
  state.last_contact = WallTimeOf(1'795'000'001'000);
  return state;
}

bool Equal(const core::WorkerState& a, const core::WorkerState& b) {
  return a.cluster.name == b.cluster.name && a.cluster.registry == b.cluster.registry &&
         a.cluster.layout == b.cluster.layout && a.node_uuid == b.node_uuid && a.worker == b.worker &&
         a.ceiling == b.ceiling && a.boot_id == b.boot_id && a.clock_offset == b.clock_offset &&
         a.highest == b.highest && a.leased == b.leased && a.machine == b.machine &&
         a.last_contact == b.last_contact;
}

class WorkerStateTest : public ::testing::Test {
 protected:
  std::string Content() const {
    std::ifstream in(file_.path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& content) const {
    std::ofstream(file_.path(), std::ios::binary | std::ios::trunc) << content;
  }
  // The error of Load for `content`, which has to name the file.
  std::string Wrong(const std::string& content) {
    Write(content);
    const auto loaded = file_.Load();
    EXPECT_FALSE(loaded.ok()) << content;
    if (loaded.ok()) return "";
    EXPECT_EQ(loaded.error().code, ErrorCode::kRefused);
    EXPECT_NE(loaded.error().message.find(file_.path()), std::string::npos);
    return loaded.error().message;
  }

  testing::TempDir dir_;
  FileOps ops_;
  WorkerStateFile file_{dir_.path(), ops_};
};

TEST_F(WorkerStateTest, WhatIsStoredIsLoaded) {
  const auto before = file_.Load();
  ASSERT_TRUE(before.ok());
  EXPECT_FALSE(before->has_value());
  core::WorkerState state = SomeState();
  for (int i = 0; i < 3; ++i) {
    state.ceiling += std::chrono::milliseconds{i};
    ASSERT_TRUE(file_.Store(state).ok());
    const auto loaded = file_.Load();
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    EXPECT_TRUE(Equal(**loaded, state));
  }
  state.boot_id = "";
  state.machine = "";
  state.worker.reset();
  ASSERT_TRUE(file_.Store(state).ok());
  EXPECT_TRUE(Equal(**file_.Load(), state));
  // For its owner only, and no draft is left.
  struct stat status {};
  ASSERT_EQ(stat(file_.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_NE(access((file_.path() + ".new").c_str(), F_OK), 0);
}

TEST_F(WorkerStateTest, TheFirstFormatIsRead) {
  const std::string body =
      "leafctl-snowflake-state 1\nnode 6fa1\ncluster pay cluster\nregistry static\nlayout 40-11-12\n"
      "epoch_ms 1600000000000\nworker 2047\nceiling_ms 1795000003000\nboot_id b-1\n"
      "clock_offset_ms 1794000000000\n";
  // FNV-1a of the above.
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::ostringstream text;
  text << body << "checksum " << std::hex << std::setw(16) << std::setfill('0') << hash << "\n";
  Write(text.str());
  const auto loaded = file_.Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.error().message;
  core::WorkerState expected = SomeState();
  expected.highest = expected.ceiling;
  expected.leased = false;
  expected.machine = "";
  expected.last_contact = WallTime{};
  EXPECT_TRUE(Equal(**loaded, expected));
}

TEST_F(WorkerStateTest, EveryTruncationIsRefused) {
  ASSERT_TRUE(file_.Store(SomeState()).ok());
  const std::string whole = Content();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(Wrong(whole.substr(0, size)).find("truncated"), std::string::npos) << size;
  }
  Write(whole);
  EXPECT_TRUE(file_.Load().ok());
}

TEST_F(WorkerStateTest, EveryChangedByteIsRefused) {
  ASSERT_TRUE(file_.Store(SomeState()).ok());
  const std::string whole = Content();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {1, 4, 16}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ change);
      Wrong(changed);
    }
  }
  Wrong(whole + "x\n");
  Wrong(whole + whole);
}

TEST_F(WorkerStateTest, ForeignAndNewerFilesAreNamedAsSuch) {
  EXPECT_NE(Wrong("workerID=3").find("not a leafctl file"), std::string::npos);
  EXPECT_NE(Wrong(std::string(100, '\0')).find("not a leafctl file"), std::string::npos);
  ASSERT_TRUE(file_.Store(SomeState()).ok());
  std::string newer = Content();
  newer.replace(newer.find(" 2\n"), 3, " 3\n");
  EXPECT_NE(Wrong(newer).find("version '3'"), std::string::npos);
  Write(std::string(100'000, 'x'));
  EXPECT_FALSE(file_.Load().ok());
}

TEST_F(WorkerStateTest, AStateThatCannotBeReadOrWrittenIsNamed) {
  mkdir(file_.path().c_str(), 0700);
  const auto loaded = file_.Load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find(file_.path()), std::string::npos);
  const auto stored = file_.Store(SomeState());
  ASSERT_FALSE(stored.ok());
  EXPECT_NE(stored.error().message.find(file_.path()), std::string::npos);
  FileOps ops;
  WorkerStateFile nowhere("/nonexistent/state", ops);
  EXPECT_FALSE(nowhere.Store(SomeState()).ok());
}

TEST_F(WorkerStateTest, AFailingCallLeavesTheOldStateAndNoDraft) {
  testing::CrashingDisk disk;
  WorkerStateFile file("/state", disk);
  const core::WorkerState old_state = SomeState();
  ASSERT_TRUE(file.Store(old_state).ok());
  core::WorkerState next = old_state;
  next.ceiling += std::chrono::hours{1};
  disk.FailWrites(ENOSPC);
  EXPECT_EQ(file.Store(next).error().code, ErrorCode::kUnavailable);
  disk.FailWrites(EACCES);
  EXPECT_EQ(file.Store(next).error().code, ErrorCode::kPermission);
  disk.FailWrites(0);
  disk.FailRenames(EACCES);
  EXPECT_FALSE(file.Store(next).ok());
  EXPECT_TRUE(Equal(**file.Load(), old_state));
  EXPECT_FALSE(disk.Content("/state/snowflake.state.new").has_value());
  disk.FailRenames(0);
  disk.FailSyncs(EIO);
  EXPECT_FALSE(file.Store(next).ok());
  disk.FailSyncs(0);
  EXPECT_TRUE(file.Store(next).ok());
  EXPECT_TRUE(Equal(**file.Load(), next));
}

// A real process that dies at each real system call: the kernel keeps what it was told.
class DyingOps final : public FileOps {
 public:
  explicit DyingOps(int calls) : calls_(calls) {}
  int Open(const char* path, int flags, mode_t mode) override {
    return Step(FileOps::Open(path, flags, mode));
  }
  ssize_t Write(int fd, const void* data, std::size_t size) override {
    return Step(FileOps::Write(fd, data, std::min<std::size_t>(size, 50)));
  }
  int Sync(int fd) override { return Step(FileOps::Sync(fd)); }
  int Close(int fd) override { return Step(FileOps::Close(fd)); }
  int Rename(const char* from, const char* to) override { return Step(FileOps::Rename(from, to)); }

 private:
  template <typename T>
  T Step(T result) {
    if (--calls_ == 0) _exit(7);
    return result;
  }
  int calls_;
};

TEST_F(WorkerStateTest, AProcessThatDiesAtAnyCallLeavesAWholeState) {
  const core::WorkerState old_state = SomeState();
  core::WorkerState next = old_state;
  next.ceiling += std::chrono::hours{1};
  ASSERT_TRUE(file_.Store(old_state).ok());
  int deaths = 0;
  bool seen_old = false;
  bool seen_new = false;
  for (int call = 1; call < 40; ++call) {
    ASSERT_TRUE(file_.Store(old_state).ok());
    const pid_t child = fork();
    if (child == 0) {
      DyingOps dying(call);
      WorkerStateFile file(dir_.path(), dying);
      _exit(file.Store(next).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto loaded = file_.Load();
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    const bool is_new = Equal(**loaded, next);
    ASSERT_TRUE(is_new || Equal(**loaded, old_state));
    (is_new ? seen_new : seen_old) = true;
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 7);
    ++deaths;
  }
  EXPECT_GE(deaths, 10);
  EXPECT_TRUE(seen_old);
  EXPECT_TRUE(seen_new);
}

// The real calls in a folder. Before one of them something happens.
class InterruptedOps final : public FileOps {
 public:
  InterruptedOps(FilesIn files, int calls, std::function<void()> interrupt)
      : files_(std::move(files)), calls_(calls), interrupt_(std::move(interrupt)) {}
  int Open(const char* path, int flags, mode_t mode) override {
    Step();
    return files_.Open(path, flags, mode);
  }
  ssize_t Write(int fd, const void* data, std::size_t size) override {
    Step();
    return files_.Write(fd, data, size);
  }
  int Sync(int fd) override {
    Step();
    return files_.Sync(fd);
  }
  int Rename(const char* from, const char* to) override {
    Step();
    return files_.Rename(from, to);
  }
  int Unlink(const char* path) override {
    Step();
    return files_.Unlink(path);
  }
  bool interrupted() const { return calls_ <= 0; }

 private:
  void Step() {
    if (--calls_ == 0) interrupt_();
  }
  FilesIn files_;
  int calls_;
  std::function<void()> interrupt_;
};

// A process that is stopped for as long as it takes to replace its state directory, and to start another
// process there, must not write its own worker number and ceiling over that one's.
TEST(FilesIn, AProcessWhoseDirectoryIsReplacedAtAnyCallWritesNothingThere) {
  core::WorkerState mine = SomeState();
  core::WorkerState theirs = mine;
  theirs.node_uuid = "another";
  theirs.ceiling += std::chrono::hours{1};
  for (const bool deleted : {false, true}) {
    int interruptions = 0;
    for (int call = 1; call < 40; ++call) {
      const testing::TempDir dir;
      const std::string path = dir.path() + "/state";
      ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
      auto files = FilesIn::Open(path);
      ASSERT_TRUE(files.ok());
      FileOps other_ops;
      WorkerStateFile other(path, other_ops);
      const std::string draft = path + "/snowflake.state.new";
      InterruptedOps ops(*std::move(files), call, [&] {
        if (deleted) {
          std::filesystem::remove_all(path);
        } else {
          ASSERT_EQ(rename(path.c_str(), (path + ".away").c_str()), 0);
        }
        ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
        ASSERT_TRUE(other.Store(theirs).ok());
        std::ofstream(draft) << "another's draft";
      });
      WorkerStateFile file(path, ops);
      const bool stored = file.Store(mine).ok();
      if (!ops.interrupted()) {
        ASSERT_TRUE(stored);
        break;
      }
      ++interruptions;
      EXPECT_TRUE(Equal(**other.Load(), theirs)) << call;
      std::ifstream in(draft);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "another's draft") << call;
      // It writes on in its own folder, if that is still there.
      WorkerStateFile away(path + ".away", other_ops);
      if (!deleted) {
        EXPECT_TRUE(stored) << call;
        EXPECT_TRUE(Equal(**away.Load(), mine)) << call;
      }
    }
    EXPECT_GE(interruptions, 5);
  }
}

TEST(FilesIn, OtherPathsAreTheSystems) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/state";
  EXPECT_EQ(FilesIn::Open(path).error().code, ErrorCode::kConfig);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  auto files = FilesIn::Open(path);
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(rename(path.c_str(), (path + ".away").c_str()), 0);
  const auto makes = [&](const std::string& name) {
    const int fd = files->Open(name.c_str(), O_CREAT | O_WRONLY, 0600);
    return fd >= 0 && files->Close(fd) == 0;
  };
  EXPECT_TRUE(makes(path + "/inside"));
  EXPECT_EQ(access((path + ".away/inside").c_str(), F_OK), 0);
  EXPECT_TRUE(makes(path + "//inside2"));
  EXPECT_EQ(access((path + ".away/inside2").c_str(), F_OK), 0);
  EXPECT_TRUE(makes(path + "-beside"));
  EXPECT_EQ(access((path + "-beside").c_str(), F_OK), 0);
  EXPECT_EQ(files->Link((path + "/inside").c_str(), (path + "-linked").c_str()), 0);
  EXPECT_EQ(access((path + "-linked").c_str(), F_OK), 0);
}

TEST(ClockAcceptance, HoldsForItsBootOnly) {
  testing::TempDir dir;
  EXPECT_FALSE(LoadAcceptedOffset(dir.path(), "b-1").has_value());
  ASSERT_TRUE(StoreAcceptedOffset(dir.path(), "b-1", std::chrono::milliseconds{-42}).ok());
  EXPECT_EQ(LoadAcceptedOffset(dir.path(), "b-1"), std::chrono::milliseconds{-42});
  EXPECT_FALSE(LoadAcceptedOffset(dir.path(), "b-2").has_value());
  EXPECT_FALSE(LoadAcceptedOffset(dir.path(), "").has_value());
  // Beyond every clock, and beyond what the state file takes.
  for (const std::int64_t millis :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    ASSERT_TRUE(StoreAcceptedOffset(dir.path(), "b-3", std::chrono::milliseconds{millis}).ok());
    EXPECT_FALSE(LoadAcceptedOffset(dir.path(), "b-3").has_value());
  }
  ASSERT_TRUE(StoreAcceptedOffset(dir.path(), "b-1", std::chrono::milliseconds{-42}).ok());
  EXPECT_FALSE(StoreAcceptedOffset(dir.path(), "", std::chrono::milliseconds{1}).ok());
  std::ofstream(dir.path() + "/clock-accepted") << "b-1 12x\n";
  EXPECT_FALSE(LoadAcceptedOffset(dir.path(), "b-1").has_value());
}

TEST(BootId, IsTheSameTwice) {
  EXPECT_EQ(ReadBootId().size(), 36U);
  EXPECT_EQ(ReadBootId(), ReadBootId());
}

}  // namespace
}  // namespace leaf::sys
