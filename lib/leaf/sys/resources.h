// Limits that the system puts on this process.
#pragma once

#include <cstdint>

namespace leaf::sys {

// Raises the soft limit of open files to the hard one, which needs no privilege; returns the limit that holds
// then.
std::uint64_t RaiseOpenFileLimit();

}  // namespace leaf::sys
