#include "leaf/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace leaf::internal {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "leafctl: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace leaf::internal
