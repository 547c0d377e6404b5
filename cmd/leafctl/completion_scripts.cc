// The completion scripts of bash, zsh and fish.
//
// bash and zsh get a table of what may stand after each command, and a function that walks the words of the
// line along it; fish, whose completions are a table already, one line for each command, flag and argument.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion.h"
#include "leaf/config/keys.h"

namespace leaf::cmd {
namespace {

using CompletionKind = CompletionValue::Kind;

// 'text', for any of the three shells; only fish knows a backslash in single quotes.
std::string ShellQuoted(Shell shell, std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (shell == Shell::kFish) {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    } else if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const config::Key& key : config::Keys()) names.push_back(key.name + "=");
  return names;
}

// ---- bash and zsh

// How the table names what a value can be: a word with a colon in front, or the choices.
std::string ValueWord(const CompletionValue& value) {
  switch (value.kind) {
    case CompletionKind::kNothing:
      return ":nothing";
    case CompletionKind::kChoice:
      return fmt::format("{}", fmt::join(value.choices, " "));
    case CompletionKind::kFile:
      return ":file";
    case CompletionKind::kDirectory:
      return ":directory";
    case CompletionKind::kTag:
      return ":tag";
    case CompletionKind::kKey:
      return ":key";
    case CompletionKind::kCommand:
      return ":command";
  }
  return "";
}

// "name" for bash, which shows names only; "name:meaning" for zsh's _describe.
std::string TableWord(Shell shell, const std::string& name, const std::string& meaning) {
  return ShellQuoted(shell, shell == Shell::kZsh ? name + ":" + meaning : name);
}

std::string FlagWords(Shell shell, const std::vector<CompletionFlag>& flags) {
  std::vector<std::string> words;
  for (const CompletionFlag& flag : flags) {
    for (const std::string& name : flag.names) words.push_back(TableWord(shell, name, flag.meaning));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

// Assignments to the map from a flag to what its value can be.
std::string FlagValues(Shell shell, const std::vector<CompletionFlag>& flags, std::string_view indent) {
  std::string out;
  for (const CompletionFlag& flag : flags) {
    if (!flag.takes_value) continue;
    for (const std::string& name : flag.names)
      out += fmt::format("{}values[{}]={}\n", indent, name, ShellQuoted(shell, ValueWord(flag.value)));
  }
  return out;
}

void AppendTable(Shell shell, const CompletionCommand& command, std::string& out) {
  std::vector<std::string> commands;
  for (const CompletionCommand& child : command.commands)
    commands.push_back(TableWord(shell, child.name, child.summary));
  std::vector<std::string> arguments;
  for (const CompletionArgument& argument : command.arguments)
    arguments.push_back(ShellQuoted(shell, (argument.repeats ? "*" : "") + ValueWord(argument.value)));
  out += fmt::format("    {})\n", ShellQuoted(shell, command.path));
  out += fmt::format("      commands=({})\n", fmt::join(commands, " "));
  out += fmt::format("      flags=({})\n", FlagWords(shell, command.flags));
  out += fmt::format("      arguments=({})\n", fmt::join(arguments, " "));
  out += FlagValues(shell, command.flags, "      ");
  out += "      ;;\n";
  for (const CompletionCommand& child : command.commands) AppendTable(shell, child, out);
}

std::string Table(Shell shell, const CompletionTree& tree) {
  std::string out =
      "# What may stand after the command $1: sets commands, flags and arguments, and adds to values what "
      "the\n"
      "# values of its flags can be.\n"
      "_leafctl_table() {\n";
  out += fmt::format("  global_flags=({})\n", FlagWords(shell, tree.global_flags));
  out += FlagValues(shell, tree.global_flags, "  ");
  out += "  case $1 in\n";
  AppendTable(shell, tree.root, out);
  return out + "  esac\n}\n\n";
}

constexpr std::string_view kBashWalk =
    R"(# Walks the words up to the cursor, without it: sets command, and what may come next.
_leafctl_walk() {
  local word i
  command='' given=0 helping=0 plain=0
  _leafctl_table ''
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    word=${words[i]}
    if ((!plain)) && [[ $word == -- ]]; then
      plain=1
    elif ((!plain)) && [[ $word == -?* ]]; then
      # The value of a flag is the next word, unless it is there already.
      if [[ -n ${values[$word]-} ]]; then ((++i)); fi
    elif ((!given)) && [[ " ${commands[*]} " == *" $word "* ]]; then
      if ((helping)) || [[ $command$word != help ]]; then
        command+="${command:+ }$word"
        _leafctl_table "$command"
      else
        helping=1
      fi
    else
      ((++given))
    fi
  done
}

# Completes $typed, the value of a flag or an argument, which can be $1.
_leafctl_value() {
  local word
  case $1 in
    :nothing | '') ;;
    :file) compopt -o default ;;
    :directory) compopt -o dirnames ;;
    :command) COMPREPLY=($(compgen -W "${commands[*]}" -- "$typed")) ;;
    :key)
      compopt -o nospace
      for word in "${keys[@]}"; do
        if [[ $word == "$typed"* ]]; then COMPREPLY+=("$word"); fi
      done
      ;;
    :tag)
      mapfile -t COMPREPLY < <(
        "${words[0]}" __complete --form bash --word-breaks "$COMP_WORDBREAKS" -- "${words[@]}" 2>/dev/null </dev/null
      )
      ;;
    *) COMPREPLY=($(compgen -W "$1" -- "$typed")) ;;
  esac
}

