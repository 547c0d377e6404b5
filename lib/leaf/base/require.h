// LEAF_CHECK for the headers that programs include: without a macro.
#pragma once

namespace leaf::internal {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

// Aborts the process, after one line on stderr, unless `holds`. `what`: what should hold. The place is the
// caller's; clang 14 has no std::source_location.
inline void Require(bool holds, const char* what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!holds) [[unlikely]]
    CheckFailed(what, file, line);
}

}  // namespace leaf::internal
