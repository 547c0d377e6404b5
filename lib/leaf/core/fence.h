// The fence: every grant is judged after its COMMIT and before its first ID. What this node was ever granted
// for a tag is remembered as one durable number, the mark; a grant below it means that the database went back
// (restore, failover that lost commits, a hand edit), and issuing from it could repeat an ID. What other
// nodes were granted is known where there is a witness (witness.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"

namespace leaf::core {

// Lower bounds: a grant that begins below either is refused. Exclusive ends, 0 for none.
struct FenceLevel {
  std::uint64_t mark = 0;     // of everything ever granted to this node
  std::uint64_t witness = 0;  // of everything ever granted to any node of the cluster, where that is known
};

// Whether `grant` may be issued by a node whose level for `tag` is `level`. Errors: kFrozen if it begins
// below it, kInternal if it is no valid range of IDs.
Result<void> JudgeGrant(std::string_view tag, IdRange grant, FenceLevel level);

// Whether a row whose column says `max_id` is consistent with `level`, read before the row was.
// Errors: kFrozen if it is below.
Result<void> JudgeRow(std::string_view tag, std::int64_t max_id, FenceLevel level);

}  // namespace leaf::core
