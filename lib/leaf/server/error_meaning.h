// What an error means to a client of any protocol: the status that HTTP has for it, which metrics count all
// protocols by, and whether the same request may work later.
#pragma once

#include <cstdint>

#include "leaf/base/error.h"

namespace leaf::server {

// How long a client is asked to wait before its next try, in seconds.
inline constexpr std::uint32_t kRetryAfterSeconds = 1;

struct ErrorMeaning {
  int status;
  bool retry;  // waiting helps
};

constexpr ErrorMeaning MeaningOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {400, false};
    case ErrorCode::kNotFound:
      return {404, false};
    case ErrorCode::kFrozen:
      return {409, false};
    case ErrorCode::kTooLarge:
      return {413, false};
    case ErrorCode::kLimited:
      return {429, true};
    case ErrorCode::kPaused:
      return {503, false};
    case ErrorCode::kExhausted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kClock:
      return {503, true};
    case ErrorCode::kInternal:
      return {500, false};
    default:
      return {503, false};
  }
}

inline Error TooManyUnread() {
  return {ErrorCode::kUnavailable, "too many answers of this server wait for clients to read them", ""};
}

}  // namespace leaf::server
