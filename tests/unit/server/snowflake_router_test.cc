// The routes of snowflake mode, over a real service on fake time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "leaf/server/http/router.h"
#include "leaf/sys/static_registry.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class SnowflakeRouter : public ::testing::Test {
 protected:
  SnowflakeRouter() { EXPECT_TRUE(service_.Start().ok()); }
  void Run() {
    while (timers_.RunOne() || workers_.RunOne()) {
    }
  }
  Response Get(std::string_view target, std::string_view method = "GET", std::string_view accept = "") {
    std::optional<Response> response;
    router_.Handle({method, target, accept}, [&](Response answer) { response = std::move(answer); });
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
  testing::RecordingLogger log_;
  testing::MemoryStateFile state_file_;
  sys::StaticRegistry registry_{5, {}};
  service::SnowflakeService service_{[] {
                                       service::SnowflakeOptions options;
                                       options.cluster.name = "pay";
                                       return options;
                                     }(),
                                     registry_,
                                     state_file_,
                                     clock_,
                                     random_,
                                     {timers_, workers_, workers_},
                                     log_};
  service::IdService ids_{nullptr, &service_};
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1", .store = "sqlite", .listen = {}}, issuer_, unread_, clock_, workers_};
};

TEST_F(SnowflakeRouter, AnswersLeafsRouteWithABareNumberWhateverTheName) {
  std::uint64_t last = 0;
  for (const char* name : {"pay", "x", "a.b", "%E4%B8%AD", "%01"}) {
    const Response response = Get(std::string("/api/snowflake/get/") + name);
    EXPECT_EQ(response.status, 200) << name;
    EXPECT_EQ(response.content_type, "text/plain;charset=UTF-8");
    const std::uint64_t id = std::stoull(response.body);
    EXPECT_EQ(std::to_string(id), response.body);
    EXPECT_GT(id, last);
    last = id;
  }
  EXPECT_EQ(Get("/api/snowflake/get").status, 404);
  EXPECT_EQ(Get("/api/snowflake/get/x/y").status, 404);
  EXPECT_EQ(Get("/api/snowflake/get/x", "DELETE").status, 200);
  const WallTime end = service_.generator().End();
  EXPECT_EQ(Get("/api/snowflake/get/x", "HEAD").body, "");
  EXPECT_EQ(Get("/api/snowflake/get/x", "OPTIONS").status, 200);
  EXPECT_EQ(Get("/v1/snowflake", "HEAD").status, 200);
  EXPECT_EQ(Get("/v1/snowflake", "PUT").status, 405);
  EXPECT_EQ(service_.generator().End(), end);
}

