#include "leaf/sys/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "leaf/sys/file.h"

namespace leaf::sys {

Result<std::string> ReadSecretFile(const std::string& path, std::size_t bytes_max) {
  const auto unreadable = [&](int error_number) {
    return Error{ErrorCode::kConfig,
                 fmt::format("cannot read secret file {}: {}", path, std::strerror(error_number)), ""};
  };
  // A pipe would be waited for until it has a writer.
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return unreadable(errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return unreadable(errno);
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::kConfig,
                 fmt::format("cannot read secret file {}: it is not a regular file", path), ""};
  // The group that root has chosen is meant to read it: a secret of Kubernetes is root's, and leafctl's by
  // the group. Root's commands read the same file; its own group is no choice.
  const bool for_group = status.st_uid == 0 && (geteuid() != 0 || status.st_gid != 0);
  const mode_t others = S_IWGRP | S_IROTH | S_IWOTH | (for_group ? 0U : S_IRGRP);
  if ((status.st_mode & others) != 0) {
    return Error{ErrorCode::kConfig,
                 fmt::format("refusing secret file {}: its mode {:04o} gives other users access", path,
                             status.st_mode & 07777U),
                 fmt::format("chmod 600 {}", path)};
  }
  std::string content(bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = read(file.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > bytes_max) return unreadable(EFBIG);
  content.resize(size);
  while (content.ends_with('\n') || content.ends_with('\r')) content.pop_back();
  return content;
}

}  // namespace leaf::sys
