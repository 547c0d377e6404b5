// /v1/workers: one reading of the registry for all who ask, and nobody waits for more than that.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaf/server/http/router.h"
#include "leaf/sys/static_registry.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WorkersRouter : public ::testing::Test {
 protected:
  struct Asked {
    std::optional<Response> response;
    int answers = 0;
    Withdraw withdraw;
  };
  // Does not run anything.
  std::shared_ptr<Asked> Ask(std::string_view method = "GET") {
    auto asked = std::make_shared<Asked>();
    asked->withdraw =
        router_.Handle({.method = method, .target = "/v1/workers", .accept = ""}, [asked](Response answer) {
          asked->response = std::move(answer);
          ++asked->answers;
        });
    return asked;
  }
  static std::string CodeOf(const Asked& asked) {
    return nlohmann::json::parse(asked.response->body)["code"].get<std::string>();
  }

  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor workers_{clock_};
  testing::ManualExecutor lane_{clock_};
  testing::ManualExecutor route_timers_{clock_};
  testing::RecordingLogger log_;
  testing::MemoryStateFile state_file_;
  sys::StaticRegistry registry_{5, {}};
  service::SnowflakeService service_{
      {}, registry_, state_file_, clock_, random_, {timers_, workers_, workers_}, log_};
  service::IdService ids_{nullptr, &service_};
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  int reads_ = 0;
  Result<std::string> registry_says_{std::string("{}")};
  std::function<void()> while_reading_;
  Router router_{{.version = "1",
                  .store = "sqlite",
                  .listen = {},
                  .workers = {.read =
                                  [this] {
                                    ++reads_;
                                    if (while_reading_) while_reading_();
                                    return registry_says_;
                                  },
                              .lane = &lane_,
                              .timers = &route_timers_,
                              .patience = seconds{4}}},
                 issuer_,
                 unread_,
                 clock_,
                 workers_};
};

TEST_F(WorkersRouter, NeverReadsOnTheThreadThatAsks) {
  const auto asked = Ask();
  EXPECT_EQ(asked->answers, 0);
  EXPECT_EQ(reads_, 0);
  ASSERT_TRUE(lane_.RunOne());
  ASSERT_EQ(asked->answers, 1);
  EXPECT_EQ(asked->response->status, 200);
  EXPECT_EQ(asked->response->content_type, kJson);
  EXPECT_EQ(asked->response->body, "{}");
  EXPECT_EQ(Ask("POST")->response->status, 405);
}

TEST_F(WorkersRouter, CallersShareOneReading) {
  std::vector<std::shared_ptr<Asked>> all;
  for (int i = 0; i < 100; ++i) all.push_back(Ask());
  EXPECT_EQ(lane_.ready(), 1U);
  // One that comes while it is read joins, too.
  while_reading_ = [&] { all.push_back(Ask()); };
  ASSERT_TRUE(lane_.RunOne());
  while_reading_ = nullptr;
  EXPECT_EQ(lane_.ready(), 0U);
  for (const auto& asked : all) {
    ASSERT_EQ(asked->answers, 1);
    EXPECT_EQ(asked->response->status, 200);
  }
  EXPECT_EQ(reads_, 1);
  // Nor is it read again for a second.
  clock_.Advance(milliseconds{999});
  EXPECT_EQ(Ask()->answers, 1);
  EXPECT_EQ(lane_.ready(), 0U);
  clock_.Advance(milliseconds{1});
  registry_says_ = std::string("[]");
  const auto later = Ask();
  EXPECT_EQ(later->answers, 0);
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_EQ(later->response->body, "[]");
  EXPECT_EQ(reads_, 2);
}

