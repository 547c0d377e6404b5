// The words of bash's command line, unfinished and quoted in whatever way, and their completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leaf::cmd {

struct BashWord {
  std::string text;  // what the shell would make of it; variables and the like stay as they are written
  std::string tail;  // the end of what was typed, from where readline replaces it
  char quote = 0;    // the quote that is still open: ' or ", else 0

  // What readline has to put in the place of `tail`, so that the word stands for `name`, whatever is in it:
  // no part of it is ever run or expanded. Requires: name begins with text.
  std::string Completed(std::string_view name) const;
};

// `word_breaks`: bash's COMP_WORDBREAKS; readline replaces what comes after the last of them that is not
// quoted.
BashWord ReadBashWord(std::string_view typed, std::string_view word_breaks);

// The words of a line as they are typed, quotes and all; the last one is "" after a blank.
std::vector<std::string> SplitBashLine(std::string_view line);

}  // namespace leaf::cmd
