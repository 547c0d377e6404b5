// FF1 against NIST's samples, and over a whole domain.
#include "leaf/codes/ff1.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/text.h"
#include "leaf/codes/code_key.h"
#include "support/scale.h"

namespace leaf::codes {
namespace {

std::vector<unsigned char> BytesOf(std::string_view hex) {
  std::vector<unsigned char> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(*ParseWhole<std::uint8_t>(hex.substr(i, 2), 16));
  return bytes;
}

WideNumber NumberOf(std::string_view digits, unsigned radix) {
  WideNumber number = 0;
  for (const char c : digits)
    number = number * radix + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
  return number;
}

// "FF1samples" of NIST's Cryptographic Algorithm Validation Program: all nine.
TEST(Ff1, IsAsNistPublished) {
  constexpr std::string_view kKey = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94";
  constexpr std::string_view kTweak10 = "39383736353433323130";
  constexpr std::string_view kTweak36 = "3737373770717273373737";
  struct Sample {
    std::size_t key_bytes;
    std::string_view tweak;
    unsigned radix;
    std::string_view plain;
    std::string_view cipher;
  };
  const Sample samples[] = {
      {16, "", 10, "0123456789", "2433477484"},
      {16, kTweak10, 10, "0123456789", "6124200773"},
      {16, kTweak36, 36, "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
      {24, "", 10, "0123456789", "2830668132"},
      {24, kTweak10, 10, "0123456789", "2496655549"},
      {24, kTweak36, 36, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
      {32, "", 10, "0123456789", "6657667009"},
      {32, kTweak10, 10, "0123456789", "1001623463"},
      {32, kTweak36, 36, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"},
  };
  for (const Sample& sample : samples) {
    const auto key = BytesOf(kKey.substr(0, 2 * sample.key_bytes));
    const auto tweak = BytesOf(sample.tweak);
    for (const Ff1::Kind kind : {Ff1::Kind::kBest, Ff1::Kind::kLibrary}) {
      const Ff1 ff1(key, {reinterpret_cast<const char*>(tweak.data()), tweak.size()}, sample.radix,
                    static_cast<unsigned>(sample.plain.size()), kind);
      const WideNumber plain = NumberOf(sample.plain, sample.radix);
      const WideNumber cipher = NumberOf(sample.cipher, sample.radix);
      EXPECT_TRUE(ff1.Encrypt(plain) == cipher) << sample.cipher;
      EXPECT_TRUE(ff1.Decrypt(cipher) == plain) << sample.cipher;
    }
  }
}

// Every number once, and each comes back: a permutation, which is all of the uniqueness of codes.
TEST(Ff1, IsAPermutationOfAWholeDomain) {
  const auto key = BytesOf("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  struct Domain {
    unsigned radix;
    unsigned length;
    std::string_view tweak;
  };
  for (const Domain& domain : {Domain{10, 6, "order"}, {32, 4, "an odd tag of many more bytes"}}) {
    const Ff1 ff1(key, domain.tweak, domain.radix, domain.length);
    const auto size = static_cast<std::uint64_t>(ff1.domain());
    ASSERT_GE(size, 1'000'000U);
    std::vector<bool> seen(size);
    std::uint64_t repeated = 0;
    std::uint64_t lost = 0;
    for (std::uint64_t number = 0; number < size; number += testing::kScaleDownMuch) {
      const auto cipher = static_cast<std::uint64_t>(ff1.Encrypt(number));
      ASSERT_LT(cipher, size);
      repeated += seen[cipher] ? 1U : 0U;
      seen[cipher] = true;
      lost += ff1.Decrypt(cipher) == number ? 0U : 1U;
    }
    EXPECT_EQ(repeated, 0U) << domain.tweak;
    EXPECT_EQ(lost, 0U) << domain.tweak;
  }
}

TEST(Ff1, ComesBackAtEveryLength) {
  const auto key = BytesOf("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  std::mt19937_64 random(24);
  for (const unsigned radix : {10U, 32U}) {
    for (unsigned length = 4; length <= 24; ++length) {
      if (!Ff1::Fits(radix, length)) continue;
      for (std::size_t tweak = 0; tweak < 40; tweak += 3) {
        const Ff1 ff1(key, std::string(tweak, 't'), radix, length);
        const WideNumber any = (WideNumber{random()} << 64 | random()) % ff1.domain();
        for (const WideNumber number : {WideNumber{0}, any, ff1.domain() - 1}) {
          const WideNumber cipher = ff1.Encrypt(number);
          ASSERT_TRUE(cipher < ff1.domain());
          ASSERT_TRUE(ff1.Decrypt(cipher) == number) << radix << " " << length << " " << tweak;
        }
      }
    }
  }
}

TEST(Ff1, NeedsAMillionNumbers) {
  EXPECT_TRUE(Ff1::Fits(10, 6));
  EXPECT_FALSE(Ff1::Fits(10, 5));
  EXPECT_TRUE(Ff1::Fits(32, 4));
  EXPECT_FALSE(Ff1::Fits(32, 3));
  EXPECT_TRUE(Ff1::Fits(32, 24));
  EXPECT_FALSE(Ff1::Fits(36, 30));  // a half has no room in 63 bits
}

}  // namespace
}  // namespace leaf::codes
