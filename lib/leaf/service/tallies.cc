#include "leaf/service/tallies.h"

#include <algorithm>

#include "leaf/base/check.h"

namespace leaf::service {

std::string CauseName(std::size_t slot) {
  return slot == kWithdrawnSlot ? "withdrawn" : std::string(ErrorCodeName(static_cast<ErrorCode>(slot)));
}

std::size_t SlotOf(ErrorCode code) {
  const auto slot = static_cast<std::size_t>(code);
  LEAF_CHECK(slot < kWithdrawnSlot);
  return slot;
}

std::size_t LatencyTally::BucketOf(std::chrono::nanoseconds latency) {
  const double seconds = std::chrono::duration<double>(latency).count();
  const auto bound = std::lower_bound(kBoundsSeconds.begin(), kBoundsSeconds.end(), seconds);
  return static_cast<std::size_t>(bound - kBoundsSeconds.begin());
}

void SegmentCounters::AddRefill(std::chrono::nanoseconds latency) {
  refill_counts_[LatencyTally::BucketOf(latency)].fetch_add(1, kRelaxed);
  refill_sum_ns_.fetch_add(static_cast<std::uint64_t>(latency.count()), kRelaxed);
}

TagTallies SegmentCounters::Tallies() const {
  TagTallies tallies;
  tallies.waits = waits_.load(kRelaxed);
  tallies.refills_failed = refills_failed_.load(kRelaxed);
  for (std::size_t i = 0; i < errors_.size(); ++i) tallies.errors[i] = errors_[i].load(kRelaxed);
  for (std::size_t i = 0; i < refill_counts_.size(); ++i)
    tallies.refills.counts[i] = refill_counts_[i].load(kRelaxed);
  tallies.refills.sum_ns = refill_sum_ns_.load(kRelaxed);
  return tallies;
}

}  // namespace leaf::service
