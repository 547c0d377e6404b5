#include "leaf/sys/state_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace leaf::sys {

Result<void> EnsureStateDir(const std::string& path) {
  // Parents as any mkdir -p would make them, the directory itself for its owner only.
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
      return FileError(fmt::format("make the state directory {}", path), errno);
    }
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError(fmt::format("make the state directory {}", path), errno);
  }
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return FileError(fmt::format("use the state directory {}", path), errno);
  if (!S_ISDIR(status.st_mode)) return FileError(fmt::format("use the state directory {}", path), ENOTDIR);
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return FileError(fmt::format("write to the state directory {}", path), errno);
  }
  return {};
}

Result<StateDirLock> StateDirLock::Take(const std::string& state_dir) {
  const std::string path = state_dir + "/lock";
  FileHandle file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return FileError(fmt::format("open {}", path), errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(fmt::format("lock {}", path), errno);
    char buffer[32];
    const ssize_t length = pread(file.get(), buffer, sizeof buffer, 0);
    std::string holder(buffer, length > 0 ? static_cast<std::size_t>(length) : 0);
    if (const std::size_t newline = holder.find('\n'); newline != std::string::npos) holder.resize(newline);
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot use state directory {}: another leafctl{} is using it", state_dir,
                             holder.empty() ? "" : fmt::format(" (pid {})", holder)),
                 "give each daemon a state_dir of its own"};
  }
  // For the message above only; the lock is what counts.
  const std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(file.get(), 0) != 0 || pwrite(file.get(), pid.data(), pid.size(), 0) < 0) {
    return FileError(fmt::format("write {}", path), errno);
  }
  return StateDirLock(std::move(file));
}

}  // namespace leaf::sys
