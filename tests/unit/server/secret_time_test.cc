// How long a wrong token takes tells nothing of the right ones: instructions are counted, not times, so that
// no machine is too busy to tell.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/base/check.h"
#include "leaf/base/secret.h"
#include "leaf/server/http/known_request.h"
#include "leaf/server/http/plain_request.h"
#include "leaf/server/visitor.h"
#include "support/count_instructions.h"
#include "support/fakes.h"
#include "support/sanitizer.h"

namespace leaf::server {
namespace {

using access::TokenHash;

#if defined(LEAF_ADDRESS_SANITIZER) || defined(LEAF_THREAD_SANITIZER)
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;
#endif

constexpr int kTokens = 40;

std::string TokenOf(int number) {
  std::string token = "leaf_" + std::string(43, 'x');
  token[20] = static_cast<char>('A' + number / 10);
  token[30] = static_cast<char>('0' + number % 10);
  return token;
}

// With another character at `at`.
std::string Changed(std::string text, std::size_t at) {
  text.at(at) = text.at(at) == 'y' ? 'z' : 'y';
  return text;
}

class SecretTime : public ::testing::Test {
 protected:
  SecretTime() {
    std::vector<access::TokenEntry> entries;
    for (int number = 0; number < kTokens; ++number) {
      access::TokenEntry entry{.name = "t" + std::to_string(number), .roles = {access::Role::kIds}};
      entry.hash = access::HashOf(TokenOf(number));
      entries.push_back(entry);
    }
    gate_.Set(entries, true, {});
  }

  void SetUp() override {
    if (!kCounts) GTEST_SKIP() << "a sanitizer does work of its own";
    if (!testing::CountInstructions([] {})) GTEST_SKIP() << "no process may trace another one here";
  }

  // The number of instructions.
  template <typename Work>
  void Count(const Work& work) {
    work();
    const auto count = testing::CountInstructions(work);
    ASSERT_TRUE(count.has_value());
    counts_.insert(*count);
  }

  // What was counted is one number, and there was something to count.
  void ExpectOne(std::uint64_t least) {
    EXPECT_EQ(counts_.size(), 1U) << ::testing::PrintToString(counts_);
    EXPECT_GE(*counts_.begin(), least);
    counts_.clear();
  }

  testing::FakeClock clock_;
  access::Gate gate_{1};
  std::set<std::uint64_t> counts_;
};

// Where a comparison that ends at the first difference would end sooner: the test would notice it.
TEST_F(SecretTime, AnOrdinaryComparisonTellsWhereItEnds) {
  const std::string token = TokenOf(0);
  const volatile bool never = false;
  for (const std::size_t at : {std::size_t{0}, token.size() - 1}) {
    const std::string wrong = Changed(token, at);
    Count([&] {
      std::size_t same = 0;
      while (!never && same < token.size() && token[same] == wrong[same]) ++same;
      LEAF_CHECK(same == at);
    });
  }
  EXPECT_EQ(counts_.size(), 2U);
}

TEST_F(SecretTime, AComparisonLooksAtAllOfIt) {
  for (const std::size_t size : {1U, 7U, 8U, 9U, 31U, 32U, 33U, 48U, 55U, 72U}) {
    const std::string secret(size, 's');
    Count([&] { LEAF_CHECK(!IsSameSecret(secret, Changed(secret, 0))); });
    for (std::size_t at = 0; at < size; ++at) {
      const std::string wrong = Changed(secret, at);
      ASSERT_FALSE(IsSameSecret(secret, wrong)) << at << " of " << size;
    }
    ASSERT_TRUE(IsSameSecret(secret, std::string(secret)));
    EXPECT_FALSE(IsSameSecret(secret, secret.substr(1)));
    counts_.clear();
    for (std::size_t at = 0; at < size; at += 5) {
      const std::string wrong = Changed(secret, at);
      volatile bool same = true;
      Count([&] { same = IsSameSecret(secret, wrong); });
    }
    ExpectOne(size / 8);
  }
}

// Whichever line of the file it resembles, and however much of it.
TEST_F(SecretTime, AWrongTokenIsComparedWithAllLines) {
  for (const int line : {0, 1, kTokens / 2, kTokens - 1}) {
    for (const std::size_t at : {0U, 1U, 8U, 15U, 31U}) {
      TokenHash wrong = access::HashOf(TokenOf(line));
      wrong.at(at) ^= 1U;
      Count([&] { LEAF_CHECK(gate_.FindToken(wrong) == nullptr); });
    }
  }
  ExpectOne(std::uint64_t{kTokens} * 8);
}

TEST_F(SecretTime, ARightTokenDoesNotTellItsLine) {
  for (const int line : {0, 1, kTokens / 2, kTokens - 1}) {
    const TokenHash hash = access::HashOf(TokenOf(line));
    Count([&] { LEAF_CHECK(gate_.FindToken(hash) != nullptr); });
  }
  ExpectOne(std::uint64_t{kTokens} * 8);
}

// On a connection that several clients share behind a proxy, one after the other.
TEST_F(SecretTime, AnotherTokenOnTheSameConnection) {
  const std::string right = "Bearer " + TokenOf(3);
  for (std::size_t at = 7; at < right.size(); at += 8) {
    const std::string wrong = Changed(right, at);
    Visitor visitor(gate_, clock_, std::nullopt);
    // The wrong one comes once before, so that all memory is there.
    Count([&] {
      for (int i = 0; i < 2; ++i) {
        LEAF_CHECK(visitor.Identify(right).is_known);
        LEAF_CHECK(!visitor.Identify(wrong).is_known);
      }
    });
  }
  ExpectOne(1000);
}

TEST_F(SecretTime, AnotherLineThanTheOneBefore) {
  const std::string line = "Authorization: Bearer " + TokenOf(3) + "\r\n";
  const std::string head = "GET /v1/segment/pay HTTP/1.1\r\nHost: a\r\n";
  const KnownLine known{line, std::string_view(line).substr(15, line.size() - 17)};
  std::string bytes;
  bytes.reserve(head.size() + line.size() + 2);  // memchr takes steps that depend on where bytes lie
  for (std::size_t at = 22; at + 2 < line.size(); at += 7) {
    bytes = head;
    bytes += Changed(line, at) + "\r\n";
    Count([&] {
      const auto plain = ParsePlainRequest(bytes, known);
      LEAF_CHECK(plain && plain->new_line.size() == line.size());
    });
  }
  ExpectOne(500);
}

// A request that may be the one which is known.
TEST_F(SecretTime, AnotherRequestThanTheOneThatIsKnown) {
  const std::string token = "leaf_" + std::string(43, 'a');
  const auto request = [](const std::string& with) {
    return "GET /v1/segment/pay HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + with + "\r\n\r\n";
  };
  KnownRequest known;
  known.Keep(request(token), "Bearer " + token, Route::kV1Segment,
             {.tag = "pay", .form = &kIdsAsJson, .content_type = kJson});
  LEAF_CHECK(known.IsNext(request(token)));
  for (std::size_t place = 0; place < token.size(); ++place) {
    const std::string bytes = request(Changed(token, place));
    Count([&] { LEAF_CHECK(!known.IsNext(bytes)); });
  }
  ExpectOne(100);
}

}  // namespace
}  // namespace leaf::server
