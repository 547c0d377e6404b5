#include "leaf/sys/state_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::sys {

namespace {

// Makes what is in a folder durable: the names of its files. False with errno set if the disk fails or is
// full. A folder that may not be read cannot be synced, and file systems that are read-only or in memory need
// not be.
bool SyncFolder(const std::string& path) {
  const FileHandle folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) {
    int result = fsync(folder.get());
    while (result != 0 && errno == EINTR) result = fsync(folder.get());
    if (result == 0) return true;
  }
  return errno != EIO && errno != ENOSPC && errno != EDQUOT;
}

// Makes one directory, durably: a state that is synced is of no use in a directory that a power cut takes
// away. False with errno set if that fails. One that exists is fine, and not synced here.
bool MakeDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0) return errno == EEXIST;
  const std::size_t slash = path.find_last_of('/');
  return SyncFolder(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

// Makes the name of a directory durable, and the names of all folders above it: of those it lies in, and of
// those on the way that `path` describes, which may be links. False with errno set if that fails.
bool SyncNames(const std::string& path) {
  // Where it is mounted from elsewhere, its real parent is out of sight. Common file systems make its name
  // durable with it.
  if (!SyncFolder(path)) return false;
  for (const bool follow_links : {true, false}) {
    std::error_code failed;
    std::filesystem::path above =
        follow_links ? std::filesystem::canonical(path, failed) : std::filesystem::absolute(path, failed);
    while (!failed && above.has_relative_path()) {
      above = above.parent_path();
      if (!SyncFolder(above.string())) return false;
    }
  }
  return true;
}

constexpr const char* kLockName = "lock";
std::string LockPath(const std::string& state_dir) { return fmt::format("{}/{}", state_dir, kLockName); }

// What is opened there.
constexpr std::array<std::string_view, 13> kFiles = {
    "lock",         "grants.lock",      "clock-accepted", WorkerStateFile::kName, PausedTagsFile::kName,
    "leaf.db",      "leaf.db-wal",      "leaf.db-shm",    "leaf.db-journal",      "marks.db",
    "marks.db-wal", "marks.db-journal", "marks.db-shm"};

std::string UserName(uid_t uid) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return entry.pw_name;
  return fmt::format("{}", uid);
}

// Whether only root can have put `path` where it is: root owns each directory above it, and no other user may
// write to those.
bool WasPlacedByRoot(const std::string& path) {
  std::error_code failed;
  std::filesystem::path above = std::filesystem::canonical(path, failed);
  if (failed) return false;
  while (above.has_relative_path()) {
    above = above.parent_path();
    struct stat status {};
    if (stat(above.c_str(), &status) != 0 || status.st_uid != 0) return false;
    if ((status.st_mode & S_IWOTH) != 0 || ((status.st_mode & S_IWGRP) != 0 && status.st_gid != 0))
      return false;
  }
  return true;
}

// The first part of `path` that is another user's link; "" if there is none. Root's and this user's own links
// are meant.
std::string LinkOfAnother(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  if (failed) return "";
  std::filesystem::path part;
  for (const std::filesystem::path& name : whole) {
    part /= name;
    struct stat status {};
    if (lstat(part.c_str(), &status) != 0) return "";
    if (S_ISLNK(status.st_mode) && status.st_uid != 0 && status.st_uid != geteuid()) return part.string();
  }
  return "";
}

