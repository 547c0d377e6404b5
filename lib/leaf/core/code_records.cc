#include "leaf/core/code_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::core {

std::string CodeLengthsText(const std::vector<int>& lengths) {
  std::string text;
  for (const int length : lengths) text += fmt::format("{}{}", text.empty() ? "" : ",", length);
  return text;
}

std::optional<std::vector<int>> ParseCodeLengths(std::string_view text) {
  std::vector<int> lengths;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    const auto length = ParseWhole<int>(word);
    if (!length || *length < 1 || (!lengths.empty() && *length <= lengths.back())) return std::nullopt;
    lengths.push_back(*length);
    if (word.size() == text.size()) return lengths;
    text.remove_prefix(word.size() + 1);
  }
}

Result<std::optional<CodeRecord>> ExtendCodeRecord(const CodeRecord& kept, const CodeRecord& wanted,
                                                   CodesBegin begin) {
  LEAF_CHECK(!kept.lengths.empty() && !wanted.lengths.empty());
  const auto refuse = [&](std::string_view what, std::string hint) {
    return Error{
        ErrorCode::kConfig,
        fmt::format("no codes of tag {}: {}, and two IDs could get one code", Quoted(kept.tag), what),
        std::move(hint)};
  };
  if (kept.key != wanted.key) {
    return refuse(fmt::format("its codes were made with another key ({}, not {})", kept.key, wanted.key),
                  "set codes.key_file to the file with the key of the first codes");
  }
  if (!kept.cluster.empty() && kept.cluster != wanted.cluster) {
    return refuse(
        "they are those of another cluster",
        "set snowflake.cluster to the name of that cluster; if none of its codes is in use any more, stop "
        "the nodes that have made them and delete the row 'snowflake' of table leafctl_codes");
  }
  if (kept.alphabet != wanted.alphabet) {
    return refuse(fmt::format("its codes are in alphabet {}, not {}", kept.alphabet, wanted.alphabet),
                  fmt::format("set alphabet = \"{}\" for this tag", kept.alphabet));
  }
  if (kept.check != wanted.check) {
    return refuse(fmt::format("its codes were made {} a check character", kept.check ? "with" : "without"),
                  fmt::format("set check = {} for this tag", kept.check));
  }
  CodeRecord extended = kept;
  extended.lengths.clear();
  std::set_union(kept.lengths.begin(), kept.lengths.end(), wanted.lengths.begin(), wanted.lengths.end(),
                 std::back_inserter(extended.lengths));
  const int length = wanted.lengths.back();
  const int longest = kept.lengths.back();
  if (begin == CodesBegin::kNow && length < longest) {
    return refuse(fmt::format("its codes have length {} by now, not {}", longest, length),
                  fmt::format("set length = {} for this tag, or more", longest));
  }
  extended.cluster = wanted.cluster;
  if (extended.lengths == kept.lengths && extended.cluster == kept.cluster)
    return std::optional<CodeRecord>();
  return std::optional<CodeRecord>(std::move(extended));
}

std::uint64_t CodesEnd(const CodeRecord& record) {
  for (const CodeAlphabet& alphabet : kCodeAlphabets) {
    if (alphabet.name != record.alphabet || record.lengths.empty()) continue;
    std::uint64_t end = 1;
    for (int i = 0; i < record.lengths.back(); ++i) {
      if (end > kIdEnd / alphabet.radix) return kIdEnd;
      end *= alphabet.radix;
    }
    return end;
  }
  return kIdEnd;
}

}  // namespace leaf::core
