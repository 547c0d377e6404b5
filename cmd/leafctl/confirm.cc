#include "confirm.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::cmd {

void AddConfirmFlags(CLI::App& app, ConfirmFlags& flags, Asks asks) {
  app.add_flag("--dry-run", flags.dry_run, "Show what would be done and change nothing");
  CLI::Option* const yes = app.add_flag("--yes", flags.yes, "Do not ask");
  CLI::Option* const confirm =
      app.add_option("--confirm", flags.confirm, "Confirm with this name instead of typing it")
          ->type_name("NAME");
  if (asks == Asks::kYes) return;
  // CLI11 shows nothing of a group without a name.
  yes->group("");
  confirm->group("");
}

std::string ConfirmFlag(std::string_view name) {
  return fmt::format("--confirm{}{}", name.starts_with('-') ? '=' : ' ', ShellWord(name));
}

Result<void> CheckConfirmedName(std::string_view flag, std::string_view confirmed, std::string_view action,
                                std::string_view name) {
  if (confirmed.empty() || confirmed == name) return {};
  return Error{ErrorCode::kRefused,
               fmt::format("cannot {}: {} {} is not {}", action, flag, Quoted(confirmed), Quoted(name)), ""};
}

Result<void> CheckName(const ConfirmFlags& flags, std::string_view action, std::string_view name) {
  return CheckConfirmedName("--confirm", flags.confirm, action, name);
}

Result<void> Confirm(CommandContext& context, const ConfirmFlags& flags, Severity severity,
                     std::string_view action, std::string_view name) {
  LEAF_RETURN_IF_ERROR(CheckName(flags, action, name));
  if (severity == Severity::kHarmless || flags.dry_run || !flags.confirm.empty()) return {};
  if (severity == Severity::kDestructive && flags.yes) return {};
  const std::string flag = severity == Severity::kDestructive ? "--yes" : ConfirmFlag(name);
  if (!context.stdin_is_terminal() || context.flags.no_input) {
    return Error{ErrorCode::kRefused, fmt::format("refusing to {} without confirmation", action),
                 fmt::format("add {}", flag)};
  }
  LEAF_RETURN_IF_ERROR(context.Tell(severity == Severity::kDestructive
                                        ? fmt::format("About to {}. Continue? [y/N] ", action)
                                        : fmt::format("About to {}. Type '{}' to continue: ", action, name)));
  const std::string answer = context.ReadLine().value_or("");
  const bool agreed =
      severity == Severity::kDestructive ? answer == "y" || answer == "Y" || answer == "yes" : answer == name;
  if (agreed) return {};
  return Error{ErrorCode::kRefused, fmt::format("did not {}: not confirmed", action), ""};
}

}  // namespace leaf::cmd
