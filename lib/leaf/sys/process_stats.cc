#include "leaf/sys/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace leaf::sys {
namespace {

// Fields of /proc/self/stat behind the name, as proc(5) numbers them from 3 on.
constexpr std::size_t kUserTime = 14;
constexpr std::size_t kSystemTime = 15;
constexpr std::size_t kThreads = 20;
constexpr std::size_t kStartTime = 22;
constexpr std::size_t kVirtualBytes = 23;
constexpr std::size_t kResidentPages = 24;

// Seconds since 1970 at which the machine was started.
double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  while (file >> word) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

std::uint64_t CountOpenFiles() {
  std::error_code failed;
  const std::filesystem::directory_iterator files("/proc/self/fd", failed);
  if (failed) return 0;
  const auto count = std::distance(begin(files), end(files));
  return count > 0 ? static_cast<std::uint64_t>(count - 1) : 0;  // one is the directory that is being read
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The name, in parentheses, may hold anything.
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string field;
  for (std::size_t number = 3; fields >> field; ++number) {
    if (number < kUserTime || number > kResidentPages) continue;
    const double value = std::strtod(field.c_str(), nullptr);
    if (number == kUserTime || number == kSystemTime) stats.cpu_seconds += value / ticks;
    if (number == kThreads) stats.threads = static_cast<std::uint64_t>(value);
    if (number == kStartTime) {
      // Once: the boot time moves with every step of the clock, and would look like a restart.
      static const double start_time_seconds = BootTimeSeconds() + value / ticks;
      stats.start_time_seconds = start_time_seconds;
    }
    if (number == kVirtualBytes) stats.virtual_bytes = static_cast<std::uint64_t>(value);
    if (number == kResidentPages) {
      stats.resident_bytes =
          static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }
  }
  stats.open_files = CountOpenFiles();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.open_files_max = limit.rlim_cur;
  return stats;
}

}  // namespace leaf::sys
