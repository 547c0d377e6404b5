// Small text helpers shared by every layer: quoting of untrusted text, UTF-8, numbers, nearest names,
// tag names.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "leaf/base/result.h"

namespace leaf {

// 'text' in single quotes; control characters and bytes that are not UTF-8 as \xNN, so that a message can
// neither forge a line nor disturb a terminal. Long texts are cut.
std::string Quoted(std::string_view text);

// The same without quotes, and never cut: for what a library says about a text.
std::string Printable(std::string_view text);

// The text as one word of a shell's command line: as it is where it is plain, else in single quotes.
std::string ShellWord(std::string_view text);

// For a hint: "leafctl tag VERB TAG FLAGS" with the tag as one word that no shell, and no parser of flags,
// takes for anything else.
std::string TagCommand(std::string_view verb, std::string_view tag, std::string_view flags = "");

// Number of code points, or nullopt if `text` is not valid UTF-8 (RFC 3629: no surrogates, no overlong
// forms).
std::optional<std::size_t> CountCodePoints(std::string_view text);

// True if `text` holds a C0, DEL or C1 control character. Requires: valid UTF-8.
bool HasControlCharacter(std::string_view text);

// The candidate nearest to `word` by edit distance, if it is near enough to be meant.
std::optional<std::string> NearestName(std::string_view word, std::span<const std::string> candidates);

// `text` without the blanks and tabs at either end.
inline std::string_view TrimBlanks(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// With the letters of ASCII in lower case.
inline char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = LowerCase(c);
  return lower;
}

// The eight bytes at `at`, as they lie in memory.
inline std::uint64_t WordAt(std::string_view text, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, &text[at], sizeof word);
  return word;
}

// The number that `text` is, as a whole: without a blank, without a plus sign, and within what Number holds.
template <typename Number>
std::optional<Number> ParseWhole(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A name that can stand in leaf_alloc.biz_tag: valid UTF-8, 1..128 characters, no control character.
// Errors: kInvalidArgument that names the tag and what is wrong with it.
Result<void> ValidateTag(std::string_view tag);
// The same, and no '/', which no route could carry: for tags that are being added.
Result<void> ValidateNewTag(std::string_view tag);

// kNotFound, with the command that adds it, if it can be added.
Error UnknownTag(std::string_view tag);

}  // namespace leaf
