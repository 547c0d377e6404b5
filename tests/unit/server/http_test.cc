#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/server/http/known_request.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/plain_request.h"
#include "leaf/server/http/request_reader.h"
#include "leaf/server/http/router.h"
#include "leaf/server/http/take.h"
#include "leaf/server/ids_text.h"
#include "leaf/server/net/unread_bytes.h"
#include "support/fakes.h"
#include "unit/server/known_bytes.h"

namespace leaf::server {
namespace {

using std::chrono::milliseconds;

TEST(Target, IsTakenApartLikeJavaLeafsServerDoes) {
  using Strings = std::vector<std::string>;
  const auto segments = [](std::string_view text) {
    const auto target = ParseTarget(text);
    return Strings(target->segments.begin(), target->segments.end());
  };
  EXPECT_EQ(segments("/api/segment/get/pay"), (Strings{"api", "segment", "get", "pay"}));
  EXPECT_EQ(segments("//api/segment//get/pay/"), (Strings{"api", "segment", "get", "pay"}));
  EXPECT_EQ(segments("/a;x=1/b;y"), (Strings{"a", "b"}));
  EXPECT_EQ(segments("/%E8%AE%A2%E5%8D%95/a%20b/a+b/v1.0"), (Strings{"订单", "a b", "a+b", "v1.0"}));
  EXPECT_EQ(segments("/a%2Fb"), Strings{"a/b"});
  EXPECT_TRUE(segments("/").empty());
}

TEST(Target, RefusesMalformedEscapes) {
  for (const char* target : {"/%", "/%4", "/%zz", "/a%", "/a?x=%g1"})
    EXPECT_FALSE(ParseTarget(target).ok()) << target;
}

TEST(Target, ReadsParameters) {
  const auto target = ParseTarget("/x?count=3&form=range&empty=&bare&count2=1");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(**target->Parameter("count"), "3");
  EXPECT_EQ(**target->Parameter("empty"), "");
  EXPECT_EQ(**target->Parameter("bare"), "");
  EXPECT_FALSE(target->Parameter("none")->has_value());
  EXPECT_FALSE(ParseTarget("/x?count=1&count=2")->Parameter("count").ok());
}

TEST(Target, SurvivesRandomBytes) {
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "/";
    for (std::size_t length = random() % 40; length > 0; --length)
      text += static_cast<char>("/%;?&=a0f\xFF\x01"[random() % 11]);
    const auto target = ParseTarget(text);
    if (!target.ok()) continue;
    for (const std::string_view segment : target->segments)
      EXPECT_FALSE(segment.empty() && text.find('%') == std::string::npos);
  }
}

TEST(RequestReader, ALastChunkMayComeInAnyPieces) {
  const std::string bytes =
      "POST /v1/segment/pay HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: "
      "y\r\n\r\n"
      "POST /next HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    ReadBuffer buffer;
    RequestReader reader;
    std::string targets;
    for (std::size_t at = 0; at < bytes.size() || buffer.size() > 0;) {
      const std::string_view next = std::string_view(bytes).substr(at, piece);
      at += next.size();
      boost::asio::buffer_copy(buffer.prepare(next.size()), boost::asio::buffer(next.data(), next.size()));
      buffer.commit(next.size());
      const auto outcome = reader.Read(buffer);
      ASSERT_NE(outcome, RequestReader::Outcome::kBroken) << "pieces of " << piece;
      if (outcome != RequestReader::Outcome::kRequest) {
        ASSERT_FALSE(next.empty()) << "pieces of " << piece << ": " << buffer.size() << " bytes are left";
        continue;
      }
      targets += std::string(reader.request().target) + " ";
      reader.Release(buffer);
    }
    EXPECT_EQ(targets, "/v1/segment/pay /next ") << "pieces of " << piece;
  }
}

TEST(PlainRequest, IsWhatMostClientsSend) {
  const auto plain = [](std::string_view bytes) { return ParsePlainRequest(bytes); };
  constexpr std::string_view kCurl =
      "GET /v1/segment/pay?count=3 HTTP/1.1\r\nHost: a:1\r\nUser-Agent: curl/7\r\naccept: \t text/plain "
      "\r\n\r\n";
  const std::string bytes = std::string(kCurl) + "GET /next";
  const auto curl = plain(bytes);
  ASSERT_TRUE(curl.has_value());
  EXPECT_EQ(curl->target, "/v1/segment/pay?count=3");
  EXPECT_EQ(curl->accept, "text/plain");
  EXPECT_EQ(curl->size, kCurl.size());
  const auto short_one = plain("GET /api/segment/get/%E8%AE%A2 HTTP/1.1\r\nHost:\r\n\r\n");
  ASSERT_TRUE(short_one.has_value());
  EXPECT_EQ(short_one->accept, "");
  EXPECT_TRUE(plain("GET /v1/snowflake HTTP/1.1\r\nConnection: Keep-Alive\r\nHOST: [::1]:8080\r\n\r\n"));
  // An incomplete request is not taken.
  for (std::size_t size = 0; size < kCurl.size(); ++size) EXPECT_FALSE(plain(kCurl.substr(0, size))) << size;
}

// The outcome of one whole request.
RequestReader::Outcome ReadOne(RequestReader& reader, std::string_view bytes) {
  ReadBuffer buffer;
  boost::asio::buffer_copy(buffer.prepare(bytes.size()), boost::asio::buffer(bytes.data(), bytes.size()));
  buffer.commit(bytes.size());
  return reader.Read(buffer);
}

