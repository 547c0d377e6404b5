#include "leaf/base/foreign_text.h"

#include <cstddef>

namespace leaf {

bool IsDeepJson(std::string_view text) {
  constexpr int kLevelsMax = 100;
  int depth = 0;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') is_string = !is_string;
    if (is_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kLevelsMax) return true;
  }
  return false;
}

bool HasDeepTomlKey(std::string_view text) {
  constexpr int kPartsMax = 1000;
  int parts = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      parts = 0;
      quote = 0;
    } else if (quote != 0) {
      // Only a string in double quotes knows escapes. One does not reach over the end of the line.
      if (quote == '"' && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
        ++i;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '.' && ++parts > kPartsMax) {
      return true;
    }
  }
  return false;
}

}  // namespace leaf
