// leafctl worker list
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "commands.h"
#include "leaf/base/text.h"
#include "worker_output.h"
#include "worker_source.h"

namespace leaf::cmd {
namespace {

// A recycled number that nobody has used: the fork makes 1025 of them.
bool IsUnused(const core::WorkerEntry& entry) {
  return entry.kind == core::NumberKind::kRecycled && !entry.reported && entry.address.empty();
}

void PrintTable(CommandContext& context, const std::vector<std::array<std::string, 9>>& rows) {
  std::array<std::size_t, 9> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      // Numbers to the right.
      line += i == 1 || i == 3 || i == 6 || i == 7 ? fmt::format("{:>{}}  ", row[i], widths[i])
                                                   : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    context.out.Write(line + "\n");
  }
}

Result<void> RunWorkerList(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto source, WorkerSource::Open(context, Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const core::WorkerInspection inspection, source->Inspect());
  const WallTime now = context.clock.Wall();
  if (context.flags.json) {
    Json json = WorkerHeading(*source);
    json["workers"] = Json::array();
    for (const core::WorkerEntry& entry : inspection.entries)
      json["workers"].push_back(EntryJson(entry, now));
    WriteJson(context, json);
    return {};
  }
  std::vector<std::array<std::string, 9>> rows{
      {"KIND", "WORKER", "ADDRESS", "REPORTED", "LIVE", "CEILING", "LEAD", "GEN", "OWNER"}};
  std::size_t unused = 0;
  for (const core::WorkerEntry& entry : inspection.entries) {
    if (IsUnused(entry)) {
      ++unused;
      continue;
    }
    std::string owner = entry.owner.empty() ? "-" : Printable(entry.owner);
    if (!entry.host.empty()) owner += fmt::format(" on {}", Printable(entry.host));
    rows.push_back({std::string(core::NumberKindName(entry.kind)), std::to_string(entry.worker),
                    entry.address.empty() ? "-" : Printable(entry.address),
                    entry.reported ? AgeText(now - *entry.reported) : "-", entry.live ? "yes" : "-",
                    entry.ceiling ? FormatRfc3339(*entry.ceiling) : "-",
                    entry.ceiling ? AgeText(*entry.ceiling - now) : "-",
                    entry.generation ? std::to_string(*entry.generation) : "-", owner});
  }
  PrintTable(context, rows);
  if (unused > 0) context.Note(fmt::format("and {} unused numbers of the recycling fork", unused));
  return {};
}

}  // namespace

Run AddWorkerList(CLI::App& app, CommandContext&) {
  app.footer(
      "REPORTED is the age of the last report, LEAD how far the ceiling is ahead of now, GEN how often the "
      "number\n"
      "was claimed. With the static registry: what the configuration and the state directory know.\n"
      "Example: leafctl worker list --json");
  return [](CommandContext& context) { return RunWorkerList(context); };
}

}  // namespace leaf::cmd