// A directory of another user's is full of that user's wishes: other marks, another worker number, or files
// that are links to what only this process may write to.
Result<void> CheckOwnership(const std::string& path, const struct stat& status) {
  const uid_t self = geteuid();
  if (const std::string link = LinkOfAnother(path); !link.empty()) {
    return Error{
        ErrorCode::kPermission,
        fmt::format("refusing the state directory {}: {} is a link that another user created", path, link),
        "name the directory itself (--state-dir)"};
  }
  const bool given_away = self == 0 && WasPlacedByRoot(path);  // such as a service's, which root looks after
  if (status.st_uid != self && status.st_uid != 0 && !given_away) {
    const std::string owner = UserName(status.st_uid);
    return Error{
        ErrorCode::kPermission,
        fmt::format("refusing the state directory {}: it belongs to user {}, and leafctl runs as user {}",
                    path, owner, UserName(self)),
        fmt::format("run this as {}, or name another directory (--state-dir)", owner)};
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    return Error{ErrorCode::kPermission,
                 fmt::format("refusing the state directory {}: its mode {:04o} lets every user write to it",
                             path, status.st_mode & 07777U),
                 "run chmod o-w on it, or name a new directory inside it (--state-dir)"};
  }
  for (const std::string_view name : kFiles) {
    const std::string file = fmt::format("{}/{}", path, name);
    struct stat file_status {};
    if (lstat(file.c_str(), &file_status) != 0 || S_ISREG(file_status.st_mode)) continue;
    return Error{ErrorCode::kPermission,
                 fmt::format("refusing the state directory {}: {} is {}", path, file,
                             S_ISLNK(file_status.st_mode) ? "a symbolic link" : "not a regular file"),
                 "leafctl creates its files itself: find out what created this one"};
  }
  return {};
}

// As the lock file has it.
std::string_view WordOf(StateDirUse use) {
  switch (use) {
    case StateDirUse::kCommand:
      return "command";
    case StateDirUse::kLibrary:
      return "library";
    case StateDirUse::kDaemon:
      break;
  }
  return "serve";
}

std::string_view NameOf(StateDirUse use) {
  switch (use) {
    case StateDirUse::kCommand:
      return "a leafctl command";
    case StateDirUse::kLibrary:
      return "a program with leafctl's library";
    case StateDirUse::kDaemon:
      break;
  }
  return "leafctl serve";
}

// "PID WORD\n". Nothing for anything else, such as a file that is being written.
std::optional<StateDirLock::Holder> ReadHolder(int file) {
  std::array<char, 64> buffer{};
  const ssize_t length = pread(file, buffer.data(), buffer.size(), 0);
  std::string_view text(buffer.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (!text.ends_with('\n')) return std::nullopt;
  text.remove_suffix(1);
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto pid = ParseWhole<pid_t>(text.substr(0, blank));
  if (!pid || *pid <= 0) return std::nullopt;
  for (const StateDirUse use : {StateDirUse::kCommand, StateDirUse::kDaemon, StateDirUse::kLibrary}) {
    if (text.substr(blank + 1) == WordOf(use)) return StateDirLock::Holder{.pid = *pid, .use = use};
  }
  return std::nullopt;
}

}  // namespace

Result<void> EnsureStateDir(const std::string& given) {
  // With a slash at its end the directory would be one of its own parents.
  const std::string path = given.substr(0, std::max<std::size_t>(given.find_last_not_of('/') + 1, 1));
  // Parents as any mkdir -p would make them, the directory itself for its owner only.
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (!MakeDirectory(path.substr(0, slash), 0755)) {
      return FileError(fmt::format("make the state directory {}", path), errno);
    }
  }
  if (!MakeDirectory(path, 0700)) {
    return FileError(fmt::format("make the state directory {}", path), errno);
  }
  LEAF_RETURN_IF_ERROR(CheckStateDir(path));
  if (access(path.c_str(), W_OK | X_OK) != 0)
    return FileError(fmt::format("write to the state directory {}", path), errno);
  // An empty directory may be new, and its name not durable: its maker may have been killed before the sync,
  // or did none. So the names are synced before its first file is made.
  std::error_code failed;
  if (std::filesystem::is_empty(path, failed) && !failed && !SyncNames(path))
    return FileError(fmt::format("make the name of the state directory {} durable", path), errno);
  return {};
}

Result<void> CheckStateDir(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return FileError(fmt::format("use the state directory {}", path), errno);
  if (!S_ISDIR(status.st_mode)) return FileError(fmt::format("use the state directory {}", path), ENOTDIR);
  return CheckOwnership(path, status);
}

