// What the rows of leaf_alloc say before a node is started or replaced. Pure.
#pragma once

#include <span>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/core/code_records.h"
#include "leaf/core/ports.h"
#include "leaf/inspect/diagnosis.h"

namespace leaf::inspect {

// `marks`: those of this node's state directory. `redis_port`: this node has one, whose INCR answers with
// integers. `codes`: what is remembered of codes. One diagnosis for each thing that is wrong, worst first
// within a check, at most kTagDiagnosesMax of a check and then their number; one that is ok if nothing is.
std::vector<Diagnosis> InspectTags(std::span<const core::TagRow> rows, std::span<const core::Mark> marks,
                                   WallTime now, bool redis_port = false,
                                   std::span<const core::CodeRecord> codes = {});

inline constexpr std::size_t kTagDiagnosesMax = 20;

}  // namespace leaf::inspect
