// What a program that uses the library gives, for the parts that are put together here: its options as a
// configuration, and its function as a log.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"
#include "leaf/embed/environment.h"
#include "leaf/leaf.h"
#include "leaf/sys/system_clock.h"

namespace leaf::embed {

// The options as leafctl would have them in its configuration; no file and no variable is read. Errors:
// kInvalidArgument that says which option is wrong, kConfig for a directory that has no absolute path.
Result<config::Resolved> ResolveOptions(const GeneratorOptions& options);

class LibraryEnvironment final : public Environment {
 public:
  explicit LibraryEnvironment(config::Resolved resolved) : resolved_(std::move(resolved)) {}
  Result<const config::Resolved*> Config() override { return &resolved_; }
  const Clock& ClockInUse() const override { return clock_; }
  std::optional<std::chrono::milliseconds> Timeout() const override { return std::nullopt; }

  const config::Config& config() const { return resolved_.config; }
  const std::vector<std::string>& warnings() const { return resolved_.warnings; }

 private:
  const config::Resolved resolved_;
  const sys::SystemClock clock_;
};

class FunctionLogger final : public Logger {
 public:
  explicit FunctionLogger(LogFunction function) : function_(std::move(function)) {}
  void Write(LogLevel level, std::string_view message) override;

 private:
  const LogFunction function_;
};

}  // namespace leaf::embed
