// The routes of operators, and the limits on requests, without sockets.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "leaf/server/http/router.h"
#include "unit/server/router_fixture.h"

namespace leaf::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ControlRouter : public RouterFixture {
 protected:
  ControlRouter() { StartService(); }
  Response Ask(std::string_view target, std::string_view method = "GET", bool from_operator = false) {
    std::optional<Response> response;
    router_.Handle({.method = method,
                    .target = target,
                    .accept = "",
                    .caller = from_operator ? &access::Caller::Operator() : &access::Caller::Open()},
                   [&](Response answer) { response = std::move(answer); });
    Run();
    EXPECT_TRUE(response.has_value());
    return response ? *std::move(response) : Response{};
  }
  static nlohmann::json Body(const Response& response) { return nlohmann::json::parse(response.body); }

  service::RequestLimit limit_{clock_};
  Issuer issuer_{{.limit = &limit_}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1", .store = "sqlite", .listen = {}, .control = &control_},
                 issuer_,
                 unread_,
                 clock_,
                 workers_};
};

TEST_F(ControlRouter, PausesForOperatorsOnly) {
  const Response refused = Ask("/v1/segment/pay/pause", "POST", false);
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(Body(refused)["code"], "permission");
  EXPECT_EQ(Ask("/v1/segment/pay/pause", "GET", true).status, 405);
  EXPECT_EQ(Ask("/v1/segment/pay/pause", "GET", true).allow, "POST");
  EXPECT_EQ(Ask("/v1/segment/%01/pause", "POST", true).status, 400);
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);

  const auto dry = Body(Ask("/v1/segment/pay/pause?dry_run=1", "POST", true));
  EXPECT_EQ(dry["changed"], true);
  EXPECT_EQ(dry["dry_run"], true);
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);
  for (const char* const value : {"true", "yes", "", "01"}) {
    const Response unclear = Ask(fmt::format("/v1/segment/pay/pause?dry_run={}", value), "POST", true);
    EXPECT_EQ(unclear.status, 400) << value;
    EXPECT_EQ(Body(unclear)["message"], fmt::format("bad dry_run '{}': neither 0 nor 1", value));
  }
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);

  const auto done = Body(Ask("/v1/segment/pay/pause", "POST", true));
  EXPECT_EQ(done["paused"], true);
  EXPECT_EQ(done["changed"], true);
  EXPECT_EQ(done["known"], true);
  EXPECT_EQ(Body(Ask("/v1/segment/pay/pause", "POST", true))["changed"], false);
  const Response answer = Ask("/v1/segment/pay");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(Body(answer)["code"], "paused");
  EXPECT_FALSE(answer.retry_after_s.has_value());
  const Response leaf = Ask("/api/segment/get/pay");
  EXPECT_EQ(leaf.status, 500);
  EXPECT_EQ(Body(leaf)["message"], "Result{id=-3, status=EXCEPTION}");
  EXPECT_EQ(Ask("/health/ready").status, 200);
  EXPECT_EQ(Ask("/health/ready?tag=pay").status, 503);
  const auto status = Body(Ask("/v1/status"));
  EXPECT_EQ(status["segment"]["paused"], nlohmann::json({"pay"}));
  EXPECT_EQ(status["problems"][0]["code"], "paused");
  EXPECT_EQ(status["problems"][0]["tag"], "pay");

  EXPECT_EQ(Ask("/v1/segment/pay/resume", "POST", false).status, 403);
  EXPECT_EQ(Body(Ask("/v1/segment/pay/resume", "POST", true))["changed"], true);
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);
  EXPECT_TRUE(Body(Ask("/v1/status"))["problems"].empty());
}

TEST_F(ControlRouter, ADiskThatFailsIsSaid) {
  disk_.FailWrites(ENOSPC);
  EXPECT_EQ(Ask("/v1/segment/pay/pause", "POST", true).status, 503);
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);
}

TEST_F(ControlRouter, ATagThatDoesNotExistIsNotPaused) {
  for (const char* const path :
       {"/v1/segment/pays/pause", "/v1/segment/pays/pause?dry_run=1", "/v1/segment/pays/resume"}) {
    const Response refused = Ask(path, "POST", true);
    EXPECT_EQ(refused.status, 404) << path;
    EXPECT_EQ(Body(refused)["message"], "unknown tag 'pays'");
    EXPECT_EQ(Body(refused)["hint"], "did you mean pay?");
  }
  EXPECT_TRUE(Body(Ask("/v1/status"))["segment"]["paused"].empty());
}

