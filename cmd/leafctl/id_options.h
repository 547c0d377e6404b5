// What decode, encode and range have in common: the layout of the IDs and their text form.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "context.h"
#include "leaf/base/id_text.h"
#include "leaf/core/id_layout.h"

namespace leaf::cmd {

// What ParseTime reads.
inline constexpr const char* kTimeMeaning =
    "A time: RFC 3339, '2026-11-20 12:00:00' or a date (UTC), Unix milliseconds, now, or -1h";

struct IdOptions {
  std::optional<std::string> epoch_ms;
  std::optional<std::string> layout;
  std::optional<std::string> format;

  // Whether the formats with a time are among those that can be chosen.
  enum class Timed : bool { kNo, kYes };
  void AddTo(CLI::App& app, Timed timed, const std::string& format_meaning);
  // From the flags, else from the configuration (snowflake.layout, snowflake.epoch_ms).
  // Errors: kInvalidArgument, kConfig.
  Result<core::IdLayout> Layout(CommandContext& context) const;
  IdFormat FormatOr(IdFormat fallback) const;
};

}  // namespace leaf::cmd
