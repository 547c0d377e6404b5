// Assertions that stay on in release builds: for an ID service stopping beats repeating.
#pragma once

#include "leaf/base/require.h"  // IWYU pragma: export

// Aborts the process, after one line on stderr, unless `condition` holds. For invariants only, never for
// input.
#define LEAF_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::leaf::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
