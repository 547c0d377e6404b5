#include "leaf/sys/boot_id.h"

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

std::string ReadPlaceId(const std::string& folder) {
  std::string id = FirstLine("/etc/machine-id");
  // "uninitialized" is what systemd writes into images.
  if (id.empty() || id == "uninitialized") {
    const std::string name = HostName();
    if (name.empty()) return "";
    id = "host:" + name;
  }
  // The device's number can be another after each boot.
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return "";
  return fmt::format("{}:{}", id, status.st_ino);
}

}  // namespace leaf::sys
