#include "id_options.h"

#include <string>
#include <vector>

namespace leaf::cmd {

void IdOptions::AddTo(CLI::App& app, Timed timed, const std::string& format_meaning) {
  std::vector<std::string> formats;
  for (const IdFormatRow& row : IdFormats()) {
    if (row.format != IdFormat::kCode && (!row.has_time || timed == Timed::kYes))
      formats.emplace_back(row.name);
  }
  app.add_option("--epoch-ms", epoch_ms, "Time zero of the IDs in Unix milliseconds (snowflake.epoch_ms)")
      ->type_name("MS");
  app.add_option("--layout", layout, "Bits of time, worker and sequence, such as 41-10-12 (snowflake.layout)")
      ->type_name("T-W-S");
  app.add_option("--format", format, format_meaning)->check(CLI::IsMember(formats))->type_name("FORMAT");
}

Result<core::IdLayout> IdOptions::Layout(CommandContext& context) const {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const core::IdLayout& configured = resolved->config.snowflake.layout;
  std::int64_t epoch = configured.epoch_ms();
  if (epoch_ms) {
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t flag,
                          ParseUnsigned("--epoch-ms", *epoch_ms, 0, core::kEpochMillisMax));
    epoch = static_cast<std::int64_t>(flag);
  }
  return layout ? core::IdLayout::Parse(*layout, epoch) : configured.WithEpoch(epoch);
}

IdFormat IdOptions::FormatOr(IdFormat fallback) const {
  return format ? ParseIdFormat(*format).value_or(fallback) : fallback;
}

}  // namespace leaf::cmd
