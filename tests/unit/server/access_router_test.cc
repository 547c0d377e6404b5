// Who may use which route: every row of the table of routes, with every method, for every kind of caller, on
// every kind of listener. A new route is asked like all others.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaf/server/http/router.h"
#include "leaf/server/http/routes.h"
#include "leaf/server/visitor.h"
#include "unit/server/router_fixture.h"

namespace leaf::server {
namespace {

using access::Role;
using access::Roles;
using std::chrono::seconds;

// A path that the row serves.
std::string PathOf(const RouteRow& row) {
  std::string path(row.path.text());
  const std::vector<std::pair<std::string, std::string>> kParts{
      {"{tag}", "pay"}, {"{name}", "pay"}, {"{id}", "1"}, {".*", ""}, {"...", "nothing/here/at/all"}};
  for (const auto& [part, text] : kParts) {
    if (const std::size_t at = path.find(part); at != std::string::npos) path.replace(at, part.size(), text);
  }
  return path;
}

class AccessRouter : public RouterFixture {
 protected:
  AccessRouter() {
    StartService();
    access::TokenEntry entry;
    entry.tags = access::TagPatterns::All();
    entry.snowflakes = true;
    std::vector<access::TokenEntry> entries;
    for (const auto& [name, roles] : roles_) {
      entry.name = name;
      entry.roles = roles;
      entry.hash = access::HashOf("token of " + name);
      entries.push_back(entry);
    }
    entry.name = "orders";
    entry.roles = {Role::kIds};
    entry.tags = *access::TagPatterns::Parse("order*");
    entry.snowflakes = false;
    entry.hash = access::HashOf("token of orders");
    entries.push_back(entry);
    entry.name = "old";
    entry.expires = clock_.Wall() + seconds{10};
    entry.hash = access::HashOf("token of old");
    entries.push_back(entry);
    gate_.Set(entries, true, {});
  }

  // `authorization`: the header. The answer to the request of a new connection.
  Response Ask(std::string_view method, const std::string& target, const std::string& authorization,
               std::optional<uid_t> user = std::nullopt, bool other_site = false, bool public_door = false) {
    Visitor visitor(gate_, clock_, user);
    return AskAs(visitor, method, target, authorization, other_site, public_door);
  }
  Response AskAs(Visitor& visitor, std::string_view method, const std::string& target,
                 const std::string& authorization, bool other_site = false, bool public_door = false) {
    std::optional<Response> response;
    router_.Handle({.method = method,
                    .target = target,
                    .accept = "",
                    .caller = &visitor.Identify(authorization),
                    .wrong_credentials = visitor.problem(),
                    .from_other_site = other_site,
                    .is_public_door = public_door},
                   [&](Response answer) { response = std::move(answer); });
    for (int i = 0; i < 2000 && !response; ++i) {
      Run();
      clock_.Advance(std::chrono::milliseconds{1});
    }
    EXPECT_TRUE(response.has_value()) << method << " " << target;
    return response ? *std::move(response) : Response{};
  }

