// The atomic type of code whose interleavings a model checker goes through.
#pragma once

#ifdef LEAF_ATOMIC_HEADER

// A test's own, which defines leaf::Atomic. For every source of an executable alike.
#include LEAF_ATOMIC_HEADER

#else

#include <atomic>

namespace leaf {

template <typename T>
using Atomic = std::atomic<T>;

}  // namespace leaf

#endif
