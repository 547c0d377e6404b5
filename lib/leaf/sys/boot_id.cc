#include "leaf/sys/boot_id.h"

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

std::string ReadMachineId() {
  std::string id = FirstLine("/etc/machine-id");
  // "uninitialized" is what systemd writes into images.
  if (!id.empty() && id != "uninitialized") return id;
  const std::string name = HostName();
  return name.empty() ? "" : "host:" + name;
}

}  // namespace leaf::sys
