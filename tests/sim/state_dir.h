// A state directory: the worker's state file on a disk that can lose what was not synced, and the marks. It
// outlives the processes that use it, can be lost, and can be copied.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/ports.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sys/worker_state_file.h"
#include "sim/history.h"
#include "sim/ports.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::sim {

// The marks of a directory: in memory, or the shipped SqliteMarkStore on a database in memory. Between two
// calls no transaction is open there; what a disk may lose of one is SQLite's business.
class DirMarks final : public core::MarkStore, public core::ClusterMemoryStore {
 public:
  DirMarks(const Clock& clock, bool sqlite);

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override { return memory_.Acquire(tag); }
  Result<std::vector<core::Mark>> LoadAll() override { return store().LoadAll(); }
  Result<core::Mark> Load(std::string_view tag) override { return store().Load(tag); }
  Result<void> Raise(const core::MarkRaise& raise) override;
  Result<void> BeginRun() override;
  Result<void> EndRun(const std::vector<core::UnissuedIds>& unissued) override;
  Result<std::vector<core::OrderRow>> LoadOrders() override { return store().LoadOrders(); }
  Result<void> KeepOrders(const std::vector<core::OrderRow>& rows) override;

  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) override {
    return memories().LoadMemory(cluster);
  }
  Result<void> SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) override;
  Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) override;

  void SetFull(bool full);
  bool in_sqlite() const { return sqlite_ != nullptr; }

 private:
  core::MarkStore& store() { return sqlite_ ? static_cast<core::MarkStore&>(*sqlite_) : memory_; }

  core::ClusterMemoryStore& memories() {
    return sqlite_ ? static_cast<core::ClusterMemoryStore&>(*sqlite_) : memory_;
  }

  testing::MemoryMarkStore memory_;
  // Null without: what keeps the database, and the store.
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> keeper_;
  std::unique_ptr<sql::SqliteMarkStore> sqlite_;
  bool full_ = false;
};

// What operators were told of tags that they paused and resumed on the node of a directory. "Moments" are
// those of History::Sent().
class Pauses {
 public:
  // Begin: a command begins. From then on the tag may be paused or not, also if the command fails or its
  // process ends. End: the command has succeeded.
  void Begin(const std::string& tag) { of_[tag] = {State::kEither, 0}; }
  void End(const std::string& tag, bool paused, std::uint64_t moment) {
    of_[tag] = {paused ? State::kPaused : State::kServed, moment};
  }
  // ForbidsIds: a request that was sent at that moment must get no IDs. ForbidsRefusal: it must not be
  // refused because of a pause.
  bool ForbidsIds(const std::string& tag, std::uint64_t sent) const { return Is(State::kPaused, tag, sent); }
  bool ForbidsRefusal(const std::string& tag, std::uint64_t sent) const {
    return Is(State::kServed, tag, sent);
  }

 private:
  enum class State { kServed, kPaused, kEither };
  bool Is(State state, const std::string& tag, std::uint64_t sent) const {
    const auto found = of_.find(tag);
    if (found == of_.end()) return state == State::kServed;
    return found->second.first == state && sent > found->second.second;
  }
  std::map<std::string, std::pair<State, std::uint64_t>> of_;
};

struct StateDir {
  StateDir(std::uint64_t its_number, const Clock& clock, bool sqlite_marks)
      : number(its_number), marks(clock, sqlite_marks) {}
  static constexpr const char* kPath = "/state";
  static constexpr const char* kCluster = "/snowflake/sim";

  // What a copy made now would hold.
  std::unique_ptr<StateDir> Copy(std::uint64_t copy_number, const Clock& clock) const;
  void SetFull(bool full);

  const std::uint64_t number;
  Pauses pauses;
  testing::CrashingDisk disk;
  mutable DirMarks marks;
};

// One process's way to the disk. A crash that was planned at a system call ends the process there.
class SimDisk final : public sys::FileOps {
 public:
  SimDisk(World& world, Process& process, testing::CrashingDisk& disk, Nanos longest_flush)
      : world_(world), process_(process), disk_(disk), longest_flush_(longest_flush) {}
  int Open(const char* path, int flags, mode_t mode) override {
    return Done(disk_.Open(path, flags, mode), 0);
  }
  ssize_t Read(int fd, void* buffer, std::size_t size) override {
    return Done(disk_.Read(fd, buffer, size), 0);
  }
  ssize_t Write(int fd, const void* data, std::size_t size) override {
    return Done(disk_.Write(fd, data, size), 0);
  }
  int Sync(int fd) override {
    return Done(disk_.Sync(fd), world_.dice().Between(kMilli / 10, longest_flush_));
  }
  // Called by destructors, where nothing may be thrown; the next call ends the process.
  int Close(int fd) override { return disk_.Close(fd); }
  int Rename(const char* from, const char* to) override { return Done(disk_.Rename(from, to), 0); }
  int Unlink(const char* path) override { return Done(disk_.Unlink(path), 0); }
  void GiveToOwnerOf(const char* /*directory*/, int /*fd*/) override {}

 private:
  template <typename R>
  R Done(R result, Nanos time) {
    const int error_number = errno;
    if (disk_.dead() && !process_.dead) world_.Kill(process_);
    if (process_.dead || time > 0) world_.Block(process_, time);
    errno = error_number;
    return result;
  }

  World& world_;
  Process& process_;
  testing::CrashingDisk& disk_;
  const Nanos longest_flush_;
};

// One process's way to the marks. A mark that is durable makes the range it covers a grant of this process.
class SimMarks final : public core::MarkStore, public core::ClusterMemoryStore {
 public:
  SimMarks(World& world, const Process& process, DirMarks& marks, History& history, const Issuer& issuer)
      : world_(world), process_(process), marks_(marks), history_(history), issuer_(issuer) {}

  // The store has handed out a range, which may or may not become a grant.
  void Reserved(std::string_view tag, const IdRange& range) { reserved_[std::string(tag)].push_back(range); }

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override;
  Result<std::vector<core::Mark>> LoadAll() override;
  Result<core::Mark> Load(std::string_view tag) override;
  Result<void> Raise(const core::MarkRaise& raise) override;
  Result<void> BeginRun() override;
  Result<void> EndRun(const std::vector<core::UnissuedIds>& unissued) override;
  Result<std::vector<core::OrderRow>> LoadOrders() override;
  Result<void> KeepOrders(const std::vector<core::OrderRow>& rows) override;
  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) override;
  Result<void> SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) override;
  Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) override;

 private:
  void Work();

  World& world_;
  const Process& process_;
  DirMarks& marks_;
  History& history_;
  const Issuer issuer_;
  std::map<std::string, std::vector<IdRange>> reserved_;
};

}  // namespace leaf::sim
