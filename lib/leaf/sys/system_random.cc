#include "leaf/sys/system_random.h"

namespace leaf::sys {
namespace {

std::uint64_t Seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

SystemRandom::SystemRandom() : engine_(Seed()) {}

std::uint64_t SystemRandom::Next() {
  const MutexLock lock(mutex_);
  return engine_();
}

}  // namespace leaf::sys
