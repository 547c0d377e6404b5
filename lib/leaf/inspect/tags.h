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

// What keeps strict tags from their order. `nodes`: the table's list; `fallback`: as this node has
// segment.witness_fallback. Nothing at all where no tag is strict.
std::vector<Diagnosis> InspectOrders(const core::TagOrderTable& table, std::span<const core::OrderNode> nodes,
                                     bool fallback);

inline constexpr std::size_t kTagDiagnosesMax = 20;

}  // namespace leaf::inspect
