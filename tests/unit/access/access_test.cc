// Roles, tokens, and the gate that tells callers apart.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/access/token_file.h"
#include "support/fakes.h"

namespace leaf::access {
namespace {

using std::chrono::seconds;

TEST(Roles, AdminHasAll) {
  const Roles admin{Role::kAdmin};
  EXPECT_TRUE(admin.Has(Role::kIds) && admin.Has(Role::kRead) && admin.Has(Role::kAdmin));
  const Roles ids{Role::kIds};
  EXPECT_TRUE(ids.Has(Role::kIds));
  EXPECT_FALSE(ids.Has(Role::kRead) || ids.Has(Role::kAdmin));
  EXPECT_TRUE(Roles{}.empty());
  EXPECT_EQ((Roles{Role::kRead, Role::kIds}).Text(), "ids,read");
  EXPECT_EQ(ParseRole("admin"), Role::kAdmin);
  EXPECT_EQ(ParseRole("Admin"), std::nullopt);
}

TEST(TagPatterns, StarsStandForAnyText) {
  const auto patterns = TagPatterns::Parse("order*,pay,*-eu,a*b*c");
  ASSERT_TRUE(patterns.ok());
  for (const char* const tag : {"order", "order.2026", "pay", "x-eu", "-eu", "abc", "aXbYc", "abbcc"})
    EXPECT_TRUE(patterns->Matches(tag)) << tag;
  for (const char* const tag : {"", "orde", "pays", "xpay", "eu", "ab", "acb", "Order"})
    EXPECT_FALSE(patterns->Matches(tag)) << tag;
  EXPECT_FALSE(patterns->matches_all());
  EXPECT_TRUE(TagPatterns::Parse("pay,*")->matches_all());
  EXPECT_FALSE(TagPatterns().Matches("pay"));
  // No special character but the star.
  EXPECT_FALSE(TagPatterns::Parse("p?y")->Matches("pay"));
  for (const char* const bad : {"", ",", "pay,", "a b", "a\tb", "\xff"})
    EXPECT_EQ(TagPatterns::Parse(bad).error().code, ErrorCode::kInvalidArgument) << bad;
}

TEST(Token, TheHashIsSha256) {
  // FIPS 180-4, the example of one block.
  std::string hex;
  for (const unsigned char byte : HashOf("abc")) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Token, HasAllBitsOfItsRandomBytes) {
  std::set<std::string> tokens;
  std::array<unsigned char, 32> random{};
  tokens.insert(MakeToken(random));
  for (std::size_t bit = 0; bit < 256; ++bit) {
    random.fill(0);
    random.at(bit / 8) = static_cast<unsigned char>(1U << bit % 8);
    tokens.insert(MakeToken(random));
  }
  EXPECT_EQ(tokens.size(), 257U);
  for (const std::string& token : tokens)
    EXPECT_TRUE(token.starts_with("leaf_") && token.size() == 48) << token;
}

TEST(TokenFile, IsReadAsItIsWritten) {
  TokenEntry entry{.name = "billing", .roles = {Role::kIds, Role::kRead}};
  entry.tags = *TagPatterns::Parse("order*,pay");
  entry.expires = WallTimeOf(1'800'000'000'123);
  entry.ids_per_second = 500;
  entry.hash = HashOf("secret");
  TokenEntry certificate{.name = "api.example.com", .roles = {Role::kAdmin}};
  certificate.tags = TagPatterns::All();
  certificate.snowflakes = true;
  const auto read =
      ParseTokenFile("# tokens\n\n" + TokenLine(entry) + "\r\n  " + TokenLine(certificate) + "  # \n");
  ASSERT_FALSE(read.ok());  // a comment is a line of its own
  const auto good = ParseTokenFile("# tokens\n\n" + TokenLine(entry) + "\r\n  " + TokenLine(certificate));
  ASSERT_TRUE(good.ok()) << good.error().message;
  ASSERT_EQ(good->size(), 2U);
  EXPECT_EQ((*good)[0].name, "billing");
  EXPECT_EQ((*good)[0].roles, entry.roles);
  EXPECT_EQ((*good)[0].tags.Text(), "order*,pay");
  EXPECT_FALSE((*good)[0].snowflakes);
  EXPECT_EQ((*good)[0].expires, entry.expires);
  EXPECT_EQ((*good)[0].ids_per_second, 500U);
  EXPECT_EQ((*good)[0].hash, entry.hash);
  EXPECT_EQ((*good)[1].hash, std::nullopt);
  EXPECT_TRUE((*good)[1].snowflakes);
  EXPECT_TRUE((*good)[0].IsExpired(*entry.expires));
  EXPECT_FALSE((*good)[0].IsExpired(*entry.expires - seconds{1}));
}

TEST(TokenFile, EachMistakeIsNamedWithItsLine) {
  const std::string hash(64, 'a');
  const auto why = [](const std::string& line) {
    const auto read = ParseTokenFile("ok roles=read sha256=" + std::string(64, 'b') + "\n" + line);
    return read.ok() ? std::string("good") : read.error().message;
  };
  EXPECT_EQ(why("x roles=ids sha256=" + hash), "good");
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"x sha256=" + hash, "line 2: roles is missing"},
           {"x roles=ids", "line 2: sha256 is missing"},
           {"x roles=ids,root sha256=" + hash, "line 2: bad role 'root': none of ids, read, admin"},
           {"x roles= sha256=" + hash, "line 2: a token without a role"},
           {"x roles=ids roles=read sha256=" + hash, "line 2: roles is there twice"},
           {"x roles=ids sha256=abc", "line 2: sha256 is not 64 hexadecimal digits, nor -"},
           {"x roles=ids sha256=" + hash.substr(2) + "g1",
            "line 2: sha256 is not 64 hexadecimal digits, nor -"},
           {"x roles=ids rights=all sha256=" + hash, "line 2: unknown key 'rights'"},
           {"x roles=ids tags=a,,b sha256=" + hash, "line 2: an empty tag pattern"},
           {"x roles=ids ids_per_second=-1 sha256=" + hash,
            "line 2: bad ids_per_second '-1': no whole number"},
           {"x roles=ids ids_per_second=0 sha256=" + hash,
            "line 2: bad ids_per_second 0: at least 1; a token without the key has no limit"},
           {"x roles=ids snowflakes=maybe sha256=" + hash,
            "line 2: bad snowflakes 'maybe': neither yes nor no"},
           {"x/y roles=ids sha256=" + hash, "line 2: bad token name 'x/y'"},
           {"default roles=ids sha256=" + hash, "line 2: bad token name 'default'"},
           {"ok roles=ids sha256=" + hash, "line 2: token ok is there twice"},
           {"x roles=ids sha256=" + std::string(64, 'b'), "line 2: token x has the hash of another one"},
           {"x roles=ids sha256", "line 2: 'sha256' is not key=value"}})
    EXPECT_EQ(why(line), message);
  EXPECT_NE(why("x roles=ids expires=soon sha256=" + hash).find("line 2: "), std::string::npos);
}

