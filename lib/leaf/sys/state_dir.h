// The state directory: where a node keeps what it must not forget. One directory is one daemon.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/sys/file.h"
#include "leaf/sys/thread_pool.h"

namespace leaf::sys {

// Makes `path` (and its parents) if it is missing, for its owner only. One that is there must be this user's
// or root's, or, for root, one that only root can have put there; no other user's link leads to it; others
// than owner and group may not write to it; and what leafctl would open in it must be regular files. The name
// of an empty one is durable when this returns, so that it is before its first file is made. Errors:
// kPermission, kConfig (not a directory), kUnavailable (no space, a read-only disk), each naming the path.
Result<void> EnsureStateDir(const std::string& path);
// The same of one that exists, for a look: it need not be writable.
Result<void> CheckStateDir(const std::string& path);

// Makes the folder `name` in a state directory that EnsureStateDir has accepted, for its owner only. Errors:
// kPermission, kConfig (what is there is no folder).
Result<void> EnsureFolderIn(const std::string& state_dir, std::string_view name);

// What a process uses a state directory as. A command lets go of it after a moment, the others keep it.
enum class StateDirUse { kCommand, kDaemon, kLibrary };

// The lock of one process on its state directory, held until destroyed or the process ends, however it ends.
// The lock file is never replaced or removed, so there is one file to lock.
class StateDirLock {
 public:
  // The process that holds it, by what that process wrote into the file. It writes a moment after it has the
  // lock, so what is there may be the word of a former holder.
  struct Holder {
    pid_t pid = 0;
    StateDirUse use = StateDirUse::kDaemon;
    // False if it has ended, and for one of another pid namespace, such as another container's.
    bool is_seen = true;
  };

  // Errors: kRefused if another process holds it (what it is, and its pid, where known), kPermission,
  // kConfig.
  static Result<StateDirLock> Take(const std::string& state_dir, StateDirUse use);
  // For one that was refused. Nothing if the file says nothing.
  static std::optional<Holder> HolderOf(const std::string& state_dir);

  // Whether the lock file still lies where it was taken. If not, the directory was deleted or replaced, and
  // another process may hold the lock of what lies there now. A file that cannot be looked at, such as on a
  // disk that fails, counts as there. Errors: kUnavailable. Thread-safe.
  Result<void> Check() const;

 private:
  StateDirLock(std::string state_dir, FileLock lock);

  std::string state_dir_;  // absolute
  FileLock lock_;
};

// Looks after a lock from a thread of its own, since a look may block on the disk.
class StateDirWatch {
 public:
  // Calls `lost` once, with what Check says, soon (kStateDirLook) after the lock's file is gone. `lock` and
  // what `lost` uses outlive this.
  StateDirWatch(const StateDirLock& lock, const Clock& clock, std::function<void(const Error&)> lost);

 private:
  void Look();

  const StateDirLock& lock_;
  const Clock& clock_;
  const std::function<void(const Error&)> lost_;
  ThreadPool thread_;  // the last, so that it ends first
};

inline constexpr std::chrono::milliseconds kStateDirLook{250};

}  // namespace leaf::sys
