// The one place where an error becomes what the user sees and what the shell gets.
#pragma once

#include "context.h"
#include "leaf/base/error.h"

namespace leaf::cmd {

// The exit codes of leafctl(1), a public contract.
enum class ExitCode {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kPermission = 4,
  kConfig = 6,
  kNoDaemon = 7,
  kBackend = 8,
  kNotFound = 9,
  kUnhealthy = 10,
  kRefused = 11,
};

ExitCode ExitCodeOf(ErrorCode code);

// Writes the error to stderr, as text or, under --json, as one object; returns the exit code.
ExitCode ReportError(CommandContext& context, const Error& error);

}  // namespace leaf::cmd
