// leafctl code of
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "code_lines.h"
#include "code_store.h"
#include "commands.h"
#include "leaf/base/id_text.h"
#include "leaf/base/text.h"

namespace leaf::cmd {
namespace {

struct CodeOfOptions {
  std::string tag;
  std::vector<std::string> ids;
};

Result<void> RunCodeOf(CommandContext& context, const CodeOfOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const auto store,
                        CodeStore::Open(context, Store::Access::kWrite, ClusterNameOf(resolved->config)));
  const core::IdLayout& layout = resolved->config.snowflake.layout;
  const auto id_of = [&](std::string_view word) {
    return ParseAnyId(word, std::nullopt, layout.TimeSplit());
  };
  // The first code binds the tag to its key and length for ever: not before there is an ID that has one.
  std::uint64_t highest = 0;
  const bool from_stdin = options.ids.empty() || (options.ids.size() == 1 && options.ids.front() == "-");
  for (const std::string& word : options.ids) {
    if (from_stdin) break;
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, id_of(word));
    highest = std::max(highest, id);
  }
  CodeStore::Codes codes;
  return PrintCodeLines(context, options.tag, "codes", options.ids,
                        [&](std::string_view word) -> Result<CodeLine> {
                          LEAF_ASSIGN_OR_RETURN(const std::uint64_t id, id_of(word));
                          if (codes == nullptr) {
                            LEAF_ASSIGN_OR_RETURN(codes, store->ToIssue(options.tag, std::max(highest, id)));
                          }
                          LEAF_ASSIGN_OR_RETURN(std::string code, codes->Of(id));
                          return CodeLine{code, {{"id", std::to_string(id)}, {"code", code}}};
                        });
}

}  // namespace

Run AddCodeOf(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<CodeOfOptions>();
  app.add_option("TAG", options->tag, "The tag; 'snowflake' for snowflake IDs")->required();
  app.add_option("ID", options->ids, "IDs; without any, or with '-', one per line from stdin");
  app.footer(
      "Examples:\n"
      "  leafctl code of order 1002 1003\n"
      "  mysql -Ne 'SELECT id FROM orders' | leafctl code of order");
  return [options](CommandContext& context) { return RunCodeOf(context, *options); };
}

}  // namespace leaf::cmd
