#include "leaf/sys/file_ops.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "leaf/sys/file.h"

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

}  // namespace leaf::sys
