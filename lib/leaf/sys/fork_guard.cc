#include "leaf/sys/fork_guard.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "leaf/base/check.h"

namespace leaf::sys {
namespace {

// No lock: a fork may happen while another thread holds it.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<void*> object{nullptr};
  std::atomic<ForkGuard::InChild> in_child{nullptr};  // last to be set, first to be cleared
};

constexpr std::size_t kSlots = 64;

std::array<Slot, kSlots>& Slots() {
  static std::array<Slot, kSlots> slots;
  return slots;
}

void RunInChild() {
  for (const Slot& slot : Slots()) {
    const ForkGuard::InChild in_child = slot.in_child.load(std::memory_order_acquire);
    if (in_child != nullptr) in_child(slot.object.load(std::memory_order_relaxed));
  }
}

}  // namespace

ForkGuard::ForkGuard(InChild in_child, void* object) : slot_(-1) {
  static const bool registered = pthread_atfork(nullptr, nullptr, RunInChild) == 0;
  LEAF_CHECK(registered);
  for (std::size_t i = 0; i < kSlots && slot_ < 0; ++i) {
    if (!Slots()[i].taken.exchange(true)) slot_ = static_cast<int>(i);
  }
  LEAF_CHECK(slot_ >= 0);
  Slot& slot = Slots()[static_cast<std::size_t>(slot_)];
  slot.object.store(object, std::memory_order_relaxed);
  slot.in_child.store(in_child, std::memory_order_release);
}

ForkGuard::~ForkGuard() {
  Slot& slot = Slots()[static_cast<std::size_t>(slot_)];
  slot.in_child.store(nullptr);
  slot.taken.store(false);
}

std::uint64_t WatchForks() {
  static const bool counted =
      pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); }) == 0;
  LEAF_CHECK(counted);
  return ForkCount();
}

}  // namespace leaf::sys
