// leafctl worker show
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "leaf/base/text.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

struct WorkerShowOptions {
  std::string worker;
};

bool Matches(const inspect::WorkerEntry& entry, const std::string& word) {
  return word == std::to_string(entry.worker) || word == entry.address;
}

std::string LiveText(const inspect::WorkerEntry& entry) {
  if (!entry.live) return "-";
  return entry.java ? "yes, as Java Leaf: it reports" : "yes, at " + Printable(entry.url);
}

void PrintEntry(CommandContext& context, const inspect::WorkerEntry& entry, WallTime now) {
  const auto line = [&](std::string_view name, const std::string& value) {
    context.out.Write(fmt::format("{:<12}{}\n", fmt::format("{}:", name), value));
  };
  line("worker", fmt::format("{} ({})", entry.worker, inspect::NumberKindName(entry.kind)));
  if (!entry.source.empty()) line("source", Printable(entry.source));
  line("address", entry.address.empty() ? "-" : Printable(entry.address));
  line("reported", entry.reported ? fmt::format("{}, {} ago", FormatRfc3339(*entry.reported),
                                                AgeText(now - *entry.reported))
                                  : "-");
  line("live", LiveText(entry));
  line("owner", entry.owner.empty() ? "-" : Printable(entry.owner));
  if (!entry.host.empty()) line("host", Printable(entry.host));
  if (entry.since) line("since", FormatRfc3339(*entry.since));
  line("ceiling", entry.ceiling ? fmt::format("{}, {} ahead of now", FormatRfc3339(*entry.ceiling),
                                              AgeText(*entry.ceiling - now))
                                : "-");
  line("generation", entry.generation ? std::to_string(*entry.generation) : "-");
  for (const inspect::RawRecord& record : entry.records) {
    context.out.Write(fmt::format("{}\n  {}\n", Printable(record.name), Printable(record.data)));
    for (const auto& [name, value] : record.facts)
      context.out.Write(fmt::format("  {}: {}\n", name, Printable(value)));
  }
}

Result<void> RunWorkerShow(CommandContext& context, const WorkerShowOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const auto source, inspect::WorkerSource::Open(context, embed::Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const inspect::WorkerInspection inspection, source->Inspect());
  std::vector<const inspect::WorkerEntry*> found;
  for (const inspect::WorkerEntry& entry : inspection.entries) {
    if (Matches(entry, options.worker)) found.push_back(&entry);
  }
  if (found.empty()) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("no worker {} is known to the {} registry{}", Quoted(options.worker), source->registry(),
                    source->cluster().empty() ? "" : " of cluster " + Quoted(source->cluster())),
        "leafctl worker list shows them; a worker is named by its number or its ip:port"};
  }
  const WallTime now = context.clock.Wall();
  if (context.flags.json) {
    Json json = WorkerHeading(*source);
    json["workers"] = Json::array();
    for (const inspect::WorkerEntry* const entry : found) {
      Json item = EntryJson(*entry, now);
      item["records"] = Json::array();
      for (const inspect::RawRecord& record : entry->records) item["records"].push_back(RecordJson(record));
      json["workers"].push_back(std::move(item));
    }
    WriteJson(context, json);
    return {};
  }
  for (const inspect::WorkerEntry* const entry : found) {
    if (entry != found.front()) context.out.Write("\n");
    PrintEntry(context, *entry, now);
  }
  return {};
}

}  // namespace

Run AddWorkerShow(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<WorkerShowOptions>();
  app.add_option("WORKER", options->worker, "The worker number, or the node's address as ip:port")
      ->required();
  app.footer(
      "Also prints the stored records: ZooKeeper nodes or table rows.\n"
      "Examples:\n"
      "  leafctl worker show 7\n"
      "  leafctl worker show 10.0.0.1:8080");
  return [options](CommandContext& context) { return RunWorkerShow(context, *options); };
}

}  // namespace leaf::cmd