  const std::map<std::string, Roles> roles_{{"taker", {Role::kIds}},
                                            {"reader", {Role::kRead}},
                                            {"both", {Role::kIds, Role::kRead}},
                                            {"boss", {Role::kAdmin}}};
  access::Gate gate_{1000};
  Issuer issuer_{{}, ids_};
  UnreadAnswers unread_;
  Router router_{{.version = "1", .store = "sqlite", .listen = {}, .control = &control_, .gate = &gate_},
                 issuer_,
                 unread_,
                 clock_,
                 workers_};
};

TEST_F(AccessRouter, EveryRouteAsksForItsRole) {
  std::size_t asked = 0;
  for (const RouteRow& row : AllRoutes()) {
    const std::string path = PathOf(row);
    ASSERT_EQ(&FindRoute(ParseTarget(path)->segments), &row) << path;
    for (const std::string_view method : {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}) {
      if (!row.Serves(method)) continue;
      const Access access = row.AccessFor(method);
      const std::optional<Role> needed = access == Access::kFree   ? std::nullopt
                                         : access == Access::kIds  ? std::optional(Role::kIds)
                                         : access == Access::kRead ? std::optional(Role::kRead)
                                                                   : std::optional(Role::kAdmin);
      const auto expect = [&](const Response& response, int status, const std::string& caller) {
        ++asked;
        const std::string what = fmt::format("{} {} as {}", method, path, caller);
        if (status == 0) {
          EXPECT_NE(response.status, 401) << what;
          EXPECT_NE(response.status, 403) << what;
        } else {
          EXPECT_EQ(response.status, status) << what << ": " << response.body;
        }
        EXPECT_EQ(response.headers.find("WWW-Authenticate: Bearer") != std::string_view::npos,
                  response.status == 401)
            << what;
        if (status != 0 && row.dialect != Dialect::kV1) {
          // As Leaf's server tells of errors.
          EXPECT_EQ(nlohmann::json::parse(response.body)["status"], status) << what;
        } else if (status != 0) {
          EXPECT_EQ(nlohmann::json::parse(response.body)["code"], "permission") << what;
        }
      };
      const int denied = needed ? 403 : 0;
      const int unknown = needed ? 401 : 0;
      expect(Ask(method, path, ""), unknown, "no token");
      expect(Ask(method, path, "Bearer leaf_wrong"), unknown, "a wrong token");
      for (const auto& [name, roles] : roles_) {
        const int status = !needed || roles.Has(*needed) ? 0 : denied;
        expect(Ask(method, path, "Bearer token of " + name), status, name);
      }
      expect(Ask(method, path, "", 1000), 0, "the owner on the Unix socket");
      expect(Ask(method, path, "", 0), 0, "root on the Unix socket");
      expect(Ask(method, path, "", 1001), needed == Role::kAdmin ? denied : 0, "a user on the Unix socket");
      expect(Ask(method, path, "Bearer token of boss", 1001), 0, "a user with a token on the Unix socket");
      // A page of another site: what its browser sends along gives it nothing.
      const bool guarded = needed && *needed != Role::kRead;
      expect(Ask(method, path, "Bearer token of boss", std::nullopt, true), guarded ? 403 : 0,
             "another site");
      expect(Ask(method, path, "", 1000, true), guarded ? 403 : 0, "another site through the Unix socket");
      const Response hidden = Ask(method, path, "Bearer token of boss", std::nullopt, false, true);
      if (row.doors == Doors::kOperators) {
        EXPECT_EQ(hidden.status, 404) << method << " " << path;
      } else {
        expect(hidden, 0, "boss at the public door");
      }
    }
  }
  EXPECT_GT(asked, 500U);
}

TEST_F(AccessRouter, OnlyWhatMachinesNeedIsFree) {
  std::string free;
  for (const RouteRow& row : AllRoutes()) {
    if (row.access == Access::kFree) free += std::string(row.path.text()) + " ";
  }
  EXPECT_EQ(free,
            "/v1/clock /health/live /health/ready / /dashboard.css /dashboard.js /v1/... /health/... /... ");
}

TEST_F(AccessRouter, ATokenIsForItsTags) {
  const std::string token = "Bearer token of orders";
  EXPECT_EQ(Ask("GET", "/v1/segment/order", token).status, 200);
  const Response pay = Ask("GET", "/v1/segment/pay", token);
  EXPECT_EQ(pay.status, 403);
  EXPECT_EQ(nlohmann::json::parse(pay.body)["message"], "token orders may not take IDs of tag 'pay'");
  EXPECT_EQ(nlohmann::json::parse(pay.body)["hint"], "its tags are order*");
  EXPECT_EQ(Ask("HEAD", "/v1/segment/pay", token).status, 403);
  EXPECT_EQ(Ask("GET", "/api/segment/get/pay", token).status, 403);
  EXPECT_EQ(nlohmann::json::parse(Ask("GET", "/api/segment/get/pay", token).body)["error"], "Forbidden");
  EXPECT_EQ(Ask("GET", "/api/segment/get/%6Frder", token).status, 200);
  EXPECT_EQ(Ask("GET", "/v1/segment/%70ay", token).status, 403);
}

// The name on Leaf's route for snowflake IDs is no tag.
TEST_F(AccessRouter, SnowflakeIdsAreARightOfTheirOwn) {
  access::TokenEntry entry;
  entry.name = "snow";
  entry.roles = {Role::kIds};
  entry.tags = *access::TagPatterns::Parse("order*");
  entry.snowflakes = true;
  entry.hash = access::HashOf("token of snow");
  std::vector<access::TokenEntry> entries{entry};
  entry.name = "orders";
  entry.snowflakes = false;
  entry.hash = access::HashOf("token of orders");
  entries.push_back(entry);
  gate_.Set(entries, true, {});
  for (const char* const path : {"/api/snowflake/get/order", "/api/snowflake/get/pay"}) {
    for (const char* const method : {"GET", "HEAD", "POST"}) {
      EXPECT_NE(Ask(method, path, "Bearer token of snow").status, 403) << method << " " << path;
      EXPECT_EQ(Ask(method, path, "Bearer token of orders").status, 403) << method << " " << path;
    }
  }
}

TEST_F(AccessRouter, CredentialsComeAsBearerOrAsBasic) {
  // "any:token of taker" and "token of taker", in Base64.
  EXPECT_EQ(Ask("GET", "/v1/segment/pay", "Basic YW55OnRva2VuIG9mIHRha2Vy").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/segment/pay", "basic  YW55OnRva2VuIG9mIHRha2Vy ").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/segment/pay", "BEARER token of taker").status, 200);
  for (const std::string& bad :
       {std::string("Basic dG9rZW4gb2YgdGFrZXI="), std::string("Basic YW55OnRva2VuIG9mIHRha2V"),
        std::string("Basic ===="), std::string("Basic "), std::string("Bearer"), std::string("Bearer "),
        std::string("Digest x"), std::string("token of taker"), std::string("Bearer token of taker2"),
        "Bearer " + std::string(300, 'x'), "Bearer " + std::string(10'000, 'x')})
    EXPECT_EQ(Ask("GET", "/v1/segment/pay", bad).status, 401) << bad.substr(0, 40);
  const auto why = [&](const std::string& header) {
    return nlohmann::json::parse(Ask("GET", "/v1/segment/pay", header).body)["message"].get<std::string>();
  };
  EXPECT_EQ(why(""), "a token with role ids is needed");
  EXPECT_EQ(why("Digest x"), "malformed credentials");
  EXPECT_EQ(why("Bearer x"), "unknown token");
}

TEST_F(AccessRouter, ATokenEndsOnAnOpenConnection) {
  Visitor visitor(gate_, clock_, std::nullopt);
  const std::string token = "Bearer token of old";
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", token).status, 200);
  clock_.Advance(seconds{11});
  const Response late = AskAs(visitor, "GET", "/v1/segment/order", token);
  EXPECT_EQ(late.status, 401);
  EXPECT_EQ(nlohmann::json::parse(late.body)["message"], "this token has expired");
  const std::string other = "Bearer token of taker";
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", other).status, 200);
  gate_.Set({}, true, {});
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", other).status, 401);
  gate_.Set({}, true, {Role::kIds});
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", "").status, 200);
  // Wrong credentials are an error where none are needed, too: the caller believes to be another.
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", other).status, 401);
}

// A clock that was wrong for a moment must not shut callers out whose connections stay open.
TEST_F(AccessRouter, ATokenCountsAgainOnceAWrongClockIsSetRight) {
  Visitor visitor(gate_, clock_, std::nullopt);
  const std::string token = "Bearer token of old";
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", token).status, 200);
  clock_.StepWall(std::chrono::hours{1});
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", token).status, 401);
  clock_.StepWall(-std::chrono::hours{1});
  EXPECT_EQ(AskAs(visitor, "GET", "/v1/segment/order", token).status, 200);
  Visitor client(gate_, clock_, std::nullopt);
  EXPECT_TRUE(client.LogIn("default", "token of old"));
  clock_.StepWall(std::chrono::hours{1});
  EXPECT_TRUE(client.Current().roles.empty());
  clock_.StepWall(-std::chrono::hours{1});
  EXPECT_EQ(client.Current().token, "old");
}

TEST_F(AccessRouter, WithoutTokensThereIsNothingToLogInWith) {
  gate_.Set({}, false, {Role::kIds, Role::kRead});
  EXPECT_EQ(Ask("GET", "/v1/segment/pay", "").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/segment/pay", "Bearer anything").status, 200);
  const Response pause = Ask("POST", "/v1/segment/pay/pause", "");
  EXPECT_EQ(pause.status, 403);
  EXPECT_EQ(nlohmann::json::parse(pause.body)["message"], "a caller without a token lacks role admin");
}

TEST_F(AccessRouter, TheLimitOfATokenIsSaid) {
  access::TokenEntry entry{.name = "few", .roles = {Role::kIds}};
  entry.tags = access::TagPatterns::All();
  entry.ids_per_second = 5;
  entry.hash = access::HashOf("token of few");
  gate_.Set({entry}, true, {});
  const std::string token = "Bearer token of few";
  const Response many = Ask("GET", "/v1/segment/pay?count=6", token);
  EXPECT_EQ(many.status, 413);
  EXPECT_EQ(nlohmann::json::parse(many.body)["max_count"], 5);
  EXPECT_EQ(Ask("HEAD", "/v1/segment/pay?count=5", token).status, 200);
  EXPECT_EQ(Ask("GET", "/v1/segment/pay?count=5", token).status, 200);
  const Response over = Ask("GET", "/v1/segment/pay", token);
  EXPECT_EQ(over.status, 429);
  EXPECT_EQ(over.retry_after_s, 1U);
}

TEST_F(AccessRouter, AClientLogsInWhereTheProtocolSaysSo) {
  Visitor visitor(gate_, clock_, std::nullopt);
  EXPECT_TRUE(visitor.Current().roles.empty());
  EXPECT_FALSE(visitor.LogIn("default", "wrong"));
  EXPECT_FALSE(visitor.LogIn("reader", "token of taker"));
  EXPECT_TRUE(visitor.Current().roles.empty());
  EXPECT_TRUE(visitor.LogIn("taker", "token of taker"));
  EXPECT_EQ(visitor.Current().token, "taker");
  // A try that fails leaves what was.
  EXPECT_FALSE(visitor.LogIn("default", "wrong"));
  EXPECT_EQ(visitor.Current().token, "taker");
  EXPECT_TRUE(visitor.LogIn("default", "token of reader"));
  EXPECT_EQ(visitor.Current().token, "reader");
  visitor.LogOut();
  EXPECT_TRUE(visitor.Current().roles.empty());
}

TEST_F(AccessRouter, ACertificateHasTheRightsOfItsName) {
  Visitor known(gate_, clock_, std::nullopt);
  known.KnowCertificate("taker");
  EXPECT_EQ(AskAs(known, "GET", "/v1/segment/pay", "").status, 200);
  EXPECT_EQ(AskAs(known, "GET", "/v1/status", "").status, 403);
  Visitor unknown(gate_, clock_, std::nullopt);
  unknown.KnowCertificate("elsewhere.example");
  EXPECT_EQ(AskAs(unknown, "GET", "/v1/segment/pay", "").status, 401);
  Visitor old(gate_, clock_, std::nullopt);
  old.KnowCertificate("old");
  EXPECT_EQ(AskAs(old, "GET", "/v1/segment/order", "").status, 200);
  clock_.Advance(seconds{11});
  EXPECT_EQ(AskAs(old, "GET", "/v1/segment/order", "").status, 401);
}

// A proxy with a certificate passes on the tokens of others.
TEST_F(AccessRouter, ATokenCountsBesideTheCertificateOfAnAdmin) {
  Visitor proxy(gate_, clock_, std::nullopt);
  proxy.KnowCertificate("boss");
  EXPECT_EQ(AskAs(proxy, "GET", "/v1/status", "").status, 200);
  EXPECT_EQ(AskAs(proxy, "GET", "/v1/status", "Bearer token of reader").status, 200);
  EXPECT_EQ(AskAs(proxy, "GET", "/v1/segment/pay", "Bearer token of reader").status, 403);
  EXPECT_EQ(AskAs(proxy, "POST", "/v1/segment/pay/pause", "Bearer token of reader").status, 403);
  EXPECT_EQ(AskAs(proxy, "GET", "/v1/status", "Bearer leaf_wrong").status, 401);
  EXPECT_FALSE(proxy.LogIn("default", "wrong"));
  EXPECT_TRUE(proxy.LogIn("default", "token of reader"));
  EXPECT_EQ(proxy.Current().token, "reader");
}

TEST_F(AccessRouter, TheOwnerOfTheUnixSocketNeedsNoTokenAndMayShowOne) {
  Visitor owner(gate_, clock_, 1000);
  for (const char* const token : {"token of reader", "wrong"}) {
    EXPECT_TRUE(owner.LogIn("default", token)) << token;
    EXPECT_TRUE(owner.Current().roles.Has(Role::kAdmin)) << token;
    EXPECT_EQ(owner.problem(), "") << token;
  }
}

}  // namespace
}  // namespace leaf::server
