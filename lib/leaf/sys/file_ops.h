// The system calls of a durable write, one by one, so that a test can fail or crash at each.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "leaf/base/result.h"
#include "leaf/sys/file.h"

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

// The real thing in one folder. A path in it leads to the folder that lay there when this was made: a process
// whose state directory was moved away or deleted, and another one made in its place, writes nothing into the
// files of the process that uses that one. In a folder that was deleted no file can be made: ENOENT.
class FilesIn final : public FileOps {
 public:
  // Errors name the folder: kPermission; kUnavailable; kConfig, also if there is none.
  static Result<FilesIn> Open(std::string folder);

  int Open(const char* path, int flags, mode_t mode) override;
  int Rename(const char* from, const char* to) override;
  int Unlink(const char* path) override;
  int Link(const char* from, const char* to) override;
  void GiveToOwnerOf(const char* directory, int fd) override;

 private:
  FilesIn(std::string path, FileHandle folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  // What the calls that end in "at" take.
  struct Place {
    int folder;
    const char* path;
  };
  Place PlaceOf(const char* path) const;

  std::string path_;
  FileHandle folder_;
};

}  // namespace leaf::sys
