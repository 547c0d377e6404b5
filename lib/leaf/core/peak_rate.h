// The highest rate a tag was seen at, over a second or more: what its step should be made for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "leaf/core/reserve_policy.h"

namespace leaf::core {

// Not thread-safe. As RateMeter: a rate counts once two looks in a row show it, so one large batch does not.
class PeakRate {
 public:
  // `issued` IDs were handed out in all, as of `now`. Looks less than a second apart count as one.
  void Observe(std::uint64_t issued, MonotonicTime now) {
    meter_.Observe(issued, now);
    peak_ = std::max(peak_, meter_.ids_per_second());
  }
  double ids_per_second() const { return peak_; }

 private:
  RateMeter meter_{kRateSampleMin};
  double peak_ = 0;
};

// The step that lasts for kAdvisedGrantTime at `peak` IDs a second, in 1..kStepMax; 0 if no rate was seen.
std::int64_t AdvisedStep(double peak);

}  // namespace leaf::core
