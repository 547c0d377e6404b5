#include "leaf/base/id_text.h"

#include <fmt/format.h>

#include <charconv>

#include "leaf/base/text.h"

namespace leaf {

std::optional<IdFormat> ParseIdFormat(std::string_view name) {
  if (name == "dec") return IdFormat::kDecimal;
  if (name == "hex") return IdFormat::kHex;
  if (name == "base62") return IdFormat::kBase62;
  return std::nullopt;
}

void AppendId(std::string& out, std::uint64_t id, IdFormat format) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  char buffer[24];
  switch (format) {
    case IdFormat::kDecimal: {
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, id).ptr;
      out.append(buffer, end);
      return;
    }
    case IdFormat::kHex: {
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, id, 16).ptr;
      out.append("0x").append(buffer, end);
      return;
    }
    case IdFormat::kBase62: {
      char* position = buffer + sizeof buffer;
      do {
        *--position = kDigits[id % kDigits.size()];
        id /= kDigits.size();
      } while (id > 0);
      out.append(position, buffer + sizeof buffer);
      return;
    }
  }
}

Result<std::uint64_t> ParseUnsigned(std::string_view what, std::string_view text, std::uint64_t min,
                                    std::uint64_t max) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size() || number < min || number > max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad {} {}: not a whole number in {}..{}", what, Quoted(text), min, max), ""};
  }
  return number;
}

}  // namespace leaf
