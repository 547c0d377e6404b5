#include "report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace leaf::cmd {

ExitCode ExitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return ExitCode::kFailed;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
      return ExitCode::kUsage;
    case ErrorCode::kPermission:
      return ExitCode::kPermission;
    case ErrorCode::kConfig:
      return ExitCode::kConfig;
    case ErrorCode::kUnreachable:
      return ExitCode::kNoDaemon;
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kExhausted:
    case ErrorCode::kLimited:
      return ExitCode::kBackend;
    case ErrorCode::kNotFound:
    case ErrorCode::kAlreadyExists:
      return ExitCode::kNotFound;
    case ErrorCode::kUnhealthy:
      return ExitCode::kUnhealthy;
    case ErrorCode::kRefused:
    case ErrorCode::kFrozen:
    case ErrorCode::kOverflow:
    case ErrorCode::kClock:
    case ErrorCode::kNotOwner:
    case ErrorCode::kDisabled:
    case ErrorCode::kPaused:
      return ExitCode::kRefused;
  }
  return ExitCode::kFailed;
}

ExitCode ReportError(CommandContext& context, const Error& error) {
  std::string text;
  if (context.flags.json) {
    const nlohmann::ordered_json json{
        {"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
    text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  } else {
    const bool color = context.TellsInColor();
    text = fmt::format("{}leafctl:{} {}\n", color ? "\x1b[31m" : "", color ? "\x1b[0m" : "", error.message);
    if (!error.hint.empty()) text += fmt::format("hint: {}\n", error.hint);
  }
  // If even stderr is gone, the exit code is all that is left.
  if (const auto written = context.Tell(text); !written.ok()) return ExitCodeOf(error.code);
  return ExitCodeOf(error.code);
}

}  // namespace leaf::cmd
