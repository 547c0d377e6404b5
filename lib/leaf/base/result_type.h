// Result<T>: a value or an Error. g++ 12 has no std::expected in C++20 mode. Of the library's face: without
// macros, which would be those of every program that includes it.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "leaf/base/error.h"
#include "leaf/base/require.h"

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
    internal::Require(ok(), "the result is a value");
    return std::get<0>(state_);
  }
  const T& value() const& {
    internal::Require(ok(), "the result is a value");
    return std::get<0>(state_);
  }
  T&& value() && {
    internal::Require(ok(), "the result is a value");
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Requires: !ok().
  const Error& error() const& {
    internal::Require(!ok(), "the result is an error");
    return std::get<1>(state_);
  }
  Error&& error() && {
    internal::Require(!ok(), "the result is an error");
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
    internal::Require(!ok(), "the result is an error");
    return *error_;
  }
  Error&& error() && {
    internal::Require(!ok(), "the result is an error");
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace leaf
