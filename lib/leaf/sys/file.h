// An owned file descriptor, and the one translation of errno.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/error.h"

namespace leaf::sys {

class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A lock on an open file, by flock(2) or by F_OFD_SETLK. It belongs to the open file, which a child of fork
// shares: if it were only closed here, the child would hold the lock for as long as it lives. So it is given
// back, by the process that took it and no other.
class FileLock {
 public:
  enum class Kind { kFlock, kRange };
  // Requires: this process has just locked `file`.
  FileLock(FileHandle file, Kind kind);
  FileLock(FileLock&& other) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  int get() const { return file_.get(); }

 private:
  FileHandle file_;
  Kind kind_;
  std::uint64_t forks_;
};

// What root makes in a directory of another user's, such as a service's, becomes that user's and group's:
// else the service could not open what root's own commands leave there. `fd`: a file or a folder that this
// process has just made in `directory`. Nothing for a file with another name beside this one, for other
// processes than root's, or where it is not possible (some network file systems): then the file stays root's.
void GiveToOwnerOf(const std::string& directory, int fd);
// The same where the directory is open.
void GiveToOwnerOf(int directory, int fd);

// open(2) of `directory`/`name`, which is made with `mode` if it is missing, and is its directory's owner's
// then. No link is followed. Not valid, with errno set, if that fails.
FileHandle OpenOrMake(const std::string& directory, const std::string& name, int flags, mode_t mode);

// "cannot <action>: <strerror>", with kPermission for EACCES and EPERM, kUnavailable for what passes when
// there is room, or a disk that takes writes, again, kConfig for the rest.
Error FileError(std::string_view action, int error_number);

}  // namespace leaf::sys
