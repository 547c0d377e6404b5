// The text forms of an ID, in one table: decimal, 0x-hexadecimal and base62 (0-9A-Za-z, most significant
// first, unpadded) of any ID; UUIDv7 and ULID of a snowflake ID; and its code (lib/leaf/codes), which needs a
// key.
//
// A UUIDv7 (RFC 9562) and a ULID of a snowflake ID begin with its time, as 48 bits of Unix milliseconds. The
// bits below the time in the ID, worker and sequence, follow at once, the most significant first; in a UUID
// they fill rand_a and go on in rand_b. All bits behind them are 0. So the texts are as unique as the IDs,
// sort as the IDs do, and can be turned back into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf {

enum class IdFormat : std::uint8_t { kDecimal, kHex, kBase62, kUuid, kUlid, kCode };

struct IdFormatRow {
  IdFormat format;
  std::string_view name;     // on the command line, and for /v1/decode
  std::string_view form;     // the value of ?form= over HTTP; "" if it has none there
  bool has_time;             // it is for snowflake IDs only
  std::size_t width;         // in bytes; 0 if it depends on the ID, or on the key's settings
  std::string_view meaning;  // what a message calls it
};

// All of them.
std::span<const IdFormatRow> IdFormats();
const IdFormatRow& IdFormatRowOf(IdFormat format);
// For messages: the formats that can be read without a key, "dec, hex, base62, uuidv7, ulid"; and the values
// of ?form=, "ids, uuid, ulid, code", or those with a time alone.
std::string ReadFormatNames();
std::string FormNames(bool with_time_only = false);

// By the name on the command line; of any format.
std::optional<IdFormat> ParseIdFormat(std::string_view name);
// By the value of ?form=.
std::optional<IdFormat> ParseIdForm(std::string_view form);

// Appends `id` to `out` without allocating beyond the string's growth. Requires: a format without a time, and
// not kCode.
void AppendId(std::string& out, std::uint64_t id, IdFormat format = IdFormat::kDecimal);

// Reads an ID in [0, 2^63): decimal or, begun by 0x, hexadecimal; in `format` where that is given (0x may be
// left out then). Requires: a format as for AppendId. Errors: kInvalidArgument that names the text and what
// is wrong with it.
Result<std::uint64_t> ParseId(std::string_view text, std::optional<IdFormat> format = std::nullopt);

// Where a snowflake ID has its time: above the lowest `low_bits`, in milliseconds since `epoch_ms`.
struct IdTimeSplit {
  std::int64_t epoch_ms = 0;
  int low_bits = 22;  // 2..61
};

// Whether the times of all IDs have room in 48 bits. Requires: a format with a time. Errors:
// kInvalidArgument.
Result<void> CheckTimedFormat(IdFormat format, const IdTimeSplit& split);
// Requires: CheckTimedFormat; id < kIdEnd.
void AppendTimedId(std::string& out, std::uint64_t id, IdFormat format, const IdTimeSplit& split);
// Reads what AppendTimedId writes, in any case. Requires: CheckTimedFormat. Errors: kInvalidArgument that
// says what is wrong: also for a UUID or ULID that was not made of a snowflake ID.
Result<std::uint64_t> ParseTimedId(std::string_view text, IdFormat format, const IdTimeSplit& split);
// The format with a time that a text of this shape can have; nothing for another shape.
std::optional<IdFormat> TimedShapeOf(std::string_view text);
// By `format`, or where there is none by the shape of the text. Errors: as of the two that it stands for.
Result<std::uint64_t> ParseAnyId(std::string_view text, std::optional<IdFormat> format,
                                 const IdTimeSplit& split);

// A form in which each ID has the same number of bytes. Immutable, so thread-safe.
class FixedIdText {
 public:
  virtual ~FixedIdText() = default;
  virtual std::size_t width() const = 0;
  // Requires: Check(id).
  virtual void Append(std::string& out, std::uint64_t id) const = 0;
  // Whether each ID up to `last` has this form. Errors: those of the form.
  virtual Result<void> Check(std::uint64_t last) const = 0;
};

// The forms with a time.
class TimedIdText final : public FixedIdText {
 public:
  // Errors: as of CheckTimedFormat.
  static Result<TimedIdText> Make(IdFormat format, const IdTimeSplit& split);
  std::size_t width() const override { return IdFormatRowOf(format_).width; }
  void Append(std::string& out, std::uint64_t id) const override { AppendTimedId(out, id, format_, split_); }
  Result<void> Check(std::uint64_t) const override { return {}; }

 private:
  TimedIdText(IdFormat format, const IdTimeSplit& split) : format_(format), split_(split) {}
  IdFormat format_;
  IdTimeSplit split_;
};

// Decimal digits only (no sign, no blanks), in min..max. Errors: kInvalidArgument that names `what` and the
// text.
Result<std::uint64_t> ParseUnsigned(std::string_view what, std::string_view text, std::uint64_t min,
                                    std::uint64_t max);

}  // namespace leaf