// A client sends its token with each request. Whatever is different about a later line counts.
TEST(RequestReader, ALineThatIsKnownIsReadAsIfItWereNot) {
  const std::string line = "Authorization: Bearer leaf_0123456789\r\n";
  const std::vector<std::string> others{
      "Authorization: Bearer leaf_0123456780\r\n",
      "Authorization: Bearer leaf_012345678\r\n",
      "Authorization: Bearer leaf_01234567890\r\n",
      "Authorization: Bearer leaf_0123456789 \r\n",
      "authorization: Bearer leaf_0123456789\r\n",
      "Authorization:\tBearer leaf_0123456789\r\n",
      "Authorization:\r\n",
      "Authorization: Bearer leaf_0123456789\r\n folded\r\n",
      "Authorization: Bearer leaf_0123456789\n",
      "Authorization: Bearer leaf_012345\x01"
      "789\r\n",
      "Authorizations: Bearer leaf_0123456789\r\n",
      "",
      line + line,
      "X: y\r\n" + line + "X: y\r\n",
  };
  for (const std::string& other : others) {
    // The known one last, too: it is known still.
    std::string bytes;
    for (const std::string& each : {line, line, other, line})
      bytes += "GET /v1/segment/pay HTTP/1.1\r\nHost: a\r\n" + each + "\r\n";
    const auto read = [&](bool uses_plain_form) {
      std::vector<std::string> values;
      ReadBuffer buffer;
      boost::asio::buffer_copy(buffer.prepare(bytes.size()), boost::asio::buffer(bytes));
      buffer.commit(bytes.size());
      RequestReader reader;
      reader.UsePlainForm(uses_plain_form);
      while (buffer.size() > 0) {
        if (reader.Read(buffer) != RequestReader::Outcome::kRequest) {
          values.emplace_back("broken");
          return values;
        }
        values.emplace_back(reader.request().authorization);
        reader.Release(buffer);
      }
      return values;
    };
    const auto values = read(true);
    EXPECT_EQ(values, read(false)) << other;
    EXPECT_EQ(values.at(1), "Bearer leaf_0123456789");
    if (other == line + line) {
      EXPECT_EQ(values.back(), "broken");
    }
  }
  // A part of it is not all of it.
  const std::string bytes = "GET /v1/segment/pay HTTP/1.1\r\nHost: a\r\n" + line + "\r\n";
  const KnownLine known{line, std::string_view(line).substr(15, 22)};
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ParsePlainRequest(std::string_view(bytes).substr(0, size), known)) << size;
  const auto whole = ParsePlainRequest(bytes, known);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->authorization, known.value);
  EXPECT_EQ(whole->new_line, "");
  EXPECT_EQ(whole->size, bytes.size());
}

// Its answer is, byte for byte, the one that a request which was read gets.
TEST(KnownRequest, IsKnownByAllOfItsBytesAndAnsweredAsAnyOther) {
  const std::string bytes = "GET /v1/segment/p%61y HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n";
  struct Form {
    const IdsForm* form;
    std::string_view type;
  };
  for (const Form& form :
       {Form{&kIdAlone, kPlainText}, Form{&kIdsAsText, kPlainText}, Form{&kIdsAsJson, kJson}}) {
    KnownRequest known;
    EXPECT_FALSE(known.IsNext(""));
    EXPECT_FALSE(known.IsNext(bytes));
    {
      const std::string gone = bytes;
      known.Keep(gone, "Bearer x", Route::kV1Segment,
                 {.tag = "pay", .form = form.form, .content_type = form.type});
    }
    testing::ExpectKnownByAllBytes(known, bytes);
    EXPECT_EQ(known.take().tag, "pay");
    EXPECT_TRUE(known.is_one_of_tag());
    EXPECT_EQ(known.authorization(), "Bearer x");
    for (const std::string_view date : {"Thu, 26 Nov 2026 19:46:09 GMT", "Thu, 26 Nov 2026 19:46:10 GMT"}) {
      for (const std::uint64_t id : {8ULL, 9ULL, 10ULL, 11ULL, 99ULL, 7ULL, 123'456'789'012ULL}) {
        Response response;
        response.content_type = form.type;
        const IdRange range{id, id + 1};
        AppendIds({&range, 1}, *form.form, response.body);
        std::string expected = "before";
        std::string got = expected;
        Render(response, Persistence::kDefault, false, date, expected);
        Render(response, Persistence::kClose, false, date, expected);
        known.Answer(id, false, date, got);
        known.Answer(id, true, date, got);
        EXPECT_EQ(got, expected);
        got = "before";
        known.Answer({&range, 1}, false, date, got);
        known.Answer({&range, 1}, true, date, got);
        EXPECT_EQ(got, expected);
      }
    }
    // What is too long is not kept, and what was kept before is not taken for it.
    known.Keep(std::string(2000, 'x'), "", Route::kV1Segment,
               {.tag = "pay", .form = form.form, .content_type = form.type});
    EXPECT_FALSE(known.IsNext(bytes));
  }
}

TEST(KnownRequest, AnswersBatchesAndRangesAsAnyOther) {
  const std::string bytes = "GET /v1/segment/pay?count=12 HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::vector<std::vector<IdRange>> batches{
      {{1, 13}}, {{95, 105}, {200, 202}}, {{7, 8}}, {{9'999'999'999ULL, 10'000'000'011ULL}}, {{13, 25}}};
  for (const bool as_ranges : {false, true}) {
    for (const IdsType type : {IdsType::kJsonObject, IdsType::kLines, IdsType::kRangeBytes}) {
      if (type == IdsType::kRangeBytes && !as_ranges) continue;
      const IdsForm& form = type == IdsType::kLines ? kIdsAsText : kIdsAsJson;
      KnownRequest known;
      known.Keep(bytes, "", Route::kV1Segment,
                 {.tag = "pay",
                  .count = 12,
                  .as_ranges = as_ranges,
                  .type = type,
                  .form = &form,
                  .content_type = kJson});
      testing::ExpectKnownByAllBytes(known, bytes);
      EXPECT_FALSE(known.is_one_of_tag());
      for (const std::string_view date : {"Thu, 26 Nov 2026 19:46:09 GMT", "Thu, 26 Nov 2026 19:46:10 GMT"}) {
        for (const std::vector<IdRange>& ranges : batches) {
          Response response;
          response.content_type = kJson;
          if (as_ranges) {
            AppendRanges(ranges, type, response.body);
          } else {
            AppendIds(ranges, form, response.body);
          }
          std::string expected;
          std::string got;
          for (const bool is_last : {false, true, false}) {
            Render(response, is_last ? Persistence::kClose : Persistence::kDefault, false, date, expected);
            known.Answer(ranges, is_last, date, got);
          }
          EXPECT_EQ(got, expected);
        }
      }
    }
  }
}

