#include "leaf/core/peak_rate.h"

#include <cmath>

#include "leaf/base/limits.h"

namespace leaf::core {

std::int64_t AdvisedStep(double peak) {
  if (!(peak > 0)) return 0;
  const double step = std::ceil(peak * std::chrono::duration<double>(kAdvisedGrantTime).count());
  return step >= static_cast<double>(kStepMax) ? kStepMax
                                               : std::max<std::int64_t>(1, static_cast<std::int64_t>(step));
}

}  // namespace leaf::core
