// Which tags a token is for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::access {

// Patterns such as "order*": '*' is any text, also none, and nothing else is special. Immutable,
// so thread-safe.
class TagPatterns {
 public:
  // No tag.
  TagPatterns() = default;
  static TagPatterns All() { return TagPatterns({"*"}); }
  // "order*,pay". Errors: kInvalidArgument for an empty pattern, and for a blank or control character in one.
  static Result<TagPatterns> Parse(std::string_view text);

  bool matches_all() const { return matches_all_; }
  bool Matches(std::string_view tag) const;
  std::string Text() const;

 private:
  explicit TagPatterns(std::vector<std::string> patterns);

  std::vector<std::string> patterns_;
  bool matches_all_ = false;
};

}  // namespace leaf::access
