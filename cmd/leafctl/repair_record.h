// What a repair is about to change, on the disk before it is changed.
#pragma once

#include <string>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/inspect/worker_source.h"
#include "leaf/inspect/workers.h"
#include "tag_output.h"

namespace leaf::cmd {

// One step with everything it touches: name, data and facts as they were read, and what will stand there.
Json StepJson(const inspect::RepairStep& step);

// Writes <state_dir>/repairs/<time>-<pid>.json and returns its path. Durable when it returns, and never over
// another one. Errors: kPermission, kConfig, kUnavailable, each naming the path.
Result<std::string> WriteRepairRecord(CommandContext& context, const inspect::WorkerSource& source,
                                      const std::vector<inspect::RepairStep>& steps);

}  // namespace leaf::cmd
