#include "leaf/sys/process_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace leaf::sys {

std::string HostName() {
  std::array<char, 256> host{};
  // A name that is too long is cut, which is good enough to read.
  return gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "";
}

std::vector<std::string> MachineNames(const std::string& hosts) {
  std::vector<std::string> names;
  if (const std::string host = HostName(); !host.empty()) {
    names.push_back(host);
    names.push_back(host.substr(0, host.find('.')));
  }
  std::ifstream file(hosts);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name) || !(name.starts_with("127.") || name == "::1")) continue;
    while (words >> name) names.push_back(name);
  }
  return names;
}

std::string ProcessName(std::string_view command) {
  const std::string host = HostName();
  return fmt::format("leafctl {}, process {} on {}", command, getpid(),
                     host.empty() ? "an unnamed host" : host);
}

}  // namespace leaf::sys
