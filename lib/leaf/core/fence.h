// The fence: every grant is judged after its COMMIT and before its first ID. What this node was ever granted
// for a tag is remembered as one durable number, the mark; a grant below it means that the database went back
// (restore, failover that lost commits, a hand edit), and issuing from it could repeat an ID.
#pragma once

#include <cstdint>
#include <string_view>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"

namespace leaf::core {

// Whether `grant` may be issued by a node whose mark for `tag` is `mark` (exclusive end of everything ever
// granted to it; 0 for none). Errors: kFrozen if it begins below the mark, kInternal if it is no valid range
// of IDs.
Result<void> JudgeGrant(std::string_view tag, IdRange grant, std::uint64_t mark);

// Whether a row whose column says `max_id` is consistent with `mark`, read before the row was.
// Errors: kFrozen if it is below.
Result<void> JudgeRow(std::string_view tag, std::int64_t max_id, std::uint64_t mark);

}  // namespace leaf::core
