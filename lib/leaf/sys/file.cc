#include "leaf/sys/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace leaf::sys {

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

Error FileError(std::string_view action, int error_number) {
  const bool permission = error_number == EACCES || error_number == EPERM || error_number == EROFS;
  return {permission ? ErrorCode::kPermission : ErrorCode::kConfig,
          fmt::format("cannot {}: {}", action, std::strerror(error_number)), ""};
}

}  // namespace leaf::sys
