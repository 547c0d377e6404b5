// Stand-ins for the outside world of snowflake mode: a disk that crashes at a chosen system call, a state
// file in memory, and a registry in memory that gives fixed or leased numbers.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/random.h"
#include "leaf/core/worker_ports.h"
#include "leaf/sys/file_ops.h"

namespace leaf::testing {

// A disk in memory that tells what a process sees from what a power cut leaves. Counts its system calls; from
// the chosen one on the process is dead: nothing it does has an effect any more, and every call fails.
class CrashingDisk final : public sys::FileOps {
 public:
  // The process dies at call number `call` (from 0), before or after it took effect.
  void CrashAt(std::size_t call, bool after) {
    crash_at_ = calls_ + call;
    crash_after_ = after;
  }
  // Every write fails like that until further notice (0: no more).
  void FailWrites(int error_number) { write_errno_ = error_number; }
  void FailSyncs(int error_number) { sync_errno_ = error_number; }
  void FailRenames(int error_number) { rename_errno_ = error_number; }
  // What happens while a flush takes its time.
  void DuringSync(std::function<void()> action) { during_sync_ = std::move(action); }

  bool dead() const { return dead_; }
  std::size_t calls() const { return calls_; }

  // The next process: it finds what the last one left to the kernel.
  void Restart() {
    dead_ = false;
    crash_at_.reset();
    open_.clear();
  }
  // The next boot: of what was not synced, names survive in order up to some point, and contents in part.
  void LosePower(Random& random) {
    std::size_t kept = random.Below(renames_.size() + 1);
    for (const auto& rename : renames_) {
      if (kept == 0) break;
      --kept;
      Apply(durable_names_, rename);
    }
    renames_.clear();
    names_ = durable_names_;
    for (auto& [number, file] : files_) {
      if (file.content != file.durable) {
        // Any prefix of it, or none.
        file.content.resize(random.Below(file.content.size() + 1));
        file.durable = file.content;
      }
    }
    Restart();
  }

  // What a process would find; nothing if there is no such file.
  std::optional<std::string> Content(const std::string& path) const {
    const auto found = names_.find(path);
    return found == names_.end() ? std::nullopt : std::optional(files_.at(found->second).content);
  }
  void Put(const std::string& path, std::string content) {
    const int file = next_file_++;
    files_[file] = {content, content};
    names_[path] = file;
    durable_names_[path] = file;
  }

  void GiveToOwnerOf(const char* /*directory*/, int /*fd*/) override {}
  int Open(const char* path, int flags, mode_t) override {
    return Call(-1, [&]() -> int {
      if ((flags & O_DIRECTORY) != 0) return Descriptor(kFolder, 0);
      const auto found = names_.find(path);
      if (found == names_.end() && (flags & O_CREAT) == 0) return Fail(ENOENT);
      if (found == names_.end()) {
        names_[path] = next_file_;
        renames_.push_back({"", path, next_file_});
        files_[next_file_++] = {};
      }
      if ((flags & O_TRUNC) != 0) files_[names_[path]].content.clear();
      return Descriptor(names_[path], 0);
    });
  }
  ssize_t Read(int fd, void* buffer, std::size_t size) override {
    return Call<ssize_t>(-1, [&]() -> ssize_t {
      auto& [file, offset] = open_.at(fd);
      const std::string& content = files_.at(file).content;
      const std::size_t got = std::min(size, content.size() - offset);
      std::memcpy(buffer, content.data() + offset, got);
      offset += got;
      return static_cast<ssize_t>(got);
    });
  }
  ssize_t Write(int fd, const void* data, std::size_t size) override {
    return Call<ssize_t>(-1, [&]() -> ssize_t {
      if (write_errno_ != 0) return Fail(write_errno_);
      // In pieces: a caller has to go on after a short write.
      const std::size_t written = std::min<std::size_t>(size, 100);
      files_.at(open_.at(fd).first).content.append(static_cast<const char*>(data), written);
      return static_cast<ssize_t>(written);
    });
  }
  int Sync(int fd) override {
    return Call(-1, [&]() -> int {
      if (during_sync_) during_sync_();
      if (sync_errno_ != 0) return Fail(sync_errno_);
      const int file = open_.at(fd).first;
      if (file == kFolder) {
        for (const auto& rename : renames_) Apply(durable_names_, rename);
        renames_.clear();
      } else {
        files_.at(file).durable = files_.at(file).content;
      }
      return 0;
    });
  }
  int Close(int fd) override {
    return Call(-1, [&]() -> int {
      open_.erase(fd);
      return 0;
    });
  }
  int Rename(const char* from, const char* to) override {
    return Call(-1, [&]() -> int {
      if (rename_errno_ != 0) return Fail(rename_errno_);
      const auto found = names_.find(from);
      if (found == names_.end()) return Fail(ENOENT);
      renames_.push_back({from, to, found->second});
      Apply(names_, renames_.back());
      return 0;
    });
  }
  int Unlink(const char* path) override {
    return Call(-1, [&]() -> int {
      const auto found = names_.find(path);
      if (found == names_.end()) return Fail(ENOENT);
      renames_.push_back({path, "", found->second});
      Apply(names_, renames_.back());
      return 0;
    });
  }

 private:
  struct File {
    std::string content;
    std::string durable;
  };
  // A name that appears (no `from`), goes away (no `to`), or both.
  struct NameChange {
    std::string from;
    std::string to;
    int file = 0;
  };
  static constexpr int kFolder = -2;

  static void Apply(std::map<std::string, int>& names, const NameChange& change) {
    if (!change.from.empty()) names.erase(change.from);
    if (!change.to.empty()) names[change.to] = change.file;
  }
  static int Fail(int error_number) {
    errno = error_number;
    return -1;
  }
  int Descriptor(int file, std::size_t offset) {
    open_[next_fd_] = {file, offset};
    return next_fd_++;
  }
  template <typename R = int, typename Effect>
  R Call(R failed, Effect effect) {
    const bool here = crash_at_ && calls_ == *crash_at_;
    ++calls_;
    if (dead_ || (here && !crash_after_)) {
      dead_ = true;
      errno = EIO;
      return failed;
    }
    const R result = effect();
    if (here) {
      dead_ = true;
      errno = EIO;
      return failed;
    }
    return result;
  }

  std::size_t calls_ = 0;
  std::optional<std::size_t> crash_at_;
  bool crash_after_ = false;
  bool dead_ = false;
  int write_errno_ = 0;
  int sync_errno_ = 0;
  int rename_errno_ = 0;
  std::function<void()> during_sync_;
  int next_fd_ = 3;
  int next_file_ = 0;
  std::map<int, std::pair<int, std::size_t>> open_;  // descriptor → file, offset
  std::map<int, File> files_;
  std::map<std::string, int> names_;
  std::map<std::string, int> durable_names_;
  std::vector<NameChange> renames_;  // not synced yet, in order
};

class MemoryStateFile final : public core::StateFile {
 public:
  Result<std::optional<core::WorkerState>> Load() override { return state; }
  Result<void> Store(const core::WorkerState& next) override {
    ++stores;
    if (failure) return *failure;
    state = next;
    return {};
  }

  std::optional<core::WorkerState> state;
  std::optional<Error> failure;
  int stores = 0;
};

}  // namespace leaf::testing