TEST(AppendRanges, HasThreeForms) {
  const std::vector<IdRange> ranges{{1, 13}, {258, 1ULL << 62U}};
  std::string out = "before";
  AppendRanges(ranges, IdsType::kJsonObject, out);
  EXPECT_EQ(out,
            R"(before{"ranges":[{"begin":"1","end":"13"},{"begin":"258","end":"4611686018427387904"}]})");
  out.clear();
  AppendRanges(ranges, IdsType::kLines, out);
  EXPECT_EQ(out, "1 13\n258 4611686018427387904\n");
  out.clear();
  AppendRanges({ranges.data(), 1}, IdsType::kRangeBytes, out);
  EXPECT_EQ(out, std::string("\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\15", 16));
}

TEST(RequestReader, WantsOneHost) {
  for (const std::string path : {"GET /v1/snowflake", "GET /health/live", "POST /v1/snowflake"}) {
    for (const auto& [fields, wrong] : std::initializer_list<std::pair<std::string, std::string>>{
             {"", "the Host field is missing"},
             {"Host: a\r\nhost: a\r\n", "more than one Host field"},
             {"Host: a b\r\n", "the Host field is malformed"},
             {"Host: a/b\r\n", "the Host field is malformed"},
             {"Host: a@b\r\n", "the Host field is malformed"}}) {
      RequestReader reader;
      ASSERT_EQ(ReadOne(reader, path + " HTTP/1.1\r\n" + fields + "\r\n"), RequestReader::Outcome::kBroken)
          << fields;
      EXPECT_EQ(reader.status(), 400);
      EXPECT_EQ(reader.why(), wrong);
    }
    for (const std::string fields :
         {"Host:\r\n", "Host: leaf.example:8080\r\n", "Host: [::1]:80\r\n", "Host: a_b~c%20\r\n"}) {
      RequestReader reader;
      EXPECT_EQ(ReadOne(reader, path + " HTTP/1.1\r\n" + fields + "\r\n"), RequestReader::Outcome::kRequest)
          << fields;
    }
    RequestReader old;
    EXPECT_EQ(ReadOne(old, path + " HTTP/1.0\r\n\r\n"), RequestReader::Outcome::kRequest);
    RequestReader twice;
    EXPECT_EQ(ReadOne(twice, path + " HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
              RequestReader::Outcome::kBroken);
  }
  // Told before the client is asked for the body.
  RequestReader expecting;
  EXPECT_EQ(
      ReadOne(expecting, "POST /v1/snowflake HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"),
      RequestReader::Outcome::kBroken);
}

TEST(RequestReader, AllConnectionFieldsCount) {
  for (const auto& [head, keep] : std::initializer_list<std::pair<std::string, bool>>{
           {"HTTP/1.1\r\n", true},
           {"HTTP/1.1\r\nConnection: keep-alive\r\nConnection: close\r\n", false},
           {"HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n", false},
           {"HTTP/1.1\r\nConnection: upgrade, Close\r\n", false},
           {"HTTP/1.1\r\nConnection: closed\r\n", true},
           {"HTTP/1.0\r\n", false},
           {"HTTP/1.0\r\nConnection: x\r\nConnection: Keep-Alive\r\n", true},
           {"HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n", false}}) {
    RequestReader reader;
    ASSERT_EQ(ReadOne(reader, "GET /v1/snowflake " + head + "Host: a\r\n\r\n"),
              RequestReader::Outcome::kRequest)
        << head;
    EXPECT_EQ(reader.request().keep_alive, keep) << head;
  }
}

// The limit is one of the whole header, however its bytes come: the fields that are there are kept in memory.
TEST(RequestReader, AHeaderThatComesInPiecesIsNoLongerThanOneThatComesAtOnce) {
  // As the parser likes it best: each piece ends with the first letter of the next field.
  for (const std::size_t field : {1000U, 4000U, 15'000U}) {
    RequestReader reader;
    ReadBuffer buffer;
    const auto read = [&](const std::string& bytes) {
      boost::asio::buffer_copy(buffer.prepare(bytes.size()), boost::asio::buffer(bytes));
      buffer.commit(bytes.size());
      return reader.Read(buffer);
    };
    std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\nA";
    std::size_t sent = bytes.size();
    auto outcome = read(bytes);
    for (bytes = ": " + std::string(field, 'x') + "\r\nA"; outcome == RequestReader::Outcome::kMore;
         outcome = read(bytes))
      sent += bytes.size();
    ASSERT_EQ(outcome, RequestReader::Outcome::kBroken);
    EXPECT_EQ(reader.status(), 431);
    EXPECT_GT(sent, kHeaderBytesMax);
    EXPECT_LE(sent, kHeaderBytesMax + bytes.size());
  }
  // One that is as long as it may be, in two pieces, and a byte more.
  for (const std::size_t over : {0U, 1U}) {
    const std::string head = "GET / HTTP/1.1\r\nHost: a\r\nB: " + std::string(10'000, 'x') + "\r\nA: ";
    const std::string rest = std::string(kHeaderBytesMax - head.size() - 4 + over, 'x') + "\r\n\r\n";
    RequestReader reader;
    ReadBuffer buffer;
    std::vector<RequestReader::Outcome> outcomes;
    for (const std::string& piece : {head, rest}) {
      boost::asio::buffer_copy(buffer.prepare(piece.size()), boost::asio::buffer(piece));
      buffer.commit(piece.size());
      outcomes.push_back(reader.Read(buffer));
    }
    EXPECT_EQ(outcomes[0], RequestReader::Outcome::kMore);
    EXPECT_EQ(outcomes[1], over > 0 ? RequestReader::Outcome::kBroken : RequestReader::Outcome::kRequest);
  }
}

// An answer to HTTP/1.0 is the whole answer.
TEST(RequestReader, OnlyANewerClientIsToldToGoOn) {
  const std::string fields = "\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
  RequestReader newer;
  EXPECT_EQ(ReadOne(newer, "POST /v1/snowflake HTTP/1.1" + fields), RequestReader::Outcome::kContinue);
  RequestReader older;
  EXPECT_EQ(ReadOne(older, "POST /v1/snowflake HTTP/1.0" + fields), RequestReader::Outcome::kMore);
}

// They would say something else of a request that comes in one packet than of one that comes in two.
TEST(RequestReader, FieldsAfterTheBodyAreNotOfTheHeader) {
  const std::string chunked = "POST /v1/tags HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
  const std::string trailer =
      "\r\n2\r\n{}\r\n0\r\nHost: b\r\nOrigin: http://b\r\nConnection: close\r\nContent-Type: x/y\r\n\r\n";
  RequestReader without_host;
  ASSERT_EQ(ReadOne(without_host, chunked + trailer), RequestReader::Outcome::kBroken);
  EXPECT_EQ(without_host.why(), "the Host field is missing");
  RequestReader reader;
  ASSERT_EQ(ReadOne(reader, chunked + "Host: a\r\n" + trailer), RequestReader::Outcome::kRequest);
  EXPECT_EQ(reader.request().host, "a");
  EXPECT_EQ(reader.request().body, "{}");
  EXPECT_EQ(reader.request().content_type, "");
  EXPECT_TRUE(reader.request().keep_alive);
  EXPECT_EQ(reader.request().origin, "");
}

TEST(RequestReader, BodiesAreKeptWhereTheyMeanSomething) {
  const std::string longer(5000, 'x');
  const auto request = [](const std::string& line, const std::string& body) {
    return line + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  UnreadBytes room(1);
  {
    RequestReader reader(&room);
    for (const std::string line : {"POST /v1/tags", "PATCH /v1/tags/pay?dry_run=1", "DELETE /v1/tags/pay"}) {
      ReadBuffer buffer;
      const std::string bytes = request(line, longer);
      boost::asio::buffer_copy(buffer.prepare(bytes.size()), boost::asio::buffer(bytes));
      buffer.commit(bytes.size());
      ASSERT_EQ(reader.Read(buffer), RequestReader::Outcome::kRequest) << line;
      EXPECT_EQ(reader.request().body, longer);
      EXPECT_EQ(reader.request().content_type, "application/json");
      EXPECT_EQ(reader.request().body_lost, BodyLost::kNo);
      EXPECT_EQ(reader.request().origin, "");
      EXPECT_TRUE(room.full());
      // Only so many at a time.
      RequestReader other(&room);
      ASSERT_EQ(ReadOne(other, bytes), RequestReader::Outcome::kRequest);
      EXPECT_EQ(other.request().body_lost, BodyLost::kNoRoom);
      EXPECT_EQ(other.request().body, "");
      RequestReader small(&room);
      ASSERT_EQ(ReadOne(small, request(line, "{}")), RequestReader::Outcome::kRequest);
      EXPECT_EQ(small.request().body, "{}");
      reader.Release(buffer);
      EXPECT_FALSE(room.full());
    }
  }
  for (const std::string line : {"POST /v1/segment/pay", "GET /v1/tags", "POST //v1//tags"}) {
    RequestReader reader(&room);
    ASSERT_EQ(ReadOne(reader, request(line, longer)), RequestReader::Outcome::kRequest) << line;
    EXPECT_EQ(reader.request().body_lost, BodyLost::kTooLong) << line;
    EXPECT_EQ(reader.request().body, "");
  }
  EXPECT_EQ(room.held(), 0U);
  RequestReader from_a_page;
  ASSERT_EQ(ReadOne(from_a_page, "DELETE /v1/tags/pay HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n"),
            RequestReader::Outcome::kRequest);
  EXPECT_EQ(from_a_page.request().origin, "http://b");
}

TEST(PlainRequest, LeavesEverythingElseToTheLibrary) {
  const std::string long_value(5000, 'x');
  for (const std::string head : {"POST /v1/segment/pay HTTP/1.1\r\n",
                                 "GET /v1/segment/pay HTTP/1.0\r\n",
                                 "GET / HTTP/1.1\r\n",
                                 "GET  /v1/segment/pay HTTP/1.1\r\n",
                                 "GET /v1/segment/p y HTTP/1.1\r\n",
                                 "GET /v1/segment/p\x80 HTTP/1.1\r\n",
                                 "GET http://a/v1/segment/pay HTTP/1.1\r\n",
                                 "GET /v1/segment/pay HTTP/1.1\n",
                                 "GET /v1/status HTTP/1.1\r\nConnection: close\r\n",
                                 "GET /v1/status HTTP/1.1\r\ncONNECTION: keep-alive, close\r\n",
                                 "GET /v1/status HTTP/1.1\r\nProxy-Connection: keep-alive\r\n",
                                 "GET /v1/status HTTP/1.1\r\nContent-Length: 0\r\n",
                                 "GET /v1/status HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
                                 "GET /v1/status HTTP/1.1\r\nExpect: 100-continue\r\n",
                                 "GET /v1/status HTTP/1.1\r\nUpgrade: h2c\r\n",
                                 "GET /v1/status HTTP/1.1\r\nAccept: a\r\nAccept: b\r\n",
                                 "GET /v1/status HTTP/1.1\r\nHost : a\r\n",
                                 "GET /v1/status HTTP/1.1\r\nHost: a\r\n folded\r\n",
                                 "GET /v1/status HTTP/1.1\r\nHost: \x01\r\n",
                                 "GET /v1/status HTTP/1.1\r\nHost: a\n",
                                 "GET /v1/status HTTP/1.1\r\nHost: a b\r\n",
                                 "GET /v1/status HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
                                 "GET /v1/status HTTP/1.1\r\nnothing\r\n"}) {
    EXPECT_FALSE(ParsePlainRequest(head + "\r\n")) << head;
    if (head.find("Host") != std::string::npos) continue;
    EXPECT_FALSE(ParsePlainRequest(head + "Host: a\r\n\r\n")) << head;
  }
  EXPECT_FALSE(ParsePlainRequest("GET /v1/status HTTP/1.1\r\nHost: a\r\nX: " + long_value + "\r\n\r\n"));
}

TEST(Accept, AQualityThatIsNoneIsNotWanted) {
  EXPECT_EQ(PreferredType("text/plain;q=1, application/json;q=0.5"), IdsType::kLines);
  EXPECT_EQ(PreferredType("application/octet-stream"), IdsType::kRangeBytes);
  EXPECT_EQ(PreferredType("application/json;q=0.5, application/octet-stream;q=0.6, text/plain;q=0.4"),
            IdsType::kRangeBytes);
  // Of equal ones the plainest, and of none by name JSON.
  EXPECT_EQ(PreferredType("application/octet-stream, text/plain"), IdsType::kLines);
  EXPECT_EQ(PreferredType("application/octet-stream, text/plain, application/json"), IdsType::kJsonObject);
  for (const char* const accept : {"", "*/*", "application/*", "application/octet-stream;q=0"})
    EXPECT_EQ(PreferredType(accept), IdsType::kJsonObject) << accept;
  for (const char* quality : {"5", "nan", "inf", "-1", "1x", "", "1e-99999"})
    EXPECT_EQ(PreferredType(std::string("text/plain;q=") + quality), IdsType::kJsonObject) << quality;
  EXPECT_EQ(PreferredType("text/plain;q=0.1, application/json;q=nan"), IdsType::kLines);
}

// The text that IdsText has to make, written in the plainest way.
std::string PlainText(std::span<const IdRange> ranges, const IdsForm& form) {
  std::string text(form.lead);
  bool first = true;
  for (const IdRange& range : ranges) {
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      if (!first) text += form.separator;
      first = false;
      text += std::to_string(id);
    }
  }
  return text.append(form.tail);
}

// Reads a copy piece by piece, from its beginning.
std::string InPieces(IdsText ids, std::size_t piece) {
  std::string text;
  while (ids.rest() > 0) {
    std::string next;
    ids.Peek(piece, next);
    EXPECT_EQ(next.size(), std::min<std::uint64_t>(piece, ids.rest()));
    text += next;
    ids.Skip(next.size());
  }
  EXPECT_EQ(text.size(), ids.size());
  return text;
}

// Also forms whose end is longer, or shorter, than the text between two IDs.
constexpr IdsForm kLongTail{"<", ", ", " and that is all>"};
constexpr IdsForm kNoTail{"IDs: ", " | ", ""};

TEST(IdsText, IsTheSameInPiecesOfEverySize) {
  constexpr std::uint64_t kLast = kIdEnd - 1;
  const std::vector<std::vector<IdRange>> cases{
      {{0, 1}},
      {{0, 12}},
      {{9, 10}, {10, 11}, {99, 101}},
      {{7, 1003}},
      {{99'998, 100'002}, {999'999'999'999'999'999, 1'000'000'000'000'000'001}},
      {{kLast - 3, kIdEnd}},
      {{1, 3}, {5, 6}, {8, 14}, {95, 106}, {1'000'000, 1'000'020}, {kLast, kIdEnd}},
  };
  for (const auto& ranges : cases) {
    for (const IdsForm& form : {kIdsAsJson, kIdsAsText, kIdAlone, kLongTail, kNoTail}) {
      const std::string text = PlainText(ranges, form);
      const IdsText ids(ranges, form);
      EXPECT_EQ(ids.size(), text.size());
      std::string at_once = "before ";
      AppendIds(ranges, form, at_once);
      EXPECT_EQ(at_once, "before " + text);
      for (std::size_t piece = 1; piece < text.size() + 2; piece += piece < 60 ? 1 : 101)
        ASSERT_EQ(InPieces(ids, piece), text) << "pieces of " << piece;
    }
  }
}

// IDs as eight letters.
class LetterText final : public FixedIdText {
 public:
  std::size_t width() const override { return 8; }
  void Append(std::string& out, std::uint64_t id) const override {
    for (int shift = 28; shift >= 0; shift -= 4) out += static_cast<char>('a' + (id >> shift & 15U));
  }
  Result<void> Check(std::uint64_t) const override { return {}; }
};

TEST(IdsText, HasOtherFormsThanNumbers) {
  const std::vector<IdRange> ranges{{0, 1}, {5, 40}, {41, 44}};
  const auto letters = std::make_shared<const LetterText>();
  for (const IdsForm& form : {kIdsAsJson, kIdsAsText, kCodesAsJson, kLongTail, kNoTail}) {
    std::string text;
    AppendIds(ranges, form, text, letters.get());
    const IdsText ids(ranges, form, letters);
    ASSERT_EQ(ids.size(), text.size());
    ASSERT_EQ(text.size(), form.lead.size() + form.tail.size() + 39 * 8 + 38 * form.separator.size());
    for (std::size_t piece = 1; piece < text.size() + 2; ++piece)
      ASSERT_EQ(InPieces(ids, piece), text) << "pieces of " << piece;
  }
}

TEST(IdsText, GoesOnWhereverAClientStoppedReading) {
  const std::vector<IdRange> ranges{{95, 106}, {998, 1002}, {5000, 5001}};
  const std::string text = PlainText(ranges, kIdsAsJson);
  for (std::size_t skipped = 0; skipped <= text.size(); ++skipped) {
    IdsText ids(ranges, kIdsAsJson);
    ids.Skip(skipped);
    EXPECT_EQ(ids.rest(), text.size() - skipped);
    std::string rest = "before ";
    ids.Peek(text.size(), rest);
    ASSERT_EQ(rest, "before " + text.substr(skipped));
  }
}

TEST(IdsText, TakesUpItsRangesOnly) {
  std::vector<IdRange> ranges{{1, 100'000'000}};
  const IdsText one(ranges, kIdsAsJson);
  EXPECT_GT(one.size(), 1'000'000'000u);
  EXPECT_LT(one.held_bytes(), 200u);
  std::string piece;
  IdsText far = one;
  far.Skip(far.size() - 20);
  far.Peek(1000, piece);
  EXPECT_EQ(piece, R"(999998","99999999"]})") << "the end of a text that was never written out";
  while (ranges.size() < 3000) ranges.push_back({ranges.back().end + 1, ranges.back().end + 4096});
  const IdsText many(ranges, kIdsAsText);
  EXPECT_GE(many.held_bytes(), 3000 * sizeof(IdRange));
}

TEST(UnreadBytes, AreGivenBack) {
  UnreadBytes all(100);
  UnreadBytes::Held first = all.Hold(99);
  EXPECT_TRUE(first);
  UnreadBytes::Held second = all.Hold(500);
  EXPECT_TRUE(second) << "one answer may go beyond it";
  EXPECT_TRUE(all.full());
  EXPECT_FALSE(all.Hold(1));
  EXPECT_EQ(all.held(), 599u);
  UnreadBytes::Held moved = std::move(second);
  first = UnreadBytes::Held();
  EXPECT_EQ(all.held(), 500u);
  moved = UnreadBytes::Held();
  EXPECT_EQ(all.held(), 0u);
}

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    table_.Put("pay", 1, 100);
    table_.Put("v1.0", 5, 100);
    service_.Start();
    Run();
  }
  void Run() {
    while (timers_.RunOne() || workers_.RunOne() || slow_workers_.RunOne()) {
    }
  }
  Response Get(std::string_view target, std::string_view method = "GET", std::string_view accept = "",
               bool is_local = false) {
    std::optional<Response> response;
    router_.Handle({.method = method, .target = target, .accept = accept, .is_local = is_local},
                   [&](Response answer) { response = std::move(answer); });
    Run();
    for (int i = 0; i < 400 && !response; ++i) {
      clock_.Advance(milliseconds{5});
      Run();
    }
    EXPECT_TRUE(response.has_value());
    return response ? *std::move(response) : Response{};
  }
  static nlohmann::json Body(const Response& response) { return nlohmann::json::parse(response.body); }

  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor workers_{clock_};
  testing::ManualExecutor slow_workers_{clock_};
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::FaultySegmentStore store_{table_};
  testing::MemoryMarkStore marks_{clock_};
  service::SegmentService service_{
      {}, store_, marks_, clock_, random_, {timers_, workers_, slow_workers_, workers_}, log_};
  service::IdService ids_{&service_};
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1", .store = "sqlite", .listen = {}}, issuer_, unread_, clock_, workers_};
};

TEST_F(RouterTest, IdsThatFollowEachOtherGetLonger) {
  table_.Put("long", 7, 2000);
  std::string text;
  std::string ids;
  for (std::uint64_t id = 7; id < 1107; ++id) text += std::to_string(id) + "\n";
  const Response response = Get("/v1/segment/long?count=1100", "GET", "text/plain");
  ASSERT_TRUE(response.is_large());
  EXPECT_EQ(response.body, "");
  EXPECT_EQ(InPieces(*response.ids, 1000), text);
  for (std::uint64_t id = 1107; id < 1207; ++id)
    ids += (ids.empty() ? "\"" : ",\"") + std::to_string(id) + "\"";
  EXPECT_EQ(Get("/v1/segment/long?count=100").body, "{\"ids\":[" + ids + "]}");
}

TEST_F(RouterTest, ALargeBatchIsRefusedBeforeItIsTakenWhereMemoryIsShort) {
  table_.Put("long", 7, 2000);
  const UnreadBytes::Held held = unread_.batches.Hold(std::size_t{1024} * 1024 * 1024);
  const Response refused = Get("/v1/segment/long?count=1100");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.retry_after_s, 1u);
  EXPECT_EQ(Body(refused)["code"], "unavailable");
  // Nothing was taken for it; few IDs, ranges and reports are given all the same.
  EXPECT_EQ(Get("/v1/segment/long?count=2").body, R"({"ids":["7","8"]})");
  EXPECT_EQ(Get("/v1/segment/long?count=1100&form=range").body, R"({"ranges":[{"begin":"9","end":"1109"}]})");
  EXPECT_EQ(Get("/v1/status").status, 200);
}

TEST_F(RouterTest, AReportIsRefusedBeforeItIsMadeWhereMemoryIsShort) {
  table_.Put("long", 7, 2000);
  {
    const UnreadBytes::Held held = unread_.reports.Hold(std::size_t{1024} * 1024 * 1024);
    for (const char* const path : {"/v1/status", "/cache", "/db"}) {
      const Response refused = Get(path);
      EXPECT_EQ(refused.status, 503) << path;
      EXPECT_EQ(refused.retry_after_s, 1u) << path;
    }
    EXPECT_EQ(Get("/v1/segment/long?count=1100").status, 200);
    // The operator sees all the same what goes on.
    EXPECT_EQ(Get("/v1/status", "GET", "", true).status, 200);
  }
  for (const char* const path : {"/v1/status", "/cache", "/db"}) EXPECT_EQ(Get(path).status, 200) << path;
}

TEST_F(RouterTest, AnswersLeafsRouteWithABareNumber) {
  const Response response = Get("/api/segment/get/pay");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "1");
  EXPECT_EQ(response.content_type, "text/plain;charset=UTF-8");
  EXPECT_EQ(Get("/api/segment/get/pay", "DELETE").body, "2");
  EXPECT_EQ(Get("/api/segment/get/v1.0").body, "5") << "a dot belongs to the tag";
}

