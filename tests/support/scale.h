// Under a sanitizer everything takes about ten times as long: counts are scaled down there, behaviour is not.
#pragma once

#include <algorithm>

#include "support/sanitizer.h"

namespace leaf::testing {

#if defined(LEAF_ADDRESS_SANITIZER) || defined(LEAF_THREAD_SANITIZER)
inline constexpr int kScaleDown = 5;
#else
inline constexpr int kScaleDown = 1;
#endif

// For one thread that does the same thing a thousand times: a sanitizer finds in few of them what it would
// find in all.
inline constexpr int kScaleDownMuch = kScaleDown * kScaleDown;

// `count`, or a fifth of it, but at least one.
template <typename Count>
constexpr Count Scaled(Count count) {
  return std::max(count / static_cast<Count>(kScaleDown), Count{1});
}

}  // namespace leaf::testing
