// A column of whole numbers, as SOCI reads it.
#pragma once

#include <soci/soci.h>

#include <charconv>
#include <limits>
#include <string>
#include <system_error>

namespace leaf::sql {

// What a table that another program made may hold where a number is expected, NULL or one above 2^63 - 1,
// makes SOCI throw, and the rows behind it are not read either. Here NULL is -1, and what is above is 2^63 -
// 1: no ID is granted from either. To be read with soci::into(number.text, number.state).
struct WholeNumber {
  std::string text;
  soci::indicator state = soci::i_null;

  static constexpr long long kTooLarge = std::numeric_limits<long long>::max();
  long long value() const {
    if (state != soci::i_ok) return -1;
    long long number = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, number);
    if (rest != end) return -1;
    if (problem == std::errc::result_out_of_range) return text.front() == '-' ? -1 : kTooLarge;
    return number;
  }
};

}  // namespace leaf::sql
