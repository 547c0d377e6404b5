#include "leaf/service/granter.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/core/fence.h"

namespace leaf::service {

Granter::Granter(core::SegmentStore& store, core::MarkStore& marks, const Clock& clock, Logger& log,
                 std::chrono::milliseconds reply_timeout)
    : store_(store), marks_(marks), clock_(clock), log_(log), reply_timeout_(reply_timeout) {}

Result<core::Grant> Granter::Obtain(std::string_view tag, const core::GrantSizer& sizer) {
  LEAF_ASSIGN_OR_RETURN(const auto hold, marks_.Acquire(tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t mark, marks_.Load(tag));

  const MonotonicTime deadline = clock_.Monotonic() + reply_timeout_;
  const auto check_deadline = [&]() -> Result<void> {
    if (clock_.Monotonic() <= deadline) return {};
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot use a grant for {}: the database took longer than {}", Quoted(tag),
                             FormatDuration(reply_timeout_)),
                 "retry later"};
  };
  // While the row is locked and nothing has moved: a row that is already below the mark is left where it is,
  // for whoever repairs it, and a reply that comes too late burns no IDs.
  const core::GrantSizer fenced_sizer = [&](const core::TagRow& row) -> Result<core::GrantSize> {
    LEAF_RETURN_IF_ERROR(check_deadline());
    LEAF_RETURN_IF_ERROR(core::JudgeRow(tag, row.max_id, mark));
    return sizer(row);
  };

  Result<core::Grant> grant = store_.Reserve(tag, fenced_sizer);
  if (!grant.ok() && grant.error().code == ErrorCode::kOutcomeUnknown) {
    log_.Warning("{}; that range is dropped, reserving again", grant.error().message);
    grant = store_.Reserve(tag, fenced_sizer);
  }
  if (!grant.ok()) return grant;

  if (auto late = check_deadline(); !late.ok()) {
    log_.Warning("the grant [{}, {}) of {} came too late and is dropped", grant->range.begin,
                 grant->range.end, Quoted(tag));
    return std::move(late).error();
  }
  LEAF_RETURN_IF_ERROR(core::JudgeGrant(tag, grant->range, mark));
  LEAF_RETURN_IF_ERROR(marks_.Raise(tag, grant->range.end));
  return grant;
}

core::GrantSizer ExactSizer(std::uint64_t count) {
  return [count](const core::TagRow&) -> Result<core::GrantSize> { return core::GrantSize{count, count}; };
}

}  // namespace leaf::service
