// The disk under the SQLite file of a state directory, and what the kernel does for SQLite: files, locks, and
// memory that processes share. A process can die at each call that changes a file. The disk can be full, fail
// to flush, and lose power. SQLite itself is the real one; it comes here through a VFS, its interface for
// that.
//
// A loss of power keeps any part of what was not flushed, in any order, torn at sectors. It keeps only the
// first few of the names that were made or removed since the folder was last flushed. SQLite's own VFS
// assumes the same.
//
// The kernel keeps in memory what it could not flush. A real one may also forget that, and fail at a later
// flush.
#pragma once

#include <sqlite3.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/world.h"

namespace leaf::sim {

class SqliteDisk {
 public:
  // One process's way to the disk. Once the process is dead, its locks are free, and nothing that it does has
  // an effect. Outlives the connections that were opened by path().
  class Mount {
   public:
    // The database, for sqlite3_open.
    const std::string& path() const { return path_; }
    ~Mount();
    Mount(const Mount&) = delete;
    Mount& operator=(const Mount&) = delete;

   private:
    friend class SqliteDisk;
    Mount(SqliteDisk& disk, Process& process);

    SqliteDisk& disk_;
    Process& process_;
    std::string path_;
  };

  // `seed` decides what a loss of power leaves.
  explicit SqliteDisk(std::uint64_t seed) : dice_(seed) {}
  SqliteDisk(const SqliteDisk&) = delete;
  SqliteDisk& operator=(const SqliteDisk&) = delete;

  // As `cp -r` of a moment at which no process writes.
  void CopyTo(SqliteDisk& other) const;
  // The disk outlives it.
  std::unique_ptr<Mount> MountFor(Process& process) {
    return std::unique_ptr<Mount>(new Mount(*this, process));
  }

  // How long a flush takes at most; and so for how long a transaction keeps others waiting. 0: no time
  // passes.
  void SetLongestFlush(Nanos longest) { longest_flush_ = longest; }
  void SetFull(bool full) { is_full_ = full; }
  // Each flush fails: any part of its data reaches the disk, and the kernel takes all of it as
  // written.
  void SetFailing(bool failing) { is_failing_ = failing; }
  // The process that makes call number `call` (from 0) from now on dies at it, before or after it took
  // effect.
  void CrashAt(std::uint64_t call, bool after) { crash_ = {{call, after}}; }
  // Ends all faults. Flushes take as long as before.
  void Mend();
  // Requires: the processes that had it mounted are dead.
  void LosePower();

 private:
  struct Vfs;
  struct Handle;
  // The memory that the processes share which have a database open. Each of them maps it for itself.
  struct Shared;

  struct Change {
    std::size_t offset = 0;
    std::string data;
    bool truncates = false;  // to `offset`
  };
  struct File {
    std::string content;
    std::string durable;
    std::vector<Change> unsynced;  // since `durable`
    std::uint64_t failures = 0;    // of flushes
    std::vector<Handle*> handles;
    std::shared_ptr<Shared> shared;
  };
  using FilePtr = std::shared_ptr<File>;
  // A name that appears, or goes away (no file).
  struct NameChange {
    std::string name;
    FilePtr file;
  };

  static void Apply(std::string& content, const Change& change);
  // A part of what was not flushed reaches the disk.
  void ApplySome(File& file);
  void SetName(const std::string& name, const FilePtr& file);
  void SyncFolder();

  Dice dice_;
  Nanos longest_flush_ = 0;
  bool is_full_ = false;
  bool is_failing_ = false;
  std::optional<std::pair<std::uint64_t, bool>> crash_;
  std::map<std::string, FilePtr> names_;
  std::map<std::string, FilePtr> durable_names_;
  std::vector<NameChange> unsynced_names_;  // in order
};

}  // namespace leaf::sim
