#include "text_width.h"

#include <fnmatch.h>
#include <locale.h>
#include <wchar.h>

#include <algorithm>

namespace leaf::cmd {
namespace {

// While an object of this class lives, the C library's functions read text as UTF-8 in this thread. The
// user's locale does not matter. On a system without the locale C.UTF-8 these functions see bytes.
class Utf8 {
 public:
  Utf8() {
    static const locale_t kUtf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (kUtf8 != nullptr) before_ = uselocale(kUtf8);
  }
  ~Utf8() {
    if (before_ != nullptr) uselocale(before_);
  }
  Utf8(const Utf8&) = delete;
  Utf8& operator=(const Utf8&) = delete;

 private:
  locale_t before_ = nullptr;
};

struct Character {
  std::size_t bytes;
  std::size_t columns;
};

// The first one of `text`, which is not empty.
Character FirstOf(std::string_view text) {
  mbstate_t state{};
  wchar_t wide = 0;
  const std::size_t bytes = mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {1, 1};
  const int columns = wcwidth(wide);
  return {bytes, columns < 0 ? 1 : static_cast<std::size_t>(columns)};
}

}  // namespace

std::size_t DisplayColumns(std::string_view text) {
  const Utf8 utf8;
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character first = FirstOf(text);
    columns += first.columns;
    text.remove_prefix(first.bytes);
  }
  return columns;
}

std::string FittedTo(std::string_view text, std::size_t columns) {
  const Utf8 utf8;
  std::string out;
  std::size_t used = 0;
  while (!text.empty()) {
    const Character first = FirstOf(text);
    if (used + first.columns > columns) break;
    used += first.columns;
    out += text.substr(0, first.bytes);
    text.remove_prefix(first.bytes);
  }
  return out + std::string(columns - used, ' ');
}

std::string RightIn(std::string_view text, std::size_t columns) {
  const std::size_t used = DisplayColumns(text);
  return std::string(columns - std::min(used, columns), ' ') + std::string(text);
}

bool MatchesPattern(const std::string& pattern, const std::string& text) {
  const Utf8 utf8;
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace leaf::cmd
