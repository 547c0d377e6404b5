#include "leaf/sys/boot_id.h"

#include "leaf/sys/durable_file.h"

namespace leaf::sys {

std::string ReadBootId() {
  constexpr std::size_t kBytesMax = 128;
  FileOps ops;
  const auto text = ReadWholeFile(ops, "/proc/sys/kernel/random/boot_id", kBytesMax);
  if (!text.ok() || !*text) return "";
  const std::string& line = **text;
  return line.substr(0, line.find('\n'));
}

}  // namespace leaf::sys
