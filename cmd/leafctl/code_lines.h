// What the commands of codes have in common: a tag, and what is read and printed one by one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "tag_output.h"

namespace leaf::cmd {

// One result: as text, and as the item of a document.
struct CodeLine {
  std::string text;
  Json json;
};
using MakeCodeLine = std::function<Result<CodeLine>(std::string_view word)>;

// Makes a line of each word; without any, or with "-" alone, of each line of stdin, where empty lines do not
// count. Words: prints nothing if one is wrong. Stdin: prints what is right, as it comes, and tells of the
// rest. With --json they are the items of `key`, beside the tag. Errors: the first one's.
Result<void> PrintCodeLines(CommandContext& context, const std::string& tag, std::string_view key,
                            const std::vector<std::string>& words, const MakeCodeLine& make);

}  // namespace leaf::cmd
