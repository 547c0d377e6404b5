#include "leaf/core/step_policy.h"

#include "leaf/base/check.h"
#include "leaf/base/limits.h"

namespace leaf::core {

StepPolicy::StepPolicy(Kind kind, std::int64_t step_max) : kind_(kind), step_max_(step_max) {
  LEAF_CHECK(step_max > 0);
}

std::int64_t StepPolicy::Propose(std::int64_t table_step, MonotonicTime now) const {
  LEAF_CHECK(table_step >= 1 && table_step <= kStepMax);
  if (kind_ == Kind::kFixed || table_step != table_step_ || !loaded_at_) return table_step;
  const auto since_last_load = now - *loaded_at_;
  if (since_last_load < kStepDoubleUnder) return step_ > step_max_ / 2 ? step_ : step_ * 2;
  if (since_last_load < kStepHalveFrom) return step_;
  return step_ / 2 >= table_step ? step_ / 2 : step_;
}

void StepPolicy::Commit(std::int64_t step, std::int64_t table_step, MonotonicTime now) {
  LEAF_CHECK(step >= 1);
  LEAF_CHECK(table_step >= 1 && table_step <= kStepMax);
  const bool first_load = table_step_ == 0;
  step_ = step;
  table_step_ = table_step;
  if (!first_load) loaded_at_ = now;
}

}  // namespace leaf::core
