// What a tag tells of itself: its state, its totals, its rate, the days left to it, and Leaf's view of it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/exhaustion.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {

void TagGenerator::WatchExhaustionLocked(Completions& completions) {
  const auto days = DaysToExhaustionLocked();
  if (near_exhaustion_told_ || !core::IsNearExhaustion(max_id_, days)) return;
  near_exhaustion_told_ = true;
  completions.push_back([this, left = core::IdsLeft(max_id_), days] {
    context_.log.Warning("tag {}: {} IDs are left below 2^63{}", Quoted(tag_), left,
                         days ? fmt::format(", {:.1f} days at the rate seen", *days) : "");
  });
}

std::optional<double> TagGenerator::DaysToExhaustionLocked() const { return DaysUntilLocked(kMaxIdLimit); }

std::optional<double> TagGenerator::DaysUntilLocked(std::uint64_t end) const {
  const std::optional<core::Baseline>& base = ledger_.account().base;
  if (!base) return std::nullopt;
  return core::DaysUntil(end, max_id_, *base, context_.clock.Wall());
}

std::optional<std::uint64_t> TagGenerator::LastIssued() const {
  const MutexLock lock(mutex_);
  const core::SegmentBuffer* const buffer = ReserveLocked();
  return std::max(buffer == nullptr ? std::nullopt : buffer->LastTaken(), ledger_.account().last_issued);
}

TagTotals TagGenerator::Totals() {
  const MutexLock lock(mutex_);
  const core::SegmentBuffer* const buffer = ReserveLocked();
  return {.issued = ledger_.IssuedToTell(buffer), .wasted = buffer == nullptr ? 0 : buffer->wasted()};
}

void TagGenerator::ObserveRateLocked() {
  if (grants_ && grants_->reserve)
    grants_->reserve->ObserveIssued(ledger_.Issued(ReserveLocked()), context_.clock.Monotonic());
}

void TagGenerator::ObservePeak() {
  if (buffer_.load(std::memory_order_acquire) == nullptr) return;
  const MutexLock lock(mutex_);
  grants_->peak->Observe(ledger_.Issued(ReserveLocked()), context_.clock.Monotonic());
}

std::uint64_t TagGenerator::reserve() const {
  const core::SegmentBuffer* const buffer = buffer_.load(std::memory_order_acquire);
  return buffer == nullptr ? 0 : buffer->remaining();
}

std::uint64_t TagGenerator::unissued() const {
  const MutexLock lock(mutex_);
  return ledger_.account().unissued;
}

std::uint64_t TagGenerator::known_end() const {
  const MutexLock lock(mutex_);
  return std::max(mark_, witness_);
}

TagStatus TagGenerator::Status(std::optional<std::uint64_t> codes_end) {
  const MutexLock lock(mutex_);
  const core::SegmentBuffer* const buffer = ReserveLocked();
  ObserveRateLocked();
  TagStatus status;
  status.tag = tag_;
  status.paused = paused_.load(std::memory_order_relaxed);
  status.order = order_;
  const TagLedger::Account& account = ledger_.account();
  status.state = status.paused                 ? "paused"
                 : state_ == TagState::kFrozen ? "frozen"
                 : account.grants == 0         ? "idle"
                                               : "active";
  status.reserve = buffer == nullptr ? 0 : buffer->remaining();
  if (grants_ && grants_->reserve) {
    const core::ReservePolicy& policy = *grants_->reserve;
    if (!IsStrictLocked()) status.reserve_target = policy.Target();
    status.ids_per_second = policy.ids_per_second();
    status.grant_latency = policy.grant_latency();
    status.peak_ids_per_second = std::max(grants_->peak->ids_per_second(), status.ids_per_second);
  }
  status.waiting = waiters_.size();
  status.step = grants_ ? grants_->step.step() : 0;
  status.table_step = table_step_;
  status.max_id = max_id_;
  status.mark = mark_;
  status.witness = witness_;
  status.granted = account.granted;
  status.wasted = account.dropped + (buffer == nullptr ? 0 : buffer->wasted());
  status.wasted_by_restarts = account.wasted_before;
  status.wasted_by_last_restart = account.wasted_last;
  status.wasted_by_restarts_exactly = account.wasted_exactly;
  status.issued = ledger_.IssuedToTell(buffer);
  status.grants = account.grants;
  status.failures = refill_.failures();
  status.days_to_exhaustion = DaysToExhaustionLocked();
  status.near_exhaustion = core::IsNearExhaustion(max_id_, status.days_to_exhaustion);
  if (codes_end) status.codes_left = core::CodesLeft{*codes_end, DaysUntilLocked(*codes_end)};
  if (problem_) {
    status.problem = problem_->error;
    status.problem_since = problem_->since;
    if (state_ == TagState::kFrozen) status.frozen_since = problem_->since;
  }
  if (const TagTallies* const tallies = ledger_.tallies())
    status.tallies = std::make_shared<const TagTallies>(*tallies);
  return status;
}

TagRanges TagGenerator::Ranges() const {
  const MutexLock lock(mutex_);
  TagRanges ranges{.tag = tag_, .granted = ledger_.account().grants > 0, .held = {}};
  if (const core::SegmentBuffer* const buffer = ReserveLocked()) ranges.held = buffer->Ranges();
  if (const TagTallies* const tallies = ledger_.tallies()) ranges.recent = tallies->recent;
  return ranges;
}

}  // namespace leaf::service
