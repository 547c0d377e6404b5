// The routes of the table of tags, without sockets and without a database: bodies, answers, and the lane.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaf/server/http/router.h"
#include "leaf/server/http/tag_body.h"
#include "unit/server/router_fixture.h"

namespace leaf::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What it was asked for last, and what it answers.
class FakeDesk final : public TagDesk {
 public:
  Result<Json> List(const Listing& listing) override {
    listing_ = listing;
    return Answer();
  }
  Result<Json> Show(const std::string& tag) override { return Asked("show " + tag); }
  Result<Json> History(const std::string& tag, std::uint64_t limit) override {
    return Asked("history " + tag + " " + std::to_string(limit));
  }
  Result<Json> Add(const core::NewTag& tag, const Caller& caller) override {
    added_ = tag;
    return Asked("add " + tag.tag, caller);
  }
  Result<Outcome<Json>> Change(const std::string& tag, const core::TagChange& change,
                               const std::string& confirm, const Caller& caller) override {
    change_ = change;
    return Judged("change " + tag, confirm, caller);
  }
  Result<Outcome<Json>> Remove(const std::string& tag, const std::string& confirm,
                               const Caller& caller) override {
    return Judged("remove " + tag, confirm, caller);
  }
  Result<Json> Repair(const std::string& tag, std::optional<std::uint64_t> to, const std::string& confirm,
                      const Caller& caller) override {
    return Asked("repair " + tag + " " + (to ? std::to_string(*to) : "-") + " " + confirm, caller);
  }
  void Paused(const std::string& tag, bool paused, const Caller& caller) override {
    asked_.push_back((paused ? "paused " : "resumed ") + tag + " by " + caller.who);
  }

  std::vector<std::string> asked_;
  std::optional<Error> error_;
  bool needs_confirmation_ = false;
  Listing listing_;
  core::NewTag added_;
  core::TagChange change_;

 private:
  Result<Json> Answer() const {
    if (error_) return *error_;
    return Json{{"tag", "pay"}};
  }
  Result<Json> Asked(const std::string& what) {
    asked_.push_back(what);
    return Answer();
  }
  Result<Json> Asked(const std::string& what, const Caller& caller) {
    return Asked(what + " by " + caller.who + (caller.mode == core::WriteMode::kDryRun ? " dry" : ""));
  }
  Result<Outcome<Json>> Judged(const std::string& what, const std::string& confirm, const Caller& caller) {
    auto done = Asked(what + " " + confirm, caller);
    if (!done.ok()) return done.error();
    if (needs_confirmation_ && confirm.empty()) return Outcome<Json>{.unconfirmed = Unconfirmed{what}};
    return Outcome<Json>{.done = *std::move(done)};
  }
};

class TagsRouter : public RouterFixture {
 protected:
  TagsRouter() { StartService(); }

  struct Asking {
    std::string_view body = "";
    std::string_view content_type = "";
    bool from_operator = true;
    BodyLost body_lost = BodyLost::kNo;
  };
  Withdraw Send(std::string_view method, std::string_view target, const Asking& asking,
                std::optional<Response>& response) {
    return router_.Handle(
        {.method = method,
         .target = target,
         .accept = "",
         .content_type = asking.content_type,
         .body = asking.body,
         .body_lost = asking.body_lost,
         .caller = asking.from_operator ? &access::Caller::Operator() : &access::Caller::Open()},
        [&response](Response answer) {
          EXPECT_FALSE(response.has_value());
          response = std::move(answer);
        });
  }
  Response Ask(std::string_view method, std::string_view target, const Asking& asking) {
    std::optional<Response> response;
    Send(method, target, asking, response);
    Run();
    EXPECT_TRUE(response.has_value()) << method << ' ' << target;
    return response ? *std::move(response) : Response{};
  }
  Response Ask(std::string_view method, std::string_view target, std::string_view body = "") {
    return Ask(method, target, Asking{.body = body});
  }
  static nlohmann::json Body(const Response& response) { return nlohmann::json::parse(response.body); }
  static std::string Message(const Response& response) { return Body(response)["message"]; }

  FakeDesk desk_;
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1",
                  .store = "sqlite",
                  .listen = {},
                  .control = &control_,
                  .tags = {.desk = &desk_, .reads = &workers_, .changes = &control_, .timers = &timers_}},
                 issuer_,
                 unread_,
                 clock_,
                 workers_};
};

