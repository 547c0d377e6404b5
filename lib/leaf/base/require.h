// LEAF_CHECK for the headers that programs include: without a macro.
#pragma once

#include <source_location>

namespace leaf::internal {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

// Aborts the process, after one line on stderr, unless `holds`. `what`: what should hold.
inline void Require(bool holds, const char* what,
                    std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    CheckFailed(what, where.file_name(), static_cast<int>(where.line()));
}

}  // namespace leaf::internal
