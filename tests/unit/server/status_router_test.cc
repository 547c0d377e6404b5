// /v1/status, without sockets: what requests share, and what does not wait for it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/server/http/metrics_page.h"
#include "leaf/server/http/router.h"
#include "leaf/server/request_metrics.h"
#include "unit/server/router_fixture.h"

namespace leaf::server {
namespace {

class StatusRouter : public RouterFixture {
 protected:
  StatusRouter() {
    ids_.Watch([this] {
      ++looks_;
      if (on_look_) std::exchange(on_look_, nullptr)();
      service::Dependency database;
      database.name = "database";
      database.up = true;
      return database;
    });
    StartService();
  }
  void RunReports() {
    while (reports_.RunOne()) {
    }
  }
  Withdraw Send(std::string_view target, std::vector<Response>& answers, std::string_view method = "GET") {
    return router_.Handle(
        {.method = method, .target = target, .accept = "", .caller = &access::Caller::Operator()},
        [&](Response answer) { answers.push_back(std::move(answer)); });
  }
  Response Ask(std::string_view target, std::string_view method = "GET") {
    std::vector<Response> answers;
    Send(target, answers, method);
    Run();
    RunReports();
    EXPECT_EQ(answers.size(), 1U);
    return answers.empty() ? Response{} : std::move(answers[0]);
  }
  nlohmann::json AskJson(std::string_view target) {
    const Response response = Ask(target);
    EXPECT_EQ(response.status, 200) << response.body;
    return nlohmann::json::parse(response.body);
  }

  testing::ManualExecutor reports_{clock_};
  testing::ManualExecutor watching_{clock_};
  std::size_t looks_ = 0;  // a snapshot takes a few; nothing else here any
  std::function<void()> on_look_;
  RequestMetrics requests_;
  MetricsPage metrics_{{.version = "1"}, ids_, requests_, clock_, [] { return ProcessStats{}; }};
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1",
                  .store = "sqlite",
                  .listen = {},
                  .control = &workers_,
                  .metrics = &metrics_,
                  .metrics_lane = &watching_},
                 issuer_,
                 unread_,
                 clock_,
                 reports_};
};

TEST_F(StatusRouter, OneSnapshotASecondIsMadeForAllRequests) {
  const std::string first = Ask("/v1/status").body;
  const std::size_t looks = looks_;
  ASSERT_GT(looks, 0U);
  Ask("/v1/segment/pay?count=3");
  std::vector<Response> answers;
  for (int i = 0; i < 200; ++i) Send("/v1/status", answers);
  clock_.Advance(SharedStatus::kMaxAge - std::chrono::milliseconds{1});
  RunReports();
  ASSERT_EQ(answers.size(), 200U);
  for (const Response& answer : answers) EXPECT_EQ(answer.body, first);
  // Another choice of tags, of the same snapshot; more of them than answers are kept.
  for (int i = 0; i < 40; ++i) {
    const auto chosen = AskJson("/v1/status?search=PAY&sort=rate&problems=" + std::to_string(i));
    EXPECT_EQ(chosen["segment"]["tags"].size(), 1U);
    EXPECT_EQ(chosen["segment"]["tags"][0]["issued"], 0);
    EXPECT_EQ(chosen["time_ms"], nlohmann::json::parse(first)["time_ms"]);
  }
  EXPECT_EQ(Ask("/v1/status").body, first);
  EXPECT_EQ(looks_, looks);
  clock_.Advance(std::chrono::milliseconds{1});
  const auto next = AskJson("/v1/status?search=pay");
  EXPECT_EQ(next["segment"]["tags"][0]["issued"], 3);
  EXPECT_EQ(next["time_ms"], UnixMillis(clock_.Wall()));
  EXPECT_EQ(looks_, 2 * looks);
}

TEST_F(StatusRouter, AChangeMadeHereIsSeenAtOnce) {
  EXPECT_TRUE(AskJson("/v1/status")["segment"]["paused"].empty());
  EXPECT_EQ(Ask("/v1/segment/pay/pause", "POST").status, 200);
  EXPECT_EQ(AskJson("/v1/status")["segment"]["paused"], nlohmann::json({"pay"}));
  EXPECT_EQ(Ask("/v1/segment/pay/resume", "POST").status, 200);
  EXPECT_TRUE(AskJson("/v1/status")["segment"]["paused"].empty());
  const std::size_t looks = looks_;
  EXPECT_EQ(Ask("/v1/segment/pay/pause?dry_run=1", "POST").status, 200);
  EXPECT_TRUE(AskJson("/v1/status")["segment"]["paused"].empty());
  EXPECT_EQ(looks_, looks);
  issuer_.SetMaxCount(77);
  router_.Changed();
  EXPECT_EQ(AskJson("/v1/status")["limits"]["max_count"], 77);
}

