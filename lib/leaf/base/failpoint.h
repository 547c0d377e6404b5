// Places at which a test may stop a thread, or end it. Nothing is compiled in unless LEAF_FAILPOINTS is
// defined, for every source of an executable alike.
#pragma once

#ifdef LEAF_FAILPOINTS

#include <atomic>

namespace leaf {

// Called at every failpoint, with its name, by the thread that gets there. Null: nothing happens.
inline std::atomic<void (*)(const char*)> failpoint_hit{nullptr};

}  // namespace leaf

#define LEAF_FAILPOINT(name)                                       \
  do {                                                             \
    if (auto* const hit = ::leaf::failpoint_hit.load()) hit(name); \
  } while (false)

#else

#define LEAF_FAILPOINT(name) \
  do {                       \
  } while (false)

#endif