TEST_F(RouterTest, LeafsErrorHasItsFieldsInItsOrder) {
  const Response response = Get("/api/segment/get/nokey");
  EXPECT_EQ(response.status, 500);
  const std::string expected =
      R"({"timestamp":)" + std::to_string(UnixMillis(clock_.Wall())) +
      R"(,"status":500,"error":"Internal Server Error","exception":"com.sankuai.inf.leaf.server.exception.LeafServerException",)"
      R"("message":"Result{id=-2, status=EXCEPTION}","path":"/api/segment/get/nokey"})";
  EXPECT_EQ(response.body, expected);
}

TEST_F(RouterTest, AnEncodedSlashOrNulIsNoPathOfLeafs) {
  for (const char* const path :
       {"/api/segment/get/p%2Fay", "/api/segment/get/pay%2f", "/api/segment/get/pay%00",
        "/api/segment/get%2Fpay", "/api/snowflake/get/%2F"}) {
    EXPECT_EQ(Get(path).status, 400) << path;
    EXPECT_EQ(Get(path, "HEAD").status, 400) << path;
  }
  EXPECT_EQ(Get("/api/segment/get/p%61y").body, "1");
}

TEST_F(RouterTest, HeadTellsWhatGetWould) {
  for (const char* const path : {"/api/segment/get/nokey", "/v1/segment/nokey", "/v1/segment/pay?count=0",
                                 "/api/snowflake/get/x", "/v1/snowflake"}) {
    EXPECT_EQ(Get(path, "HEAD").status, Get(path).status) << path;
    EXPECT_GE(Get(path, "HEAD").status, 400) << path;
  }
  EXPECT_EQ(Get("/v1/segment/pay", "HEAD").body, "");
}

