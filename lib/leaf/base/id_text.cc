#include "leaf/base/id_text.h"

#include <fmt/format.h>

#include <charconv>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

}  // namespace

std::optional<IdFormat> ParseIdFormat(std::string_view name) {
  if (name == "dec") return IdFormat::kDecimal;
  if (name == "hex") return IdFormat::kHex;
  if (name == "base62") return IdFormat::kBase62;
  return std::nullopt;
}

void AppendId(std::string& out, std::uint64_t id, IdFormat format) {
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

Result<std::uint64_t> ParseId(std::string_view text, std::optional<IdFormat> format) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad ID {}: {}", Quoted(text), why), ""};
  };
  constexpr std::string_view kTooLarge = "IDs are below 2^63";
  if (text.empty()) return wrong("it is empty");
  if (text.front() == '-') return wrong("IDs are not negative");
  if (format == IdFormat::kBase62) {
    std::uint64_t id = 0;
    for (const char c : text) {
      const std::size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) return wrong("not base62, 0-9 A-Z a-z");
      if (id > (kMaxIdLimit - digit) / kDigits.size()) return wrong(kTooLarge);
      id = id * kDigits.size() + digit;
    }
    return id;
  }
  std::string_view digits = text;
  const bool prefixed = text.starts_with("0x") || text.starts_with("0X");
  if (prefixed) digits.remove_prefix(2);
  const bool hex = format == IdFormat::kHex || (prefixed && !format);
  if (prefixed && !hex) return wrong("not a decimal number");
  std::uint64_t id = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), id, hex ? 16 : 10);
  if (end != digits.data() + digits.size() || status == std::errc::invalid_argument)
    return wrong(hex ? "not a hexadecimal number" : "not a whole number");
  if (status != std::errc{} || id >= kIdEnd) return wrong(kTooLarge);
  return id;
}

Result<std::uint64_t> ParseUnsigned(std::string_view what, std::string_view text, std::uint64_t min,
                                    std::uint64_t max) {
  const auto number = ParseWhole<std::uint64_t>(text);
  if (!number || *number < min || *number > max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad {} {}: not a whole number in {}..{}", what, Quoted(text), min, max), ""};
  }
  return *number;
}

}  // namespace leaf
