// The state directory: where a node keeps what it must not forget. One directory is one daemon.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/sys/file.h"

namespace leaf::sys {

// Makes `path` (and its parents) if it is missing, for its owner only.
// Errors: kPermission, kConfig (not a directory, no space), each naming the path.
Result<void> EnsureStateDir(const std::string& path);

// What a process uses a state directory as. A command lets go of it after a moment, the others keep it.
enum class StateDirUse { kCommand, kDaemon, kLibrary };

// The lock of one process on its state directory, held until destroyed or the process ends, however it ends.
// The lock file is never replaced or removed, so there is one file to lock.
class StateDirLock {
 public:
  // Who holds it, by what that process wrote into the file. It writes a moment after it has the lock, so what
  // is there may be the word of a former holder.
  struct Holder {
    pid_t pid = 0;
    StateDirUse use = StateDirUse::kDaemon;
  };

  // Errors: kRefused if another process holds it (what it is, and its pid, where known), kPermission,
  // kConfig.
  static Result<StateDirLock> Take(const std::string& state_dir, StateDirUse use);
  // For one that was refused. Nothing if the file says nothing, or if what it names lives no more.
  static std::optional<Holder> HolderOf(const std::string& state_dir);

 private:
  explicit StateDirLock(FileHandle file) : file_(std::move(file)) {}
  FileHandle file_;
};

}  // namespace leaf::sys
