// Port: the log. Levels by what an operator would do: error = cannot go on, warning = should act, info = rare
// facts (start, ready, drain), debug = everything else. Nothing at info or above is written per request.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace leaf {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Thread-safe.
class Logger {
 public:
  virtual ~Logger() = default;
  virtual void Write(LogLevel level, std::string_view message) = 0;

  template <typename... Args>
  void Debug(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warning(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }
};

}  // namespace leaf
