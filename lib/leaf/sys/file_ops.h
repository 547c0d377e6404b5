// The system calls of a durable write, one by one, so that a test can fail or crash at each.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace leaf::sys {

// Each as the system call: -1 and errno on failure. This class does the real thing.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int Open(const char* path, int flags, mode_t mode);
  virtual ssize_t Read(int fd, void* buffer, std::size_t size);
  virtual ssize_t Write(int fd, const void* data, std::size_t size);
  virtual int Sync(int fd);
  virtual int Close(int fd);
  virtual int Rename(const char* from, const char* to);
  virtual int Unlink(const char* path);
  virtual int Link(const char* from, const char* to);
  // As the function GiveToOwnerOf.
  virtual void GiveToOwnerOf(const char* directory, int fd);
};

}  // namespace leaf::sys