TEST_F(WorkersRouter, AFailureIs503WithItsReasonAndSharedLikewise) {
  registry_says_ = Error{ErrorCode::kUnavailable, "ZooKeeper is away", "start it"};
  const auto asked = Ask();
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_EQ(asked->response->status, 503);
  EXPECT_EQ(asked->response->retry_after_s, 1U);
  const auto body = nlohmann::json::parse(asked->response->body);
  EXPECT_EQ(body["code"], "unavailable");
  EXPECT_EQ(body["message"], "ZooKeeper is away");
  EXPECT_EQ(body["hint"], "start it");
  EXPECT_EQ(Ask()->response->status, 503);
  EXPECT_EQ(reads_, 1);
  // Not 404, which is what a daemon without the route says, nor 400: the request was right.
  for (const ErrorCode code : {ErrorCode::kNotFound, ErrorCode::kInvalidArgument, ErrorCode::kPermission}) {
    clock_.Advance(seconds{1});
    registry_says_ = Error{code, "no", ""};
    const auto refused = Ask();
    ASSERT_TRUE(lane_.RunOne());
    EXPECT_EQ(refused->response->status, 503);
    EXPECT_EQ(CodeOf(*refused), ErrorCodeName(code));
  }
}

TEST_F(WorkersRouter, NobodyWaitsBehindARegistryThatHangs) {
  const auto first = Ask();
  clock_.Advance(seconds{3});
  const auto second = Ask();
  EXPECT_FALSE(route_timers_.RunOne());
  clock_.Advance(seconds{1});
  ASSERT_TRUE(route_timers_.RunOne());
  for (const auto& asked : {first, second}) {
    ASSERT_EQ(asked->answers, 1);
    EXPECT_EQ(asked->response->status, 503);
    EXPECT_EQ(CodeOf(*asked), "unavailable");
    EXPECT_NE(asked->response->body.find("within 4s"), std::string::npos) << asked->response->body;
  }
  // Whoever comes now is told at once, and nothing is lined up.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask()->response->status, 503);
  EXPECT_EQ(lane_.ready(), 1U);
  EXPECT_EQ(route_timers_.timers(), 0U);
  // It answers after all: those who were told keep their one answer, and the next ones have the list.
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_EQ(first->answers, 1);
  EXPECT_EQ(Ask()->response->status, 200);
  EXPECT_EQ(reads_, 1);
}

TEST_F(WorkersRouter, TheDeadlineOfAnEarlierReadingEndsNoLaterOne) {
  Ask();
  ASSERT_TRUE(lane_.RunOne());
  clock_.Advance(seconds{2});
  const auto second = Ask();
  clock_.Advance(seconds{2});
  ASSERT_TRUE(route_timers_.RunOne());
  EXPECT_EQ(second->answers, 0);
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_EQ(second->response->status, 200);
}

TEST_F(WorkersRouter, AClientThatHangsUpIsForgotten) {
  const auto gone = Ask();
  const auto stays = Ask();
  ASSERT_TRUE(gone->withdraw);
  gone->withdraw();
  EXPECT_EQ(gone->answers, 1);
  gone->withdraw();
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_EQ(gone->answers, 1);
  EXPECT_EQ(stays->response->status, 200);
  stays->withdraw();
  EXPECT_EQ(stays->answers, 1);
}

TEST_F(WorkersRouter, LargeListsCountUntilTheyAreSent) {
  registry_says_ = std::string(100'000, 'x');
  std::vector<std::shared_ptr<Asked>> all{Ask(), Ask()};
  ASSERT_TRUE(lane_.RunOne());
  EXPECT_GE(unread_.reports.held(), 200'000U);
  all.clear();
  EXPECT_EQ(unread_.reports.held(), 0U);
  // Clients that do not read leave no room for more.
  std::vector<UnreadBytes::Held> rest;
  while (!unread_.reports.full()) rest.push_back(unread_.reports.Hold(std::size_t{16} * 1024 * 1024));
  EXPECT_EQ(Ask()->response->status, 503);
}

TEST_F(WorkersRouter, WithoutSnowflakeModeItSaysSo) {
  service::IdService none(nullptr, nullptr);
  const Issuer issuer({.why_no_snowflakes = "the state directory is another node's"}, none);
  const Router router({.version = "1", .store = "sqlite", .listen = {}}, issuer, unread_, clock_, workers_);
  std::optional<Response> response;
  router.Handle({.method = "GET", .target = "/v1/workers", .accept = ""},
                [&](Response answer) { response = std::move(answer); });
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 503);
  const auto body = nlohmann::json::parse(response->body);
  EXPECT_EQ(body["code"], "disabled");
  EXPECT_EQ(body["message"], "snowflake mode is disabled on this server");
  EXPECT_EQ(body["hint"], "the state directory is another node's");
}

}  // namespace
}  // namespace leaf::server
