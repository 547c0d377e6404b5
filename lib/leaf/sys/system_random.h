#pragma once

#include <random>

#include "leaf/base/mutex.h"
#include "leaf/base/random.h"

namespace leaf::sys {

// Seeded from the system's entropy.
class SystemRandom final : public Random {
 public:
  SystemRandom();
  std::uint64_t Next() override;

 private:
  Mutex mutex_;
  std::mt19937_64 engine_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::sys
