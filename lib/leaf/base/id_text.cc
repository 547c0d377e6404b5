#include "leaf/base/id_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "leaf/base/check.h"
#include "leaf/base/crockford.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

constexpr std::array<IdFormatRow, 6> kFormats{{
    {IdFormat::kDecimal, "dec", "ids", false, 0, "a decimal number"},
    {IdFormat::kHex, "hex", "", false, 0, "a hexadecimal number"},
    {IdFormat::kBase62, "base62", "", false, 0, "a base62 number"},
    {IdFormat::kUuid, "uuidv7", "uuid", true, 36, "a UUIDv7"},
    {IdFormat::kUlid, "ulid", "ulid", true, 26, "a ULID"},
    {IdFormat::kCode, "code", "code", false, 0, "a code"},
}};

constexpr int kTimeBits = 48;
constexpr std::uint64_t kTimeEnd = std::uint64_t{1} << kTimeBits;
constexpr int kRandABits = 12;
constexpr int kRandBBits = 62;

// The bits below an ID's time as the highest ones of `bits`, at most 64 of them.
std::uint64_t HighBits(std::uint64_t low, int low_bits, int bits) {
  return bits >= low_bits ? low << (bits - low_bits) : low >> (low_bits - bits);
}

// 128 bits.
struct WidePair {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

WidePair TimedBits(std::uint64_t id, IdFormat format, const IdTimeSplit& split) {
  const std::uint64_t below = id & ((std::uint64_t{1} << split.low_bits) - 1);
  const std::uint64_t time = static_cast<std::uint64_t>(split.epoch_ms) + (id >> split.low_bits);
  const int first = format == IdFormat::kUuid ? kRandABits : 64 - kTimeBits;
  const std::uint64_t in_high = HighBits(below, split.low_bits, first);
  const int rest_bits = std::max(split.low_bits - first, 0);
  const std::uint64_t rest = rest_bits == 0 ? 0 : below & ((std::uint64_t{1} << rest_bits) - 1);
  if (format == IdFormat::kUuid) {
    constexpr std::uint64_t kVersion7 = 7;
    constexpr std::uint64_t kVariant = 2;
    return {time << (64 - kTimeBits) | kVersion7 << kRandABits | in_high,
            kVariant << kRandBBits | (rest_bits == 0 ? 0 : HighBits(rest, rest_bits, kRandBBits))};
  }
  return {time << (64 - kTimeBits) | in_high, rest_bits == 0 ? 0 : HighBits(rest, rest_bits, 64)};
}

constexpr std::array<std::size_t, 4> kUuidHyphens{8, 13, 18, 23};
constexpr std::size_t kUuidSize = 36;
constexpr std::size_t kUlidSize = 26;

void AppendUuid(std::string& out, const WidePair& bits) {
  constexpr std::string_view kHex = "0123456789abcdef";
  char text[kUuidSize];
  int nibble = 0;
  for (std::size_t i = 0; i < kUuidSize; ++i) {
    if (std::find(kUuidHyphens.begin(), kUuidHyphens.end(), i) != kUuidHyphens.end()) {
      text[i] = '-';
      continue;
    }
    const std::uint64_t word = nibble < 16 ? bits.high : bits.low;
    text[i] = kHex[word >> (60 - 4 * (nibble % 16)) & 15U];
    ++nibble;
  }
  out.append(text, kUuidSize);
}

// 128 bits in 26 digits of 5: the first has 3.
void AppendUlid(std::string& out, WidePair bits) {
  char text[kUlidSize];
  for (std::size_t i = kUlidSize; i-- > 0;) {
    text[i] = kCrockfordDigits[bits.low & 31U];
    bits.low = bits.low >> 5 | bits.high << 59;
    bits.high >>= 5;
  }
  out.append(text, kUlidSize);
}

void AddName(std::string& names, std::string_view name) {
  if (!names.empty()) names += ", ";
  names += name;
}

std::optional<WidePair> ReadUuid(std::string_view text) {
  if (text.size() != kUuidSize) return std::nullopt;
  WidePair bits;
  for (std::size_t i = 0; i < kUuidSize; ++i) {
    if (std::find(kUuidHyphens.begin(), kUuidHyphens.end(), i) != kUuidHyphens.end()) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const auto digit = ParseWhole<std::uint8_t>(text.substr(i, 1), 16);
    if (!digit) return std::nullopt;
    bits.high = bits.high << 4 | bits.low >> 60;
    bits.low = bits.low << 4 | *digit;
  }
  return bits;
}

std::optional<WidePair> ReadUlid(std::string_view text) {
  if (text.size() != kUlidSize) return std::nullopt;
  WidePair bits;
  for (std::size_t i = 0; i < kUlidSize; ++i) {
    const auto digit = CrockfordDigit(text[i]);
    if (!digit || (i == 0 && *digit > 7)) return std::nullopt;
    bits.high = bits.high << 5 | bits.low >> 59;
    bits.low = bits.low << 5 | *digit;
  }
  return bits;
}

}  // namespace

