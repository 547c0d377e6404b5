// leafctl: the table of commands, and the only place where the process exits.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cli.h"
#include "commands.h"
#include "context.h"
#include "leaf/sys/signals.h"
#include "report.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kIds = "IDs";
constexpr std::string_view kProvisioning = "Provisioning";
constexpr std::string_view kOperating = "Operating";
constexpr std::string_view kAbout = "About";
constexpr bool kOnStore = true;
constexpr bool kSeveralStateDirs = true;

// In the order of the help.
constexpr Command kCommands[] = {
    {"next", kIds, "Print new IDs of a tag, or of a snowflake worker", AddNext},
    {"decode", kIds, "Show the time, worker and sequence of snowflake IDs", AddDecode},
    {"encode", kIds, "Put a snowflake ID together", AddEncode},
    {"range", kIds, "Print the smallest and the largest snowflake ID of a span of time", AddRange},
    {"tag add", kProvisioning, "Add a tag", AddTagAdd, kOnStore},
    {"tag list", kProvisioning, "List all tags", AddTagList, kOnStore},
    {"tag show", kProvisioning, "Show one tag", AddTagShow, kOnStore},
    {"tag set", kProvisioning, "Change a tag's step or description", AddTagSet, kOnStore},
    {"tag advance", kProvisioning, "Move a tag's next ID up", AddTagAdvance, kOnStore},
    {"tag repair", kProvisioning, "Explain a frozen tag and move it above every known mark", AddTagRepair,
     kOnStore},
    {"tag pause", kProvisioning, "Cut a tag off on a running daemon", AddTagPause},
    {"tag resume", kProvisioning, "Let a paused tag go on", AddTagResume},
    {"tag advise", kProvisioning, "Recommend a step for the rate a daemon has seen", AddTagAdvise},
    {"tag remove", kProvisioning, "Remove a tag", AddTagRemove, kOnStore},
    {"db init", kProvisioning, "Create the tables", AddDbInit, kOnStore},
    {"db check", kProvisioning, "Examine an existing schema", AddDbCheck, kOnStore},
    {"serve", kOperating, "Run the daemon, in the foreground", AddServe},
    {"status", kOperating, "Show a running daemon's tags, reserves and problems", AddStatus},
    {"doctor", kOperating, "Check everything that can be checked from here", AddDoctor},
    {"cluster recover", kOperating, "Go on after the database or ZooKeeper went back", AddClusterRecover,
     kOnStore, kSeveralStateDirs},
    {"worker list", kOperating, "List the cluster's worker numbers", AddWorkerList, kOnStore},
    {"worker show", kOperating, "Show one worker number, with all that is stored about it", AddWorkerShow,
     kOnStore},
    {"worker check", kOperating, "Find what is wrong with the worker numbers", AddWorkerCheck, kOnStore},
    {"worker repair", kOperating, "Mend what can be mended of it", AddWorkerRepair, kOnStore},
    {"worker release", kOperating, "Let another node have a number", AddWorkerRelease, kOnStore},
    {"worker adopt", kOperating, "Go on with a state directory that may be a copy", AddWorkerAdopt, kOnStore},
    {"worker export", kOperating, "Print all that the registry stores, as JSON", AddWorkerExport, kOnStore},
    {"worker accept-clock", kOperating, "End the stop after a forward jump of the clock",
     AddWorkerAcceptClock, kOnStore},
    {"config show", kOperating, "Show the resolved configuration", AddConfigShow},
    {"config check", kOperating, "Check the configuration", AddConfigCheck},
    {"config import", kOperating, "Turn Java Leaf's leaf.properties into a configuration", AddConfigImport},
    {"version", kAbout, "Print the version", AddVersion},
    {"completion", kAbout, "Print the script that completes leafctl's words in a shell", AddCompletion},
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
  Result<void> result = run();
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
