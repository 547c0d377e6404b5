#include "completion.h"

#include <algorithm>

namespace leaf::cmd {
namespace {

using Kind = CompletionValue::Kind;

CompletionValue ValueOf(const CLI::Option& option, const std::string& path) {
  if (std::vector<std::string> choices = ChoicesOf(option); !choices.empty())
    return {Kind::kChoice, std::move(choices)};
  const std::string type = option.get_type_name();
  const std::string name = option.nonpositional() ? type : option.get_name(true);
  if (name == "FILE" || name == "PATH" || type == "FILE") return {Kind::kFile, {}};
  if (name == "DIR") return {Kind::kDirectory, {}};
  if (name == "SECTION.KEY=VALUE") return {Kind::kKey, {}};
  // The tag that is to be added is not there yet.
  if (name == "TAG" && path != "tag add") return {Kind::kTag, {}};
  if (type == "COMMAND") return {Kind::kCommand, {}};
  return {};
}

CompletionFlag FlagOf(const CLI::Option& option, const std::string& path) {
  CompletionFlag flag;
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  flag.meaning = option.get_description();
  flag.takes_value = option.get_items_expected_max() != 0;
  if (flag.takes_value) flag.value = ValueOf(option, path);
  return flag;
}

CompletionCommand CommandOf(const CLI::App& app, const std::string& path) {
  CompletionCommand command{path, app.get_name(), app.get_description(), {}, {}, {}};
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->nonpositional()) {
      command.arguments.push_back({option->get_items_expected_max() > 1, ValueOf(*option, path)});
    } else if (const std::string& group = option->get_group(); !group.empty() && group != kGlobalFlagsGroup) {
      command.flags.push_back(FlagOf(*option, path));
    }
  }
  for (const CLI::App* const child : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (child->get_group().empty()) continue;
    command.commands.push_back(
        CommandOf(*child, path.empty() ? child->get_name() : path + " " + child->get_name()));
  }
  return command;
}

}  // namespace

std::optional<Shell> ParseShell(std::string_view name) {
  if (name == "bash") return Shell::kBash;
  if (name == "zsh") return Shell::kZsh;
  if (name == "fish") return Shell::kFish;
  return std::nullopt;
}

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

CompletionTree MakeCompletionTree(const CLI::App& root) {
  CompletionTree tree;
  for (const CLI::Option* const option : root.get_options()) {
    if (option->nonpositional() && option->get_group() == kGlobalFlagsGroup)
      tree.global_flags.push_back(FlagOf(*option, ""));
  }
  tree.root = CommandOf(root, "");
  return tree;
}

}  // namespace leaf::cmd