TEST_F(RouterTest, HeadOptionsAndTraceTakeNoId) {
  EXPECT_EQ(Get("/api/segment/get/pay", "HEAD").status, 200);
  EXPECT_EQ(Get("/api/segment/get/pay", "OPTIONS").allow, "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS");
  EXPECT_EQ(Get("/api/segment/get/pay", "TRACE").status, 405);
  EXPECT_EQ(Get("/v1/segment/pay", "HEAD").status, 200);
  EXPECT_EQ(Get("/v1/segment/pay", "PUT").status, 405);
  EXPECT_EQ(Get("/api/segment/get/pay").body, "1");
}

TEST_F(RouterTest, GivesBatchesInTheFormThatIsAskedFor) {
  EXPECT_EQ(Get("/v1/segment/pay?count=3").body, R"({"ids":["1","2","3"]})");
  EXPECT_EQ(Get("/v1/segment/pay?count=2&form=range").body, R"({"ranges":[{"begin":"4","end":"6"}]})");
  EXPECT_EQ(Get("/v1/segment/pay?count=2", "POST", "text/plain").body, "6\n7\n");
  EXPECT_EQ(Get("/v1/segment/pay?count=2&form=range", "GET", "text/plain").body, "8 10\n");
}

TEST_F(RouterTest, RefusesBadCountsAndTakesNothing) {
  for (const char* count : {"0", "-1", "abc", "", "1.5", "99999999999999999999", "1&count=2"}) {
    const Response response = Get(std::string("/v1/segment/pay?count=") + count);
    EXPECT_EQ(response.status, 400) << count;
    EXPECT_EQ(Body(response)["code"], "invalid_argument");
  }
  const Response large = Get("/v1/segment/pay?count=100001");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Body(large)["max_count"], 100'000);
  EXPECT_EQ(Get("/v1/segment/pay?form=xml").status, 400);
  EXPECT_EQ(Get("/v1/segment/pay").body, R"({"ids":["1"]})");
}

