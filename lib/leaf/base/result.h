// Result<T>: a value or an Error. g++ 12 has no std::expected in C++20 mode.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "leaf/base/check.h"
#include "leaf/base/error.h"

namespace leaf {

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function can return either.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Requires: ok().
  T& value() & {
    LEAF_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    LEAF_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    LEAF_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Requires: !ok().
  const Error& error() const& {
    LEAF_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    LEAF_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  const Error& error() const& {
    LEAF_CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    LEAF_CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace leaf

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
