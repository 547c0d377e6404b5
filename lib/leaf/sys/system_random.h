#pragma once

#include <mutex>
#include <random>

#include "leaf/base/random.h"

namespace leaf::sys {

// Seeded from the system's entropy.
class SystemRandom final : public Random {
 public:
  SystemRandom();
  std::uint64_t Next() override;

 private:
  std::mutex mutex_;
  std::mt19937_64 engine_;  // guarded by mutex_
};

}  // namespace leaf::sys
