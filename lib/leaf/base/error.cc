#include "leaf/base/error.h"

namespace leaf {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kPermission:
      return "permission";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kUnreachable:
      return "unreachable";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kOutcomeUnknown:
      return "outcome_unknown";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kLimited:
      return "limited";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kAlreadyExists:
      return "already_exists";
    case ErrorCode::kUnhealthy:
      return "unhealthy";
    case ErrorCode::kRefused:
      return "refused";
    case ErrorCode::kFrozen:
      return "frozen";
    case ErrorCode::kOverflow:
      return "overflow";
    case ErrorCode::kClock:
      return "clock";
    case ErrorCode::kNotOwner:
      return "not_owner";
    case ErrorCode::kDisabled:
      return "disabled";
    case ErrorCode::kPaused:
      return "paused";
  }
  return "internal";
}

std::optional<ErrorCode> ErrorCodeFromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kPaused); ++i) {
    if (const auto code = static_cast<ErrorCode>(i); ErrorCodeName(code) == name) return code;
  }
  return std::nullopt;
}

}  // namespace leaf
