#include "leaf/access/tag_patterns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "leaf/base/text.h"

namespace leaf::access {
namespace {

// Never more steps than the product of both lengths: at a mismatch the last '*' takes one character more.
bool MatchesOne(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(),
                     [](char c) { return c == '*'; });
}

}  // namespace

TagPatterns::TagPatterns(std::vector<std::string> patterns)
    : patterns_(std::move(patterns)),
      matches_all_(std::find(patterns_.begin(), patterns_.end(), "*") != patterns_.end()) {}

Result<TagPatterns> TagPatterns::Parse(std::string_view text) {
  std::vector<std::string> patterns;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view pattern = text.substr(0, comma);
    if (pattern.empty()) return Error{ErrorCode::kInvalidArgument, "an empty tag pattern", ""};
    // The file of tokens is made of words.
    if (!CountCodePoints(pattern) || HasControlCharacter(pattern) || pattern.find(' ') != pattern.npos) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad tag pattern {}: it has a blank or a control character", Quoted(pattern)),
                   "use '*' in the place of a blank"};
    }
    patterns.emplace_back(pattern);
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  return TagPatterns(std::move(patterns));
}

bool TagPatterns::Matches(std::string_view tag) const {
  return matches_all_ || std::any_of(patterns_.begin(), patterns_.end(),
                                     [&](const std::string& pattern) { return MatchesOne(pattern, tag); });
}

std::string TagPatterns::Text() const { return fmt::format("{}", fmt::join(patterns_, ",")); }

}  // namespace leaf::access
