#include "leaf/base/endpoint.h"

#include <gtest/gtest.h>

#include <random>

namespace leaf {
namespace {

constexpr std::uint16_t kDefault = 3306;

TEST(Endpoint, IsAHostWithOrWithoutAPort) {
  const std::pair<std::string, Endpoint> known[] = {
      {"db1:3307", {"db1", 3307}},
      {"db1", {"db1", kDefault}},
      {"db-1.example.org", {"db-1.example.org", kDefault}},
      {"127.0.0.1:1", {"127.0.0.1", 1}},
      {"localhost:65535", {"localhost", 65535}},
      {"[::1]", {"::1", kDefault}},
      {"[::1]:3307", {"::1", 3307}},
      {"[fe80::1%eth0]:3307", {"fe80::1%eth0", 3307}},
      {"[::ffff:127.0.0.1]:1", {"::ffff:127.0.0.1", 1}},
  };
  for (const auto& [text, endpoint] : known) {
    const auto parsed = ParseEndpoint(text, kDefault);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, endpoint) << text;
  }
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const std::string text :
       {"",       ":",         ":3306",  "db1:",     "db1:0",    "db1:65536",      "db1:-1",  "db1:+1",
        "db1: 1", "db1:1 ",    "db1:x",  "::1",      "::1:3306", "a:1:2",          "[]",      "[]:1",
        "[::1",   "[::1]3306", "[::1]:", "[db1]:1",  "::1]",     "db 1",           "db1;x=1", "db1'",
        "db1=2",  "{db1}",     "db1/x",  "tcp(db1)", "[::1;]:1", "d\xc3\xb6ner:1", "db\n:1"}) {
    const auto parsed = ParseEndpoint(text, kDefault);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("is not HOST:PORT"), std::string::npos) << parsed.error().message;
  }
}

// As a resolver reads them.
TEST(Endpoint, LoopbackAndEveryAddressInAnySpelling) {
  for (const char* const host : {"127.0.0.1", "127.1", "127.255.255.254", "0x7f.1", "localhost", "LocalHost",
                                 "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
    EXPECT_FALSE(IsWildcardHost(host)) << host;
  }
  for (const char* const host : {"0.0.0.0", "0", "0.0", "::", "::0", "0::0"}) {
    EXPECT_TRUE(IsWildcardHost(host)) << host;
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
  for (const char* const host : {"127.example.com", "localhost.example.com", "192.0.2.1", "192.0.2.127",
                                 "::2", "node-1", "0.example.com", "fe80::1"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
    EXPECT_FALSE(IsWildcardHost(host)) << host;
  }
}

TEST(Endpoint, NothingThatCouldEndAValueGetsThrough) {
  std::mt19937 random(20261122);
  const std::string alphabet = "ab1.-_:[]%;={}'\"\\ \t\n";
  for (int i = 0; i < 200'000; ++i) {
    std::string text;
    for (auto length = random() % 12; length > 0; --length) text += alphabet[random() % alphabet.size()];
    const auto parsed = ParseEndpoint(text, kDefault);
    if (!parsed.ok()) continue;
    EXPECT_EQ(parsed->host.find_first_of(";={}'\"\\ \t\n[]"), std::string::npos) << text;
    EXPECT_FALSE(parsed->host.empty()) << text;
    EXPECT_NE(parsed->port, 0) << text;
  }
}

}  // namespace
}  // namespace leaf