TEST_F(RouterTest, SaysWhatIsWrongWithATag) {
  EXPECT_EQ(Get("/v1/segment/nope").status, 404);
  EXPECT_EQ(Get("/v1/segment/a%00b").status, 400);
  EXPECT_EQ(Get("/v1/segment/%FF").status, 400);
  EXPECT_EQ(Get("/v1/segment/" + std::string(129, 'a')).status, 400);
  EXPECT_EQ(Get("/v1/segment/%zz").status, 400);
  EXPECT_EQ(Get("/v1/segment").status, 404);
  EXPECT_EQ(Get("/api/segment/get/").status, 404);
  EXPECT_EQ(Get("/api/segment/get/%zz").status, 400);
}

TEST_F(RouterTest, ADrainedTagSaysWhenToComeBack) {
  store_.SetDown(true);
  const Response response = Get("/v1/segment/pay");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.retry_after_s, 1U);
  EXPECT_EQ(Body(response)["code"], "exhausted");
  EXPECT_NE(Get("/api/segment/get/pay").body.find("Result{id=-3, status=EXCEPTION}"), std::string::npos);
}

TEST_F(RouterTest, AFrozenTagIsAConflictAndTheNodeStaysReady) {
  ASSERT_TRUE(marks_.Raise({"pay", 5000, std::nullopt}).ok());
  EXPECT_EQ(Get("/v1/segment/pay").status, 409);
  EXPECT_NE(Get("/api/segment/get/pay").body.find("Result{id=-3"), std::string::npos);
  EXPECT_EQ(Get("/health/ready").status, 200);
  EXPECT_EQ(Get("/health/ready?tag=pay").status, 503);
  EXPECT_EQ(Get("/health/ready?tag=v1.0").status, 200);
  const auto status = Body(Get("/v1/status"));
  EXPECT_EQ(status["problems"][0]["code"], "frozen");
  EXPECT_EQ(status["problems"][0]["tag"], "pay");
}