TEST_F(ControlRouter, AdvisesTenMinutesOfThePeak) {
  const auto none = Body(Ask("/v1/segment/pay/advice"));
  EXPECT_TRUE(none["advised_step"].is_null());
  EXPECT_EQ(Ask("/v1/segment/unknown/advice").status, 404);
  EXPECT_EQ(Ask("/v1/segment/pay/advice", "POST").status, 405);
  Ask("/v1/segment/pay");
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Ask("/v1/segment/pay?count=250").status, 200);
    clock_.Advance(seconds{1});
    service_.ObservePeaks();
  }
  const auto advice = Body(Ask("/v1/segment/pay/advice"));
  EXPECT_NEAR(advice["peak_rate"].get<double>(), 250, 1.5);
  EXPECT_NEAR(advice["advised_step"].get<double>(), 150'000, 900);
  EXPECT_EQ(advice["step"], 1'000'000);
  EXPECT_NEAR(advice["reserve_s"].get<double>(), (1'000'000 - 2501) / 250.0, 30);
  EXPECT_NE(advice["why"].get<std::string>().find("IDs a second"), std::string::npos);
}

TEST_F(ControlRouter, ALimitIs429OnEveryRouteThatTakes) {
  limit_.Set(0, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("/v1/segment/pay").status, 200);
  const Response v1 = Ask("/v1/segment/pay");
  EXPECT_EQ(v1.status, 429);
  EXPECT_EQ(Body(v1)["code"], "limited");
  EXPECT_EQ(v1.retry_after_s, 1U);
  const Response leaf = Ask("/api/segment/get/pay");
  EXPECT_EQ(leaf.status, 429);
  EXPECT_EQ(leaf.retry_after_s, 1U);
  EXPECT_EQ(Ask("/v1/segment/order").status, 200);
  limit_.Set(2, 0);
  clock_.Advance(seconds{1});
  int answered = 0;
  for (int i = 0; i < 20; ++i) answered += Ask("/v1/decode/1").status == 200 ? 1 : 0;
  EXPECT_GE(answered, 2);
  EXPECT_LE(answered, 4);
  EXPECT_EQ(Ask("/decodeSnowflakeId?snowflakeId=1").status, 429);
  // Operators and monitoring get through.
  for (const char* route :
       {"/health/live", "/health/ready", "/v1/status", "/v1/clock", "/v1/segment/pay/advice"})
    EXPECT_EQ(Ask(route).status, 200) << route;
  limit_.Set(0, 0);
  EXPECT_EQ(Ask("/v1/segment/pay").status, 200);
}

TEST_F(ControlRouter, TheLimitOfACountCanChange) {
  EXPECT_EQ(Ask("/v1/segment/pay?count=100").status, 200);
  issuer_.SetMaxCount(99);
  const Response large = Ask("/v1/segment/pay?count=100");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Body(large)["max_count"], 99);
  EXPECT_EQ(Body(Ask("/v1/status"))["limits"]["max_count"], 99);
}

TEST_F(ControlRouter, NewSettingsOfTheRefreshHoldAtOnce) {
  table_.Put("new", 1, 10);
  const auto serves_new = [&] {
    for (const auto& status : service_.TagStatuses()) {
      if (status.tag == "new") return true;
    }
    return false;
  };
  clock_.Advance(seconds{1});
  Run();
  EXPECT_FALSE(serves_new());  // once a minute
  service_.Reconfigure(seconds{2}, milliseconds{0});
  Run();
  EXPECT_TRUE(serves_new());
  ASSERT_TRUE(table_.Remove("new", core::WriteMode::kCommit).ok());
  clock_.Advance(seconds{3});
  Run();
  EXPECT_FALSE(serves_new());
  // One chain of refreshes, however often it is changed.
  for (int i = 1; i <= 10; ++i) service_.Reconfigure(seconds{2 + i}, milliseconds{0});
  Run();
  service_.Reconfigure(seconds{30}, seconds{5});
  Run();
  int refreshes = 0;
  for (int i = 0; i < 60; ++i) {
    const auto before = service_.Status().refreshed_at;
    clock_.Advance(seconds{1});
    Run();
    refreshes += service_.Status().refreshed_at != before ? 1 : 0;
  }
  EXPECT_EQ(refreshes, 2);
}

}  // namespace
}  // namespace leaf::server
