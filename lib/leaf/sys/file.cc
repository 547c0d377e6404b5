#include "leaf/sys/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace leaf::sys {

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
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
  return {CodeOf(error_number), fmt::format("cannot {}: {}", action, std::strerror(error_number)), ""};
}

}  // namespace leaf::sys
