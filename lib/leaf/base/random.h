// Port: randomness, so that a simulation can replay it.
#pragma once

#include <cstdint>

namespace leaf {

// Thread-safe. Not for secrets.
class Random {
 public:
  virtual ~Random() = default;
  // Uniform over all 64-bit values.
  virtual std::uint64_t Next() = 0;
  // Uniform in [0, bound) to within 2^-32 for the small bounds used here. Requires: bound > 0.
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }
};

}  // namespace leaf