TEST_F(TagsRouter, EachMethodReachesTheDesk) {
  EXPECT_EQ(Ask("GET", "/v1/tags?search=p&sort=max_id&reverse=1&offset=2&limit=3").status, 200);
  EXPECT_EQ(desk_.listing_.search, "p");
  EXPECT_EQ(desk_.listing_.sort, "max_id");
  EXPECT_TRUE(desk_.listing_.reverse);
  EXPECT_EQ(desk_.listing_.offset, 2U);
  EXPECT_EQ(desk_.listing_.limit, 3U);
  EXPECT_EQ(Ask("GET", "/v1/tags/pay").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/history?limit=7").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/tags", R"({"tag":"new"})").status, 201);
  EXPECT_EQ(Ask("POST", "/v1/tags?dry_run=1", R"({"tag":"new"})").status, 200);
  EXPECT_EQ(Ask("PATCH", "/v1/tags/pay", R"({"step":5,"confirm":"pay"})").status, 200);
  EXPECT_EQ(Ask("DELETE", "/v1/tags/pay", R"({"confirm":"pay"})").status, 200);
  EXPECT_EQ(Ask("DELETE", "/v1/tags/pay?confirm=pay").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/tags/pay/repair", R"({"to":"9","confirm":"pay"})").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/tags/pay/repair").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/tags/pay/pause").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/tags/pay/pause").status, 200);  // no change, and nothing to tell
  EXPECT_EQ(Ask("POST", "/v1/segment/pay/resume").status, 200);
  EXPECT_EQ(desk_.asked_,
            (std::vector<std::string>{"show pay", "history pay 7", "add new by operator",
                                      "add new by operator dry", "change pay pay by operator",
                                      "remove pay pay by operator", "remove pay pay by operator",
                                      "repair pay 9 pay by operator", "repair pay -  by operator",
                                      "paused pay by operator", "resumed pay by operator"}));
}

TEST_F(TagsRouter, WhatANewTagHas) {
  EXPECT_EQ(Ask("POST", "/v1/tags", R"({"tag":"a"})").status, 201);
  EXPECT_EQ(desk_.added_.step, kStepDefault);
  EXPECT_FALSE(desk_.added_.start.has_value());
  EXPECT_FALSE(desk_.added_.description.has_value());
  EXPECT_EQ(Ask("POST", "/v1/tags",
                R"({"tag":"b","step":7,"start":"9223372036854775806","description":"c","order":"trend"})")
                .status,
            201);
  EXPECT_EQ(desk_.added_.step, 7);
  EXPECT_EQ(desk_.added_.start, 9223372036854775806U);
  EXPECT_EQ(desk_.added_.description, "c");
  EXPECT_EQ(Ask("PATCH", "/v1/tags/pay", R"({"max_id":5,"description":"d"})").status, 200);
  EXPECT_EQ(desk_.change_.max_id, 5U);
  EXPECT_EQ(desk_.change_.description, "d");
  EXPECT_FALSE(desk_.change_.step.has_value());
}

