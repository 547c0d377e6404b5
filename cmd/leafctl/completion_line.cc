#include "completion_line.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "leaf/config/keys.h"

namespace leaf::cmd {
namespace {

std::vector<const CLI::App*> CommandsAfter(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* child) { return !child->get_group().empty(); });
}

std::vector<const CLI::Option*> FlagsAfter(const CLI::App& root, const CLI::App& app) {
  std::vector<const CLI::Option*> flags;
  const auto add = [&](const CLI::App& owner, bool global) {
    for (const CLI::Option* const option : owner.get_options()) {
      const std::string& group = option->get_group();
      if (option->nonpositional() && !group.empty() && (group == kGlobalFlagsGroup) == global)
        flags.push_back(option);
    }
  };
  add(app, false);
  add(root, true);
  return flags;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() != 0; }

// The flag called `word` that takes a value; null if there is none.
const CLI::Option* ValueFlag(const std::vector<const CLI::Option*>& flags, const std::string& word) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const CLI::Option* flag) {
    return TakesValue(*flag) && flag->check_name(word);
  });
  return found == flags.end() ? nullptr : *found;
}

Completion CommandsOf(const CLI::App& app) {
  Completion completion{"commands", {}, ""};
  for (const CLI::App* const child : CommandsAfter(app))
    completion.candidates.push_back({child->get_name(), child->get_description()});
  return completion;
}

Completion FlagNamesOf(const std::vector<const CLI::Option*>& flags) {
  Completion completion{"flags", {}, ""};
  for (const CLI::Option* const flag : flags) {
    for (const std::string& name : flag->get_lnames())
      completion.candidates.push_back({"--" + name, flag->get_description()});
    for (const std::string& name : flag->get_snames())
      completion.candidates.push_back({"-" + name, flag->get_description()});
  }
  return completion;
}

// A value of `option`, a flag or an argument of `app`.
Completion ValueOf(const CLI::Option& option, const CLI::App& app, std::string before = "") {
  Completion completion{"words", {}, std::move(before)};
  const std::string type = option.get_type_name();
  const std::string name = option.nonpositional() ? type : option.get_name(true);
  if (const std::vector<std::string> choices = ChoicesOf(option); !choices.empty()) {
    for (const std::string& choice : choices) completion.candidates.push_back({choice, ""});
  } else if (name == "FILE" || name == "PATH" || type == "FILE") {
    completion.kind = "files";
  } else if (name == "DIR") {
    completion.kind = "directories";
  } else if (name == "SECTION.KEY=VALUE") {
    completion.kind = "keys";
    for (const config::Key& key : config::Keys()) completion.candidates.push_back({key.name + "=", ""});
  } else if (name == "KEY") {
    for (const config::Key& key : config::Keys()) completion.candidates.push_back({key.name, key.meaning});
  } else if (name == "TAG" && app.get_name() != "add") {
    // The tag that is to be added is not there yet.
    completion.kind = "tags";
  }
  return completion;
}

}  // namespace

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  // CLI11 tells them in the name of the type only: "text|json:{text,json}".
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos || type.back() != '}') return {};
  std::vector<std::string> choices;
  for (std::size_t at = begin + 1; at < type.size();) {
    const std::size_t end = type.find_first_of(",}", at);
    choices.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

Completion CompleteLine(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  const CLI::Option* pending = nullptr;  // the flag whose value comes next
  std::size_t given = 0;                 // arguments
  const CLI::App* help = nullptr;        // `leafctl help` has been said
  bool plain = false;                    // "--" has been said: no flags any more
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    const std::vector<const CLI::App*> commands = CommandsAfter(*app);
    const auto command = std::find_if(commands.begin(), commands.end(),
                                      [&](const CLI::App* child) { return child->get_name() == word; });
    if (pending != nullptr) {
      pending = nullptr;
    } else if (!plain && word == "--") {
      plain = true;
    } else if (!plain && word.size() > 1 && word.front() == '-') {
      pending = ValueFlag(FlagsAfter(root, *app), word);
    } else if (given > 0 || command == commands.end()) {
      ++given;
    } else if (help == nullptr && app == &root && word == "help") {
      help = *command;
    } else {
      app = *command;
    }
  }

  const std::string& typed = words.back();
  const std::vector<const CLI::Option*> flags = FlagsAfter(root, help != nullptr ? *help : *app);
  if (pending != nullptr) return ValueOf(*pending, *app);
  if (const std::size_t equals = typed.find('=');
      !plain && typed.starts_with("--") && equals != std::string::npos) {
    const CLI::Option* const flag = ValueFlag(flags, typed.substr(0, equals));
    return flag == nullptr ? Completion{} : ValueOf(*flag, *app, typed.substr(0, equals + 1));
  }
  if (!plain && typed.starts_with('-')) return FlagNamesOf(flags);
  if (help != nullptr || !CommandsAfter(*app).empty()) return CommandsOf(*app);
  std::vector<const CLI::Option*> arguments =
      app->get_options([](const CLI::Option* option) { return !option->nonpositional(); });
  if (given < arguments.size()) return ValueOf(*arguments[given], *app);
  if (!arguments.empty() && arguments.back()->get_items_expected_max() > 1)
    return ValueOf(*arguments.back(), *app);
  return typed.empty() && !plain ? FlagNamesOf(flags) : Completion{};
}

}  // namespace leaf::cmd
