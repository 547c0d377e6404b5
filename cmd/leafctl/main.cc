// leafctl: the table of commands, and the only place where the process exits.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <system_error>

#include "cli.h"
#include "commands.h"
#include "context.h"
#include "leaf/sys/signals.h"
#include "report.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kIds = "IDs, for applications and scripts";
constexpr std::string_view kProvisioning = "Tags and tables, for database administrators";
constexpr std::string_view kOperating = "Daemons and clusters, for operators";
constexpr std::string_view kAbout = "About";
constexpr Traits kOnStore{.works_on_store = true};

// In the order of the help.
constexpr Command kCommands[] = {
    {"next", kIds, "Print new IDs of a tag, or snowflake IDs", AddNext},
    {"decode", kIds, "Show the time, worker and sequence of snowflake IDs", AddDecode},
    {"encode", kIds, "Build a snowflake ID from time, worker and sequence", AddEncode},
    {"range", kIds, "Print the smallest and the largest snowflake ID of a time span", AddRange},
    {"code of", kIds, "Print the codes of IDs", AddCodeOf},
    {"code reveal", kIds, "Print the IDs of codes", AddCodeReveal},
    {"code check", kIds, "Show what codes a tag has, and how many are used", AddCodeCheck},
    {"code keygen", kIds, "Make the key of codes", AddCodeKeygen},
    {"tag add", kProvisioning, "Add tags", AddTagAdd, {.aliases = "create"}},
    {"tag list", kProvisioning, "List tags", AddTagList, {.writes_csv = true, .aliases = "ls"}},
    {"tag show", kProvisioning, "Show tags in detail", AddTagShow},
    {"tag history", kProvisioning, "Show who changed a tag, and how", AddTagHistory},
    {"tag set", kProvisioning, "Change step, description or order of tags", AddTagSet},
    {"tag advance", kProvisioning, "Move a tag's next ID up", AddTagAdvance},
    {"tag repair", kProvisioning, "Explain a frozen tag and move it above every known mark", AddTagRepair,
     kOnStore},
    {"tag pause", kProvisioning, "Stop serving tags on a running daemon", AddTagPause},
    {"tag resume", kProvisioning, "Serve paused tags again", AddTagResume},
    {"tag advise", kProvisioning, "Recommend a step for the rate a daemon has seen", AddTagAdvise},
    {"tag remove", kProvisioning, "Remove tags", AddTagRemove, {.aliases = "rm delete"}},
    {"tag export", kProvisioning, "Print tags as a file for tag apply", AddTagExport},
    {"tag apply", kProvisioning, "Add and change tags as a file says", AddTagApply},
    {"db init", kProvisioning, "Create the tables", AddDbInit, kOnStore},
    {"db check", kProvisioning, "Check an existing schema", AddDbCheck, kOnStore},
    {"serve", kOperating, "Run the daemon in the foreground", AddServe},
    {"status", kOperating, "Show a running daemon's tags, reserves and problems", AddStatus},
    {"doctor", kOperating, "Check configuration, stores, clocks and the daemon", AddDoctor},
    {"bench", kOperating, "Put a small load on a daemon and print its speed", AddBench},
    {"cluster recover",
     kOperating,
     "Recover after the database or ZooKeeper lost data",
     AddClusterRecover,
     {.works_on_store = true, .takes_state_dirs = true}},
    {"worker list",
     kOperating,
     "List the cluster's worker numbers",
     AddWorkerList,
     {.works_on_store = true, .aliases = "ls"}},
    {"worker show", kOperating, "Show one worker number with its stored records", AddWorkerShow, kOnStore},
    {"worker check", kOperating, "Find problems with worker numbers", AddWorkerCheck, kOnStore},
    {"worker repair", kOperating, "Repair worker-number problems", AddWorkerRepair, kOnStore},
    {"worker release", kOperating, "Free a worker number for another node", AddWorkerRelease, kOnStore},
    {"worker adopt", kOperating, "Accept a state directory that was copied or restored", AddWorkerAdopt,
     kOnStore},
    {"worker export", kOperating, "Print the registry's content as JSON", AddWorkerExport, kOnStore},
    {"worker accept-clock", kOperating, "Resume after a forward clock jump", AddWorkerAcceptClock, kOnStore},
    {"token add", kOperating, "Make a token that callers show a daemon", AddTokenAdd, {.aliases = "create"}},
    {"token list", kOperating, "List the tokens", AddTokenList, {.aliases = "ls"}},
    {"token check", kOperating, "Say what a token allows", AddTokenCheck},
    {"token remove", kOperating, "Remove tokens", AddTokenRemove, {.aliases = "rm delete"}},
    {"config init", kOperating, "Write a first configuration", AddConfigInit},
    {"config get", kOperating, "Print the value of one key", AddConfigGet},
    {"config show", kOperating, "Show the resolved configuration", AddConfigShow},
    {"config check", kOperating, "Check the configuration", AddConfigCheck},
    {"config import", kOperating, "Convert Java Leaf's leaf.properties", AddConfigImport},
    {"version", kAbout, "Print the version", AddVersion},
    {"completion", kAbout, "Print the completion script of a shell", AddCompletion},
    {"__complete", kAbout, "What the end of a line can be, for these scripts", AddComplete},
};

ExitCode Main(int argc, char** argv) {
  sys::IgnoreWriteSignals();
  CommandContext context;
  const auto run = [&]() -> Result<void> {
    LEAF_ASSIGN_OR_RETURN(const Parsed parsed, ParseCommandLine(kCommands, argc, argv, context));
    if (!parsed.run) {
      if (context.flags.json) {
        WriteJson(context, {{"text", parsed.text}});
      } else {
        context.out.Write(parsed.text);
      }
      return {};
    }
    return parsed.run(context);
  };
  const auto run_within_limits = [&]() -> Result<void> {
    try {
      return run();
    } catch (const std::system_error& failed) {
      if (failed.code() != std::errc::resource_unavailable_try_again) throw;
      return Error{ErrorCode::kUnavailable, failed.what(),
                   "let this process have more threads (ulimit -u, TasksMax= of its unit)"};
    }
  };
  Result<void> result = run_within_limits();
  // Even after an error: what was printed before it is valid. A report on what is unhealthy is what was asked
  // for: if it is lost, that is the error.
  const auto written = context.out.Flush();
  if (!written.ok() && (result.ok() || result.error().code == ErrorCode::kUnhealthy)) result = written;
  return result.ok() ? ExitCode::kOk : ReportError(context, result.error());
}

}  // namespace
}  // namespace leaf::cmd

int main(int argc, char** argv) {
  try {
    std::exit(static_cast<int>(leaf::cmd::Main(argc, argv)));
  } catch (const std::exception& bug) {
    std::fprintf(stderr, "leafctl: bug: %s\n", bug.what());
    std::exit(static_cast<int>(leaf::cmd::ExitCode::kFailed));
  }
}
