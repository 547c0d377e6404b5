// --dry-run, --yes, --confirm: what every mutation accepts, and who must be asked.
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

void AddConfirmFlags(CLI::App& app, ConfirmFlags& flags);

enum class Severity {
  kDestructive,  // asks on a terminal, needs --yes elsewhere
  kSevere,       // could lead to duplicate IDs: the name must be typed, or given with --confirm
};

// Ok if the user agrees to `action` ("remove tag 'pay'"). A dry run needs no agreement. `name` is what has to
// be typed. Errors: kRefused.
Result<void> Confirm(CommandContext& context, const ConfirmFlags& flags, Severity severity,
                     std::string_view action, std::string_view name);

}  // namespace leaf::cmd