TEST_F(TagsRouter, BadBodiesAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "field 'tag' is missing"},
      {"{}", "field 'tag' is missing"},
      {"[]", "the body is not a JSON object"},
      {"1", "the body is not a JSON object"},
      {"\"a\"", "the body is not a JSON object"},
      {"{", "the body is not JSON"},
      {"{}x", "the body is not JSON"},
      {"{\"tag\":\"\xff\"}", "the body is not JSON"},
      {R"({"tag":1})", "bad tag: not a string"},
      {R"({"tag":null})", "bad tag: not a string"},
      {R"({"tag":"a","tag":"b"})", "field 'tag' is there twice"},
      {R"({"tag":"a","stepp":1})", "unknown field 'stepp'"},
      {R"({"tag":"a","confirm":"a"})", "unknown field 'confirm'"},
      {R"({"tag":{"tag":"a"}})", "bad tag: an object is not expected"},
      {R"({"tag":["a"]})", "bad tag: a list is not expected"},
      {R"({"tag":"a/b"})", "'a/b'"},
      {R"({"tag":""})", "tag"},
      {R"({"tag":"a\u0000"})", "bad tag: it has a NUL character"},
      {R"({"tag":"a","step":0})", "bad step '0': not a whole number in 1..1073741823"},
      {R"({"tag":"a","step":"5"})", "bad step: not a number"},
      {R"({"tag":"a","step":1.5})", "bad step '1.5'"},
      {R"({"tag":"a","step":1e3})", "bad step '1e3'"},
      {R"({"tag":"a","step":true})", "bad step: not a number"},
      {R"({"tag":"a","start":-1})", "bad start '-1'"},
      {R"({"tag":"a","start":9223372036854775808})", "bad start '9223372036854775808'"},
      {R"({"tag":"a","start":99999999999999999999})", "bad start"},
      {R"({"tag":"a","description":5})", "bad description: not a string"},
      {R"({"tag":"a","description":null})", "bad description: not a string"},
      {R"({"tag":"a","description":")" + std::string(257, 'x') + "\"}",
       "bad description: it has 257 characters, 256 are allowed"},
      {R"({"tag":"a","order":1})", "bad order: not a string"},
      {R"({"tag":"a","gone":"n1"})", "bad gone: it goes with order 'strict' only"},
      {R"({"tag":"a","order":"strict","gone":"n1,"})", "bad gone 'n1,': a name is empty"},
      {R"({"tag":"a","order":"strict","wait_ms":50001})", "bad wait_ms '50001'"},
      {R"({"tag":"a","wait_ms":5})", "bad wait_ms: it goes with an order only"},
      {R"({"tag":"a","order":"up"})", "bad order 'up'"},
      {std::string(60'000, '['), "the body is not a JSON object"},
      {R"({"tag":)" + std::string(60'000, '{'), "bad tag: an object is not expected"},
  };
  for (const auto& [body, message] : cases) {
    const Response response = Ask("POST", "/v1/tags", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 100);
    EXPECT_EQ(Body(response)["code"], "invalid_argument");
    EXPECT_NE(Message(response).find(message), std::string::npos) << Message(response);
  }
  EXPECT_EQ(Message(Ask("PATCH", "/v1/tags/pay", "{}")),
            "nothing to change: give step, description, order or max_id");
  EXPECT_EQ(Message(Ask("PATCH", "/v1/tags/pay", R"({"max_id":9223372036854775808})")),
            "bad max_id '9223372036854775808': not a whole number in 0..9223372036854775807");
  EXPECT_NE(Message(Ask("PATCH", "/v1/tags/pay", R"({"start":5})")).find("unknown field 'start'"),
            std::string::npos);
  EXPECT_NE(Message(Ask("DELETE", "/v1/tags/pay", R"({"confrim":"pay"})"))
                .find("unknown field 'confrim': confirm is expected"),
            std::string::npos);
  EXPECT_EQ(Message(Ask("DELETE", "/v1/tags/pay?confirm=a", R"({"confirm":"b"})")),
            "confirm is there twice, with two values");
  EXPECT_EQ(Ask("POST", "/v1/tags/pay/repair", R"({"to":-5})").status, 400);
  EXPECT_EQ(Ask("GET", "/v1/tags?limit=x").status, 400);
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/history?limit=0").status, 400);
  EXPECT_EQ(Ask("GET", "/v1/tags/%01").status, 400);
  EXPECT_TRUE(desk_.asked_.empty());
}

TEST_F(TagsRouter, TypesAndSizesOfBodies) {
  const std::string_view body = R"({"tag":"a"})";
  for (const std::string_view type : {"application/json", "Application/JSON; charset=utf-8", ""})
    EXPECT_EQ(Ask("POST", "/v1/tags", {.body = body, .content_type = type}).status, 201) << type;
  for (const std::string_view type :
       {"text/plain", "application/x-www-form-urlencoded", "application/jsonp"}) {
    const Response refused = Ask("POST", "/v1/tags", {.body = body, .content_type = type});
    EXPECT_EQ(refused.status, 415);
    EXPECT_NE(Message(refused).find(type), std::string::npos);
  }
  EXPECT_EQ(Ask("POST", "/v1/tags", {.body_lost = BodyLost::kTooLong}).status, 413);
  EXPECT_EQ(Ask("POST", "/v1/tags", {.body_lost = BodyLost::kNoRoom}).status, 503);
}

TEST_F(TagsRouter, ChangesAreForOperatorsAndReadsForAll) {
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"POST", "/v1/tags"},           {"PATCH", "/v1/tags/pay"},       {"DELETE", "/v1/tags/pay"},
      {"POST", "/v1/tags/pay/pause"}, {"POST", "/v1/tags/pay/resume"}, {"POST", "/v1/tags/pay/repair"}};
  for (const auto& [method, target] : changes) {
    const Response refused = Ask(method, target, {.body = R"({"tag":"a"})", .from_operator = false});
    EXPECT_EQ(refused.status, 403) << method << ' ' << target;
    EXPECT_EQ(Message(refused), "a caller without a token lacks role admin");
  }
  EXPECT_TRUE(desk_.asked_.empty());
  EXPECT_EQ(Ask("GET", "/v1/tags", {.from_operator = false}).status, 200);
  EXPECT_EQ(Ask("HEAD", "/v1/tags/pay", {.from_operator = false}).status, 200);
  // It names users.
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/history", {.from_operator = false}).status, 403);
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/history").status, 200);
  EXPECT_EQ(Ask("PUT", "/v1/tags").status, 405);
  EXPECT_EQ(Ask("PUT", "/v1/tags").allow, "GET,HEAD,POST");
  EXPECT_EQ(Ask("POST", "/v1/tags/pay").allow, "GET,HEAD,PATCH,DELETE");
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/repair").allow, "POST");
  EXPECT_EQ(Ask("GET", "/v1/tags/pay/other").status, 404);
}

TEST_F(TagsRouter, WhatTheDeskSays) {
  desk_.needs_confirmation_ = true;
  const Response unconfirmed = Ask("DELETE", "/v1/tags/pay");
  EXPECT_EQ(unconfirmed.status, 428);
  EXPECT_EQ(Body(unconfirmed)["code"], "refused");
  EXPECT_EQ(Body(unconfirmed)["hint"], R"(send "confirm": "pay")");
  EXPECT_EQ(Ask("PATCH", "/v1/tags/pay", R"({"max_id":5})").status, 428);
  const std::pair<ErrorCode, int> codes[] = {
      {ErrorCode::kAlreadyExists, 409}, {ErrorCode::kRefused, 409},        {ErrorCode::kNotFound, 404},
      {ErrorCode::kUnavailable, 503},   {ErrorCode::kOutcomeUnknown, 503}, {ErrorCode::kInvalidArgument, 400},
      {ErrorCode::kConfig, 503},        {ErrorCode::kInternal, 500}};
  for (const auto& [code, status] : codes) {
    desk_.error_ = Error{code, "because", ""};
    const Response response = Ask("POST", "/v1/tags", R"({"tag":"a"})");
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(Message(response), "because");
    EXPECT_EQ(response.retry_after_s.has_value(), code == ErrorCode::kUnavailable);
    EXPECT_EQ(Body(response)["hint"] != "", code == ErrorCode::kOutcomeUnknown);
  }
}

TEST_F(TagsRouter, NothingWaitsForLong) {
  std::optional<Response> read;
  std::optional<Response> change;
  Send("GET", "/v1/tags", {}, read);
  Send("POST", "/v1/tags", {.body = R"({"tag":"a"})"}, change);
  clock_.Advance(seconds{10});
  while (timers_.RunOne()) {
  }
  ASSERT_TRUE(read.has_value());
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(read->status, 503);
  EXPECT_EQ(Message(*read), "the database has not answered within 10s");
  EXPECT_EQ(change->status, 503);
  EXPECT_EQ(Message(*change), "other changes have taken longer than 10s; nothing was done");
  Run();
  EXPECT_TRUE(desk_.asked_.empty());  // not begun any more
}

TEST_F(TagsRouter, ARequestThatIsGivenUpIsNotBegun) {
  std::optional<Response> change;
  const Withdraw withdraw = Send("POST", "/v1/tags", {.body = R"({"tag":"a"})"}, change);
  withdraw();
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->status, 503);
  Run();
  EXPECT_TRUE(desk_.asked_.empty());
  withdraw();
}

TEST_F(TagsRouter, OnlySoManyWait) {
  std::vector<std::optional<Response>> responses(TagLane::kChangesMax + 1);
  for (auto& response : responses) Send("POST", "/v1/tags", {.body = R"({"tag":"a"})"}, response);
  ASSERT_TRUE(responses.back().has_value());
  EXPECT_EQ(responses.back()->status, 503);
  EXPECT_FALSE(responses.front().has_value());
  // Readers have places of their own.
  EXPECT_EQ(Ask("GET", "/v1/tags").status, 200);
  EXPECT_EQ(responses.front()->status, 201);
  EXPECT_EQ(desk_.asked_.size(), TagLane::kChangesMax);
  EXPECT_EQ(Ask("POST", "/v1/tags", R"({"tag":"a"})").status, 201);
}

// The lane has one executor for the work and another one for its timers.
TEST(TagLaneTest, AChangeThatWasBegunAndDoesNotEndIsNotKnown) {
  testing::FakeClock clock;
  testing::ManualExecutor changes{clock};
  testing::ManualExecutor timers{clock};
  UnreadAnswers unread;
  FakeDesk desk;
  TagLane lane(clock, {.desk = &desk, .reads = &changes, .changes = &changes, .timers = &timers}, unread);
  std::optional<Response> response;
  lane.Run(
      TagLane::Kind::kChange,
      [&] {
        clock.Advance(seconds{10});
        while (timers.RunOne()) {
        }
        EXPECT_TRUE(response.has_value());
        return Response{};
      },
      [](const Error& error) {
        Response failed;
        failed.status = error.code == ErrorCode::kOutcomeUnknown ? 599 : 500;
        failed.body = error.message;
        return failed;
      },
      [&](Response answer) {
        EXPECT_FALSE(response.has_value());
        response = std::move(answer);
      });
  while (changes.RunOne()) {
  }
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 599);
  EXPECT_EQ(response->body, "the change has not ended within 10s: unknown whether it was done");
}

