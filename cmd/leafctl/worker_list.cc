// leafctl worker list
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
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
Result<void> PrintNewestReport(CommandContext& context, const inspect::WorkerList& list) {
  const inspect::WorkerEntry* newest = nullptr;
  for (const inspect::WorkerEntry& entry : list.entries) {
    if (entry.reported && (newest == nullptr || *newest->reported < *entry.reported)) newest = &entry;
  }
  if (newest == nullptr)
    return Error{ErrorCode::kNotFound, fmt::format("no node has reported to the {} registry", list.registry),
                 "leafctl worker list shows what is known"};
  if (context.flags.json) {
    Json json = inspect::WorkerHeading(list.registry, list.cluster);
    json["newest"] = EntryJson(*newest, list.time);
    WriteJson(context, json);
  } else {
    context.out.Write(FormatRfc3339(*newest->reported) + "\n");
  }
  return {};
}

// client.servers in a file or a variable is for the commands that need a daemon: this one asks the registry
// itself unless the call names a daemon.
bool NamesADaemon(const CommandContext& context) {
  return std::any_of(context.command_values.begin(), context.command_values.end(),
                     [](const config::FlagValue& value) { return value.key == "client.servers"; });
}

Result<inspect::WorkerList> AskDaemon(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(FindDaemons(*resolved).servers, context.flags.timeout.value_or(kAskTimeout),
                              TlsOf(*resolved), token);
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Workers());
  auto list = inspect::ParseWorkerList(body);
  if (list.ok()) return list;
  return Error{ErrorCode::kInternal,
               fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), ""};
}

Result<void> RunWorkerList(CommandContext& context, const WorkerListOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const inspect::WorkerList list,
                        NamesADaemon(context) ? AskDaemon(context) : inspect::ReadWorkerList(context));
  if (options.newest_report) return PrintNewestReport(context, list);
  if (context.flags.json) {
    WriteJson(context, inspect::WorkerListJson(list));
    return {};
  }
  const WallTime now = list.time;
  std::vector<std::array<std::string, 9>> rows{
      {"KIND", "WORKER", "ADDRESS", "REPORTED", "LIVE", "CEILING", "LEAD", "GEN", "OWNER"}};
  std::size_t unused = 0;
  for (const inspect::WorkerEntry& entry : list.entries) {
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

Run AddWorkerList(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<WorkerListOptions>();
  app.add_flag("--newest-report", options->newest_report,
               "Print only the newest time that a node has reported");
  AddServerFlag(app, context,
                "Daemon that reads its registry for this call: http://HOST:PORT, https://HOST:PORT or "
                "unix:/PATH; several are tried in order");
  app.footer(
      "REPORTED is the age of the last report, LEAD how far the ceiling is ahead of now, GEN how often "
      "the number was claimed. LIVE is a leafctl that says so, or a Java Leaf node (then OWNER says so) "
      "that reported within 15 s. With the static registry: what the configuration and the state "
      "directory know. With --server a daemon reads its registry, so neither ZooKeeper nor the database has "
      "to be reachable from here.\n"
      "Examples:\n"
      "  leafctl worker list\n"
      "  leafctl worker list --json\n"
      "  leafctl worker list --server http://10.0.0.1:8080");
  return [options](CommandContext& run_context) { return RunWorkerList(run_context, *options); };
}

}  // namespace leaf::cmd
