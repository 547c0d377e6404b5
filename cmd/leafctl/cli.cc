#include "cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "completion_line.h"
#include "help_text.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "universe.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kFooter =
    "Environment: LEAFCTL_CONFIG names the configuration file; LEAFCTL_SECTION_KEY sets a key of it, such as "
    "LEAFCTL_SERVER_LISTEN.";
// In the help of each command.
constexpr std::string_view kExitCodes =
    "Exit codes: 0 ok, 1 failed, 2 usage, 4 permission, 6 configuration, 7 no daemon, 8 database unreachable "
    "or timed out, 9 not found or already exists, 10 unhealthy, 11 refused.";

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
  app.add_option("--state-dir", raw.state_dirs, "Directory of this node's state")
      ->type_name("DIR")
      ->check(NotEmpty)
      ->expected(1, kStateDirsMax)
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--set", flags.sets, "Set a configuration key")
      ->type_name("SECTION.KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("-o,--output", raw.output, "Output format, csv for tag list alone")
      ->check(CLI::IsMember({"text", "json", "csv"}))
      ->type_name("FORMAT")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--json", raw.json, "Same as --output json")->group(group);
  app.add_flag("-q,--quiet", flags.quiet, "Print only results and errors")->group(group);
  app.add_flag("-v,--verbose", flags.verbose, "Print more detail on stderr")->group(group);
  app.add_option("--color", raw.color, "Colour on stderr")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str()
      ->group(group);
  app.add_option("--timeout", raw.timeout, "Longest wait for a daemon or the database, such as 500ms or 3s")
      ->type_name("DURATION")
      ->check(NotEmpty)
      ->group(group);
  app.add_flag("--no-input", flags.no_input, "Never ask for confirmation")->group(group);
}

// Deadlines are sums of several time-outs and the clock, in nanoseconds of 64 bits.
constexpr std::chrono::hours kTimeoutMax{24 * 365};

Result<void> FinishGlobalFlags(const RawGlobals& raw, GlobalFlags& flags) {
  if (!raw.config_file.empty()) flags.config_file = raw.config_file;
  if (!raw.state_dirs.empty()) {
    flags.state_dir = raw.state_dirs.front();
    flags.more_state_dirs.assign(raw.state_dirs.begin() + 1, raw.state_dirs.end());
  }
  if (raw.json && raw.output == "csv")
    return Error{ErrorCode::kInvalidArgument, "--json and --output csv exclude each other", ""};
  flags.json = raw.json || raw.output == "json";
  flags.csv = !flags.json && raw.output == "csv";
  flags.color = raw.color == "always" ? Color::kAlways : raw.color == "never" ? Color::kNever : Color::kAuto;
  if (!raw.timeout.empty()) {
    auto parsed = ParseDuration(raw.timeout);
    const bool is_duration = parsed.ok() && parsed->count() > 0;
    if (!is_duration || *parsed > kTimeoutMax) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --timeout {}: {}", Quoted(raw.timeout),
                               is_duration ? fmt::format("more than {}", FormatDuration(kTimeoutMax))
                                           : "not a duration such as 500ms or 3s"),
                   ""};
    }
    flags.timeout = *parsed;
  }
  return {};
}

std::string_view GroupSummary(std::string_view group) {
  if (group == "tag") return "Add, list, change, repair and remove tags";
  if (group == "db") return "Create and check the tables";
  if (group == "config") return "Create, show, check and import the configuration";
  if (group == "cluster") return "Recover the nodes that share a database";
  if (group == "worker") return "Inspect and repair snowflake worker numbers";
  if (group == "code") return "Turn IDs into codes that tell nothing, and back";
  if (group == "token") return "Make, list, check and remove the tokens of callers";
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
    if (given.size() < words.size() || !std::equal(words.begin(), words.end() - 1, given.begin())) continue;
    const std::string_view last = given[words.size() - 1];
    const std::vector<std::string> aliases = Words(commands[i].traits.aliases);
    if (last == words.back() || std::find(aliases.begin(), aliases.end(), last) != aliases.end())
      return commands[i].add == AddComplete ? commands : commands.subspan(i, 1);
  }
  return commands;
}

// Null if `parent` has no command called `name`.
CLI::App* FindSubcommand(const CLI::App& parent, const std::string& name) {
  for (CLI::App* const app : const_cast<CLI::App&>(parent).get_subcommands([](CLI::App*) { return true; })) {
    if (app->check_name(name)) return app;
  }
  return nullptr;
}

// As the flags say it, of words that CLI11 may not have read up to there.
bool AsksForJson(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == "--json" || word == "--output=json" || word == "-ojson") return true;
    if ((word == "-o" || word == "--output") && i + 1 < argc && std::string_view(argv[i + 1]) == "json")
      return true;
  }
  return false;
}

// CLI11 takes a word in brackets for a list: "[a,b]", which may be a tag, would be two. A mark behind it
// keeps it one word, and is taken off before anything reads the value. No valid value ends with it.
constexpr char kWordMark = '\x1f';

bool LooksLikeList(std::string_view word) { return word.starts_with('[') && word.ends_with(']'); }

std::string WithoutMark(std::string text) {
  std::erase(text, kWordMark);
  return text;
}

// Takes the mark off every value of `app`'s options, and of its commands'.
void TakeMarksOff(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    option->transform(CLI::Validator(
        [](std::string& value) {
          value = WithoutMark(std::move(value));
          return std::string();
        },
        ""));
  }
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) TakeMarksOff(*command);
}

