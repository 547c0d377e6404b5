// Text as a terminal shows it, and as a user writes patterns of it: in characters, not in bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leaf::cmd {

// Columns that `text` takes: 2 for a wide character, 0 for one that combines, 1 for what is not UTF-8.
std::size_t DisplayColumns(std::string_view text);

// The beginning of `text` that fits in `columns`, with blanks up to there.
std::string FittedTo(std::string_view text, std::size_t columns);

// `text` with blanks before it up to `columns`, or as it is where it is longer.
std::string RightIn(std::string_view text, std::size_t columns);

// A shell's pattern (*, ?, [...]) of characters.
bool MatchesPattern(const std::string& pattern, const std::string& text);

}  // namespace leaf::cmd