TEST(Expiry, IsADurationOrATimeToCome) {
  const WallTime now = WallTimeOf(1'700'000'000'000);
  EXPECT_EQ(*ParseExpiry("90d", now), now + std::chrono::hours{24 * 90});
  EXPECT_EQ(*ParseExpiry("2030-01-01", now), WallTimeOf(1'893'456'000'000));
  for (const char* const bad : {"", "0s", "-1d", "2020-01-01", "soon", "90", "9999999d"})
    EXPECT_EQ(ParseExpiry(bad, now).error().code, ErrorCode::kInvalidArgument) << bad;
}

class GateTest : public ::testing::Test {
 protected:
  static TokenEntry Entry(const std::string& name, Roles roles, std::uint64_t per_second = 0) {
    TokenEntry entry{.name = name, .roles = roles};
    entry.tags = TagPatterns::All();
    entry.hash = HashOf("token of " + name);
    entry.ids_per_second = per_second;
    return entry;
  }

  testing::FakeClock clock_;
  Gate gate_{1000};
};

TEST_F(GateTest, IsOpenUntilThereAreTokens) {
  EXPECT_FALSE(gate_.has_tokens());
  EXPECT_EQ(gate_.Anonymous()->roles, (Roles{Role::kIds, Role::kRead}));
  const std::uint64_t before = gate_.generation();
  gate_.Set({Entry("a", {Role::kIds})}, true, {});
  EXPECT_NE(gate_.generation(), before);
  EXPECT_TRUE(gate_.has_tokens());
  EXPECT_TRUE(gate_.Anonymous()->roles.empty());
  EXPECT_EQ(gate_.FindToken(HashOf("token of a"))->token, "a");
  EXPECT_EQ(gate_.FindToken(HashOf("token of b")), nullptr);
  EXPECT_EQ(gate_.FindCertificate("a")->token, "a");
  EXPECT_EQ(gate_.FindCertificate("b"), nullptr);
}