class CommandLine {
 public:
  CommandLine(std::span<const Command> commands, CommandContext& context) : context_(context) {
    app_.name("leafctl");
    app_.footer(std::string(kFooter));
    // One level of usage: "leafctl tag" alone is a mistake, not a request for help.
    app_.require_subcommand(0, 1);
    app_.set_help_flag("-h,--help", "Print help");
    app_.add_flag("--version", version_, "Print the version");
    AddGlobalFlags(app_, context.flags, raw_);
    for (const Command& command : commands) AddCommand(command);
    AddHelpCommand();
  }

  Result<Parsed> Parse(int argc, const char* const* argv) {
    std::vector<std::string> marked(argv, argv + argc);
    std::vector<const char*> words(argv, argv + argc);
    for (std::size_t i = 1; i < marked.size(); ++i) {
      if (!LooksLikeList(marked[i])) continue;
      if (!has_marks_) TakeMarksOff(app_);
      has_marks_ = true;
      marked[i] += kWordMark;
      words[i] = marked[i].c_str();
    }
    try {
      app_.parse(argc, words.data());
    } catch (const CLI::CallForHelp&) {
      context_.flags.json = AsksForJson(argc, argv);
      return Parsed{nullptr, HelpOf(Chosen())};
    } catch (const CLI::ParseError& error) {
      // Even a mistake is reported in the form that was asked for.
      context_.flags.json = AsksForJson(argc, argv);
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
    for (const std::string& alias : Words(command.traits.aliases)) app->alias(alias);
    runs_[app] = [run = command.add(*app, context_), path = command.path,
                  traits = command.traits](CommandContext& context) -> Result<void> {
      if (!traits.takes_state_dirs && !context.flags.more_state_dirs.empty()) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("--state-dir is given twice: {} and {}", Quoted(*context.flags.state_dir),
                                 Quoted(context.flags.more_state_dirs.front())),
                     "only leafctl cluster recover takes several"};
      }
      if (!traits.writes_csv && context.flags.csv) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("leafctl {} has no --output csv", path),
                     "it has text and json; leafctl tag list has csv, too"};
      }
      if (traits.works_on_store) LEAF_RETURN_IF_ERROR(CheckUniverse(context));
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
    const std::size_t columns = context_.out.TerminalSize().columns;
    const std::size_t width = columns == 0 ? kHelpWidth : columns;
    std::string text = HelpText(*app, PathOf(app), width);
    text += '\n' + WrapText(kExitCodes, width);
    if (app != &app_) text += "Global flags: see leafctl --help\n";
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
      if (app->get_group().empty()) continue;
      names.push_back(app->get_name());
      for (const std::string& alias : app->get_aliases()) names.push_back(alias);
    }
    const auto nearest = NearestName(word, names);
    std::string elsewhere;  // where this word is a command
    for (const CLI::App* const group : parent->get_subcommands([](const CLI::App*) { return true; })) {
      const CLI::App* const command = FindSubcommand(*group, word);
      if (command == nullptr) continue;
      elsewhere += fmt::format("{}{}", elsewhere.empty() ? "" : " or ", PathOf(command));
    }
    if (!elsewhere.empty()) {
      return {ErrorCode::kInvalidArgument, fmt::format("unknown command {}", Quoted(word)),
              fmt::format("did you mean {}?", elsewhere)};
    }
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

  // For a value that is none of its flag's choices. CLI11 names neither of them in plain words.
  static std::optional<Error> ChoiceError(const CLI::App* app) {
    for (; app != nullptr; app = app->get_parent()) {
      for (const CLI::Option* const option : app->get_options()) {
        const std::vector<std::string> choices = ChoicesOf(*option);
        if (choices.empty()) continue;
        for (const std::string& value : option->results()) {
          if (std::find(choices.begin(), choices.end(), value) != choices.end()) continue;
          const auto nearest = NearestName(value, choices);
          return Error{
              ErrorCode::kInvalidArgument,
              fmt::format("bad {} {}: not {}", option->get_name(), Quoted(value), Alternatives(choices)),
              nearest ? fmt::format("did you mean {}?", *nearest) : ""};
        }
      }
    }
    return std::nullopt;
  }

  Error UsageError(const CLI::ParseError& error) {
    CLI::App* const chosen = Chosen();
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      // CLI11 2.1 tells the words it could not place only in its message, last one first.
      const std::string text = WithoutMark(error.what());
      const std::string word = text.substr(text.rfind(' ') + 1);
      if (word.size() > 1 && word.starts_with('-') && !IsFlag(chosen, word)) return UnknownFlag(chosen, word);
      if (runs_.count(chosen) == 0) return UnknownCommand(chosen, word);
      return {ErrorCode::kInvalidArgument, fmt::format("unexpected argument {}", Quoted(word)),
              fmt::format("{} --help", PathOf(chosen))};
    }
    std::string message = WithoutMark(error.what());
    if (!message.empty() && message.back() == '.') message.pop_back();
    Error mistake{ErrorCode::kInvalidArgument, message, ""};
    // "--count: 1 required N missing", or "--count: At Most 1 required but received 2".
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
      mistake.message =
          fmt::format("{} {}", message.substr(0, message.find(':')),
                      message.ends_with(" missing") ? "needs a value" : "is given more than once");
    }
    if (auto choice = ChoiceError(chosen)) mistake = *std::move(choice);
    if (mistake.hint.empty()) mistake.hint = fmt::format("{} --help", PathOf(chosen));
    return mistake;
  }

  CommandContext& context_;
  CLI::App app_{
      "Unique IDs, never twice: segments of a database table, or snowflake IDs; from a daemon or in the "
      "shell."};
  RawGlobals raw_;
  bool version_ = false;
  bool has_marks_ = false;
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