TEST_F(SnowflakeRouter, GivesBatchesInTheFormThatIsAskedFor) {
  const Response batch = Get("/v1/snowflake?count=5000");
  ASSERT_TRUE(batch.ids);
  std::string text_of_batch;
  batch.ids->Peek(batch.ids->size(), text_of_batch);
  const auto ids = nlohmann::json::parse(text_of_batch)["ids"];
  ASSERT_EQ(ids.size(), 5000U);
  for (std::size_t i = 1; i < ids.size(); ++i) {
    ASSERT_LT(std::stoull(ids[i - 1].get<std::string>()), std::stoull(ids[i].get<std::string>()));
  }
  const auto ranges = Body(Get("/v1/snowflake?count=10000&form=range"))["ranges"];
  std::uint64_t total = 0;
  for (const auto& range : ranges) {
    total += std::stoull(range["end"].get<std::string>()) - std::stoull(range["begin"].get<std::string>());
  }
  EXPECT_EQ(total, 10'000U);
  EXPECT_GE(ranges.size(), 3U);
  const Response text = Get("/v1/snowflake?count=2", "POST", "text/plain");
  EXPECT_EQ(std::count(text.body.begin(), text.body.end(), '\n'), 2);
}

TEST_F(SnowflakeRouter, RefusesBadCountsAndTakesNothing) {
  const WallTime end = service_.generator().End();
  for (const char* count : {"0", "-1", "abc", "", "1.5", "99999999999999999999", "1&count=2"}) {
    const Response response = Get(std::string("/v1/snowflake?count=") + count);
    EXPECT_EQ(response.status, 400) << count;
    EXPECT_EQ(Body(response)["code"], "invalid_argument");
  }
  const Response large = Get("/v1/snowflake?count=100001");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Body(large)["max_count"], 100'000);
  EXPECT_EQ(Get("/v1/snowflake?form=xml").status, 400);
  EXPECT_EQ(service_.generator().End(), end);
}

TEST_F(SnowflakeRouter, ADisabledModeIsAnError) {
  service::IdService none(nullptr);
  const Issuer issuer({}, none);
  const Router router({.version = "1", .store = "sqlite", .listen = {}}, issuer, unread_, clock_, workers_);
  const auto get = [&](std::string_view target) {
    std::optional<Response> response;
    router.Handle({"GET", target, ""}, [&](Response answer) { response = std::move(answer); });
    return *std::move(response);
  };
  EXPECT_NE(get("/api/snowflake/get/x").body.find("Result{id=-1, status=EXCEPTION}"), std::string::npos);
  EXPECT_EQ(get("/v1/snowflake").status, 503);
  EXPECT_FALSE(get("/v1/snowflake").retry_after_s.has_value());
  EXPECT_EQ(Body(get("/v1/snowflake"))["code"], "disabled");
  // Decoding is no mode, and a peer's clock answers always.
  EXPECT_EQ(get("/decodeSnowflakeId?snowflakeId=1").status, 200);
  EXPECT_EQ(get("/v1/decode/1").status, 200);
  EXPECT_EQ(get("/v1/clock").status, 200);
}

TEST_F(SnowflakeRouter, AClockThatWentBackIsLeafsMinusThree) {
  ASSERT_EQ(Get("/v1/snowflake").status, 200);
  clock_.StepWall(-hours{1});
  const Response leaf = Get("/api/snowflake/get/x");
  EXPECT_EQ(leaf.status, 500);
  EXPECT_NE(leaf.body.find("Result{id=-3, status=EXCEPTION}"), std::string::npos) << leaf.body;
  const Response v1 = Get("/v1/snowflake");
  EXPECT_EQ(v1.status, 503);
  EXPECT_EQ(Body(v1)["code"], "clock");
  EXPECT_TRUE(v1.retry_after_s.has_value());
  const Response ready = Get("/health/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(Body(ready)["reasons"][0]["code"], "snowflake_clock");
  EXPECT_EQ(Get("/v1/clock").status, 200);
  clock_.StepWall(hours{1});
  EXPECT_EQ(Get("/health/ready").status, 200);
}

TEST_F(SnowflakeRouter, ALeadThatIsUsedUpIsWaitedFor) {
  core::SnowflakeRun run;
  for (const std::uint64_t count : {4096U, 1U}) {
    while (service_.TryNext(count, run)) {
    }
  }
  EXPECT_EQ(Get("/v1/snowflake?count=10").status, 200);
  EXPECT_EQ(Get("/api/snowflake/get/x").status, 200);
}

TEST_F(SnowflakeRouter, StatusTellsTheWorker) {
  const auto status = Body(Get("/v1/status"))["snowflake"];
  EXPECT_EQ(status["enabled"], true);
  EXPECT_EQ(status["state"], "issuing");
  EXPECT_EQ(status["worker"], 5);
  EXPECT_EQ(status["cluster"], "pay");
  EXPECT_EQ(status["exhausted_at"], "2080-07-10T17:30:30.208Z");
  state_file_.failure = Error{ErrorCode::kUnavailable, "the disk is full", ""};
  clock_.Advance(seconds{2});
  Run();
  EXPECT_EQ(Body(Get("/v1/status"))["problems"][0]["message"], "the disk is full");
}

// ---- decoding
// --------------------------------------------------------------------------------------------------

// Bodies as Java Leaf gave them, in its own field order; its time zone was that of the process.
class LeafDecode : public SnowflakeRouter {
 protected:
  LeafDecode() {
    setenv("TZ", "Asia/Shanghai", 1);
    tzset();
  }
  ~LeafDecode() override {
    unsetenv("TZ");
    tzset();
  }
};

TEST_F(LeafDecode, ByteForByte) {
  const auto body = [](const char* worker, const char* sequence, const char* timestamp) {
    return fmt::format(R"({{"workerId":"{}","sequenceId":"{}","timestamp":"{}"}})", worker, sequence,
                       timestamp);
  };
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=2123738945798799443").body,
            body("0", "83", "1795173796497(2026-11-20 19:23:16.497)"));
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=-1").body,
            body("1023", "4095", "1288834974656(2010-11-04 09:42:54.656)"));
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=%2B4096").body,
            body("1", "0", "1288834974657(2010-11-04 09:42:54.657)"));
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=9223372036854775807").body,
            body("1023", "4095", "3487858230208(2080-07-11 01:30:30.208)"));
  EXPECT_EQ(
      Body(Get("/decodeSnowflakeId?snowflakeId=-9223372036854775808"))["timestamp"].get<std::string>().substr(
          0, 14),
      "-910188280895(");
  for (const char* path : {"/decodeSnowflakeId/", "/decodeSnowflakeId.json", "//decodeSnowflakeId"}) {
    EXPECT_EQ(Body(Get(std::string(path) + "?snowflakeId=1"))["sequenceId"], "1") << path;
  }
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=1", "POST").status, 200);
  EXPECT_EQ(Get("/decodeSnowflakeId?snowflakeId=1").content_type, "application/json;charset=UTF-8");
}

