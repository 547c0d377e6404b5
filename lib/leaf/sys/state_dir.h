// The state directory: where a node keeps what it must not forget. One directory is one daemon.
#pragma once

#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/sys/file.h"

namespace leaf::sys {

// Makes `path` (and its parents) if it is missing, for its owner only.
// Errors: kPermission, kConfig (not a directory, no space), each naming the path.
Result<void> EnsureStateDir(const std::string& path);

// The lock of a daemon on its state directory, held until destroyed or the process ends, however it ends. The
// lock file is never replaced or removed, so there is one file to lock.
class StateDirLock {
 public:
  // Errors: kRefused if another process holds it (named by pid where known), kPermission, kConfig.
  static Result<StateDirLock> Take(const std::string& state_dir);

 private:
  explicit StateDirLock(FileHandle file) : file_(std::move(file)) {}
  FileHandle file_;
};

}  // namespace leaf::sys
