#include "leaf/sys/file_ops.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace leaf::sys {

int FileOps::Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }
ssize_t FileOps::Read(int fd, void* buffer, std::size_t size) { return read(fd, buffer, size); }
ssize_t FileOps::Write(int fd, const void* data, std::size_t size) { return write(fd, data, size); }
int FileOps::Sync(int fd) { return fsync(fd); }
int FileOps::Close(int fd) { return close(fd); }
int FileOps::Rename(const char* from, const char* to) { return rename(from, to); }
int FileOps::Unlink(const char* path) { return unlink(path); }
int FileOps::Link(const char* from, const char* to) { return link(from, to); }
void FileOps::GiveToOwnerOf(const char* directory, int fd) { sys::GiveToOwnerOf(directory, fd); }

Result<FilesIn> FilesIn::Open(std::string folder) {
  FileHandle handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.valid()) return FileError(fmt::format("use the folder {}", folder), errno);
  return FilesIn(std::move(folder), std::move(handle));
}

FilesIn::Place FilesIn::PlaceOf(const char* path) const {
  std::string_view rest = path;
  if (!rest.starts_with(path_)) return {AT_FDCWD, path};
  rest.remove_prefix(path_.size());
  if (!rest.empty() && rest.front() != '/' && !path_.ends_with('/')) return {AT_FDCWD, path};
  const std::size_t name = rest.find_first_not_of('/');
  if (name == std::string_view::npos) return {folder_.get(), "."};
  return {folder_.get(), rest.data() + name};  // ends where `path` does
}

int FilesIn::Open(const char* path, int flags, mode_t mode) {
  const Place place = PlaceOf(path);
  return openat(place.folder, place.path, flags, mode);
}

int FilesIn::Rename(const char* from, const char* to) {
  const Place old_place = PlaceOf(from);
  const Place new_place = PlaceOf(to);
  return renameat(old_place.folder, old_place.path, new_place.folder, new_place.path);
}

int FilesIn::Unlink(const char* path) {
  const Place place = PlaceOf(path);
  return unlinkat(place.folder, place.path, 0);
}

void FilesIn::GiveToOwnerOf(const char* directory, int fd) {
  const Place place = PlaceOf(directory);
  if (place.folder != folder_.get()) return sys::GiveToOwnerOf(directory, fd);
  sys::GiveToOwnerOf(folder_.get(), fd);
}

int FilesIn::Link(const char* from, const char* to) {
  const Place old_place = PlaceOf(from);
  const Place new_place = PlaceOf(to);
  return linkat(old_place.folder, old_place.path, new_place.folder, new_place.path, 0);
}

}  // namespace leaf::sys
