#include "leaf/sys/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "leaf/sys/fork_guard.h"

namespace leaf::sys {

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

FileLock::FileLock(FileHandle file, Kind kind) : file_(std::move(file)), kind_(kind), forks_(WatchForks()) {}

FileLock::~FileLock() {
  if (!file_.valid() || forks_ != ForkCount()) return;
  if (kind_ == Kind::kFlock) {
    flock(file_.get(), LOCK_UN);
    return;
  }
  struct flock request {};
  request.l_type = F_UNLCK;
  request.l_whence = SEEK_SET;  // with no length: all of it
  fcntl(file_.get(), F_OFD_SETLK, &request);
}

namespace {

void GiveTo(const struct stat& owner, int fd) {
  struct stat file {};
  if (owner.st_uid == 0 || fstat(fd, &file) != 0) return;
  // A file of root's that another user has linked to here is not to be given away.
  if (file.st_uid != 0 || (S_ISREG(file.st_mode) && file.st_nlink != 1)) return;
  if (fchown(fd, owner.st_uid, owner.st_gid) != 0) return;
}

}  // namespace

void GiveToOwnerOf(const std::string& directory, int fd) {
  struct stat owner {};
  if (geteuid() == 0 && stat(directory.c_str(), &owner) == 0) GiveTo(owner, fd);
}

void GiveToOwnerOf(int directory, int fd) {
  struct stat owner {};
  if (geteuid() == 0 && fstat(directory, &owner) == 0) GiveTo(owner, fd);
}

FileHandle OpenOrMake(const std::string& directory, const std::string& name, int flags, mode_t mode) {
  const std::string path = directory + "/" + name;
  flags |= O_NOFOLLOW | O_CLOEXEC;
  while (true) {
    FileHandle found(open(path.c_str(), flags));
    if (found.valid() || errno != ENOENT) return found;
    FileHandle made(open(path.c_str(), flags | O_CREAT | O_EXCL, mode));
    if (made.valid()) GiveToOwnerOf(directory, made.get());
    if (made.valid() || errno != EEXIST) return made;
    // Another process has made it meanwhile.
  }
}

namespace {

ErrorCode CodeOf(int error_number) {
  switch (error_number) {
    case EACCES:
    case EPERM:
      return ErrorCode::kPermission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EROFS:
    case EIO:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kConfig;
  }
}

}  // namespace

Error FileError(std::string_view action, int error_number) {
  return {
      CodeOf(error_number), fmt::format("cannot {}: {}", action, std::strerror(error_number)),
      error_number == EROFS ? "mount it for writing; a service of systemd needs ReadWritePaths= for it" : ""};
}

}  // namespace leaf::sys
