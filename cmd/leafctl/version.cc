// leafctl version
#include "commands.h"
#include "tag_output.h"

namespace leaf::cmd {

Run AddVersion(CLI::App&, CommandContext&) {
  return [](CommandContext& context) -> Result<void> {
    if (context.flags.json) {
      WriteJson(context, {{"version", LEAFCTL_VERSION}});
    } else {
      context.out.Write("leafctl " LEAFCTL_VERSION "\n");
      if (context.flags.verbose) context.out.Write("compiler g++ " __VERSION__ "\n");
    }
    return {};
  };
}

}  // namespace leaf::cmd