TEST_F(RouterTest, DrainingIsNotReadyButAlive) {
  ids_.BeginDrain();
  EXPECT_EQ(Get("/health/ready").status, 503);
  EXPECT_EQ(Get("/health/live").status, 200);
  EXPECT_EQ(Get("/v1/segment/pay").status, 200);
}

TEST(Router, ADisabledModeIsAnError) {
  testing::FakeClock clock;
  service::IdService ids(nullptr);
  testing::ManualExecutor reports(clock);
  const Issuer issuer({}, ids);
  UnreadAnswers unread;
  const Router router({.version = "1", .store = "sqlite", .listen = {}}, issuer, unread, clock, reports);
  const auto get = [&](std::string_view target) {
    std::optional<Response> response;
    router.Handle({"GET", target, ""}, [&](Response answer) { response = std::move(answer); });
    return *std::move(response);
  };
  EXPECT_NE(get("/api/segment/get/pay").body.find("Result{id=-1, status=EXCEPTION}"), std::string::npos);
  EXPECT_EQ(get("/v1/segment/pay").status, 503);
  EXPECT_FALSE(get("/v1/segment/pay").retry_after_s.has_value());
  EXPECT_EQ(get("/health/ready").status, 503);
}

}  // namespace
}  // namespace leaf::server
