// leafctl completion: the scripts of bash, zsh and fish. They hand the line to `leafctl __complete`, and do
// with its answer what complete.cc says.
#include <memory>
#include <string>
#include <string_view>

#include "commands.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::string_view kBashScript =
    R"(# bash completion of leafctl, printed by `leafctl completion bash`.
# shellcheck shell=bash

_leafctl() {
  local -a answer
  # The line as it was typed: bash also divides its words at = and :.
  mapfile -t answer < <(
    "${COMP_WORDS[0]}" __complete --line bash --word-breaks "$COMP_WORDBREAKS" -- "${COMP_LINE:0:COMP_POINT}" \
      2>/dev/null </dev/null
  )
  COMPREPLY=("${answer[@]:1}")
  case ${answer[0]-} in
    files) compopt -o default ;;
    directories) compopt -o dirnames ;;
    keys) compopt -o nospace ;;
  esac
}

complete -F _leafctl leafctl
)";

constexpr std::string_view kZshScript =
    R"(#compdef leafctl
# zsh completion of leafctl, printed by `leafctl completion zsh`.

_leafctl() {
  local kind
  local -a answer expl
  answer=("${(@f)$("${(Q)words[1]}" __complete --line zsh -- "${(@Q)words[1,CURRENT]}" 2>/dev/null </dev/null)}")
  kind=${answer[1]}
  shift answer
  if [[ ${words[CURRENT]} == --*=* ]] && ((!${words[(Ie)--]})); then
    compset -P 1 '*='
    answer=("${(@)answer#--*=}")
  fi
  case $kind in
    commands) answer=("${(@)answer/$'\t'/:}") && _describe -t commands command answer ;;
    flags) answer=("${(@)answer/$'\t'/:}") && _describe -o -t options flag answer ;;
    files) _files ;;
    directories) _wanted directories expl directory _path_files -/ ;;
    keys) compadd -S '' -a answer ;;
    *) compadd -a answer ;;
  esac
}

# Loaded as a function by compinit, or sourced.
if [[ ${funcstack[1]-} == _leafctl ]]; then _leafctl "$@"; else compdef _leafctl leafctl; fi
)";

constexpr std::string_view kFishScript =
    R"(# fish completion of leafctl, printed by `leafctl completion fish`.

# Asks leafctl: once, as fish looks at a condition once.
function __leafctl_ask
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -g __leafctl_answer ($words[1] __complete --line fish -- $words "$typed" 2>/dev/null </dev/null)
    set -g __leafctl_kind $__leafctl_answer[1]
    set -e __leafctl_answer[1]
    if test "$__leafctl_kind" = directories
        set __leafctl_answer (__fish_complete_directories)
    end
end

complete -c leafctl -f
complete -c leafctl -n __leafctl_ask -a '$__leafctl_answer'
complete -c leafctl -n __leafctl_ask -n 'test "$__leafctl_kind" = files' -F
)";

}  // namespace

Run AddCompletion(CLI::App& app, CommandContext&) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "The shell")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL")
      ->required();
  app.footer(
      "Packages install these scripts. To load one by hand:\n"
      "  source <(leafctl completion bash)\n"
      "  source <(leafctl completion zsh)      # after compinit\n"
      "  leafctl completion fish >~/.config/fish/completions/leafctl.fish");
  return [shell](CommandContext& context) -> Result<void> {
    const std::string_view script = *shell == "bash"  ? kBashScript
                                    : *shell == "zsh" ? kZshScript
                                                      : kFishScript;
    if (context.flags.json) {
      WriteJson(context, {{"text", script}});
    } else {
      context.out.Write(script);
    }
    return {};
  };
}

}  // namespace leaf::cmd
