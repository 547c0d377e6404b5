#include "leaf/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "leaf/base/limits.h"

namespace leaf {
namespace {

constexpr std::size_t kQuotedBytesMax = 160;

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not valid UTF-8
};

// Decodes the first code point of a non-empty text.
CodePoint DecodeFirst(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  std::uint32_t value = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[length] || value > 0x10FFFF) return {};
  if (value >= 0xD800 && value <= 0xDFFF) return {};
  return {value, length};
}

bool IsControl(std::uint32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
}

// Moves the first character, or byte that is none, of a non-empty text to `out`, escaped if need be.
void AppendFirst(std::string& out, std::string_view& text) {
  const CodePoint point = DecodeFirst(text);
  const std::size_t length = std::max<std::size_t>(point.bytes, 1);
  if (point.bytes == 0 || IsControl(point.value)) {
    for (const char byte : text.substr(0, length))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  } else {
    out += text.substr(0, length);
  }
  text.remove_prefix(length);
}

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "'";
  while (!text.empty()) {
    if (out.size() > kQuotedBytesMax) {
      out += "…";
      break;
    }
    AppendFirst(out, text);
  }
  out += '\'';
  return out;
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) AppendFirst(out, text);
  return out;
}

std::string ShellWord(std::string_view text) {
  const bool plain =
      !text.empty() && text.front() != '~' && std::all_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
               (c >= 'a' && c <= 'z') || std::string_view("_-.,/:+@%").find(c) != std::string_view::npos;
      });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string TagCommand(std::string_view verb, std::string_view tag, std::string_view flags) {
  const std::string rest = flags.empty() ? "" : fmt::format(" {}", flags);
  if (tag.starts_with('-')) return fmt::format("leafctl tag {}{} -- {}", verb, rest, ShellWord(tag));
  return fmt::format("leafctl tag {} {}{}", verb, ShellWord(tag), rest);
}

std::optional<std::size_t> CountCodePoints(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    const CodePoint point = DecodeFirst(text);
    if (point.bytes == 0) return std::nullopt;
    text.remove_prefix(point.bytes);
    ++count;
  }
  return count;
}

bool HasControlCharacter(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = DecodeFirst(text);
    LEAF_CHECK(point.bytes > 0);
    if (IsControl(point.value)) return true;
    text.remove_prefix(point.bytes);
  }
  return false;
}

std::optional<std::string> NearestName(std::string_view word, std::span<const std::string> candidates) {
  // A third of the word may be wrong: enough for slips, too little for unrelated names.
  const std::size_t distance_max = std::max<std::size_t>(1, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = distance_max + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Result<void> ValidateTag(std::string_view tag) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad tag {}: {}", Quoted(tag), why), ""};
  };
  if (tag.empty()) return wrong("it is empty");
  const std::optional<std::size_t> characters = CountCodePoints(tag);
  if (!characters) return wrong("it is not valid UTF-8");
  if (*characters > kTagCharactersMax) {
    return wrong(fmt::format("it has {} characters, {} are allowed", *characters, kTagCharactersMax));
  }
  if (HasControlCharacter(tag)) return wrong("it contains a control character");
  return {};
}

Result<void> ValidateNewTag(std::string_view tag) {
  LEAF_RETURN_IF_ERROR(ValidateTag(tag));
  if (tag.find('/') != std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad tag {}: it contains a '/', which no HTTP route can carry", Quoted(tag)),
                 ""};
  }
  return {};
}

Error UnknownTag(std::string_view tag) {
  return {ErrorCode::kNotFound, fmt::format("unknown tag {}", Quoted(tag)),
          ValidateNewTag(tag).ok() ? TagCommand("add", tag) : "leafctl tag list shows those that exist"};
}

}  // namespace leaf
