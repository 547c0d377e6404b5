// How codes look: their alphabet, their length, the check character and the groups. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/codes/ff1.h"

namespace leaf::codes {

enum class Alphabet : std::uint8_t { kDecimal, kBase32 };

std::string_view AlphabetName(Alphabet alphabet);
std::optional<Alphabet> ParseAlphabet(std::string_view name);
unsigned RadixOf(Alphabet alphabet);

inline constexpr int kCodeLengthMin = 4;
inline constexpr int kCodeLengthMax = 24;

struct CodeShape {
  Alphabet alphabet = Alphabet::kDecimal;
  int length = 12;    // without check character and separators
  bool check = true;  // a check character at the end: Luhn's or Crockford's
  int group = 4;      // characters between two hyphens; 0 for none

  bool operator==(const CodeShape&) const = default;
};

// Errors: kInvalidArgument: a length that is outside of its limits, or has fewer than 10^6 codes.
Result<void> CheckShape(const CodeShape& shape);

// How many codes there are; all of 128 bits for the longest ones.
WideNumber DomainOf(const CodeShape& shape);
// "10^12", "32^8": for messages.
std::string DomainText(const CodeShape& shape);

// In bytes, with check character and separators.
std::size_t TextSize(const CodeShape& shape);
// Appends the code that has this number. Requires: number < DomainOf(shape).
void AppendCode(std::string& out, WideNumber number, const CodeShape& shape);

// A code as a person may have typed it.
struct TypedCode {
  int length = 0;  // without the check character
  WideNumber number = 0;
};
// Reads a code of one of `lengths`. Case, hyphens and blanks do not count; in base32 O is 0, and I and L
// are 1. Errors: kInvalidArgument, which says what is wrong: a character, the length, the check character.
Result<TypedCode> ReadCode(std::string_view text, Alphabet alphabet, bool check,
                           const std::vector<int>& lengths);
// The length that a text would have as a code, without the check character: to find out which lengths to ask
// for. 0 or less for none.
int TypedLength(std::string_view text, bool check);

}  // namespace leaf::codes
