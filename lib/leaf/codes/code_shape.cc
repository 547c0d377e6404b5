#include "leaf/codes/code_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "leaf/base/check.h"
#include "leaf/base/crockford.h"
#include "leaf/base/text.h"

namespace leaf::codes {
namespace {

constexpr std::string_view kDecimalDigits = "0123456789";
// Crockford's check symbols: his digits, and five more.
constexpr std::string_view kCheckSymbols = "0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";
constexpr unsigned kCheckModulus = 37;
// Of what is typed, more is no code, whatever its separators are.
constexpr std::size_t kTypedBytesMax = 256;

std::string_view DigitsOf(Alphabet alphabet) {
  return alphabet == Alphabet::kDecimal ? kDecimalDigits : kCrockfordDigits;
}

bool IsSeparator(char c) { return c == '-' || c == ' ' || c == '\t'; }

// The sum of Luhn for digits behind which the check digit stands.
char LuhnDigit(std::string_view digits) {
  unsigned sum = 0;
  bool twice = true;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, twice = !twice) {
    auto value = static_cast<unsigned>(*digit - '0') * (twice ? 2U : 1U);
    if (value > 9) value -= 9;
    sum += value;
  }
  return static_cast<char>('0' + (10 - sum % 10) % 10);
}

char CheckCharacter(std::string_view digits, WideNumber number, Alphabet alphabet) {
  if (alphabet == Alphabet::kDecimal) return LuhnDigit(digits);
  return kCheckSymbols[static_cast<std::size_t>(number % kCheckModulus)];
}

// The digits of a number, as many as `length`.
struct Digits {
  std::array<char, kCodeLengthMax> text{};
  std::size_t size = 0;
  std::string_view view() const { return {text.data(), size}; }
};

Digits DigitsOfNumber(WideNumber number, Alphabet alphabet, int length) {
  const std::string_view symbols = DigitsOf(alphabet);
  const unsigned radix = RadixOf(alphabet);
  Digits digits;
  digits.size = static_cast<std::size_t>(length);
  // Nearly all numbers have 64 bits, with which the processor calculates.
  std::size_t at = digits.size;
  for (; at > 0 && number >> 64 != 0; number /= radix)
    digits.text.at(--at) = symbols[static_cast<std::size_t>(number % radix)];
  for (auto rest = static_cast<std::uint64_t>(number); at > 0; rest /= radix)
    digits.text.at(--at) = symbols[static_cast<std::size_t>(rest % radix)];
  return digits;
}

}  // namespace

std::string_view AlphabetName(Alphabet alphabet) {
  return alphabet == Alphabet::kDecimal ? "decimal" : "base32";
}

std::optional<Alphabet> ParseAlphabet(std::string_view name) {
  for (const Alphabet alphabet : {Alphabet::kDecimal, Alphabet::kBase32}) {
    if (AlphabetName(alphabet) == name) return alphabet;
  }
  return std::nullopt;
}

unsigned RadixOf(Alphabet alphabet) { return static_cast<unsigned>(DigitsOf(alphabet).size()); }

Result<void> CheckShape(const CodeShape& shape) {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), ""};
  };
  if (shape.length < kCodeLengthMin || shape.length > kCodeLengthMax)
    return wrong(fmt::format("length {} is not in {}..{}", shape.length, kCodeLengthMin, kCodeLengthMax));
  if (shape.group < 0 || shape.group > kCodeLengthMax)
    return wrong(fmt::format("group {} is not in 0..{}", shape.group, kCodeLengthMax));
  if (!Ff1::Fits(RadixOf(shape.alphabet), static_cast<unsigned>(shape.length))) {
    return wrong(fmt::format("there are only {} codes of length {}, and FF1 needs 10^6", DomainText(shape),
                             shape.length));
  }
  return {};
}

WideNumber DomainOf(const CodeShape& shape) {
  WideNumber domain = 1;
  for (int i = 0; i < shape.length; ++i) domain *= RadixOf(shape.alphabet);
  return domain;
}

std::string DomainText(const CodeShape& shape) {
  return fmt::format("{}^{}", RadixOf(shape.alphabet), shape.length);
}

std::size_t TextSize(const CodeShape& shape) {
  const auto characters = static_cast<std::size_t>(shape.length) + (shape.check ? 1U : 0U);
  return characters + (shape.group == 0 ? 0 : (characters - 1) / static_cast<std::size_t>(shape.group));
}

void AppendCode(std::string& out, WideNumber number, const CodeShape& shape) {
  const Digits digits = DigitsOfNumber(number, shape.alphabet, shape.length);
  int in_group = 0;
  const auto add = [&](char c) {
    if (shape.group > 0 && in_group == shape.group) {
      out += '-';
      in_group = 0;
    }
    out += c;
    ++in_group;
  };
  for (const char c : digits.view()) add(c);
  if (shape.check) add(CheckCharacter(digits.view(), number, shape.alphabet));
}

int TypedLength(std::string_view text, bool check) {
  if (text.size() > kTypedBytesMax) return 0;
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return !IsSeparator(c); });
  return static_cast<int>(characters) - (check ? 1 : 0);
}

Result<TypedCode> ReadCode(std::string_view text, Alphabet alphabet, bool check,
                           const std::vector<int>& lengths) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad code {}: {}", Quoted(text), why), ""};
  };
  TypedCode typed{.length = TypedLength(text, check)};
  if (std::find(lengths.begin(), lengths.end(), typed.length) == lengths.end()) {
    std::vector<int> characters = lengths;
    for (int& each : characters) each += check ? 1 : 0;
    return wrong(fmt::format("it has {} characters, and codes of this tag have {}",
                             std::max(0, typed.length + (check ? 1 : 0)), fmt::join(characters, " or ")));
  }
  Digits digits;
  std::optional<char> last;  // the check character
  for (const char c : text) {
    if (IsSeparator(c)) continue;
    if (check && static_cast<int>(digits.size) == typed.length) {
      last = c;
      break;
    }
    std::optional<unsigned> digit;
    if (alphabet == Alphabet::kBase32) {
      digit = CrockfordDigit(c);
    } else if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    }
    if (!digit) {
      return wrong(fmt::format("{} is no character of alphabet {}", Quoted(std::string_view(&c, 1)),
                               AlphabetName(alphabet)));
    }
    digits.text.at(digits.size++) = DigitsOf(alphabet)[*digit];
    typed.number = typed.number * RadixOf(alphabet) + *digit;
  }
  if (!check) return typed;
  LEAF_CHECK(last.has_value());
  char given = *last;
  if (alphabet == Alphabet::kBase32) {
    // U is a symbol here, so a digit is told from it first.
    if (const auto digit = CrockfordDigit(given)) {
      given = kCrockfordDigits[*digit];
    } else if (given == 'u') {
      given = 'U';
    }
  }
  if (given == CheckCharacter(digits.view(), typed.number, alphabet)) return typed;
  return wrong("its check character is wrong, so a character was mistyped");
}

}  // namespace leaf::codes
