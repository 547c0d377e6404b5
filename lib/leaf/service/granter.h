// One grant, fenced: reserve in the store, judge, claim it from the witness of the cluster where there is
// one, make the mark durable, and only then hand the range out. The one way in which ranges leave the
// database, for the daemon and for `leafctl next --direct` alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/core/fence.h"
#include "leaf/core/ports.h"
#include "leaf/service/cluster_fence.h"

namespace leaf::service {

struct Obtained {
  Result<core::Grant> grant;
  // IDs that left the table, or may have, and that will never be issued: late, of unknown outcome, or not
  // fenced.
  std::uint64_t dropped = 0;
  // The highest end granted to any node of the cluster, as seen last; 0 where it is not known.
  std::uint64_t witness = 0;
};

// What is special about a grant of a strict tag.
struct StrictGrant {
  // How many IDs the waiting requests ask for. Does not depend on the row.
  core::SegmentStore::UnreadSizer size;
  // How long a range that another node has outbid is followed by another one; of other tags a few are.
  MonotonicTime until;
};

// Thread-safe; blocks; for worker threads only.
class Granter {
 public:
  // `reply_timeout`: a reserve that took longer is dropped, since the requests have given up. `fence`: null
  // where there is no witness.
  Granter(core::SegmentStore& store, core::MarkStore& marks, ClusterFence* fence, const Clock& clock,
          Logger& log, std::chrono::milliseconds reply_timeout);

  // Obtains a range for `tag` that this node may issue; its mark is durable when this returns. A lost commit
  // reply is answered by dropping the range and reserving once more, a range that another node claimed above
  // meanwhile likewise. Errors: those of SegmentStore::Reserve, MarkStore and ClusterFence; kFrozen if the
  // database went back (the row is moved only if it went back between the look and the grant); kUnavailable
  // for a late reply.
  // `seen`: the highest witness of the tag that the caller knows of; it remains a fence while the witness is
  // away and this node goes on without it. Read before this is called. `held`: how many IDs the caller may
  // hold unissued once it has the grant, told by the grant's size, or nothing for a caller that hands all of
  // them out. `strict`: null for a tag that follows the trend only. `heed`: told where the witness says that
  // the tag is strict, before the range is reserved and once it is claimed; with its error nothing is
  // reserved, or the range is dropped. Nothing for a caller that keeps the order in any case.
  using HeldAfter = std::function<std::uint64_t(std::uint64_t granted)>;
  using HeedStrict = std::function<Result<void>(const core::StrictMark&)>;
  Obtained Obtain(std::string_view tag, const core::GrantSizer& sizer, const HeldAfter& held = nullptr,
                  std::uint64_t seen = 0, const StrictGrant* strict = nullptr,
                  const HeedStrict& heed = nullptr);

 private:
  Result<core::Grant> TryObtain(std::string_view tag, const core::GrantSizer& sizer, const HeldAfter& held,
                                std::uint64_t seen, const StrictGrant* strict, const HeedStrict& heed,
                                Obtained& obtained);
  // One range out of the store, judged by `level`.
  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer, core::FenceLevel level,
                              const StrictGrant* strict, std::uint64_t& dropped);

  core::SegmentStore& store_;
  core::MarkStore& marks_;
  ClusterFence* const fence_;
  const Clock& clock_;
  Logger& log_;
  const std::chrono::milliseconds reply_timeout_;
};

// Why a node that may go on without the witness takes no IDs of a strict tag: two nodes may be granted ranges
// by two databases then, in no order.
Error NoStrictWithFallback(std::string_view tag);

// The sizer of a grant of exactly `count` IDs.
core::GrantSizer ExactSizer(std::uint64_t count);

}  // namespace leaf::service
