#include <gtest/gtest.h>

#include <random>

#include "leaf/base/decimal.h"
#include "leaf/base/duration.h"
#include "leaf/base/error.h"
#include "leaf/base/id_range.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"

namespace leaf {
namespace {

using std::chrono::milliseconds;

TEST(Decimal, IsWhatTheStandardLibraryWrites) {
  const auto check = [](std::uint64_t value) { ASSERT_EQ(Decimal(value).text(), std::to_string(value)); };
  for (std::uint64_t value = 0; value < 200'000; ++value) check(value);
  std::uint64_t power = 1;
  for (int digits = 1; digits <= 20; ++digits, power *= 10) {
    for (const std::uint64_t value : {power - 1, power, power + 1, 9 * power - 1, power * 3 / 2})
      check(value);
  }
  check(UINT64_MAX);
  std::uint64_t value = 88172645463325252;
  for (int i = 0; i < 200'000; ++i) {
    // Xorshift, of every size.
    value ^= value << 13U;
    value ^= value >> 7U;
    value ^= value << 17U;
    check(value >> (static_cast<unsigned>(i) % 64U));
  }
}

TEST(Duration, ReadsWhatItWrites) {
  for (const std::int64_t millis :
       {0L, 1L, 250L, 1000L, 1500L, 60'000L, 90'000L, 3'600'000L, 86'400'000L, 86'400'001L}) {
    const auto parsed = ParseDuration(FormatDuration(milliseconds{millis}));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->count(), millis);
  }
  EXPECT_EQ(FormatDuration(milliseconds{600'000}), "10m");
  EXPECT_EQ(FormatDuration(milliseconds{1500}), "1500ms");
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* text :
       {"", "3", "s", "-3s", "3 s", "3.5s", "3S", "1w", "99999999999999999999s", "9223372036854775807d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ErrorCode, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kDisabled); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(ErrorCodeFromName(ErrorCodeName(code)), code);
  }
  EXPECT_FALSE(ErrorCodeFromName("no_such_code").has_value());
}

TEST(Text, CountsCodePointsAndRefusesBrokenUtf8) {
  EXPECT_EQ(CountCodePoints("pay"), 3U);
  EXPECT_EQ(CountCodePoints("订单"), 2U);
  EXPECT_EQ(CountCodePoints("\xF0\x9F\x8D\x83"), 1U);
  for (const char* broken : {"\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                             "\xFF", "a\xE4\xB8"}) {
    EXPECT_FALSE(CountCodePoints(broken).has_value());
  }
}

TEST(Text, QuotesWhatCouldForgeALine) {
  EXPECT_EQ(Quoted("pay"), "'pay'");
  EXPECT_EQ(Quoted("a\nb\x1b[31m"), "'a\\x0ab\\x1b[31m'");
  EXPECT_EQ(Quoted("\xC2\x85"), "'\\xc2\\x85'");
  EXPECT_EQ(Quoted("\xFF"), "'\\xff'");
  EXPECT_EQ(ShellWord("pay/2:a"), "pay/2:a");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("it's $1"), "'it'\\''s $1'");
  EXPECT_EQ(TagCommand("set", "a b", "--step 7"), "leafctl tag set 'a b' --step 7");
  EXPECT_EQ(TagCommand("set", "-x y", "--step 7"), "leafctl tag set --step 7 -- '-x y'");
  EXPECT_EQ(UnknownTag("a\"b").hint, "leafctl tag add 'a\"b'");
  EXPECT_EQ(UnknownTag("a/b").hint, "leafctl tag list shows those that exist");  // it could not be added
  EXPECT_LT(Quoted(std::string(10'000, 'x')).size(), 200U);
}

TEST(Text, FindsNearNamesOnly) {
  const std::vector<std::string> names{"segment.store", "segment.fence", "server.listen"};
  EXPECT_EQ(NearestName("segment.stroe", names), "segment.store");
  EXPECT_FALSE(NearestName("zzz", names).has_value());
}

TEST(Tag, LimitsAreThoseOfTheColumn) {
  EXPECT_TRUE(ValidateTag(std::string(128, 'a')).ok());
  EXPECT_FALSE(ValidateTag(std::string(129, 'a')).ok());
  std::string unicode;
  for (int i = 0; i < 128; ++i) unicode += "订";
  EXPECT_TRUE(ValidateTag(unicode).ok());
  EXPECT_FALSE(ValidateTag(unicode + "a").ok());
  EXPECT_FALSE(ValidateTag("").ok());
  EXPECT_FALSE(ValidateTag(std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(ValidateTag("a\x7f").ok());
  EXPECT_FALSE(ValidateTag("\xFF").ok());
  EXPECT_TRUE(ValidateTag("a/b").ok());
  EXPECT_FALSE(ValidateNewTag("a/b").ok());
  EXPECT_NE(ValidateTag("a\x01").error().message.find("'a\\x01'"), std::string::npos);
}

TEST(IdText, WritesEveryForm) {
  const auto text = [](std::uint64_t id, IdFormat format) {
    std::string out;
    AppendId(out, id, format);
    return out;
  };
  EXPECT_EQ(text(0, IdFormat::kDecimal), "0");
  EXPECT_EQ(text(kIdEnd - 1, IdFormat::kDecimal), "9223372036854775807");
  EXPECT_EQ(text(255, IdFormat::kHex), "0xff");
  EXPECT_EQ(text(0, IdFormat::kBase62), "0");
  EXPECT_EQ(text(61, IdFormat::kBase62), "z");
  EXPECT_EQ(text(62, IdFormat::kBase62), "10");
  EXPECT_EQ(text(kIdEnd - 1, IdFormat::kBase62), "AzL8n0Y58m7");
}

TEST(IdText, TellsOfEachForm) {
  for (const IdFormatRow& row : IdFormats()) {
    EXPECT_EQ(ParseIdFormat(row.name), row.format);
    EXPECT_EQ(&IdFormatRowOf(row.format), &row);
    EXPECT_EQ(ParseIdForm(row.form), row.form.empty() ? std::nullopt : std::optional(row.format));
  }
  EXPECT_FALSE(ParseIdFormat("uuid").has_value());
  EXPECT_EQ(ReadFormatNames(), "dec, hex, base62, uuidv7, ulid");
  EXPECT_EQ(FormNames(), "ids, uuid, ulid, code");
  EXPECT_EQ(FormNames(true), "uuid, ulid");
  EXPECT_FALSE(ParseIdForm("").has_value());
  EXPECT_FALSE(ParseIdForm("hex").has_value());
}

// Leaf's layout: 22 bits below the time, 12 of which fill rand_a.
TEST(IdText, WritesTheTimeOfAnId) {
  const IdTimeSplit split{kLeafEpochMillis, 22};
  const std::uint64_t id =
      (static_cast<std::uint64_t>(1'700'000'000'000 - kLeafEpochMillis) << 22) | 0x3FABCD;
  const auto text = [&](std::uint64_t any, IdFormat format) {
    std::string out;
    AppendTimedId(out, any, format, split);
    return out;
  };
  // 1700000000000 is 0x18bcfe56800. 0x3FABCD is 111111111010 1111001101.
  EXPECT_EQ(text(id, IdFormat::kUuid), "018bcfe5-6800-7fea-bcd0-000000000000");
  EXPECT_EQ(text(0, IdFormat::kUuid), "012c148d-03c1-7000-8000-000000000000");
  // 48 bits of time are the first ten digits.
  EXPECT_EQ(text(id, IdFormat::kUlid).substr(0, 10), "01HF7YAT00");
  EXPECT_EQ(*ParseTimedId("018BCFE5-6800-7FEA-BCD0-000000000000", IdFormat::kUuid, split), id);
  std::string lower = text(id, IdFormat::kUlid);
  for (char& c : lower) c = LowerCase(c);
  EXPECT_EQ(*ParseAnyId(lower, std::nullopt, split), id);
  EXPECT_EQ(*ParseAnyId("12", std::nullopt, split), 12U);
}

TEST(IdText, TimedFormsAreReversibleAndKeepTheOrder) {
  std::mt19937_64 random(24);
  for (const int low_bits : {2, 11, 12, 13, 16, 17, 22, 40, 61}) {
    const IdTimeSplit split{low_bits < 16 ? 0 : kLeafEpochMillis, low_bits};
    for (const IdFormat format : {IdFormat::kUuid, IdFormat::kUlid}) {
      const auto writer = TimedIdText::Make(format, split);
      if (low_bits < 16) {
        EXPECT_FALSE(writer.ok()) << low_bits;
        continue;
      }
      ASSERT_TRUE(writer.ok()) << low_bits;
      std::uint64_t last_id = 0;
      std::string last;
      writer->Append(last, last_id);
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t id = i == 0   ? kMaxIdLimit
                                 : i < 50 ? static_cast<std::uint64_t>(i)
                                          : random() >> 1;
        std::string text;
        writer->Append(text, id);
        ASSERT_EQ(text.size(), writer->width());
        ASSERT_EQ(*ParseAnyId(text, std::nullopt, split), id) << text;
        ASSERT_EQ(text <=> last, id <=> last_id);
        last = text;
        last_id = id;
      }
    }
  }
}

TEST(IdText, RefusesWhatIsNotOfASnowflakeId) {
  const IdTimeSplit split{kLeafEpochMillis, 22};
  for (const auto& [text, why] :
       {std::pair{"018bcfe5-6800-4fea-bcd0-000000000000", "version 7"},
        {"018bcfe5-6800-7fea-7cd0-000000000000", "none of a snowflake"},  // another variant
        {"018bcfe5-6800-7fea-bcd0-000000000001", "none of a snowflake"},
        {"002c14d0-2661-7000-8000-000000000000", "none of a snowflake"},  // before the epoch
        {"f18bcfe5-6800-7fea-bcd0-000000000000", "none of a snowflake"},  // after the last
        {"018bcfe5x6800-7fea-bcd0-000000000000", "not a UUID"},
        {"018bcfe5-6800-7fea-bcd0-00000000000g", "not a UUID"},
        {"01HF7YAT00ZZZZZZZZZZZZZZZZ", "none of a snowflake"},
        {"81HF7YAT00ZZZZZZZZZZZZZZZZ", "not a ULID"},
        {"01HF7YAT00UZZZZZZZZZZZZZZZ", "not a ULID"}}) {
    const auto id = ParseAnyId(text, std::nullopt, split);
    ASSERT_FALSE(id.ok()) << text;
    EXPECT_NE(id.error().message.find(why), std::string::npos) << id.error().message;
  }
}

TEST(IdText, ParsesDigitsOnly) {
  EXPECT_EQ(*ParseUnsigned("n", "42", 1, 100), 42U);
  for (const char* text : {"", "0", "-1", "+1", " 1", "1 ", "0x1", "101", "18446744073709551616", "abc"}) {
    EXPECT_FALSE(ParseUnsigned("n", text, 1, 100).ok()) << text;
  }
}

TEST(IdSpans, JoinsNeighboursAndCounts) {
  IdSpans spans;
  spans.Append({1, 3});
  spans.Append({3, 5});
  spans.Append({9, 10});
  ASSERT_EQ(spans.ranges().size(), 2U);
  EXPECT_EQ(spans.ranges()[0], (IdRange{1, 5}));
  EXPECT_EQ(spans.total(), 5U);
}

TEST(IdSpansDeathTest, RefusesDisorder) {
  IdSpans spans;
  spans.Append({5, 6});
  EXPECT_DEATH(spans.Append({1, 2}), "broken invariant");
}

TEST(Time, FormatsAsStandardsWant) {
  EXPECT_EQ(FormatRfc3339(WallTimeOf(1'795'173'796'497)), "2026-11-20T11:23:16.497Z");
  EXPECT_EQ(FormatRfc3339(WallTimeOf(-1)), "1969-12-31T23:59:59.999Z");
  // The second in which the first millisecond lies begins before it.
  constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(FormatRfc3339(WallTimeOf(kFirst)).ends_with(":04.192Z")) << FormatRfc3339(WallTimeOf(kFirst));
  EXPECT_TRUE(FormatLocal(WallTimeOf(kFirst)).ends_with(".192"));
  EXPECT_EQ(FormatHttpDate(WallTimeOf(1'795'173'796'497)), "Fri, 20 Nov 2026 11:23:16 GMT");
}

TEST(IdText, WhatIsWrittenIsRead) {
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{61}, std::uint64_t{62},
                                 std::uint64_t{2123738945798799443}, kMaxIdLimit}) {
    for (const IdFormat format : {IdFormat::kDecimal, IdFormat::kHex, IdFormat::kBase62}) {
      std::string text;
      AppendId(text, id, format);
      EXPECT_EQ(*ParseId(text, format), id) << text;
      if (format == IdFormat::kBase62) continue;
      EXPECT_EQ(*ParseId(text), id) << text;
    }
  }
  EXPECT_EQ(*ParseId("1D79", IdFormat::kHex), 0x1d79U);
  EXPECT_EQ(*ParseId("0X1d79"), 0x1d79U);
}

TEST(IdText, WhatIsNoIdIsNamed) {
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1.5", "abc", "0x", "0xg", "9223372036854775808",
                           "18446744073709551616", "0x8000000000000000", "99999999999999999999999999"}) {
    const auto id = ParseId(text);
    ASSERT_FALSE(id.ok()) << text;
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(id.error().message.find(text), std::string::npos);
  }
  EXPECT_FALSE(ParseId("0x1", IdFormat::kDecimal).ok());
  EXPECT_FALSE(ParseId("AzL8n0Y58m8", IdFormat::kBase62).ok());  // 2^63
  EXPECT_EQ(*ParseId("AzL8n0Y58m7", IdFormat::kBase62), kMaxIdLimit);
  EXPECT_FALSE(ParseId("zzzzzzzzzzzzzzzz", IdFormat::kBase62).ok());
  EXPECT_FALSE(ParseId("a-b", IdFormat::kBase62).ok());
}

TEST(Time, IsReadInEveryForm) {
  for (const auto& [text, millis] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"2026-11-20T11:23:16.497Z", 1795173796497},
           {"2026-11-20T19:23:16.497+08:00", 1795173796497},
           {"2026-11-20t06:23:16.497-05:00", 1795173796497},
           {"2026-11-20 11:23Z", 1795173780000},
           {"2026-11-20T11:23:16.5Z", 1795173796500},
           {"2026-11-20", 1795132800000},
           {"1970-01-01", 0},
           {"1969-12-31T23:59:59.999Z", -1},
           {"2024-02-29", 1709164800000},
           {"2026-11-20 11:23:16", 1795173796000},
           {"2026-11-20T11:23:16.497", 1795173796497},
           {"now", 1795173796497},
           {"-1h", 1795173796497 - 3'600'000},
           {"+250ms", 1795173796747},
           {"999999999", 999'999'999},
           {"100000000000", 100'000'000'000},
           {"1795173796497", 1795173796497}}) {
    const auto time = ParseTime(text, WallTimeOf(1795173796497));
    ASSERT_TRUE(time.ok()) << text;
    EXPECT_EQ(UnixMillis(*time), millis) << text;
  }
  for (const char* text : {"", "2026", "2026-11", "2026-13-01", "2026-02-30", "2025-02-29", "2026-11-20T",
                           "2026-11-20T25:00Z", "2026-11-20T11:23:60Z", "-1x", "+-1h", "h", "1h",
                           "2026-11-20T11:23:16.Z", "2026-11-20T11:23:16.1234Z", "2026-11-20T11:23:16Zx",
                           "2026-11-20T11:23:16+0800", "yesterday", "99999999999999999999"}) {
    const auto time = ParseTime(text, WallTimeOf(0));
    ASSERT_FALSE(time.ok()) << text;
    EXPECT_EQ(time.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Time, ADayThatThereIsNotIsNamed) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"2023-02-29", "there is no day 2023-02-29: that month has the days 01 to 28"},
           {"2023-02-29T10:00:00Z", "there is no day 2023-02-29: that month has the days 01 to 28"},
           {"2024-02-30", "there is no day 2024-02-30: that month has the days 01 to 29"},
           {"2026-11-31", "there is no day 2026-11-31: that month has the days 01 to 30"},
           {"2026-11-00", "there is no day 2026-11-00: that month has the days 01 to 30"},
           {"2026-13-01", "there is no day 2026-13-01: a year has the months 01 to 12"},
           {"2024-02-29T", "neither like"},
           {"2023-02-2", "neither like"}}) {
    const auto time = ParseTime(text, WallTimeOf(0));
    ASSERT_FALSE(time.ok()) << text;
    EXPECT_NE(time.error().message.find(why), std::string::npos) << time.error().message;
  }
  EXPECT_TRUE(ParseTime("2024-02-29", WallTimeOf(0)).ok());
}

TEST(Time, TellsSecondsFromMilliseconds) {
  for (const char* text : {"1000000000", "1795173796", "99999999999"}) {
    const auto time = ParseTime(text, WallTimeOf(0));
    ASSERT_FALSE(time.ok()) << text;
    EXPECT_EQ(time.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(time.error().message.find("Unix seconds"), std::string::npos) << time.error().message;
    EXPECT_NE(time.error().hint.find(std::string(text) + "000"), std::string::npos) << time.error().hint;
  }
}

}  // namespace
}  // namespace leaf