std::span<const IdFormatRow> IdFormats() { return kFormats; }

const IdFormatRow& IdFormatRowOf(IdFormat format) {
  const IdFormatRow& row = kFormats.at(static_cast<std::size_t>(format));
  LEAF_CHECK(row.format == format);
  return row;
}

std::string ReadFormatNames() {
  std::string names;
  for (const IdFormatRow& row : kFormats) {
    if (row.format != IdFormat::kCode) AddName(names, row.name);
  }
  return names;
}

std::string FormNames(bool with_time_only) {
  std::string names;
  for (const IdFormatRow& row : kFormats) {
    if (!row.form.empty() && (row.has_time || !with_time_only)) AddName(names, row.form);
  }
  return names;
}

std::optional<IdFormat> ParseIdFormat(std::string_view name) {
  for (const IdFormatRow& row : kFormats) {
    if (row.name == name) return row.format;
  }
  return std::nullopt;
}

std::optional<IdFormat> ParseIdForm(std::string_view form) {
  for (const IdFormatRow& row : kFormats) {
    if (!row.form.empty() && row.form == form) return row.format;
  }
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
    case IdFormat::kUuid:
    case IdFormat::kUlid:
    case IdFormat::kCode:
      break;
  }
  LEAF_CHECK(false);
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

Result<void> CheckTimedFormat(IdFormat format, const IdTimeSplit& split) {
  const IdFormatRow& row = IdFormatRowOf(format);
  LEAF_CHECK(row.has_time && split.epoch_ms >= 0 && split.low_bits > 0 && split.low_bits < 63);
  const std::uint64_t time_end = kIdEnd >> split.low_bits;
  if (time_end <= kTimeEnd && static_cast<std::uint64_t>(split.epoch_ms) <= kTimeEnd - time_end) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} has {} bits of time, too few for the last IDs of this layout and epoch",
                           row.meaning, kTimeBits),
               "take them as decimal numbers"};
}

void AppendTimedId(std::string& out, std::uint64_t id, IdFormat format, const IdTimeSplit& split) {
  const WidePair bits = TimedBits(id, format, split);
  if (format == IdFormat::kUuid) return AppendUuid(out, bits);
  AppendUlid(out, bits);
}

Result<std::uint64_t> ParseTimedId(std::string_view text, IdFormat format, const IdTimeSplit& split) {
  const IdFormatRow& row = IdFormatRowOf(format);
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad ID {}: {}", Quoted(text), why), ""};
  };
  const bool is_uuid = format == IdFormat::kUuid;
  const auto bits = is_uuid ? ReadUuid(text) : ReadUlid(text);
  if (!bits) return wrong(is_uuid ? "not a UUID" : "not a ULID");
  if (is_uuid && (bits->high >> kRandABits & 15U) != 7) return wrong("not a UUID of version 7");
  const std::uint64_t time = bits->high >> (64 - kTimeBits);
  const auto epoch = static_cast<std::uint64_t>(split.epoch_ms);
  const auto foreign = [&] {
    return wrong(fmt::format("{}, but none of a snowflake ID with this layout and epoch", row.meaning));
  };
  if (time < epoch || time - epoch >= kIdEnd >> split.low_bits) return foreign();
  const int first = is_uuid ? kRandABits : 64 - kTimeBits;
  const std::uint64_t in_high = bits->high & ((std::uint64_t{1} << first) - 1);
  std::uint64_t below = 0;
  if (split.low_bits <= first) {
    below = in_high >> (first - split.low_bits);
  } else {
    const int rest_bits = split.low_bits - first;
    const std::uint64_t rest =
        is_uuid ? (bits->low & ((std::uint64_t{1} << kRandBBits) - 1)) >> (kRandBBits - rest_bits)
                : bits->low >> (64 - rest_bits);
    below = in_high << rest_bits | rest;
  }
  const std::uint64_t id = (time - epoch) << split.low_bits | below;
  // leafctl never writes other bits.
  const WidePair again = TimedBits(id, format, split);
  if (again.high != bits->high || again.low != bits->low) return foreign();
  return id;
}

std::optional<IdFormat> TimedShapeOf(std::string_view text) {
  // No number below 2^63 is as long, unless with zeros in front.
  if (text.size() == kUuidSize) return IdFormat::kUuid;
  if (text.size() == kUlidSize) return IdFormat::kUlid;
  return std::nullopt;
}

Result<std::uint64_t> ParseAnyId(std::string_view text, std::optional<IdFormat> format,
                                 const IdTimeSplit& split) {
  if (!format) format = TimedShapeOf(text);
  if (!format || !IdFormatRowOf(*format).has_time) return ParseId(text, format);
  LEAF_RETURN_IF_ERROR(CheckTimedFormat(*format, split));
  return ParseTimedId(text, *format, split);
}

Result<TimedIdText> TimedIdText::Make(IdFormat format, const IdTimeSplit& split) {
  LEAF_RETURN_IF_ERROR(CheckTimedFormat(format, split));
  return TimedIdText(format, split);
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
