// Serialises grants of one tag between all processes and threads that share a state directory.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/sys/file.h"

namespace leaf::sys {

// An advisory lock on one byte of `<state_dir>/grants.lock`, chosen by the tag's hash (two tags may share
// one: they wait for each other, which is harmless). Released when destroyed or when the process ends,
// however it ends.
class GrantLock {
 public:
  // Waits for other holders up to `timeout`. Errors: kUnavailable after it; kPermission, kConfig.
  static Result<GrantLock> Take(const std::string& state_dir, std::string_view tag, const Clock& clock,
                                std::chrono::milliseconds timeout);

 private:
  explicit GrantLock(FileLock lock) : lock_(std::move(lock)) {}
  FileLock lock_;
};

}  // namespace leaf::sys