TEST_F(LeafDecode, AFormMayHaveTheParameter) {
  const auto post = [&](std::string_view target, std::string_view form) {
    std::optional<Response> response;
    router_.Handle({.method = "POST", .target = target, .accept = "", .form = form},
                   [&](Response answer) { response = std::move(answer); });
    return response ? *std::move(response) : Response{};
  };
  EXPECT_EQ(post("/decodeSnowflakeId", "snowflakeId=2123738945798799443").body,
            Get("/decodeSnowflakeId?snowflakeId=2123738945798799443").body);
  EXPECT_EQ(Body(post("/decodeSnowflakeId?x=1", "a=b&snowflakeId=%2B4096"))["workerId"], "1");
  EXPECT_EQ(Body(post("/decodeSnowflakeId?snowflakeId=4096", "a=b"))["workerId"], "1");
  EXPECT_EQ(Body(post("/decodeSnowflakeId?snowflakeId=4096", "a=%zz"))["workerId"], "1");
  // Both: Java joins them by a comma.
  EXPECT_TRUE(Body(post("/decodeSnowflakeId?snowflakeId=1", "snowflakeId=1")).contains("errorMsg"));
  EXPECT_EQ(post("/decodeSnowflakeId", "other=1").status, 400);
}

TEST_F(LeafDecode, WhatIsNoLongIsAnErrorMessageWithStatus200) {
  for (const char* value : {"", "x", "1x", "0x10", "1.0", "%201", "1%20", "9223372036854775808",
                            "-9223372036854775809", "--1", "%2B-1", "-", "%2B", "1&snowflakeId=2"}) {
    const Response response = Get(std::string("/decodeSnowflakeId?snowflakeId=") + value);
    EXPECT_EQ(response.status, 200) << value;
    EXPECT_EQ(response.body, R"({"errorMsg":"snowflake Id反解析发生异常!"})") << value;
  }
  const Response missing = Get("/decodeSnowflakeId");
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(missing.body,
            R"({"timestamp":)" + std::to_string(UnixMillis(clock_.Wall())) +
                R"(,"status":400,"error":"Bad Request",)"
                R"("exception":"org.springframework.web.bind.MissingServletRequestParameterException",)"
                R"("message":"Required String parameter 'snowflakeId' is not present",)"
                R"("path":"/decodeSnowflakeId"})");
}

TEST_F(SnowflakeRouter, DecodesWithTheConfiguredEpochAndLayout) {
  const Router router({.version = "1",
                       .store = "sqlite",
                       .listen = {},
                       .layout = *core::IdLayout::Make(40, 3, 20, 1'700'000'000'000)},
                      issuer_, unread_, clock_, workers_);
  std::optional<Response> response;
  router.Handle({"GET", "/decodeSnowflakeId?snowflakeId=8388608", ""},
                [&](Response r) { response = std::move(r); });
  EXPECT_TRUE(Body(*response)["timestamp"].get<std::string>().starts_with("1700000000001("));
  router.Handle({"GET", "/v1/decode/8388608", ""}, [&](Response r) { response = std::move(r); });
  EXPECT_EQ(Body(*response)["time_ms"], 1'700'000'000'001);
}

TEST_F(SnowflakeRouter, DecodesInEveryForm) {
  const std::string expected =
      R"({"id":"2123738945798799443","time":"2026-11-20T11:23:16.497Z","time_ms":1795173796497,"worker":0,"sequence":83})";
  EXPECT_EQ(Get("/v1/decode/2123738945798799443").body, expected);
  EXPECT_EQ(Get("/v1/decode/0x1d790951b4000053").body, expected);
  EXPECT_EQ(Get("/v1/decode/1d790951b4000053?format=hex").body, expected);
  for (const char* bad : {"-1", "x", "9223372036854775808", "1?format=xml", "1?format=base62&format=dec"}) {
    EXPECT_EQ(Get(std::string("/v1/decode/") + bad).status, 400) << bad;
  }
  EXPECT_EQ(Get("/v1/decode/1", "POST").status, 405);
  EXPECT_EQ(Get("/v1/decode").status, 404);
}

TEST_F(SnowflakeRouter, TellsItsClock) {
  const auto clock = Body(Get("/v1/clock"));
  EXPECT_EQ(clock["time_ms"], UnixMillis(clock_.Wall()));
  EXPECT_EQ(clock["time"], FormatRfc3339(clock_.Wall()));
}

}  // namespace
}  // namespace leaf::server
