// One grant, fenced: reserve in the store, judge, make the mark durable, and only then hand the range out.
// The one way in which ranges leave the database, for the daemon and for `leafctl next --direct` alike.
#pragma once

#include <chrono>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"

namespace leaf::service {

// Thread-safe; blocks; for worker threads only.
class Granter {
 public:
  // `reply_timeout`: a reserve that took longer is dropped, since whoever asked has given up.
  Granter(core::SegmentStore& store, core::MarkStore& marks, const Clock& clock, Logger& log,
          std::chrono::milliseconds reply_timeout);

  // Obtains a range for `tag` that this node may issue; its mark is durable when this returns. A lost commit
  // reply is answered by dropping the range and reserving once more. Errors: those of SegmentStore::Reserve
  // and MarkStore; kFrozen if the database went back (the row is moved only if it went back between the look
  // and the grant); kUnavailable for a late reply.
  Result<core::Grant> Obtain(std::string_view tag, const core::GrantSizer& sizer);

 private:
  core::SegmentStore& store_;
  core::MarkStore& marks_;
  const Clock& clock_;
  Logger& log_;
  const std::chrono::milliseconds reply_timeout_;
};

// The sizer of a grant of exactly `count` IDs.
core::GrantSizer ExactSizer(std::uint64_t count);

}  // namespace leaf::service
