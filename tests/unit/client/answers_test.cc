// Which answers of a server are accepted.
#include "leaf/client/answers.h"

#include <gtest/gtest.h>

#include <string>

#include "leaf/base/limits.h"
#include "support/scale.h"

namespace leaf::client {
namespace {

constexpr std::string_view kServer = "http://a:1";

TEST(Answers, RangesAreTakenAsTheyStand) {
  const auto ranges = RangesOf(
      kServer, R"({"ranges":[{"begin":"0","end":"2"},{"begin":"2","end":"3"},{"begin":"7","end":"8"}]})", 4);
  ASSERT_TRUE(ranges.ok()) << ranges.error().message;
  EXPECT_EQ(*ranges, (std::vector<IdRange>{{0, 2}, {2, 3}, {7, 8}}));
  const auto last =
      RangesOf(kServer, R"({"ranges":[{"begin":"9223372036854775807","end":"9223372036854775808"}]})", 1);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->front().end, kIdEnd);
}

TEST(Answers, NoRangesInWhichAnIdCouldStandTwice) {
  for (
      const char* body :
      {R"({"ranges":[{"begin":"1","end":"3"},{"begin":"2","end":"3"}]})",
       R"({"ranges":[{"begin":"7","end":"8"},{"begin":"1","end":"3"}]})",
       // Together 2^64 + 3, which is 3.
       R"({"ranges":[{"begin":"0","end":"9223372036854775808"},{"begin":"0","end":"9223372036854775808"},{"begin":"0","end":"3"}]})",
       R"({"ranges":[{"begin":"1","end":"3"}]})", R"({"ranges":[{"begin":"1","end":"5"}]})",
       R"({"ranges":[{"begin":"3","end":"3"}]})", R"({"ranges":[{"begin":1,"end":4}]})", R"({"ranges":[3]})",
       R"({"ranges":{}})", "{}", "[]", "", "<html>"}) {
    const auto ranges = RangesOf(kServer, body, 3);
    ASSERT_FALSE(ranges.ok()) << body;
    EXPECT_EQ(ranges.error().code, ErrorCode::kInternal);
    EXPECT_NE(ranges.error().message.find(kServer), std::string::npos);
  }
}

TEST(Answers, TextsAreEachThereOnceAndPrintable) {
  const auto texts = TextsOf(kServer, R"({"codes":["1234-5","9999-9"]})", "codes", 2);
  ASSERT_TRUE(texts.ok()) << texts.error().message;
  EXPECT_EQ(*texts, (std::vector<std::string>{"1234-5", "9999-9"}));
  const std::string too_long = R"({"codes":["a",")" + std::string(200, 'x') + R"("]})";
  for (const std::string& body :
       {std::string(R"({"codes":["a","a"]})"), std::string(R"({"codes":["a"]})"),
        std::string(R"({"codes":["a","b","c"]})"), std::string(R"({"codes":["a",""]})"),
        std::string(R"({"codes":["a","b\u001b[2J"]})"), std::string(R"({"codes":["a","b c"]})"),
        std::string(R"({"codes":["a",2]})"), std::string(R"({"ids":["a","b"]})"), std::string("[]"),
        std::string(), too_long}) {
    const auto bad = TextsOf(kServer, body, "codes", 2);
    ASSERT_FALSE(bad.ok()) << body;
    EXPECT_EQ(bad.error().code, ErrorCode::kInternal);
  }
  EXPECT_EQ(RevealedOf(kServer, R"({"tag":"a","id":"7"})").value(), 7U);
  EXPECT_FALSE(RevealedOf(kServer, R"({"tag":"a","id":7})").ok());
  EXPECT_FALSE(RevealedOf(kServer, R"({"tag":"a","id":"9223372036854775808"})").ok());
}

// What a server says is shown on a terminal.
TEST(Answers, ErrorsCannotDisturbATerminal) {
  const Error error =
      ErrorOf(kServer, 404, R"({"code":"not_found","message":"\u001b]0;x\u0007\nok","hint":"\u001b[2J"})");
  EXPECT_EQ(error.message, R"(\x1b]0;x\x07\x0aok)");
  EXPECT_EQ(error.hint, R"(\x1b[2J)");
}

// The peer decides how deeply its answer is nested; copying the answer by recursion could overflow the stack.
TEST(Answers, DeeplyNestedOnesAreRefusedLikeAnyOther) {
  constexpr std::size_t kDepth = testing::Scaled(1'000'000);
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  const auto body = [&](std::string_view key) { return "{\"" + std::string(key) + "\":" + deep + "}"; };
  EXPECT_FALSE(ClockOf(kServer, body("time_ms")).ok());
  EXPECT_FALSE(MarkOf(kServer, body("mark")).ok());
  EXPECT_EQ(MaxCountOf(body("max_count")), 0U);
  EXPECT_FALSE(RangesOf(kServer, "{\"ranges\":[{\"begin\":" + deep + "}]}", 1).ok());
  EXPECT_EQ(ErrorOf(kServer, 500, body("code")).code, ErrorCode::kUnavailable);
}

TEST(Answers, MarksClocksAndErrors) {
  const auto mark = MarkOf(kServer, R"({"mark":"7","raised_by":"x","raised_at":3})");
  ASSERT_TRUE(mark.ok());
  EXPECT_EQ(mark->end, 7U);
  EXPECT_EQ(mark->raised_by, "x");
  EXPECT_EQ(mark->raised_at, "");
  EXPECT_FALSE(MarkOf(kServer, R"({"mark":7})").ok());
  EXPECT_FALSE(MarkOf(kServer, R"({"mark":"9223372036854775808"})").ok());
  EXPECT_EQ(ClockOf(kServer, R"({"time_ms":1795000000000})")->time, WallTimeOf(1'795'000'000'000));
  EXPECT_EQ(ClockOf(kServer, R"({"time_ms":1795000000000})")->version, "");
  EXPECT_EQ(ClockOf(kServer, R"({"time_ms":1,"version":"0.2.0"})")->version, "0.2.0");
  EXPECT_EQ(ClockOf(kServer, R"({"time_ms":1,"version":2})")->version, "");
  for (const char* time : {"-1", "253402300800000", "18446744073709551615", "1.5", "\"1\"", "null"})
    EXPECT_FALSE(ClockOf(kServer, "{\"time_ms\":" + std::string(time) + "}").ok()) << time;
  EXPECT_EQ(MaxCountOf(R"({"max_count":1000})"), 1000U);
  EXPECT_EQ(MaxCountOf(R"({"max_count":-1})"), 0U);
  EXPECT_EQ(ErrorOf(kServer, 409, R"({"code":"frozen","message":"m","hint":"h"})").code, ErrorCode::kFrozen);
  EXPECT_EQ(ErrorOf(kServer, 404, R"({"code":"nonsense"})").code, ErrorCode::kUnreachable);
  EXPECT_EQ(ErrorOf(kServer, 502, "<html>").code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace leaf::client
