// What `doctor` looks at. Only reads: no file is made or written, nothing is claimed or locked.
#pragma once

#include <vector>

#include "context.h"
#include "leaf/core/diagnosis.h"

namespace leaf::cmd {

// Everything that the configuration has to do with, each on its own: what does not answer is one finding, and
// what stands on it is left out. Blocks as long as the time-outs allow, and for 4 s more if somebody who is
// no leafctl reports to the registry: only watching tells whether he lives.
std::vector<core::Diagnosis> Examine(CommandContext& context, const config::Resolved& resolved);

}  // namespace leaf::cmd
