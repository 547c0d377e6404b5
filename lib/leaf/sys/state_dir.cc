#include "leaf/sys/state_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace leaf::sys {

namespace {

// Makes one directory, durably: a state that is synced is of no use in a directory that a power cut takes
// away. False with errno set if that fails; one that exists is fine.
bool MakeDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0) return errno == EEXIST;
  const std::size_t slash = path.find_last_of('/');
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const FileHandle folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A parent that may not be read cannot be synced; whoever made it such answers for it.
  return !folder.valid() || fsync(folder.get()) == 0;
}

}  // namespace

Result<void> EnsureStateDir(const std::string& path) {
  // Parents as any mkdir -p would make them, the directory itself for its owner only.
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (!MakeDirectory(path.substr(0, slash), 0755)) {
      return FileError(fmt::format("make the state directory {}", path), errno);
    }
  }
  if (!MakeDirectory(path, 0700)) {
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
