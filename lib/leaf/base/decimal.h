// Whole numbers as decimal digits, eight at a time: what a server writes most.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace leaf {

class Decimal {
 public:
  explicit Decimal(std::uint64_t value) {
    constexpr std::uint64_t kEight = 100'000'000;
    std::size_t words = 1;
    Put(2, value % kEight);
    if (value >= kEight) {
      value /= kEight;
      words = 2;
      Put(1, value % kEight);
      if (value >= kEight) {
        words = 3;
        Put(0, value / kEight);
      }
    }
    std::uint64_t first = 0;
    std::memcpy(&first, text_.data() + kRoom - 8 * words, sizeof first);
    // Leading zeros of the first word, of which the last digit stays: bits that tell digits from '0'.
    first = InOrder(first) ^ kZeros;
    const std::size_t zeros = first == 0 ? 7 : static_cast<std::size_t>(std::countr_zero(first)) / 8;
    begin_ = kRoom - 8 * words + zeros;
  }

  // Views of this.
  std::string_view text() const { return {text_.data() + begin_, kRoom - begin_}; }

 private:
  static constexpr std::size_t kRoom = 24;
  static constexpr std::uint64_t kZeros = 0x3030303030303030;

  // The lowest byte of a word stands first in memory.
  static std::uint64_t InOrder(std::uint64_t word) {
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
  }

  // `value`: of eight digits at most. All of them are found at once: halves, then pairs, then single ones.
  void Put(std::size_t word, std::uint64_t value) {
    const std::uint64_t fours = value / 10'000 | value % 10'000 << 32U;
    const std::uint64_t hundreds = fours * 10486 >> 20U & 0x0000007F'0000007F;
    const std::uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16U;
    const std::uint64_t tens = pairs * 103 >> 10U & 0x000F000F'000F000F;
    const std::uint64_t digits = InOrder((tens | (pairs - 10 * tens) << 8U) | kZeros);
    std::memcpy(text_.data() + 8 * word, &digits, sizeof digits);
  }

  std::array<char, kRoom> text_;
  std::size_t begin_;
};

}  // namespace leaf
