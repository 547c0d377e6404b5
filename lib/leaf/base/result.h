// Result<T>, with the short ways to hand an error on.
#pragma once

#include <utility>

#include "leaf/base/check.h"        // IWYU pragma: export
#include "leaf/base/result_type.h"  // IWYU pragma: export

#define LEAF_CONCAT_INNER(a, b) a##b
#define LEAF_CONCAT(a, b) LEAF_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Result) from the enclosing function, if it has one.
#define LEAF_RETURN_IF_ERROR(expression)                                                                    \
  do {                                                                                                      \
    if (auto LEAF_CONCAT(leaf_result_, __LINE__) = (expression); !LEAF_CONCAT(leaf_result_, __LINE__).ok()) \
      return std::move(LEAF_CONCAT(leaf_result_, __LINE__)).error();                                        \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
// `declaration` = the value of `expression`, or returns its error from the enclosing function.
#define LEAF_ASSIGN_OR_RETURN(declaration, expression)             \
  auto LEAF_CONCAT(leaf_result_, __LINE__) = (expression);         \
  if (!LEAF_CONCAT(leaf_result_, __LINE__).ok())                   \
    return std::move(LEAF_CONCAT(leaf_result_, __LINE__)).error(); \
  declaration = std::move(LEAF_CONCAT(leaf_result_, __LINE__)).value()
// NOLINTEND(bugprone-macro-parentheses)
