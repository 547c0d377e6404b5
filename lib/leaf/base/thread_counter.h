// A counter for paths on which threads must not share a cache line to count.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace leaf {

// Thread-safe. Each thread counts in a slot of its own, as long as there are no more threads than slots; the
// sum never goes back, and has everything that was added before it is asked for.
class ThreadCounter {
 public:
  void Add(std::uint64_t count) {
    const std::size_t slot = SlotOfThread();
    std::atomic<std::uint64_t>& value = slots_[slot].value;
    if (slot == kSharedSlot) [[unlikely]] {
      value.fetch_add(count, std::memory_order_relaxed);
    } else {
      // No other thread writes it, so nothing can come between the two.
      value.store(value.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
    }
  }
  std::uint64_t Sum() const {
    std::uint64_t sum = 0;
    for (const Slot& slot : slots_) sum += slot.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr std::size_t kSlots = 16;
  // Of all threads that come later than the others, which have one each, for ever.
  static constexpr std::size_t kSharedSlot = kSlots - 1;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> value{0};
  };
  static std::size_t SlotOfThread() {
    static std::atomic<std::size_t> threads{0};
    thread_local const std::size_t slot =
        std::min(threads.fetch_add(1, std::memory_order_relaxed), kSharedSlot);
    return slot;
  }

  std::array<Slot, kSlots> slots_;
};

}  // namespace leaf