_leafctl() {
  local command given helping plain rest=${COMP_LINE:0:COMP_POINT} word blank typed flag argument
  local -a words=() commands=() flags=() global_flags=() arguments=() keys=()
  local -A values=()
  COMPREPLY=()
  # The words as they are typed: bash also divides them at = and :.
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    blank=${rest%%[![:blank:]]*}
    rest=${rest#"$blank"}
    if [[ $rest != "$word"* ]]; then word=$rest; fi
    rest=${rest#"$word"}
    if [[ -z $blank ]] && ((${#words[@]} > 0)); then words[-1]+=$word; else words+=("$word"); fi
  done
  _leafctl_keys
  _leafctl_walk
  typed=${words[-1]}

  if ((!plain && ${#words[@]} > 2)) && [[ ${words[-2]} == -?* && -n ${values[${words[-2]}]-} ]]; then
    _leafctl_value "${values[${words[-2]}]}"
    return
  fi
  if ((!plain)) && [[ $typed == --*=* ]]; then
    flag=${typed%%=*}
    typed=${typed#*=}
    _leafctl_value "${values[$flag]-}"
    if [[ $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/$flag=}"); fi
    return
  fi
  if ((helping)); then
    _leafctl_value :command
    return
  fi
  if ((!plain)) && [[ $typed == -* ]]; then
    COMPREPLY=($(compgen -W "${flags[*]} ${global_flags[*]}" -- "$typed"))
    return
  fi
  if ((${#commands[@]} > 0)); then
    COMPREPLY=($(compgen -W "${commands[*]}" -- "$typed"))
    return
  fi
  argument=${arguments[given]-}
  if [[ -z $argument ]] && ((${#arguments[@]} > 0)) && [[ ${arguments[-1]} == \** ]]; then argument=${arguments[-1]}; fi
  if [[ -n $argument ]]; then
    _leafctl_value "${argument#\*}"
  elif [[ -z $typed ]] && ((!plain)); then
    COMPREPLY=($(compgen -W "${flags[*]} ${global_flags[*]}" --))
  fi
}

complete -F _leafctl leafctl
)";

constexpr std::string_view kZshWalk =
    R"(# Walks the words up to the cursor, without it: sets command, and what may come next.
_leafctl_walk() {
  local word i
  command='' given=0 helping=0 plain=0
  _leafctl_table ''
  for ((i = 2; i < CURRENT; ++i)); do
    word=${(Q)words[i]}
    if ((!plain)) && [[ $word == -- ]]; then
      plain=1
    elif ((!plain)) && [[ $word == -?* ]]; then
      # The value of a flag is the next word, unless it is there already.
      if (( ${+values[$word]} )); then ((++i)); fi
    elif ((!given)) && (( ${commands[(I)${(b)word}:*]} )); then
      if ((helping)) || [[ $command$word != help ]]; then
        command+="${command:+ }$word"
        _leafctl_table "$command"
      else
        helping=1
      fi
    else
      ((++given))
    fi
  done
}

# Completes the value of a flag or an argument, which can be $1.
_leafctl_value() {
  local -a found expl
  case $1 in
    :nothing | '') ;;
    :file) _files ;;
    :directory) _wanted directories expl directory _path_files -/ ;;
    :command) _describe -t commands command commands ;;
    :key)
      _leafctl_keys
      compadd -S '' -a keys
      ;;
    :tag)
      # All of them, as zsh may match in other ways than by the beginning.
      found=("${(@f)$("${(Q)words[1]}" __complete -- "${(@Q)words[1,CURRENT-1]}" '' 2>/dev/null </dev/null)}")
      found=(${(@)found:#})
      compadd -a found
      ;;
    *) compadd -- ${(s: :)1} ;;
  esac
}

_leafctl() {
  local command given helping plain flag argument
  local -a commands flags global_flags arguments keys
  local -A values
  _leafctl_walk
  local before=${(Q)words[CURRENT-1]} typed=${words[CURRENT]}

  if ((!plain && CURRENT > 2)) && [[ $before == -?* ]] && (( ${+values[$before]} )); then
    _leafctl_value "$values[$before]"
    return
  fi
  if ((!plain)) && [[ $typed == --*=* ]]; then
    flag=${typed%%=*}
    compset -P 1 '*='
    _leafctl_value "${values[$flag]-}"
    return
  fi
  if ((helping)); then
    _leafctl_value :command
    return
  fi
  if ((!plain)) && [[ $typed == -* ]]; then
    flags+=("${global_flags[@]}")
    _describe -o -t options flag flags
    return
  fi
  if ((${#commands} > 0)); then
    _leafctl_value :command
    return
  fi
  argument=${arguments[given+1]-}
  if [[ -z $argument ]] && ((${#arguments} > 0)) && [[ ${arguments[-1]} == \** ]]; then argument=${arguments[-1]}; fi
  if [[ -n $argument ]]; then
    _leafctl_value "${argument#\*}"
  elif ((!plain)); then
    flags+=("${global_flags[@]}")
    _describe -o -t options flag flags
  fi
}

# Loaded as a function by compinit, or sourced.
if [[ ${funcstack[1]-} == _leafctl ]]; then _leafctl "$@"; else compdef _leafctl leafctl; fi
)";

std::string KeysFunction(Shell shell) {
  std::string out = "_leafctl_keys() {\n  keys=(\n";
  for (const std::string& name : KeyNames()) out += fmt::format("    {}\n", ShellQuoted(shell, name));
  return out + "  )\n}\n\n";
}

std::string BashScript(const CompletionTree& tree) {
  return fmt::format(
      "# bash completion of leafctl, printed by `leafctl completion bash`.\n"
      "# shellcheck shell=bash disable=SC2207 # none of the words that are split has a blank in it\n\n{}{}{}",
      KeysFunction(Shell::kBash), Table(Shell::kBash, tree), kBashWalk);
}

std::string ZshScript(const CompletionTree& tree) {
  return fmt::format(
      "#compdef leafctl\n# zsh completion of leafctl, printed by `leafctl completion zsh`.\n\n{}{}{}",
      KeysFunction(Shell::kZsh), Table(Shell::kZsh, tree), kZshWalk);
}

// ---- fish

constexpr std::string_view kFishWalk =
    R"(# Prints the commands on the line before the cursor, then how many arguments follow, a line each.
function __leafctl_walk
    set -l words (commandline -opc)
    set -l command ''
    set -l given 0
    set -l plain 0
    set -l skip 0
    for word in $words[2..]
        if test $skip = 1
            set skip 0
        else if test $plain = 0; and test "$word" = --
            set plain 1
        else if test $plain = 0; and string match -q -- '-?*' $word
            if contains -- $word $__leafctl_value_flags
                set skip 1
            end
        else if test $given = 0; and contains -- (string trim -- "$command $word") $__leafctl_commands
            set command (string trim -- "$command $word")
        else
            set given (math $given + 1)
        end
    end
    printf '%s\n' $command $given
end

# Whether the command is $argv[1], and, if given, argument $argv[2] (from 0) comes next, or one after it with a +.
function __leafctl_at
    set -l state (__leafctl_walk)
    test "$state[1]" = "$argv[1]"; or return 1
    test (count $argv) -gt 1; or return 0
    if string match -q '*+' -- $argv[2]
        test $state[2] -ge (string trim -r -c + -- $argv[2])
    else
        test $state[2] = $argv[2]
    end
end

# `leafctl help` has been said, and then the command $argv[1].
function __leafctl_help_on
    set -l words (commandline -opc)
    test "$words[2]" = help; and test "$words[3..]" = "$argv[1]"
end

function __leafctl_tags
    set -l words (commandline -opc)
    $words[1] __complete -- $words '' 2>/dev/null </dev/null
end

)";

std::string FishFlag(const CompletionFlag& flag, const std::string& condition) {
  std::string line = "complete -c leafctl" + condition;
  for (const std::string& name : flag.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (flag.takes_value) {
    switch (flag.value.kind) {
      case CompletionKind::kFile:
        line += " -r -F";
        break;
      case CompletionKind::kDirectory:
        line += " -x -a '(__fish_complete_directories)'";
        break;
      case CompletionKind::kChoice:
        line += fmt::format(" -x -a '{}'", fmt::join(flag.value.choices, " "));
        break;
      case CompletionKind::kKey:
        line += " -x -a '$__leafctl_keys'";
        break;
      case CompletionKind::kTag:
        line += " -x -a '(__leafctl_tags)'";
        break;
      case CompletionKind::kNothing:
      case CompletionKind::kCommand:
        line += " -x";
        break;
    }
  }
  return line + " -d " + ShellQuoted(Shell::kFish, flag.meaning) + "\n";
}

void AppendFish(const CompletionCommand& command, std::string& out) {
  const std::string at = fmt::format(" -n \"__leafctl_at '{}'\"", command.path);
  for (const CompletionFlag& flag : command.flags) out += FishFlag(flag, at);
  for (const CompletionCommand& child : command.commands) {
    for (const std::string& condition : {at, fmt::format(" -n \"__leafctl_help_on '{}'\"", command.path)}) {
      out += fmt::format("complete -c leafctl{} -a {} -d {}\n", condition, child.name,
                         ShellQuoted(Shell::kFish, child.summary));
    }
  }
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    const CompletionArgument& argument = command.arguments[i];
    const std::string condition =
        fmt::format(" -n \"__leafctl_at '{}' {}{}\"", command.path, i, argument.repeats ? "+" : "");
    if (argument.value.kind == CompletionKind::kTag) {
      out += fmt::format("complete -c leafctl{} -x -a '(__leafctl_tags)'\n", condition);
    } else if (argument.value.kind == CompletionKind::kChoice) {
      out += fmt::format("complete -c leafctl{} -x -a '{}'\n", condition,
                         fmt::join(argument.value.choices, " "));
    } else if (argument.value.kind == CompletionKind::kFile) {
      out += fmt::format("complete -c leafctl{} -F\n", condition);
    }
  }
  for (const CompletionCommand& child : command.commands) AppendFish(child, out);
}

// Adds to `commands` every path, to `flags` every flag with a value, that stand at `command` or below it.
void CollectFish(const CompletionCommand& command, std::vector<std::string>& commands,
                 std::vector<CompletionFlag>& flags) {
  if (!command.path.empty()) commands.push_back(ShellQuoted(Shell::kFish, command.path));
  flags.insert(flags.end(), command.flags.begin(), command.flags.end());
  for (const CompletionCommand& child : command.commands) CollectFish(child, commands, flags);
}

std::string FishScript(const CompletionTree& tree) {
  std::vector<std::string> commands;
  std::vector<CompletionFlag> flags = tree.global_flags;
  CollectFish(tree.root, commands, flags);
  std::vector<std::string> value_flags;
  for (const CompletionFlag& flag : flags) {
    if (flag.takes_value) value_flags.insert(value_flags.end(), flag.names.begin(), flag.names.end());
  }
  std::string out = "# fish completion of leafctl, printed by `leafctl completion fish`.\n\n";
  out += fmt::format("set -g __leafctl_commands {}\n", fmt::join(commands, " "));
  out += fmt::format("set -g __leafctl_value_flags {}\n", fmt::join(value_flags, " "));
  out += fmt::format("set -g __leafctl_keys {}\n\n", fmt::join(KeyNames(), " "));
  out += kFishWalk;
  out += "complete -c leafctl -f\n";
  for (const CompletionFlag& flag : tree.global_flags) out += FishFlag(flag, "");
  AppendFish(tree.root, out);
  return out;
}

}  // namespace

std::string CompletionScript(Shell shell, const CLI::App& root) {
  const CompletionTree tree = MakeCompletionTree(root);
  switch (shell) {
    case Shell::kBash:
      return BashScript(tree);
    case Shell::kZsh:
      return ZshScript(tree);
    case Shell::kFish:
      return FishScript(tree);
  }
  return "";
}

}  // namespace leaf::cmd
