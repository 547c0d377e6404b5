// What the system says of this process.
#pragma once

#include <cstdint>

namespace leaf {

// 0 where the system does not tell.
struct ProcessStats {
  double cpu_seconds = 0;         // user and system, since start
  double start_time_seconds = 0;  // Unix
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::uint64_t open_files = 0;
  std::uint64_t open_files_max = 0;
  std::uint64_t threads = 0;
};

}  // namespace leaf
