// What the rows of leaf_alloc say before a node is started or replaced. Pure.
#pragma once

#include <span>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/core/diagnosis.h"
#include "leaf/core/ports.h"

namespace leaf::core {

// `marks`: those of this node's state directory. One diagnosis for each thing that is wrong, worst first
// within a check, at most kTagDiagnosesMax of a check and then their number; one that is ok if nothing is.
std::vector<Diagnosis> InspectTags(std::span<const TagRow> rows, std::span<const Mark> marks, WallTime now);

inline constexpr std::size_t kTagDiagnosesMax = 20;

}  // namespace leaf::core
