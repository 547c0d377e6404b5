#include "cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "completion_line.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "universe.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kFooter =
    "Exit codes: 0 ok, 1 failed, 2 usage, 4 permission, 6 configuration, 7 no daemon, 8 database away or "
    "timed out,\n"
    "9 not found / already exists, 10 unhealthy, 11 refused.\n"
    "Environment: LEAFCTL_CONFIG names the configuration file; LEAFCTL_SECTION_KEY sets any key of it.";

// More than any cluster has.
constexpr int kStateDirsMax = 10'000;

// What the parser fills in before it becomes GlobalFlags.
struct RawGlobals {
  std::string config_file;
  std::vector<std::string> state_dirs;
  std::string output = "text";
  std::string color = "auto";
  std::string timeout;
  bool json = false;
};

void AddGlobalFlags(CLI::App& app, GlobalFlags& flags, RawGlobals& raw) {
  const std::string group(kGlobalFlagsGroup);
  app.add_option("--config", raw.config_file, "Configuration file")
      ->type_name("FILE")
      ->check(NotEmpty)
      ->group(group);
  app.add_option("--state-dir", raw.state_dirs, "Where this node keeps its state")
      ->type_name("DIR")
      ->check(NotEmpty)
      ->expected(1, kStateDirsMax)
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--set", flags.sets, "Set any configuration key")
      ->type_name("SECTION.KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("-o,--output", raw.output, "Output format")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->group(group);
  app.add_flag("--json", raw.json, "Same as --output json")->group(group);
  app.add_flag("-q,--quiet", flags.quiet, "Only results and errors")->group(group);
  app.add_flag("-v,--verbose", flags.verbose, "More detail on stderr")->group(group);
  app.add_option("--color", raw.color, "Colour on stderr")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("auto|always|never")
      ->group(group);
  app.add_option("--timeout", raw.timeout, "Longest wait for a daemon or the database, such as 500ms or 3s")
      ->type_name("DURATION")
      ->group(group);
  app.add_flag("--no-input", flags.no_input, "Never ask")->group(group);
}

Result<void> FinishGlobalFlags(const RawGlobals& raw, GlobalFlags& flags) {
  if (!raw.config_file.empty()) flags.config_file = raw.config_file;
  if (!raw.state_dirs.empty()) {
    flags.state_dir = raw.state_dirs.front();
    flags.more_state_dirs.assign(raw.state_dirs.begin() + 1, raw.state_dirs.end());
  }
  flags.json = raw.json || raw.output == "json";
  flags.color = raw.color == "always" ? Color::kAlways : raw.color == "never" ? Color::kNever : Color::kAuto;
  if (!raw.timeout.empty()) {
    auto parsed = ParseDuration(raw.timeout);
    if (!parsed.ok() || parsed->count() == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --timeout {}: not a duration such as 500ms or 3s", Quoted(raw.timeout)),
                   ""};
    }
    flags.timeout = *parsed;
  }
  return {};
}

std::string_view GroupSummary(std::string_view group) {
  if (group == "tag") return "Add, list, change, repair and remove tags";
  if (group == "db") return "Create and examine the tables";
  if (group == "config") return "Show, check and import the configuration";
  if (group == "cluster") return "Look after the nodes that issue segments together";
  if (group == "worker") return "Look after snowflake workers and their numbers";
  return "";
}

// Splits "tag add" into its words.
std::vector<std::string> Words(std::string_view path) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(' ', begin), path.size());
    words.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// The command whose words the command line begins with, alone; all of them if it begins otherwise: with a
// flag, a mistake, or "help". Each command costs time to set up, and no call needs more than its own: once
// one is recognised, every word after it is a flag or an argument, even if it is another one's name. Only
// __complete looks at them all.
std::span<const Command> NeededCommands(std::span<const Command> commands, int argc,
                                        const char* const* argv) {
  const std::span<const char* const> given(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string> words = Words(commands[i].path);
    if (given.size() >= words.size() && std::equal(words.begin(), words.end(), given.begin()))
      return commands[i].add == AddComplete ? commands : commands.subspan(i, 1);
  }
  return commands;
}

