#include "leaf/sys/spdlog_logger.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <nlohmann/json.hpp>

namespace leaf::sys {
namespace {

spdlog::level::level_enum Translate(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// As in syslog(3).
int SyslogPriority(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 7;
    case LogLevel::kInfo:
      return 6;
    case LogLevel::kWarning:
      return 4;
    case LogLevel::kError:
      return 3;
  }
  return 3;
}

}  // namespace

SpdlogLogger::SpdlogLogger(LogLevel level, Format format)
    : format_(format),
      logger_(
          std::make_unique<spdlog::logger>("leafctl", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
  logger_->set_level(Translate(level));
  logger_->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      format == Format::kText   ? "%Y-%m-%dT%H:%M:%S.%eZ %l %v"
      : format == Format::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":%v})"
                                : "%v",
      spdlog::pattern_time_type::utc));
  logger_->flush_on(spdlog::level::debug);
}

SpdlogLogger::~SpdlogLogger() = default;

void SpdlogLogger::SetLevel(LogLevel level) { logger_->set_level(Translate(level)); }

void SpdlogLogger::Write(LogLevel level, std::string_view message) {
  if (!logger_->should_log(Translate(level))) return;
  if (format_ == Format::kText) {
    logger_->log(Translate(level), message);
  } else if (format_ == Format::kJournal) {
    // A message of several lines would lose its level after the first.
    std::string line = fmt::format("<{}>", SyslogPriority(level));
    for (const char c : message) line += c == '\n' ? ' ' : c;
    logger_->log(Translate(level), line);
  } else {
    logger_->log(Translate(level),
                 nlohmann::json(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace leaf::sys
