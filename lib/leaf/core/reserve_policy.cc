#include "leaf/core/reserve_policy.h"

#include <algorithm>
#include <cmath>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"

namespace leaf::core {
namespace {

using Seconds = std::chrono::duration<double>;

}  // namespace

void RateMeter::Observe(std::uint64_t issued, MonotonicTime now) {
  if (!last_) {
    last_ = Sample{issued, now};
    return;
  }
  const auto elapsed = now - last_->at;
  if (elapsed < sample_min_) return;
  const double count = issued > last_->issued ? static_cast<double>(issued - last_->issued) : 0;
  const double seen = count / Seconds(elapsed).count();
  if (seen >= ids_per_second_) {
    ids_per_second_ = seen;
  } else {
    const double weight = 1 - std::exp(-(Seconds(elapsed) / Seconds(kRateDecay)));
    ids_per_second_ += (seen - ids_per_second_) * weight;
  }
  last_ = Sample{issued, now};
}

ReservePolicy::ReservePolicy(std::chrono::milliseconds reserve_time) : reserve_time_(reserve_time) {
  LEAF_CHECK(reserve_time >= std::chrono::milliseconds{0});
}

void ReservePolicy::ObserveIssued(std::uint64_t issued, MonotonicTime now) {
  burst_.Observe(issued, now);
  rate_.Observe(issued, now);
}

void ReservePolicy::ObserveGrant(std::chrono::nanoseconds latency) {
  latency = std::max(latency, std::chrono::nanoseconds{0});
  latency_ = latency >= latency_ ? latency : latency_ - (latency_ - latency) / kLatencyDecayGrants;
}

std::uint64_t ReservePolicy::Target() const {
  const double target = burst_.ids_per_second() * kGrantLatencyMargin * Seconds(latency_).count() +
                        rate_.ids_per_second() * Seconds(reserve_time_).count();
  constexpr auto kMax = static_cast<double>(kMaxIdLimit);
  return target >= kMax ? kMaxIdLimit : static_cast<std::uint64_t>(std::ceil(target));
}

}  // namespace leaf::core
