// Text forms of IDs, durations, times, endpoints and layouts.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/base/duration.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/time.h"
#include "leaf/core/id_layout.h"

namespace leaf::fuzz {
namespace {

constexpr std::array kFormats = {IdFormat::kDecimal, IdFormat::kHex, IdFormat::kBase62};

void ExpectSameInEveryFormat(std::uint64_t id) {
  for (const IdFormat format : kFormats) {
    std::string text;
    AppendId(text, id, format);
    const auto again = ParseId(text, format);
    LEAF_CHECK(again.ok() && *again == id);
  }
}

}  // namespace

void IdText(std::string_view input) {
  const std::array<std::optional<IdFormat>, 4> formats = {std::nullopt, kFormats[0], kFormats[1],
                                                          kFormats[2]};
  for (const auto& format : formats) {
    const auto id = ParseId(input, format);
    if (id.ok()) {
      LEAF_CHECK(*id < kIdEnd);
      ExpectSameInEveryFormat(*id);
    } else {
      LEAF_CHECK(id.error().code == ErrorCode::kInvalidArgument);
      ExpectNames(id.error(), input);
    }
  }
  // The forms with a time, of Leaf's layout, and of another one with more bits below it.
  for (const IdTimeSplit& split : {IdTimeSplit{kLeafEpochMillis, 22}, IdTimeSplit{0, 40}}) {
    for (const auto& format :
         {std::optional<IdFormat>(), std::optional(IdFormat::kUuid), std::optional(IdFormat::kUlid)}) {
      const auto id = ParseAnyId(input, format, split);
      if (!id.ok()) {
        LEAF_CHECK(id.error().code == ErrorCode::kInvalidArgument);
        ExpectNames(id.error(), input);
        continue;
      }
      LEAF_CHECK(*id < kIdEnd);
      for (const IdFormat timed : {IdFormat::kUuid, IdFormat::kUlid}) {
        std::string text;
        AppendTimedId(text, *id, timed, split);
        LEAF_CHECK(ParseAnyId(text, std::nullopt, split).value() == *id);
      }
    }
  }
  const auto number = ParseUnsigned("count", input, 1, 1000);
  if (number.ok()) {
    LEAF_CHECK(*number >= 1 && *number <= 1000);
  } else {
    ExpectNames(number.error(), input);
  }
  // What is a number here is the same number as an ID.
  if (const auto any = ParseUnsigned("count", input, 0, kMaxIdLimit); any.ok()) {
    const auto id = ParseId(input, IdFormat::kDecimal);
    LEAF_CHECK(id.ok() && *id == *any);
  }
}

void Duration(std::string_view input) {
  const auto duration = ParseDuration(input);
  if (!duration.ok()) {
    LEAF_CHECK(duration.error().code == ErrorCode::kInvalidArgument);
    return ExpectNames(duration.error(), input);
  }
  LEAF_CHECK(duration->count() >= 0);
  // As nanoseconds it is still itself.
  LEAF_CHECK(std::chrono::nanoseconds(*duration).count() / 1'000'000 == duration->count());
  const std::string text = FormatDuration(*duration);
  const auto again = ParseDuration(text);
  LEAF_CHECK(again.ok() && *again == *duration);
  LEAF_CHECK(FormatDuration(*again) == text);
}

void Text(std::string_view input) {
  const std::string quoted = Quoted(input);
  ExpectOneLine(quoted);
  LEAF_CHECK(quoted.size() >= 2 && quoted.size() < 200);
  ExpectOneLine(Printable(input));
  if (quoted.size() < 150) LEAF_CHECK(quoted == "'" + Printable(input) + "'");

  // The JSON library has a decoder of its own.
  bool valid = true;
  try {
    static_cast<void>(nlohmann::json(input).dump());
  } catch (const nlohmann::json::type_error&) {
    valid = false;
  }
  const auto characters = CountCodePoints(input);
  LEAF_CHECK(characters.has_value() == valid);
  if (characters) LEAF_CHECK(*characters <= input.size() && *characters * 4 >= input.size());

  const auto tag = ValidateTag(input);
  const auto new_tag = ValidateNewTag(input);
  if (tag.ok()) {
    LEAF_CHECK(!input.empty() && input.size() <= kTagBytesMax && *characters <= kTagCharactersMax);
    LEAF_CHECK(!HasControlCharacter(input));
    LEAF_CHECK(new_tag.ok() == (input.find('/') == std::string_view::npos));
  } else {
    ExpectNames(tag.error(), input);
    LEAF_CHECK(!new_tag.ok());
  }

  std::vector<std::string> names{"server.listen", "segment.store", "snowflake.worker_id"};
  if (const auto nearest = NearestName(input, names))
    LEAF_CHECK(*nearest == names[0] || *nearest == names[1] || *nearest == names[2]);
  names.emplace_back(input);
  const auto same = NearestName(input, names);
  LEAF_CHECK(same && *same == input);
}

void MysqlEndpoint(std::string_view input) {
  constexpr std::uint16_t kPort = 3306;
  const auto endpoint = ParseEndpoint(input, kPort);
  if (!endpoint.ok()) {
    LEAF_CHECK(endpoint.error().code == ErrorCode::kInvalidArgument);
    return ExpectNames(endpoint.error(), input);
  }
  LEAF_CHECK(!endpoint->host.empty() && endpoint->port > 0);
  // Nothing that ends a value in a connection string, of SOCI's or of the client library's.
  LEAF_CHECK(endpoint->host.find_first_of(";='\"\\{}[] \t\n/@,") == std::string::npos);
  ExpectOneLine(endpoint->host);
  const bool v6 = endpoint->host.find(':') != std::string::npos;
  const std::string text = v6 ? fmt::format("[{}]:{}", endpoint->host, endpoint->port)
                              : fmt::format("{}:{}", endpoint->host, endpoint->port);
  const auto again = ParseEndpoint(text, 1);
  LEAF_CHECK(again.ok() && *again == *endpoint);
}

void Time(std::string_view input) {
  constexpr WallTime kNow{std::chrono::milliseconds{1'795'173'796'497}};
  const auto time = ParseTime(input, kNow);
  if (!time.ok()) {
    LEAF_CHECK(time.error().code == ErrorCode::kInvalidArgument);
    return ExpectNames(time.error(), input);
  }
  // All that is accepted can be written.
  const std::string text = FormatRfc3339(*time);
  ExpectOneLine(text);
  ExpectOneLine(FormatLocal(*time));
  ExpectOneLine(FormatHttpDate(*time));
  const std::int64_t millis = UnixMillis(*time);
  constexpr std::int64_t kYear0 = -62'167'219'200'000;
  if (millis >= kYear0 && millis <= core::kEpochMillisMax) {
    const auto again = ParseTime(text, kNow);
    LEAF_CHECK(again.ok() && *again == *time);
  }
  // What is neither a year nor looks like seconds.
  if (millis < 0 || (millis > 9999 && millis < 1'000'000'000) || millis >= 100'000'000'000) {
    const auto again = ParseTime(std::to_string(millis), kNow);
    LEAF_CHECK(again.ok() && *again == *time);
  }
}

void Layout(std::string_view input) {
  const std::string_view bits = TakeLine(input);
  std::int64_t epoch_ms = kLeafEpochMillis;
  std::from_chars(input.data(), input.data() + input.size(), epoch_ms);
  const auto layout = core::IdLayout::Parse(bits, epoch_ms);
  if (!layout.ok()) {
    LEAF_CHECK(layout.error().code == ErrorCode::kInvalidArgument);
    return ExpectOneLine(layout.error().message);
  }
  LEAF_CHECK(layout->time_bits() >= 1 && layout->worker_bits() >= 1 && layout->sequence_bits() >= 1);
  LEAF_CHECK(layout->time_bits() + layout->worker_bits() + layout->sequence_bits() == 63);
  LEAF_CHECK(layout->epoch_ms() >= 0 && layout->epoch_ms() <= core::kEpochMillisMax);
  const auto again = core::IdLayout::Parse(layout->Bits(), epoch_ms);
  LEAF_CHECK(again.ok() && *again == *layout);
  const std::uint64_t some = std::hash<std::string_view>()(input) & kMaxIdLimit;
  for (const std::uint64_t id : {std::uint64_t{0}, kMaxIdLimit, some}) {
    const core::IdFields fields = layout->Decompose(id);
    const auto composed = layout->Compose(fields);
    LEAF_CHECK(composed.ok() && *composed == id);
    LEAF_CHECK(!layout->Compose({fields.time, layout->worker_end(), fields.sequence}).ok());
    LEAF_CHECK(!layout->Compose({layout->LastTime() + std::chrono::milliseconds{1}, 0, 0}).ok());
    ExpectOneLine(FormatRfc3339(fields.time));
  }
}

}  // namespace leaf::fuzz
