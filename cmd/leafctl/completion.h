// Shell completion: what may be completed, taken from the parser itself, and the scripts made of it.
//
// Completing changes nothing and asks no server: commands, flags and their values stand in the script; only
// the names of tags are asked for, by the hidden command `leafctl __complete` (complete.cc).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leaf::cmd {

enum class Shell { kBash, kZsh, kFish };
// Nullopt for a shell that is none of them.
std::optional<Shell> ParseShell(std::string_view name);

// What can stand in the place of a value.
struct CompletionValue {
  enum class Kind { kNothing, kChoice, kFile, kDirectory, kTag, kKey, kCommand };
  Kind kind = Kind::kNothing;
  std::vector<std::string> choices;  // of kChoice
};

struct CompletionFlag {
  std::vector<std::string> names;  // "--output", "-o"
  std::string meaning;
  bool takes_value = false;
  CompletionValue value;  // if takes_value
};

struct CompletionArgument {
  bool repeats = false;
  CompletionValue value;
};

// A command, or a group of them.
struct CompletionCommand {
  std::string path;  // "tag add", "" for leafctl itself
  std::string name;
  std::string summary;
  std::vector<CompletionCommand> commands;
  std::vector<CompletionFlag> flags;  // its own, without the global ones
  std::vector<CompletionArgument> arguments;
};

struct CompletionTree {
  std::vector<CompletionFlag> global_flags;
  CompletionCommand root;
};

// The flags of `app` in this group of the help stand before and after every command.
inline constexpr std::string_view kGlobalFlagsGroup = "Global flags";

// The values that a flag or an argument is restricted to; empty if it is not.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// Hidden commands are left out.
CompletionTree MakeCompletionTree(const CLI::App& root);

// Requires: every command is set up in `root`.
std::string CompletionScript(Shell shell, const CLI::App& root);

}  // namespace leaf::cmd
