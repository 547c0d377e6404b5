// How large the next grant of a tag is: Leaf's dynamic step, or the table's step as it is.
//
// Leaf's rule (SegmentIDGenImpl.updateSegmentFromDb): the first two loads take the table's step; later ones
// double the last step if the load before was less than 15 minutes ago, unless that passes 1 000 000; keep it
// up to 30 minutes; then halve it, never below the table's step. Listed differences: time is the monotonic
// clock's, and a step changed in the table starts over with the new step at the next load.
#pragma once

#include <cstdint>
#include <optional>

#include "leaf/base/time.h"

namespace leaf::core {

// Not thread-safe.
class StepPolicy {
 public:
  enum class Kind { kLeaf, kFixed };

  // `step_max` caps doubling, not a larger step in the table. Requires: step_max > 0.
  StepPolicy(Kind kind, std::int64_t step_max);

  // IDs the next load should ask for. Changes nothing: a load that fails must leave no trace.
  // Requires: table_step in 1..kStepMax.
  std::int64_t Propose(std::int64_t table_step, MonotonicTime now) const;

  // A load of `step` IDs succeeded at `now`, when the table said `table_step`.
  void Commit(std::int64_t step, std::int64_t table_step, MonotonicTime now);

  // The step of the last load; 0 before the first.
  std::int64_t step() const { return step_; }
  // The table's step as of the last load; 0 before the first.
  std::int64_t table_step() const { return table_step_; }

 private:
  const Kind kind_;
  const std::int64_t step_max_;
  std::int64_t step_ = 0;
  std::int64_t table_step_ = 0;
  // Of the last load but for the first, whose time Leaf does not keep either.
  std::optional<MonotonicTime> loaded_at_;
};

}  // namespace leaf::core