TEST_F(GateTest, TheOwnerOfTheServerAndRootMayDoEverythingOnItsSocket) {
  EXPECT_TRUE(gate_.OfUser(1000)->roles.Has(Role::kAdmin));
  EXPECT_TRUE(gate_.OfUser(0)->roles.Has(Role::kAdmin));
  EXPECT_EQ(gate_.OfUser(1001)->roles, (Roles{Role::kIds, Role::kRead}));
}

TEST_F(GateTest, ALimitGoesOnOverAReload) {
  gate_.Set({Entry("a", {Role::kIds}, 10)}, true, {});
  const auto before = gate_.FindToken(HashOf("token of a"));
  EXPECT_EQ(before->RefuseIds("pay", 10, clock_), std::nullopt);
  gate_.Set({Entry("a", {Role::kIds}, 10)}, true, {});
  const auto after = gate_.FindToken(HashOf("token of a"));
  EXPECT_EQ(after->RefuseIds("pay", 1, clock_)->code, ErrorCode::kLimited);
  EXPECT_EQ(after->RefuseIds("pay", 11, clock_)->code, ErrorCode::kTooLarge);
  clock_.Advance(seconds{1});
  EXPECT_EQ(after->RefuseIds("pay", 10, clock_), std::nullopt);
  gate_.Set({Entry("a", {Role::kIds}, 20)}, true, {});
  EXPECT_EQ(gate_.FindToken(HashOf("token of a"))->RefuseIds("pay", 20, clock_), std::nullopt);
}

TEST_F(GateTest, TheLimitHoldsOverAnyTime) {
  IdLimit limit(100);
  std::uint64_t admitted = 0;
  for (int millis = 0; millis < 10'000; ++millis) {
    if (limit.Admit(clock_.Monotonic(), 7)) admitted += 7;
    clock_.Advance(std::chrono::milliseconds{1});
  }
  EXPECT_LE(admitted, 1100U);
  EXPECT_GE(admitted, 1050U);
}

TEST_F(GateTest, ACallerTakesItsTagsOnly) {
  TokenEntry entry = Entry("a", {Role::kIds});
  entry.tags = *TagPatterns::Parse("order*");
  gate_.Set({entry}, true, {});
  const auto caller = gate_.FindToken(*entry.hash);
  EXPECT_EQ(caller->RefuseIds("order1", 1, clock_), std::nullopt);
  EXPECT_EQ(caller->RefuseIds("pay", 1, clock_)->code, ErrorCode::kPermission);
  EXPECT_EQ(caller->RefuseIds("", 1, clock_)->code, ErrorCode::kPermission);
  entry.snowflakes = true;
  gate_.Set({entry}, true, {});
  EXPECT_EQ(gate_.FindToken(*entry.hash)->RefuseIds("", 1, clock_), std::nullopt);
}

}  // namespace
}  // namespace leaf::access
