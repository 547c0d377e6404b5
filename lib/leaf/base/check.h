// Assertions that stay on in release builds: for an ID service stopping beats repeating.
#pragma once

namespace leaf::internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace leaf::internal

// Aborts the process, after one line on stderr, unless `condition` holds. For invariants only, never for
// input.
#define LEAF_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::leaf::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
