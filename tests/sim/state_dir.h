// A state directory: the worker's state file on a disk that can lose what was not synced, and the marks. It
// outlives the processes that use it, can be lost, and can be copied.
#pragma once

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
#include "sim/plan.h"
#include "sim/ports.h"
#include "sim/sqlite_disk.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::sim {

// The marks of a directory: in memory, or in a SQLite file, which each process opens by itself.
class DirMarks {
 public:
  // What one process has of them.
  class Opened {
   public:
    core::MarkStore& store() { return sqlite_ ? static_cast<core::MarkStore&>(*sqlite_) : memory_; }
    core::ClusterMemoryStore& memories() {
      return sqlite_ ? static_cast<core::ClusterMemoryStore&>(*sqlite_) : memory_;
    }
    bool in_sqlite() const { return sqlite_ != nullptr; }
    // Closes the file, as a process does that ends by itself. Not used after that.
    void Close() { sqlite_.reset(); }

   private:
    friend class DirMarks;
    explicit Opened(testing::MemoryMarkStore& memory) : memory_(memory) {}
    Opened(DirMarks& marks, Process& process);

    testing::MemoryMarkStore& memory_;
    std::unique_ptr<SqliteDisk::Mount> mount_;  // null in memory
    std::unique_ptr<sql::SqliteMarkStore> sqlite_;
  };

  // `seed`: of the disk.
  DirMarks(const Clock& clock, bool sqlite, std::uint64_t seed);

  Opened OpenFor(Process& process) { return {*this, process}; }
  bool in_sqlite() const { return disk_ != nullptr; }
  SqliteDisk* disk() { return disk_.get(); }  // null in memory
  bool full() const { return full_; }
  void SetFull(bool full);
  // Fills `copy`, which is empty, as a copy of the files would.
  void CopyTo(DirMarks& copy) const;

  // ---- as an operator sees them in a copy of the files
  Result<core::Mark> Load(const std::string& tag) const;
  Result<std::vector<core::OrderRow>> LoadOrders() const;
  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) const;

  // ---- what callers were told is durable
  using Ends = std::map<std::string, std::uint64_t>;  // by tag
  void Kept(const std::string& tag, std::uint64_t end);
  const Ends& kept() const { return kept_; }
  // Names one of `marks`, which were read, that is lower than in `kept`; "" if there is none.
  static std::string Lost(const Ends& kept, const std::vector<core::Mark>& marks);

 private:
  // What `look` returns of a copy; in memory, of the marks themselves.
  template <typename Look>
  auto InCopy(Look look) const;

  const Clock& clock_;
  mutable testing::MemoryMarkStore memory_;
  std::unique_ptr<SqliteDisk> disk_;  // null in memory
  Ends kept_;                         // of a disk
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
  StateDir(std::uint64_t its_number, const Clock& clock, const Plan& plan)
      : StateDir(its_number, clock, plan.sql, plan.seed ^ its_number << 32U) {
    if (marks.in_sqlite()) marks.disk()->SetLongestFlush(NanosOf(plan.marks_flush));
  }
  static constexpr const char* kPath = "/state";
  static constexpr const char* kCluster = "/snowflake/sim";

  // What a copy made now would hold.
  std::unique_ptr<StateDir> Copy(std::uint64_t copy_number, const Clock& clock) const;
  void SetFull(bool full);
  // Nothing is wrong with its disk any more.
  void Mend();

  const std::uint64_t number;
  Pauses pauses;
  testing::CrashingDisk disk;
  DirMarks marks;

 private:
  StateDir(std::uint64_t its_number, const Clock& clock, bool sqlite_marks, std::uint64_t seed)
      : number(its_number), marks(clock, sqlite_marks, seed) {}
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
  SimMarks(World& world, Process& process, DirMarks& marks, History& history, const Issuer& issuer)
      : world_(world),
        process_(process),
        marks_(marks),
        opened_(marks.OpenFor(process)),
        history_(history),
        issuer_(issuer) {}

  // The process is about to end by itself. Nothing is called any more after that.
  void Close() { opened_.Close(); }

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
  // Nothing, unless the process is gone by now, or nothing can be written.
  Result<void> CanWrite() const;
  // `result`, unless the process has ended meanwhile.
  template <typename R>
  R Done(R result) const;
  void CheckKept(const DirMarks::Ends& kept, const std::vector<core::Mark>& marks);

  World& world_;
  const Process& process_;
  DirMarks& marks_;
  DirMarks::Opened opened_;
  History& history_;
  const Issuer issuer_;
  std::map<std::string, std::vector<IdRange>> reserved_;
};

}  // namespace leaf::sim
