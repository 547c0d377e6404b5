#include "leaf/service/granter.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::service {
namespace {

// How many grants in a row may be lost to other nodes. In a healthy cluster the next one is above all of them
// by then, unless there are more of them.
constexpr int kOutbidMax = 8;

}  // namespace

Granter::Granter(core::SegmentStore& store, core::MarkStore& marks, ClusterFence* fence, const Clock& clock,
                 Logger& log, std::chrono::milliseconds reply_timeout)
    : store_(store), marks_(marks), fence_(fence), clock_(clock), log_(log), reply_timeout_(reply_timeout) {}

Obtained Granter::Obtain(std::string_view tag, const core::GrantSizer& sizer, const HeldAfter& held,
                         std::uint64_t seen, const StrictGrant* strict, const HeedStrict& heed) {
  Obtained obtained{core::Grant{}, 0, 0};
  obtained.grant = TryObtain(tag, sizer, held, seen, strict, heed, obtained);
  return obtained;
}

Result<core::Grant> Granter::TryObtain(std::string_view tag, const core::GrantSizer& sizer,
                                       const HeldAfter& held, std::uint64_t seen, const StrictGrant* strict,
                                       const HeedStrict& heed, Obtained& obtained) {
  LEAF_ASSIGN_OR_RETURN(const auto hold, marks_.Acquire(tag));
  LEAF_ASSIGN_OR_RETURN(const core::Mark known, marks_.Load(tag));
  ClusterFence::Look look;
  const auto check_order = [&]() -> Result<void> {
    if (!heed || !look.state.strict) return {};
    return heed(*look.state.strict);
  };
  if (fence_ != nullptr) {
    LEAF_ASSIGN_OR_RETURN(look, fence_->See(tag));
    if (fence_->has_membership() && !look.away && look.state.end < known.witness)
      return fence_->WentBack(tag, look, known.witness);
    LEAF_RETURN_IF_ERROR(check_order());
  }
  for (int attempt = 0; attempt < kOutbidMax || (strict != nullptr && clock_.Monotonic() < strict->until);
       ++attempt) {
    // A look that failed, or an older server's answer, may be behind what was seen before.
    obtained.witness = std::max(seen, look.state.end);
    LEAF_ASSIGN_OR_RETURN(core::Grant grant,
                          Reserve(tag, sizer, {known.end, obtained.witness}, strict, obtained.dropped));
    const std::uint64_t granted = grant.range.size();
    obtained.dropped += granted;  // until all of the following went well
    if (fence_ != nullptr) {
      LEAF_ASSIGN_OR_RETURN(const auto verdict, fence_->Claim(tag, look, grant.range));
      obtained.witness = std::max(seen, look.state.end);
      LEAF_RETURN_IF_ERROR(check_order());
      if (verdict == ClusterFence::Verdict::kOutbid) {
        log_.Info("the grant [{}, {}) of {} is dropped: another node was granted up to {} meanwhile",
                  grant.range.begin, grant.range.end, Quoted(tag), look.state.end);
        continue;
      }
    }
    LEAF_RETURN_IF_ERROR(
        marks_.Raise({tag, grant.range.end, held ? std::optional<std::uint64_t>(held(granted)) : std::nullopt,
                      fence_ != nullptr && !look.away ? grant.range.end : 0}));
    if (fence_ != nullptr) LEAF_RETURN_IF_ERROR(fence_->Holds(look));
    obtained.dropped -= granted;
    return grant;
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("cannot use a grant for {}: other nodes were faster each time", Quoted(tag)),
               strict != nullptr ? "retry soon" : "give the tag a larger step"};
}

Result<core::Grant> Granter::Reserve(std::string_view tag, const core::GrantSizer& sizer,
                                     core::FenceLevel level, const StrictGrant* strict,
                                     std::uint64_t& dropped) {
  const MonotonicTime deadline = clock_.Monotonic() + reply_timeout_;
  const auto check_deadline = [&]() -> Result<void> {
    if (clock_.Monotonic() <= deadline) return {};
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot use a grant for {}: the database took longer than {}", Quoted(tag),
                             FormatDuration(reply_timeout_)),
                 "retry later"};
  };
  // Before anything has moved: a row that is already below the level is left where it is, for `tag
  // repair`, and a reply that comes too late burns no IDs.
  std::uint64_t asked_for = 0;
  const core::GrantSizer fenced_sizer = [&](const core::TagRow& row) -> Result<core::GrantSize> {
    LEAF_RETURN_IF_ERROR(check_deadline());
    LEAF_RETURN_IF_ERROR(core::JudgeRow(tag, row.max_id, level));
    auto size = sizer(row);
    if (size.ok()) asked_for = size->wanted;
    return size;
  };
  const core::SegmentStore::UnreadSizer unread_sizer = [&]() -> Result<core::GrantSize> {
    LEAF_RETURN_IF_ERROR(check_deadline());
    auto size = strict->size();
    if (size.ok()) asked_for = size->wanted;
    return size;
  };
  const auto ask_store = [&]() -> Result<core::Grant> {
    if (strict != nullptr) {
      LEAF_ASSIGN_OR_RETURN(const auto unread,
                            store_.ReserveUnread(tag, std::max(level.mark, level.witness), unread_sizer));
      if (unread) return *unread;
    }
    return store_.Reserve(tag, fenced_sizer);
  };
  const auto reserve = [&] {
    Result<core::Grant> reserved = ask_store();
    if (!reserved.ok() && reserved.error().code == ErrorCode::kOutcomeUnknown) dropped += asked_for;
    return reserved;
  };

  Result<core::Grant> grant = reserve();
  if (!grant.ok() && grant.error().code == ErrorCode::kOutcomeUnknown) {
    log_.Warning("{}; that range is dropped, reserving again", grant.error().message);
    grant = reserve();
  }
  if (!grant.ok()) return grant;
  const auto drop = [&](Error error) {
    dropped += grant->range.size();
    return error;
  };
  if (auto late = check_deadline(); !late.ok()) {
    log_.Warning("the grant [{}, {}) of {} came too late and is dropped", grant->range.begin,
                 grant->range.end, Quoted(tag));
    return drop(std::move(late).error());
  }
  if (auto judged = core::JudgeGrant(tag, grant->range, level); !judged.ok())
    return drop(std::move(judged).error());
  return grant;
}

Error NoStrictWithFallback(std::string_view tag) {
  return {ErrorCode::kConfig,
          fmt::format("tag {} is strict, and this node may go on without the witness", Quoted(tag)),
          "set segment.witness_fallback = false"};
}

core::GrantSizer ExactSizer(std::uint64_t count) {
  return [count](const core::TagRow&) -> Result<core::GrantSize> { return core::GrantSize{count, count}; };
}

}  // namespace leaf::service
