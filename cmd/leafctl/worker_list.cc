// leafctl worker list
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "leaf/base/text.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

struct WorkerListOptions {
  bool newest_report = false;
};

// A recycled number that was never used: the fork makes 1025 of them.
bool IsUnused(const inspect::WorkerEntry& entry) {
  return entry.kind == inspect::NumberKind::kRecycled && !entry.reported && entry.address.empty();
}

// A live node of Java Leaf has no state directory; where it has taken over a number of leafctl's, both are
// named.
std::string OwnerText(const inspect::WorkerEntry& entry) {
  std::string text = entry.java ? "Java Leaf" : "";
  if (!entry.owner.empty()) text += (text.empty() ? "" : ", before ") + Printable(entry.owner);
  if (!entry.host.empty()) text += " on " + Printable(entry.host);
  if (entry.source.starts_with("host name")) text += ", " + Printable(entry.source);
  return text.empty() ? "-" : text;
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

// What the clock has to pass before another program goes on with the numbers.
Result<void> PrintNewestReport(CommandContext& context, const inspect::WorkerSource& source,
                               const inspect::WorkerInspection& inspection, WallTime now) {
  const inspect::WorkerEntry* newest = nullptr;
  for (const inspect::WorkerEntry& entry : inspection.entries) {
    if (entry.reported && (newest == nullptr || *newest->reported < *entry.reported)) newest = &entry;
  }
  if (newest == nullptr)
    return Error{ErrorCode::kNotFound,
                 fmt::format("no node has reported to the {} registry", source.registry()),
                 "leafctl worker list shows what is known"};
  if (context.flags.json) {
    Json json = WorkerHeading(source);
    json["newest"] = EntryJson(*newest, now);
    WriteJson(context, json);
  } else {
    context.out.Write(FormatRfc3339(*newest->reported) + "\n");
  }
  return {};
}

Result<void> RunWorkerList(CommandContext& context, const WorkerListOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const auto source, inspect::WorkerSource::Open(context, embed::Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const inspect::WorkerInspection inspection, source->Inspect());
  const WallTime now = context.clock.Wall();
  if (options.newest_report) return PrintNewestReport(context, *source, inspection, now);
  if (context.flags.json) {
    Json json = WorkerHeading(*source);
    json["workers"] = Json::array();
    for (const inspect::WorkerEntry& entry : inspection.entries)
      json["workers"].push_back(EntryJson(entry, now));
    WriteJson(context, json);
    return {};
  }
  std::vector<std::array<std::string, 9>> rows{
      {"KIND", "WORKER", "ADDRESS", "REPORTED", "LIVE", "CEILING", "LEAD", "GEN", "OWNER"}};
  std::size_t unused = 0;
  for (const inspect::WorkerEntry& entry : inspection.entries) {
    if (IsUnused(entry)) {
      ++unused;
      continue;
    }
    rows.push_back({std::string(inspect::NumberKindName(entry.kind)), std::to_string(entry.worker),
                    entry.address.empty() ? "-" : Printable(entry.address),
                    entry.reported ? AgeText(now - *entry.reported) : "-", entry.live ? "yes" : "-",
                    entry.ceiling ? FormatRfc3339(*entry.ceiling) : "-",
                    entry.ceiling ? AgeText(*entry.ceiling - now) : "-",
                    entry.generation ? std::to_string(*entry.generation) : "-", OwnerText(entry)});
  }
  PrintTable(context, rows);
  if (unused > 0) context.Note(fmt::format("and {} unused numbers of the recycling fork", unused));
  return {};
}

}  // namespace

Run AddWorkerList(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<WorkerListOptions>();
  app.add_flag("--newest-report", options->newest_report,
               "Print only the newest time that a node has reported");
  app.footer(
      "REPORTED is the age of the last report, LEAD how far the ceiling is ahead of now, GEN how often "
      "the number was claimed. LIVE is a leafctl that says so, or a Java Leaf node (then OWNER says so) "
      "that reported within 15 s. With the static registry: what the configuration and the state "
      "directory know.\n"
      "Examples:\n"
      "  leafctl worker list\n"
      "  leafctl worker list --json");
  return [options](CommandContext& context) { return RunWorkerList(context, *options); };
}

}  // namespace leaf::cmd
