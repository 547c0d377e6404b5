// --dry-run, --yes, --confirm: what every mutation accepts, and when it asks first.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"

namespace leaf::cmd {

struct ConfirmFlags {
  bool dry_run = false;
  bool yes = false;
  std::string confirm;

  core::WriteMode mode() const { return dry_run ? core::WriteMode::kDryRun : core::WriteMode::kCommit; }
};

// A command that asks. One that never does accepts the same flags, so that a script may pass them to every
// mutation, but does not offer --yes and --confirm.
enum class Asks { kYes, kNever };
void AddConfirmFlags(CLI::App& app, ConfirmFlags& flags, Asks asks = Asks::kYes);

enum class Severity {
  kHarmless,     // never asks
  kDestructive,  // asks on a terminal, needs --yes elsewhere
  kSevere,  // could lead to duplicate IDs, or cannot be taken back: the name must be typed, or given with
            // --confirm
};

// "--confirm NAME", to be pasted.
std::string ConfirmFlag(std::string_view name);

// What confirms `action` names `name`, or is "". `flag`: what it was given as. Errors: kRefused.
Result<void> CheckConfirmedName(std::string_view flag, std::string_view confirmed, std::string_view action,
                                std::string_view name);

// A --confirm that names something else than `name` is refused, also where nothing has to be confirmed.
// Errors: kRefused.
Result<void> CheckName(const ConfirmFlags& flags, std::string_view action, std::string_view name);

// Ok if the user agrees to `action` ("remove tag 'pay'"). A dry run needs no agreement. `name` is what has to
// be typed; a --confirm that names something else is refused in any case. Errors: kRefused.
Result<void> Confirm(CommandContext& context, const ConfirmFlags& flags, Severity severity,
                     std::string_view action, std::string_view name);

}  // namespace leaf::cmd
