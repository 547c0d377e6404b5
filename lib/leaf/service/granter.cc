#include "leaf/service/granter.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/core/fence.h"

namespace leaf::service {

Granter::Granter(core::SegmentStore& store, core::MarkStore& marks, const Clock& clock, Logger& log,
                 std::chrono::milliseconds reply_timeout)
    : store_(store), marks_(marks), clock_(clock), log_(log), reply_timeout_(reply_timeout) {}

Obtained Granter::Obtain(std::string_view tag, const core::GrantSizer& sizer, const HeldAfter& held) {
  std::uint64_t dropped = 0;
  Result<core::Grant> grant = TryObtain(tag, sizer, held, dropped);
  return {std::move(grant), dropped};
}

Result<core::Grant> Granter::TryObtain(std::string_view tag, const core::GrantSizer& sizer,
                                       const HeldAfter& held, std::uint64_t& dropped) {
  LEAF_ASSIGN_OR_RETURN(const auto hold, marks_.Acquire(tag));
  LEAF_ASSIGN_OR_RETURN(const core::Mark known, marks_.Load(tag));
  const std::uint64_t mark = known.end;

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
  std::uint64_t asked_for = 0;
  const core::GrantSizer fenced_sizer = [&](const core::TagRow& row) -> Result<core::GrantSize> {
    LEAF_RETURN_IF_ERROR(check_deadline());
    LEAF_RETURN_IF_ERROR(core::JudgeRow(tag, row.max_id, mark));
    auto size = sizer(row);
    if (size.ok()) asked_for = size->wanted;
    return size;
  };
  const auto reserve = [&] {
    Result<core::Grant> reserved = store_.Reserve(tag, fenced_sizer);
    if (!reserved.ok() && reserved.error().code == ErrorCode::kOutcomeUnknown) dropped += asked_for;
    return reserved;
  };

  Result<core::Grant> grant = reserve();
  if (!grant.ok() && grant.error().code == ErrorCode::kOutcomeUnknown) {
    log_.Warning("{}; that range is dropped, reserving again", grant.error().message);
    grant = reserve();
  }
  if (!grant.ok()) return grant;
  const std::uint64_t granted = grant->range.size();
  dropped += granted;  // until all of the following went well

  if (auto late = check_deadline(); !late.ok()) {
    log_.Warning("the grant [{}, {}) of {} came too late and is dropped", grant->range.begin,
                 grant->range.end, Quoted(tag));
    return std::move(late).error();
  }
  LEAF_RETURN_IF_ERROR(core::JudgeGrant(tag, grant->range, mark));
  LEAF_RETURN_IF_ERROR(marks_.Raise(
      {tag, grant->range.end, held ? std::optional<std::uint64_t>(held(granted)) : std::nullopt}));
  dropped -= granted;
  return grant;
}

core::GrantSizer ExactSizer(std::uint64_t count) {
  return [count](const core::TagRow&) -> Result<core::GrantSize> { return core::GrantSize{count, count}; };
}

}  // namespace leaf::service
