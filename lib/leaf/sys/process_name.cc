#include "leaf/sys/process_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace leaf::sys {

std::string HostName() {
  std::array<char, 256> host{};
  // A name that is too long is cut, which is good enough to read.
  return gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "";
}

std::string ProcessName(std::string_view command) {
  const std::string host = HostName();
  return fmt::format("leafctl {}, process {} on {}", command, getpid(),
                     host.empty() ? "an unnamed host" : host);
}

}  // namespace leaf::sys
