// An owned file descriptor, and the one translation of errno.
#pragma once

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

// "cannot <action>: <strerror>", with kPermission for EACCES and EPERM, kUnavailable for what passes when
// there is room, or a disk that takes writes, again, kConfig for the rest.
Error FileError(std::string_view action, int error_number);

}  // namespace leaf::sys
