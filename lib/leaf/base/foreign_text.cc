#include "leaf/base/foreign_text.h"

#include <cstddef>
#include <string>

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
  char quote = 0;          // of the string that c is in
  bool has_lines = false;  // that string has three quotes at its ends, and goes over lines
  bool is_comment = false;
  const auto is_triple = [&](std::size_t at) { return text.substr(at, 3) == std::string(3, text[at]); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' && !has_lines) {
      // Only a string of three quotes reaches over the end of a line.
      parts = 0;
      quote = 0;
      is_comment = false;
    } else if (is_comment) {
      continue;
    } else if (quote == '"' && c == '\\' && i + 1 < text.size() && (has_lines || text[i + 1] != '\n')) {
      ++i;
    } else if (quote != 0 && c == quote && has_lines) {
      if (!is_triple(i)) continue;
      i += 2;
      // One or two more belong to the string.
      while (i + 1 < text.size() && text[i + 1] == quote) ++i;
      quote = 0;
      has_lines = false;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
      has_lines = is_triple(i);
      if (has_lines) i += 2;
    } else if (c == '#') {
      is_comment = true;
    } else if (c == '.' && ++parts > kPartsMax) {
      return true;
    }
  }
  return false;
}

}  // namespace leaf
