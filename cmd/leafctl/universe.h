// Whose tags and numbers a command works on.
#pragma once

#include "context.h"
#include "leaf/base/result.h"

namespace leaf::cmd {

// For a command that works on the store or the registry itself. Without a configured store that is the SQLite
// file of this user's state directory; `next`, though, asks the daemon on the default socket first. Where
// that is another directory's, the command would change what no ID is ever taken from. Asks that daemon.
// Errors: kRefused, naming both directories, and those of asking, but for a daemon that is not there.
Result<void> CheckUniverse(CommandContext& context);

}  // namespace leaf::cmd
