#include "token_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "leaf/sys/file.h"
#include "leaf/sys/secret_file.h"

namespace leaf::cmd {
namespace {

// A file that other processes cannot have while it is held. The one under the name `path` is meant, though
// another process may replace it meanwhile.
struct LockedFile {
  sys::FileHandle file;
  bool is_empty = false;
  bool is_made = false;  // by this process, and empty still
};
Result<LockedFile> LockTokenFile(const std::string& path) {
  while (true) {
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    sys::FileHandle file(open(path.c_str(), kFlags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
    const bool is_made = file.valid();
    if (!is_made && errno == EEXIST) {
      file = sys::FileHandle(open(path.c_str(), kFlags));
      if (!file.valid() && errno == ENOENT) continue;
    }
    if (!file.valid()) return sys::FileError(fmt::format("open {}", path), errno);
    int locked = 0;
    while ((locked = flock(file.get(), LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (locked != 0) return sys::FileError(fmt::format("lock {}", path), errno);
    struct stat held {};
    struct stat named {};
    if (fstat(file.get(), &held) != 0) return sys::FileError(fmt::format("read {}", path), errno);
    const bool is_named = stat(path.c_str(), &named) == 0;
    if (is_named && held.st_ino == named.st_ino && held.st_dev == named.st_dev)
      return LockedFile{std::move(file), held.st_size == 0, is_made && held.st_size == 0};
  }
}

Result<void> WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return sys::FileError(fmt::format("write {}", path), errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (fsync(fd) != 0) return sys::FileError(fmt::format("write {}", path), errno);
  return {};
}

Result<void> SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const sys::FileHandle directory(
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || fsync(directory.get()) != 0)
    return sys::FileError(fmt::format("write the folder of {}", path), errno);
  return {};
}

// `like`: the file whose owner, group and mode the new one has.
Result<void> ReplaceTokenFile(const std::string& path, int like, std::string_view text) {
  struct stat status {};
  if (fstat(like, &status) != 0) return sys::FileError(fmt::format("read {}", path), errno);
  const std::string beside = fmt::format("{}.{}.new", path, getpid());
  const auto give_up = [&](Result<void> failed) {
    unlink(beside.c_str());
    return failed;
  };
  // No other process has this draft: the token file is locked. One may have left it behind.
  unlink(beside.c_str());
  const sys::FileHandle file(
      open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.valid()) return sys::FileError(fmt::format("create {}", beside), errno);
  if ((status.st_uid != geteuid() || status.st_gid != getegid()) &&
      fchown(file.get(), status.st_uid, status.st_gid) != 0)
    return give_up(sys::FileError(fmt::format("keep the owner of {}", path), errno));
  if (fchmod(file.get(), status.st_mode & 07777U) != 0)
    return give_up(sys::FileError(fmt::format("keep the mode of {}", path), errno));
  if (auto written = WriteAll(file.get(), text, beside); !written.ok()) return give_up(std::move(written));
  if (rename(beside.c_str(), path.c_str()) != 0)
    return give_up(sys::FileError(fmt::format("replace {}", path), errno));
  return SyncFolderOf(path);
}

}  // namespace

Result<std::vector<access::TokenEntry>> ReadTokens(const config::Config& config) {
  const std::string& path = config.auth.tokens_file;
  if (path.empty()) return std::vector<access::TokenEntry>{};
  LEAF_ASSIGN_OR_RETURN(const std::string text, sys::ReadSecretFile(path, access::kTokenFileBytesMax));
  auto tokens = access::ParseTokenFile(text);
  if (tokens.ok()) return tokens;
  return Error{tokens.error().code, fmt::format("auth.tokens_file {}: {}", path, tokens.error().message),
               tokens.error().hint};
}

access::Roles AnonymousRoles(const config::Config& config) {
  access::Roles roles;
  for (const std::string& name : config.auth.anonymous) {
    if (const auto role = access::ParseRole(name)) roles.Add(*role);
  }
  return roles;
}

Result<void> SetGate(access::Gate& gate, const config::Config& config) {
  LEAF_ASSIGN_OR_RETURN(const auto tokens, ReadTokens(config));
  gate.Set(tokens, !config.auth.tokens_file.empty(), AnonymousRoles(config));
  return {};
}

Result<std::string> TokenFileText(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found)
    return std::string();
  LEAF_ASSIGN_OR_RETURN(std::string text, sys::ReadSecretFile(path, access::kTokenFileBytesMax));
  if (!text.empty()) text += '\n';
  return text;
}

Result<void> EditTokenFile(const std::string& path, const std::string& state_dir,
                           const std::function<Result<std::string>(const std::string& text)>& edit) {
  // Where a link points to, so that it stays one.
  std::error_code ignored;
  std::string target = std::filesystem::canonical(path, ignored).string();
  if (target.empty()) target = path;
  LEAF_ASSIGN_OR_RETURN(const LockedFile locked, LockTokenFile(target));
  const sys::FileHandle& held = locked.file;
  // Also one that another process has made a moment ago.
  if (locked.is_empty) {
    sys::GiveToOwnerOf(state_dir, held.get());
    sys::GiveToOwnerOf(std::filesystem::absolute(target).parent_path().string(), held.get());
  }
  const auto change = [&]() -> Result<void> {
    // An earlier command may have ended between its rename and this: what is read here holds from now on.
    LEAF_RETURN_IF_ERROR(SyncFolderOf(target));
    LEAF_ASSIGN_OR_RETURN(const std::string text, TokenFileText(target));
    LEAF_ASSIGN_OR_RETURN(const std::string edited, edit(text));
    return edited == text ? Result<void>() : ReplaceTokenFile(target, held.get(), edited);
  };
  auto changed = change();
  // An empty file would let nothing in that has come in until now.
  if (!changed.ok() && locked.is_made) unlink(target.c_str());
  return changed;
}

}  // namespace leaf::cmd
