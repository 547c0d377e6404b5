// The log of a running program: one line a message on stderr, as text or JSON.
#pragma once

#include <memory>
#include <string_view>

#include "leaf/base/logger.h"

namespace spdlog {
class logger;
}

namespace leaf::sys {

class SpdlogLogger final : public Logger {
 public:
  // kJournal: the level as the journal reads it, and no time, which the journal knows.
  enum class Format { kText, kJson, kJournal };
  SpdlogLogger(LogLevel level, Format format);
  ~SpdlogLogger() override;
  // Any time, any thread.
  void SetLevel(LogLevel level);
  void Write(LogLevel level, std::string_view message) override;

 private:
  const Format format_;
  const std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace leaf::sys
