// leafctl code reveal
#include <memory>
#include <string>
#include <vector>

#include "code_lines.h"
#include "code_store.h"
#include "commands.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"

namespace leaf::cmd {
namespace {

struct CodeRevealOptions {
  std::string tag;
  std::vector<std::string> codes;
};

Result<void> RunCodeReveal(CommandContext& context, const CodeRevealOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const auto print = [&](const auto& reveal) {
    return PrintCodeLines(context, options.tag, "ids", options.codes,
                          [&](std::string_view word) -> Result<CodeLine> {
                            LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, reveal(word));
                            const std::string text = std::to_string(id);
                            return CodeLine{text, {{"code", std::string(word)}, {"id", text}}};
                          });
  };
  if (!resolved->config.client.servers.empty()) {
    LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
    client::DaemonClient daemon(resolved->config.client.servers, context.flags.timeout.value_or(kAskTimeout),
                                TlsOf(*resolved), token);
    return print([&](std::string_view word) { return daemon.Reveal(options.tag, word); });
  }
  LEAF_ASSIGN_OR_RETURN(const auto store,
                        CodeStore::Open(context, Store::Access::kLook, ClusterNameOf(resolved->config)));
  LEAF_ASSIGN_OR_RETURN(const CodeStore::Codes codes, store->ToReveal(options.tag));
  return print([&](std::string_view word) { return codes->Reveal(word); });
}

}  // namespace

Run AddCodeReveal(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<CodeRevealOptions>();
  app.add_option("TAG", options->tag, "The tag; 'snowflake' for snowflake IDs")->required();
  app.add_option("CODE", options->codes, "Codes; without any, or with '-', one per line from stdin");
  AddServerFlag(app, context,
                "Daemon to ask, instead of this configuration's key: http://HOST:PORT, https://HOST:PORT or "
                "unix:/PATH");
  app.footer(
      "Case, hyphens and blanks in a code do not count.\n"
      "Examples:\n"
      "  leafctl code reveal order 1661-8785-8892-8\n"
      "  leafctl code reveal order --server http://10.0.0.1:8080 <codes.txt");
  return [options](CommandContext& run_context) { return RunCodeReveal(run_context, *options); };
}

}  // namespace leaf::cmd