// Null if `parent` has no command called `name`.
CLI::App* FindSubcommand(const CLI::App& parent, const std::string& name) {
  for (CLI::App* const app : const_cast<CLI::App&>(parent).get_subcommands([](CLI::App*) { return true; })) {
    if (app->get_name() == name) return app;
  }
  return nullptr;
}

class CommandLine {
 public:
  CommandLine(std::span<const Command> commands, CommandContext& context) : context_(context) {
    app_.name("leafctl");
    app_.footer(std::string(kFooter));
    // One level of usage: "leafctl tag" alone is a mistake, not a request for help.
    app_.require_subcommand(0, 1);
    app_.set_help_flag("-h,--help", "This help");
    app_.add_flag("--version", version_, "Print the version");
    AddGlobalFlags(app_, context.flags, raw_);
    for (const Command& command : commands) AddCommand(command);
    AddHelpCommand();
  }

  Result<Parsed> Parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      context_.flags.json = raw_.json || raw_.output == "json";
      return Parsed{nullptr, HelpOf(Chosen())};
    } catch (const CLI::ParseError& error) {
      // Even a mistake is reported in the form that was asked for.
      context_.flags.json = raw_.json || raw_.output == "json";
      return UsageError(error);
    }
    LEAF_RETURN_IF_ERROR(FinishGlobalFlags(raw_, context_.flags));
    if (version_) return Parsed{AddVersion(app_, context_), ""};
    CLI::App* const chosen = Chosen();
    if (chosen == help_) return HelpCommand();
    const auto run = runs_.find(chosen);
    if (run == runs_.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   chosen == &app_ ? "no command is given"
                                   : fmt::format("'{}' needs a command after it", PathOf(chosen)),
                   fmt::format("{} --help", PathOf(chosen))};
    }
    return Parsed{run->second, ""};
  }

 private:
  void AddCommand(const Command& command) {
    CLI::App* parent = &app_;
    const std::vector<std::string> words = Words(command.path);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      CLI::App* group = FindSubcommand(*parent, words[i]);
      if (group == nullptr) {
        group = parent->add_subcommand(words[i], std::string(GroupSummary(words[i])));
        group->group(std::string(command.group));
        group->fallthrough();
        group->require_subcommand(0, 1);
      }
      parent = group;
    }
    CLI::App* const app = parent->add_subcommand(words.back(), std::string(command.summary));
    app->group(parent == &app_ ? std::string(command.group) : "Commands");
    app->fallthrough();
    runs_[app] = command.add(*app, context_);
    if (!command.takes_state_dirs) {
      runs_[app] = [run = std::move(runs_[app])](CommandContext& context) -> Result<void> {
        if (!context.flags.more_state_dirs.empty()) {
          return Error{ErrorCode::kInvalidArgument,
                       fmt::format("--state-dir is given twice: {} and {}", Quoted(*context.flags.state_dir),
                                   Quoted(context.flags.more_state_dirs.front())),
                       "only leafctl cluster recover takes several"};
        }
        return run(context);
      };
    }
    if (!command.works_on_store) return;
    runs_[app] = [run = std::move(runs_[app])](CommandContext& context) -> Result<void> {
      LEAF_RETURN_IF_ERROR(CheckUniverse(context));
      return run(context);
    };
  }

  void AddHelpCommand() {
    help_ = app_.add_subcommand("help", "Help on a command");
    help_->group("About");
    help_->add_option("command", help_words_, "The command")->type_name("COMMAND");
    help_->fallthrough();
  }

  // The innermost command that was named.
  CLI::App* Chosen() {
    CLI::App* chosen = &app_;
    while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
    return chosen;
  }

  static std::string PathOf(const CLI::App* app) {
    return app->get_parent() == nullptr ? "leafctl"
                                        : fmt::format("{} {}", PathOf(app->get_parent()), app->get_name());
  }

  std::string HelpOf(const CLI::App* app) const {
    // Not app->help(): that would describe whatever subcommand has been parsed.
    std::string text = app->get_formatter()->make_help(app, PathOf(app), CLI::AppFormatMode::Normal);
    // The place of flags that are not offered (AddConfirmFlags).
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    if (app != &app_) text += fmt::format("\nGlobal flags: see leafctl --help\n");
    return text;
  }

  Result<Parsed> HelpCommand() {
    CLI::App* app = &app_;
    for (const std::string& word : help_words_) {
      CLI::App* const next = FindSubcommand(*app, word);
      if (next == nullptr) return UnknownCommand(app, word);
      app = next;
    }
    return Parsed{nullptr, HelpOf(app)};
  }

  Error UnknownCommand(const CLI::App* parent, const std::string& word) const {
    std::vector<std::string> names;
    for (const CLI::App* const app : parent->get_subcommands([](const CLI::App*) { return true; })) {
      if (!app->get_group().empty()) names.push_back(app->get_name());
    }
    const auto nearest = NearestName(word, names);
    return {ErrorCode::kInvalidArgument, fmt::format("unknown command {}", Quoted(word)),
            nearest ? fmt::format("did you mean {}?", *nearest)
                    : fmt::format("{} --help lists the commands", PathOf(parent))};
  }

  // The long flags that may stand after `app`.
  static std::vector<std::string> FlagsOf(const CLI::App* app) {
    std::vector<std::string> names;
    for (const CLI::App* owner = app; owner != nullptr; owner = owner->get_parent()) {
      for (const CLI::Option* const option : owner->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    }
    return names;
  }

  // A flag in the wrong place (after "--", say) is no unknown flag.
  static bool IsFlag(const CLI::App* app, const std::string& word) {
    const std::vector<std::string> names = FlagsOf(app);
    return std::find(names.begin(), names.end(), word) != names.end();
  }

  static Error UnknownFlag(const CLI::App* app, const std::string& word) {
    const std::vector<std::string> names = FlagsOf(app);
    const auto nearest = NearestName(word.substr(0, word.find('=')), names);
    return {ErrorCode::kInvalidArgument, fmt::format("unknown flag {}", Quoted(word)),
            nearest ? fmt::format("did you mean {}?", *nearest)
                    : fmt::format("{} --help lists the flags", PathOf(app))};
  }

  // "did you mean ...?" for a value that is none of its flag's choices, or "".
  static std::string NearestChoiceHint(const CLI::App* app) {
    for (; app != nullptr; app = app->get_parent()) {
      for (const CLI::Option* const option : app->get_options()) {
        const std::vector<std::string> choices = ChoicesOf(*option);
        if (choices.empty()) continue;
        for (const std::string& value : option->results()) {
          if (std::find(choices.begin(), choices.end(), value) != choices.end()) continue;
          const auto nearest = NearestName(value, choices);
          return nearest ? fmt::format("did you mean {}?", *nearest) : "";
        }
      }
    }
    return "";
  }

  Error UsageError(const CLI::ParseError& error) {
    CLI::App* const chosen = Chosen();
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      // CLI11 2.1 tells the words it could not place only in its message, last one first.
      const std::string text = error.what();
      const std::string word = text.substr(text.rfind(' ') + 1);
      if (word.size() > 1 && word.starts_with('-') && !IsFlag(chosen, word)) return UnknownFlag(chosen, word);
      if (runs_.count(chosen) == 0) return UnknownCommand(chosen, word);
      return {ErrorCode::kInvalidArgument, fmt::format("unexpected argument {}", Quoted(word)),
              fmt::format("{} --help", PathOf(chosen))};
    }
    std::string message = error.what();
    if (!message.empty() && message.back() == '.') message.pop_back();
    std::string hint = NearestChoiceHint(chosen);
    if (hint.empty()) hint = fmt::format("{} --help", PathOf(chosen));
    return {ErrorCode::kInvalidArgument, message, std::move(hint)};
  }

  CommandContext& context_;
  CLI::App app_{"Unique IDs: segments from a database table, served by a daemon or taken from the shell."};
  RawGlobals raw_;
  bool version_ = false;
  std::map<const CLI::App*, Run> runs_;
  CLI::App* help_ = nullptr;
  std::vector<std::string> help_words_;
};

}  // namespace

Result<Parsed> ParseCommandLine(std::span<const Command> commands, int argc, const char* const* argv,
                                CommandContext& context) {
  return CommandLine(NeededCommands(commands, argc, argv), context).Parse(argc, argv);
}

}  // namespace leaf::cmd
