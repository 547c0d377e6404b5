// The closed list of error codes, and the error that carries one. A code exists only if some caller acts
// differently on it; everything else is said in the message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace leaf {

enum class ErrorCode {
  kInternal,         // a bug, or nothing below fits
  kInvalidArgument,  // the caller's input is wrong; the message names it
  kTooLarge,         // a valid request over a limit; asking for less helps
  kPermission,       // authentication or file permission
  kConfig,           // configuration or schema is missing or wrong
  kUnreachable,      // no daemon answers
  kUnavailable,      // database or registry does not answer; retry later
  kOutcomeUnknown,   // a write may or may not have happened (a lost COMMIT reply)
  kExhausted,        // the reserve is drained and no grant came in time; retry soon
  kLimited,          // over a rate limit; retry later
  kNotFound,
  kAlreadyExists,
  kUnhealthy,  // a check ran and found problems
  kRefused,    // a precondition or a confirmation is missing
  kFrozen,     // the fence found that the database went back; needs an operator
  kOverflow,   // no number is left below 2^63
  kClock,      // the clock cannot be trusted, or is behind what was issued; may pass by itself
  kNotOwner,   // the worker number is, or may be, another node's by now
  kDisabled,   // this mode is switched off
  kPaused,     // an operator has cut the tag off on this node
};

// Stable lower-case name, as in JSON ("not_found").
std::string_view ErrorCodeName(ErrorCode code);
// The reverse; nullopt for a name that is none of ours.
std::optional<ErrorCode> ErrorCodeFromName(std::string_view name);

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // what failed: why; no capital, no full stop
  std::string hint;     // the next step, or empty
};

}  // namespace leaf
