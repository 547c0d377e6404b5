// The adapters that the configuration names, for commands that work on the store themselves.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "context.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/logger.h"
#include "leaf/config/config.h"
#include "leaf/embed/stores.h"

namespace leaf::cmd {

using embed::DependencyOf;
using embed::ExamineMarks;
using embed::LocalMark;
using embed::LocalMarks;
using embed::OpenDatabase;
using embed::OpenMarks;
using embed::ReadCodeEnds;
using embed::ReplyTimeout;
using embed::SegmentOptionsOf;
using embed::Store;

// Which database the tags are in, as the configuration names it: the same text is the same table.
inline std::string StoreAt(const config::Config& config) {
  if (config.segment.store != "mysql")
    return fmt::format("{}:{}", config.segment.store, std::filesystem::absolute(config.sqlite.path).string());
  std::string at = "mysql:";
  for (const Endpoint& endpoint : config.mysql.endpoints) at += EndpointText(endpoint) + ",";
  at.back() = '/';
  return at + config.mysql.database;
}

// A log of warnings and worse on the command's stderr.
class ContextLogger final : public Logger {
 public:
  explicit ContextLogger(CommandContext& context) : context_(context) {}
  void Write(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::kWarning) context_.Note(fmt::format("leafctl: {}", message));
  }

 private:
  CommandContext& context_;
};

}  // namespace leaf::cmd
