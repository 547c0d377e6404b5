// Crockford's base32: 0-9 and the letters without I, L, O and U.
#pragma once

#include <optional>
#include <string_view>

namespace leaf {

inline constexpr std::string_view kCrockfordDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

// In any case, and with O for 0, I and L for 1, as people write them down.
constexpr std::optional<unsigned> CrockfordDigit(char c) {
  if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (c == 'O') c = '0';
  if (c == 'I' || c == 'L') c = '1';
  const auto digit = kCrockfordDigits.find(c);
  if (digit == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned>(digit);
}

}  // namespace leaf