TEST_F(StatusRouter, ASnapshotThatBeganBeforeAChangeIsNotSharedAfterIt) {
  on_look_ = [this] {
    std::vector<Response> answers;
    Send("/v1/segment/order/pause", answers, "POST");
    Run();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].status, 200);
  };
  Ask("/v1/status");
  const std::size_t looks = looks_;
  EXPECT_EQ(AskJson("/v1/status")["segment"]["paused"], nlohmann::json({"order"}));
  EXPECT_EQ(looks_, 2 * looks);
}

TEST_F(StatusRouter, OneTagIsToldAsItIsNow) {
  const auto before = AskJson("/v1/status");
  const std::size_t looks = looks_;
  for (int issued = 1; issued < 5; ++issued) {
    Ask("/v1/segment/pay");
    const auto status = AskJson("/v1/status?tag=pay");
    ASSERT_EQ(status["segment"]["tags"].size(), 1U);
    EXPECT_EQ(status["segment"]["tags"][0]["tag"], "pay");
    EXPECT_EQ(status["segment"]["tags"][0]["issued"], issued);
    EXPECT_EQ(status["segment"]["tags_matching"], 1);
    EXPECT_EQ(status["segment"]["tags_total"], 2);
    EXPECT_EQ(status["time_ms"], before["time_ms"]);
  }
  EXPECT_EQ(looks_, looks);
  const auto none = AskJson("/v1/status?tag=pa");
  EXPECT_TRUE(none["segment"]["tags"].empty());
  EXPECT_EQ(none["segment"]["tags_truncated"], false);
}

TEST_F(StatusRouter, TellsOfAThousandTagsUnlessAskedForMore) {
  for (int i = 0; i < 1200; ++i) table_.Put("tag-" + std::to_string(i), 1, 1000);
  clock_.Advance(std::chrono::seconds{3});
  service_.Reconfigure(std::chrono::seconds{2}, std::chrono::milliseconds{0});
  Run();
  const auto told = [&](const std::string& query) {
    const auto segment = AskJson("/v1/status" + query)["segment"];
    EXPECT_EQ(segment["tags_total"], 1202);
    EXPECT_EQ(segment["tags_matching"], 1202);
    return std::pair(segment["tags"].size(), segment["tags_truncated"].get<bool>());
  };
  EXPECT_EQ(told(""), std::pair(std::size_t{1000}, true));
  EXPECT_EQ(told("?offset=1000"), std::pair(std::size_t{202}, false));
  EXPECT_EQ(told("?limit=1202"), std::pair(std::size_t{1202}, false));
  EXPECT_EQ(told("?limit=1000000000"), std::pair(std::size_t{1202}, false));
  EXPECT_EQ(told("?limit=0"), std::pair(std::size_t{0}, true));
}

TEST_F(StatusRouter, AReportThatNoClientWaitsForIsNotMade) {
  std::vector<Response> answers;
  for (const char* const target : {"/v1/status", "/v1/status?tag=pay", "/cache"}) {
    answers.clear();
    const Withdraw withdraw = Send(target, answers);
    ASSERT_TRUE(withdraw) << target;
    withdraw();
    ASSERT_EQ(answers.size(), 1U) << target;
    EXPECT_EQ(answers[0].status, 503);
    withdraw();
    RunReports();
    EXPECT_EQ(answers.size(), 1U) << target;
  }
  EXPECT_EQ(looks_, 0U);
  // Too late: it is made.
  answers.clear();
  const Withdraw withdraw = Send("/v1/status", answers);
  RunReports();
  withdraw();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status, 200);
}

TEST_F(StatusRouter, MetricsAndHealthDoNotQueueBehindReports) {
  std::vector<Response> reports;
  for (int i = 0; i < 200; ++i) Send("/v1/status?offset=" + std::to_string(i), reports);
  std::vector<Response> answers;
  for (const char* const target : {"/metrics", "/health/live", "/health/ready", "/health/ready?tag=pay"})
    Send(target, answers);
  Run();
  while (watching_.RunOne()) {
  }
  ASSERT_EQ(answers.size(), 4U);
  for (const Response& answer : answers) EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(reports.empty());
  RunReports();
  EXPECT_EQ(reports.size(), 200U);
}

}  // namespace
}  // namespace leaf::server
