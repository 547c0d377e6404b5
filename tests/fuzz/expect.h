// What every parser is held to.
#pragma once

#include <string_view>

#include "leaf/base/check.h"
#include "leaf/base/error.h"
#include "leaf/base/text.h"

namespace leaf::fuzz {

// One line, for a terminal: valid UTF-8 without control characters.
inline void ExpectOneLine(std::string_view text) {
  LEAF_CHECK(CountCodePoints(text).has_value());
  LEAF_CHECK(!HasControlCharacter(text));
}

// The message quotes what it is about.
inline void ExpectNames(const Error& error, std::string_view input) {
  LEAF_CHECK(error.message.find(Quoted(input)) != std::string_view::npos);
  ExpectOneLine(error.message);
}

// Cuts the first line off `text`; all of it if there is no newline.
inline std::string_view TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace leaf::fuzz
