#include "leaf/sys/process_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace leaf::sys {

std::string ProcessName(std::string_view command) {
  std::array<char, 256> host{};
  // A name that is too long is cut, which is good enough to read.
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"an unnamed host"};
  return fmt::format("leafctl {}, process {} on {}", command, getpid(), host.data());
}

}  // namespace leaf::sys
