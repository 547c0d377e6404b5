#include "leaf/java/properties.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace leaf::java {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\f'; }
bool IsLineEnd(char c) { return c == '\n' || c == '\r'; }

// A logical line: continuations joined, escapes still in it.
struct LogicalLine {
  std::string text;
  int number = 0;
};

class LineReader {
 public:
  explicit LineReader(std::string_view bytes) : rest_(bytes) {}

  // False at the end.
  bool Next(LogicalLine& line) {
    while (!rest_.empty()) {
      line = {"", number_};
      SkipBlanks();
      if (rest_.empty()) return false;
      if (IsLineEnd(rest_.front())) {
        EndLine();
        continue;
      }
      if (rest_.front() == '#' || rest_.front() == '!') {
        // A backslash at its end continues nothing.
        while (!rest_.empty() && !IsLineEnd(rest_.front())) rest_.remove_prefix(1);
        EndLine();
        continue;
      }
      ReadContinued(line.text);
      // Java skips a line of which nothing is left: a lone backslash before an empty line.
      if (!line.text.empty()) return true;
    }
    return false;
  }

 private:
  void SkipBlanks() {
    while (!rest_.empty() && IsBlank(rest_.front())) rest_.remove_prefix(1);
  }
  // CR, LF and CRLF are one end each.
  void EndLine() {
    if (rest_.empty()) return;
    const bool carriage_return = rest_.front() == '\r';
    rest_.remove_prefix(1);
    if (carriage_return && !rest_.empty() && rest_.front() == '\n') rest_.remove_prefix(1);
    ++number_;
  }
  void ReadContinued(std::string& text) {
    while (true) {
      bool escaped = false;  // the last character is a backslash that escapes
      while (!rest_.empty() && !IsLineEnd(rest_.front())) {
        text += rest_.front();
        escaped = rest_.front() == '\\' && !escaped;
        rest_.remove_prefix(1);
      }
      EndLine();
      if (!escaped) return;
      text.pop_back();
      if (rest_.empty()) return;
      SkipBlanks();
    }
  }

  std::string_view rest_;
  int number_ = 1;
};

void AppendUtf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool IsHighHalf(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowHalf(std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// The four digits of a \uXXXX.
Result<std::uint32_t> ReadHex(std::string_view digits, int line) {
  constexpr std::size_t kDigits = 4;
  std::uint32_t unit = 0;
  std::size_t read = 0;
  for (const char c : digits.substr(0, kDigits)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) break;
    unit = unit * 16 + static_cast<std::uint32_t>(digit);
    ++read;
  }
  if (read == kDigits) return unit;
  return Error{ErrorCode::kConfig,
               fmt::format("line {}: \\u is not followed by four hexadecimal digits", line),
               "Java refuses the whole file for it; a backslash itself is written \\\\"};
}

// What Java makes of an escaped part: UTF-16 units, put together here.
Result<std::string> Unescape(std::string_view text, int line) {
  std::string out;
  std::uint32_t high = 0;  // the first half of a pair, if it has come
  const Error lone{ErrorCode::kConfig, fmt::format("line {}: half of a surrogate pair", line),
                   "a character beyond U+FFFF is written as two \\uXXXX"};
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::uint32_t unit = static_cast<unsigned char>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char c = text[++i];
      if (c == 'u') {
        LEAF_ASSIGN_OR_RETURN(unit, ReadHex(text.substr(i + 1), line));
        i += 4;
      } else {
        unit = c == 't'   ? '\t'
               : c == 'n' ? '\n'
               : c == 'r' ? '\r'
               : c == 'f' ? '\f'
                          : static_cast<unsigned char>(c);
      }
    }
    if (high != 0) {
      if (!IsLowHalf(unit)) return lone;
      AppendUtf8(out, 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00));
      high = 0;
    } else if (IsHighHalf(unit)) {
      high = unit;
    } else if (IsLowHalf(unit)) {
      return lone;
    } else {
      AppendUtf8(out, unit);
    }
  }
  if (high != 0) return lone;
  return out;
}

// Where the key ends: at the first separator that is not escaped.
std::size_t KeySize(std::string_view text) {
  bool escaped = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!escaped && (text[i] == '=' || text[i] == ':' || IsBlank(text[i]))) return i;
    escaped = text[i] == '\\' && !escaped;
  }
  return text.size();
}

}  // namespace

Result<std::vector<Property>> ParseJavaProperties(std::string_view bytes) {
  std::vector<Property> properties;
  LineReader reader(bytes);
  LogicalLine line;
  while (reader.Next(line)) {
    const std::string_view text = line.text;
    const std::size_t key_size = KeySize(text);
    std::size_t value_begin = key_size;
    const auto skip_blanks = [&] {
      while (value_begin < text.size() && IsBlank(text[value_begin])) ++value_begin;
    };
    skip_blanks();
    if (value_begin < text.size() && (text[value_begin] == '=' || text[value_begin] == ':')) {
      ++value_begin;
      skip_blanks();
    }
    LEAF_ASSIGN_OR_RETURN(std::string key, Unescape(text.substr(0, key_size), line.number));
    LEAF_ASSIGN_OR_RETURN(std::string value, Unescape(text.substr(value_begin), line.number));
    properties.push_back({std::move(key), std::move(value), line.number});
  }
  return properties;
}

}  // namespace leaf::java
