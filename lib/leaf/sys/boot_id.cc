#include "leaf/sys/boot_id.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "leaf/sys/durable_file.h"
#include "leaf/sys/process_name.h"

namespace leaf::sys {

namespace {

std::string FirstLine(const char* path) {
  constexpr std::size_t kBytesMax = 128;
  FileOps ops;
  const auto text = ReadWholeFile(ops, path, kBytesMax);
  if (!text.ok() || !*text) return "";
  const std::string& line = **text;
  return line.substr(0, line.find('\n'));
}

}  // namespace

std::string ReadBootId() { return FirstLine("/proc/sys/kernel/random/boot_id"); }

std::string ReadPlaceId(const std::string& folder, const char* machine_id_file) {
  struct statx status {};
  if (statx(AT_FDCWD, folder.c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0) return "";
  // The device's number can be another after each boot.
  const std::string machine = FirstLine(machine_id_file);
  // "uninitialized" is what systemd writes into images.
  const std::string made = (status.stx_mask & STATX_BTIME) == 0
                               ? ""
                               : fmt::format("{}.{:09}", status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
  if (!machine.empty() && machine != "uninitialized")
    return fmt::format("{}:{}{}{}", machine, status.stx_ino, made.empty() ? "" : "@", made);
  if (!made.empty()) return fmt::format("made:{}:{}", made, status.stx_ino);
  const std::string host = HostName();
  return host.empty() ? "" : fmt::format("host:{}:{}", host, status.stx_ino);
}

}  // namespace leaf::sys
