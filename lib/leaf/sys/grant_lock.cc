#include "leaf/sys/grant_lock.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdint>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::sys {
namespace {

constexpr std::chrono::milliseconds kPoll{1};

// FNV-1a: the same in every build, since processes of different builds must agree.
std::uint32_t StableHash(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

}  // namespace

Result<GrantLock> GrantLock::Take(const std::string& state_dir, std::string_view tag, const Clock& clock,
                                  std::chrono::milliseconds timeout) {
  const std::string name = "grants.lock";
  const std::string path = state_dir + "/" + name;
  // A description of its own for each holder: such locks belong to the open file, so threads exclude each
  // other too.
  FileHandle file = OpenOrMake(state_dir, name, O_RDWR, 0600);
  if (!file.valid()) return FileError(fmt::format("open {}", path), errno);
  struct flock request {};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  request.l_start = static_cast<off_t>(StableHash(tag) & 0x7FFFFFFFU);
  request.l_len = 1;
  const MonotonicTime deadline = clock.Monotonic() + timeout;
  // Polled: the blocking form has no time-out. Contention is between one-shot processes and short.
  while (fcntl(file.get(), F_OFD_SETLK, &request) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
      return FileError(fmt::format("lock {}", path), errno);
    if (clock.Monotonic() >= deadline) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("cannot obtain a grant for {}: another process with this state directory has "
                               "been obtaining one for {}",
                               Quoted(tag), FormatDuration(timeout)),
                   "retry later"};
    }
    clock.WaitUntil(clock.Monotonic() + kPoll);
  }
  return GrantLock(FileLock(std::move(file), FileLock::Kind::kRange));
}

}  // namespace leaf::sys