// Clients that do not read have filled the room for reports. The answer to a change is sent all the same. A
// read is refused, in the form of its route. Readers on this machine have another room.
TEST(TagLaneTest, WhereAnswersAreNotReadAReadIsRefusedAndAChangeIsTold) {
  testing::FakeClock clock;
  testing::ManualExecutor executor{clock};
  testing::ManualExecutor timers{clock};
  UnreadAnswers unread;
  FakeDesk desk;
  TagLane lane(clock, {.desk = &desk, .reads = &executor, .changes = &executor, .timers = &timers}, unread);
  const auto others = unread.reports.Hold(std::size_t{64} * 1024 * 1024);
  std::function<void()> meanwhile;
  const auto status_of = [&](TagLane::Kind kind, const char* why = "wait for clients to read them") {
    std::optional<Response> response;
    lane.Run(
        kind,
        [&] {
          if (meanwhile) meanwhile();
          Response large;
          large.body.assign(100'000, 'x');
          return large;
        },
        [](const Error& error) {
          Response failed;
          failed.status = 599;
          failed.body = error.message;
          return failed;
        },
        [&](Response answer) { response = std::move(answer); });
    while (executor.RunOne()) {
    }
    EXPECT_TRUE(response.has_value());
    if (response->status == 599) {
      EXPECT_NE(response->body.find(why), std::string::npos) << response->body;
    }
    return response->status;
  };
  EXPECT_EQ(status_of(TagLane::Kind::kRead), 599);
  // The timer answers while the list is made: then there is nothing to answer any more.
  meanwhile = [&] {
    clock.Advance(seconds{10});
    while (timers.RunOne()) {
    }
  };
  EXPECT_EQ(status_of(TagLane::Kind::kRead, "has not answered within 10s"), 599);
  meanwhile = nullptr;
  EXPECT_EQ(status_of(TagLane::Kind::kLocalRead), 200);
  EXPECT_EQ(status_of(TagLane::Kind::kChange), 200);
  EXPECT_EQ(status_of(TagLane::Kind::kRepair), 200);
  EXPECT_EQ(unread.local.held(), 0U);
}

TEST_F(TagsRouter, WithoutADesk) {
  Router router({.version = "1", .store = "sqlite", .listen = {}}, issuer_, unread_, clock_, workers_);
  std::optional<Response> response;
  router.Handle({.method = "GET", .target = "/v1/tags", .accept = ""},
                [&](Response answer) { response = std::move(answer); });
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(Body(*response)["code"], "disabled");
}

}  // namespace
}  // namespace leaf::server
