// Parses the command line by the table of commands. The only part that knows CLI11, beside the Add functions.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "context.h"
#include "leaf/base/result.h"

namespace leaf::cmd {

// For CLI11's check: an empty value is mostly a variable of the shell that is not set, and what would be done
// without the flag is not what was meant.
inline std::string NotEmpty(const std::string& value) { return value.empty() ? "it is empty" : ""; }

using Run = std::function<Result<void>(CommandContext&)>;

struct Traits {
  // On the store or the registry itself: see CheckUniverse, which OpenTagBook calls for commands that may
  // also work through a daemon.
  bool works_on_store = false;
  bool takes_state_dirs = false;  // --state-dir may be given more than once
  bool writes_csv = false;        // has --output csv
  std::string_view aliases = {};  // other names of its last word, with a blank between them
};

// One command. To add one: its file (help text, options, Add…, Run…), its line in commands.h and in main.cc's
// table, its source in CMakeLists.txt, a golden test in tests/cli, its manual page in man/
// (tests/integration/test_manuals.py holds the two to each other), a line in doc/reference.md. Completion
// follows by itself.
struct Command {
  std::string_view path;   // "next", "tag add"
  std::string_view group;  // heading in the help
  std::string_view summary;
  // Declares the flags on `app` and returns what to run once they are parsed.
  Run (*add)(CLI::App& app, CommandContext& context);
  Traits traits = {};
};

struct Parsed {
  Run run;           // null if there is nothing left to do but print `text`
  std::string text;  // help or version, for stdout
};

// Errors: kInvalidArgument for every usage mistake, with the nearest name where one is near.
Result<Parsed> ParseCommandLine(std::span<const Command> commands, int argc, const char* const* argv,
                                CommandContext& context);

}  // namespace leaf::cmd
