// This process, as /proc shows it.
#pragma once

#include "leaf/base/process_stats.h"

namespace leaf::sys {

// Reads /proc; takes a moment for each open file.
ProcessStats ReadProcessStats();

}  // namespace leaf::sys
