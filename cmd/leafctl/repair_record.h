// What a repair is about to change, on the disk before it is changed.
#pragma once

#include <string>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/worker_inspection.h"
#include "tag_output.h"
#include "worker_source.h"

namespace leaf::cmd {

// One step with everything it touches: name, data and facts as they were read, and what will stand there.
Json StepJson(const core::RepairStep& step);

// Writes <state_dir>/repairs/<time>-<pid>.json and returns its path. Durable when it returns, and never over
// another one. Errors: kPermission, kConfig, kUnavailable, each naming the path.
Result<std::string> WriteRepairRecord(CommandContext& context, const WorkerSource& source,
                                      const std::vector<core::RepairStep>& steps);

}  // namespace leaf::cmd
