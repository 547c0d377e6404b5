// What may stand at the end of an unfinished command line, taken from the parser itself.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace leaf::cmd {

struct Completion {
  struct Candidate {
    std::string word;
    std::string meaning;  // of a command or a flag, else ""
  };
  // The shell completes files and directories itself; "tags" stands for names that the parser does not know.
  std::string_view kind = "words";  // or "commands", "flags", "keys", "files", "directories", "tags"
  std::vector<Candidate> candidates;
  std::string before;  // of the last word, what is no part of a candidate: "--output="
};

// The flags of the root in this group of the help stand before and after every command.
inline constexpr std::string_view kGlobalFlagsGroup = "Global flags";

// The values that a flag or an argument is restricted to; empty if it is not.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// `words`: those of the line, with the program's name; the last one is unfinished. Hidden commands and flags
// are left out; candidates need not begin with what was typed. Requires: every command is set up in `root`.
Completion CompleteLine(const CLI::App& root, const std::vector<std::string>& words);

}  // namespace leaf::cmd