Result<void> EnsureFolderIn(const std::string& state_dir, std::string_view name) {
  const std::string path = fmt::format("{}/{}", state_dir, name);
  struct stat status {};
  const bool is_new = lstat(path.c_str(), &status) != 0 && errno == ENOENT;
  if (!MakeDirectory(path, 0700)) return FileError(fmt::format("make the folder {}", path), errno);
  if (is_new) {
    const FileHandle folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (folder.valid()) GiveToOwnerOf(state_dir, folder.get());
  }
  if (lstat(path.c_str(), &status) != 0) return FileError(fmt::format("use the folder {}", path), errno);
  if (!S_ISDIR(status.st_mode)) return FileError(fmt::format("use the folder {}", path), ENOTDIR);
  return {};
}

std::optional<StateDirLock::Holder> StateDirLock::HolderOf(const std::string& state_dir) {
  const FileHandle file(open(LockPath(state_dir).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  auto holder = ReadHolder(file.get());
  if (holder) holder->is_seen = kill(holder->pid, 0) == 0 || errno != ESRCH;
  return holder;
}

Result<StateDirLock> StateDirLock::Take(const std::string& state_dir, StateDirUse use) {
  const std::string path = LockPath(state_dir);
  FileHandle file = OpenOrMake(state_dir, kLockName, O_RDWR, 0600);
  if (!file.valid()) return FileError(fmt::format("open {}", path), errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(fmt::format("lock {}", path), errno);
    const auto holder = ReadHolder(file.get());
    const bool soon = holder && holder->use == StateDirUse::kCommand;
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot use state directory {}: {} is using it", state_dir,
                             holder ? fmt::format("{} (pid {})", NameOf(holder->use), holder->pid)
                                    : "another leafctl"),
                 soon ? "it ends soon: retry" : "give each daemon a state_dir of its own"};
  }
  FileLock lock(std::move(file), FileLock::Kind::kFlock);
  // The process before may have died between naming a file and making the name durable. What this one reads
  // there, and what it tells of it, must not be gone after a power cut.
  if (!SyncFolder(state_dir)) return FileError(fmt::format("flush the state directory {}", state_dir), errno);
  // For those that are refused; the lock is what counts.
  const std::string text = fmt::format("{} {}\n", getpid(), WordOf(use));
  if (ftruncate(lock.get(), 0) != 0 || pwrite(lock.get(), text.data(), text.size(), 0) < 0) {
    return FileError(fmt::format("write {}", path), errno);
  }
  return StateDirLock(state_dir, std::move(lock));
}

StateDirLock::StateDirLock(std::string state_dir, FileLock lock)
    : state_dir_(std::move(state_dir)), lock_(std::move(lock)) {
  // A process that changes its working directory looks at the same place still.
  std::error_code failed;
  if (auto absolute = std::filesystem::absolute(state_dir_, failed); !failed) state_dir_ = absolute.string();
}

Result<void> StateDirLock::Check() const {
  struct stat held {};
  struct stat lies {};
  if (fstat(lock_.get(), &held) != 0) return {};
  const bool found = stat(LockPath(state_dir_).c_str(), &lies) == 0;
  // The open file keeps its inode number from being used again.
  if (found ? held.st_dev == lies.st_dev && held.st_ino == lies.st_ino : errno != ENOENT && errno != ENOTDIR)
    return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("the state directory {} was {} while this process was using it", state_dir_,
                           found ? "replaced" : "deleted"),
               "restart it; see leafctl(7) for what a new state directory does not know"};
}

StateDirWatch::StateDirWatch(const StateDirLock& lock, const Clock& clock,
                             std::function<void(const Error&)> lost)
    : lock_(lock), clock_(clock), lost_(std::move(lost)), thread_("leaf-state-dir", 1, clock) {
  thread_.Post([this] { Look(); });
}

void StateDirWatch::Look() {
  if (const auto there = lock_.Check(); !there.ok()) return lost_(there.error());
  thread_.PostAt(clock_.Monotonic() + kStateDirLook, [this] { Look(); });
}

}  // namespace leaf::sys
