// Under a sanitizer everything takes about ten times as long: counts are scaled down there, behaviour is not.
#pragma once

#include <algorithm>

namespace leaf::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kScaleDown = 5;
#else
inline constexpr int kScaleDown = 1;
#endif

// `count`, or a fifth of it, but at least one.
template <typename Count>
constexpr Count Scaled(Count count) {
  return std::max(count / static_cast<Count>(kScaleDown), Count{1});
}

}  // namespace leaf::testing
