// One run: a cluster in trouble, then mended, then held to its promises.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/costs.h"
#include "sim/plan.h"

namespace leaf::sim {

struct Outcome {
  std::vector<std::string> violations;
  std::uint64_t trace = 0;
  std::uint64_t steps = 0;
  std::uint64_t ids = 0;  // issued, each compared with all others
  std::uint64_t grants = 0;
  std::uint64_t requests = 0;
  std::uint64_t errors = 0;        // requests that were refused
  std::uint64_t acts = 0;          // faults
  std::uint64_t starts = 0;        // of processes
  std::uint64_t regressions = 0;   // tags whose row went back
  std::uint64_t orders_begun = 0;  // tags that were strict from some moment on
  std::uint64_t strict_requests = 0;
  std::uint64_t strict_pairs = 0;  // of them and those that were answered before
  double node_seconds = 0;         // simulated, over all nodes
  Costs costs;                     // in the second half of the time before all is mended
  double costs_seconds = 0;        // how long that was
};

// `loud`: prints what happens.
Outcome Simulate(const Plan& plan, bool loud);

}  // namespace leaf::sim
