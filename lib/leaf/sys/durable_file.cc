#include "leaf/sys/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "leaf/sys/file.h"
#include "leaf/sys/system_random.h"

namespace leaf::sys {
namespace {

// A descriptor that is closed by the same operations that opened it.
class OpenFile {
 public:
  OpenFile(FileOps& ops, const std::string& path, int flags, mode_t mode = 0600)
      : ops_(ops), fd_(ops.Open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ops_.Close(fd_);
  }
  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Close() { return ops_.Close(std::exchange(fd_, -1)); }

 private:
  FileOps& ops_;
  int fd_;
};

Error WriteError(const std::string& path, int error_number) {
  return FileError(fmt::format("write {}", path), error_number);
}

// `directory`: whose owner the file is for; "" for this user.
Result<void> WriteSynced(FileOps& ops, const std::string& path, std::string_view content, int flags,
                         mode_t mode, const std::string& directory) {
  // No other user has put a link where the draft goes.
  OpenFile file(ops, path, O_WRONLY | O_CREAT | O_NOFOLLOW | flags, mode);
  if (!file.valid()) return WriteError(path, errno);
  if (!directory.empty()) ops.GiveToOwnerOf(directory.c_str(), file.get());
  while (!content.empty()) {
    const ssize_t written = ops.Write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(path, errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  // A failed fsync may have dropped the pages: nothing but a new file is good after it.
  if (ops.Sync(file.get()) != 0) return WriteError(path, errno);
  if (file.Close() != 0) return WriteError(path, errno);
  return {};
}

}  // namespace

Result<void> ReplaceFile(FileOps& ops, const std::string& directory, const std::string& name,
                         std::string_view content) {
  const std::string path = fmt::format("{}/{}", directory, name);
  const std::string draft = path + ".new";
  if (auto written = WriteSynced(ops, draft, content, O_TRUNC, 0600, directory); !written.ok()) {
    ops.Unlink(draft.c_str());
    return written;
  }
  if (ops.Rename(draft.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ops.Unlink(draft.c_str());
    return WriteError(path, error_number);
  }
  // The rename itself has to be on the disk, or the old file could come back.
  OpenFile folder(ops, directory, O_RDONLY | O_DIRECTORY);
  if (!folder.valid() || ops.Sync(folder.get()) != 0) return WriteError(path, errno);
  return {};
}

Result<void> WriteNewFile(FileOps& ops, const std::string& path, std::string_view content, mode_t mode,
                          Existing existing) {
  // Another process may write a draft of the same file at the same time, and containers that share a folder
  // have processes of the same number.
  const std::string draft = fmt::format("{}.{:016x}.new", path, SystemRandom().Next());
  auto written = WriteSynced(ops, draft, content, O_EXCL, mode, "");
  if (written.ok()) {
    // A link, unlike a rename, never replaces.
    const int named = existing == Existing::kRefuse ? ops.Link(draft.c_str(), path.c_str())
                                                    : ops.Rename(draft.c_str(), path.c_str());
    if (named != 0) {
      written = errno == EEXIST ? Error{ErrorCode::kAlreadyExists, fmt::format("{} exists already", path), ""}
                                : WriteError(path, errno);
    }
  }
  ops.Unlink(draft.c_str());
  LEAF_RETURN_IF_ERROR(std::move(written));
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  OpenFile folder(ops, directory, O_RDONLY | O_DIRECTORY);
  if (!folder.valid() || ops.Sync(folder.get()) != 0) return WriteError(path, errno);
  return {};
}

Result<std::optional<std::string>> ReadWholeFile(FileOps& ops, const std::string& path,
                                                 std::size_t bytes_max) {
  OpenFile file(ops, path, O_RDONLY);
  if (!file.valid()) {
    if (errno == ENOENT) return std::optional<std::string>{};
    return FileError(fmt::format("read {}", path), errno);
  }
  // Not all that it may have at once: most files have a thousandth of it.
  constexpr std::size_t kReadBytes = std::size_t{16} * 1024;
  std::string content;
  std::size_t size = 0;
  while (size <= bytes_max) {
    content.resize(std::min(size + kReadBytes, bytes_max + 1));
    const ssize_t got = ops.Read(file.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(fmt::format("read {}", path), errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > bytes_max) {
    Error error = FileError(fmt::format("read {}", path), EFBIG);
    error.code = ErrorCode::kConfig;  // not a limit that a write meets
    return error;
  }
  content.resize(size);
  return std::optional(std::move(content));
}

}  // namespace leaf::sys
