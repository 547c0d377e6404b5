// leafctl config check
#include <fmt/format.h>

#include "commands.h"
#include "leaf/sys/secret_file.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunConfigCheck(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  for (const std::string& path :
       {resolved->config.mysql.password_file, resolved->config.zookeeper.auth_file}) {
    if (path.empty()) continue;
    LEAF_RETURN_IF_ERROR(sys::ReadSecretFile(path));
  }
  if (context.flags.json) {
    WriteJson(context, {{"file", resolved->file}, {"ok", true}, {"warnings", resolved->warnings}});
  } else {
    context.Note(resolved->file.empty() ? "configuration ok (no file)"
                                        : fmt::format("configuration ok ({})", resolved->file));
  }
  return {};
}

}  // namespace

Run AddConfigCheck(CLI::App& app, CommandContext&) {
  app.footer(
      "Every problem is reported at once. Example: leafctl --config /etc/leafctl/leafctl.toml config check");
  return [](CommandContext& context) { return RunConfigCheck(context); };
}

}  // namespace leaf::cmd
