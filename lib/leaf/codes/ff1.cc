#include "leaf/codes/ff1.h"

// The functions without a context of providers: the others bring the whole library into the program.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/aes.h>
#include <openssl/crypto.h>
#ifdef __x86_64__
#include <wmmintrin.h>
#endif

#include <string>

#include "leaf/base/check.h"

namespace leaf::codes {
namespace {

constexpr unsigned kRounds = 10;
constexpr std::uint64_t kHalfEnd = std::uint64_t{1} << 63;

// 0 if that is more than kHalfEnd.
std::uint64_t Power(unsigned radix, unsigned exponent) {
  std::uint64_t power = 1;
  for (unsigned i = 0; i < exponent; ++i) {
    if (power > kHalfEnd / radix) return 0;
    power *= radix;
  }
  return power;
}

#ifdef __x86_64__
// AES with the processor's instructions, for which the function of libcrypto that needs no context of
// providers is not made: several times as fast, and without tables, whose use others could time.
__attribute__((target("aes"))) void EncryptNatively(unsigned char* block, const AES_KEY& key) {
  const auto* const rounds = reinterpret_cast<const __m128i*>(key.rd_key);
  auto* const place = reinterpret_cast<__m128i*>(block);
  __m128i state = _mm_xor_si128(_mm_loadu_si128(place), _mm_loadu_si128(rounds));
  for (int i = 1; i < key.rounds; ++i) state = _mm_aesenc_si128(state, _mm_loadu_si128(rounds + i));
  _mm_storeu_si128(place, _mm_aesenclast_si128(state, _mm_loadu_si128(rounds + key.rounds)));
}

// Whether the processor has them, and they read the key as this libcrypto has written it.
bool IsNative(const AES_KEY& key) {
  if (!__builtin_cpu_supports("aes")) return false;
  std::array<unsigned char, 16> ours{1, 2, 3};
  std::array<unsigned char, 16> theirs = ours;
  EncryptNatively(ours.data(), key);
  AES_encrypt(theirs.data(), theirs.data(), &key);
  return ours == theirs;
}
#else
void EncryptNatively(unsigned char*, const AES_KEY&) {}
bool IsNative(const AES_KEY&) { return false; }
#endif

}  // namespace

struct Ff1::Aes {
  AES_KEY key{};
  bool is_native = false;

  void Encrypt(Block& block) const {
    if (is_native) return EncryptNatively(block.data(), key);
    AES_encrypt(block.data(), block.data(), &key);
  }
  ~Aes() { OPENSSL_cleanse(&key, sizeof key); }
  Aes() = default;
  Aes(const Aes&) = delete;
  Aes& operator=(const Aes&) = delete;
};

bool Ff1::Fits(unsigned radix, unsigned length) {
  if (radix < 2 || radix > 36 || length < 2 || length > 255) return false;
  const std::uint64_t left = Power(radix, length / 2);
  const std::uint64_t right = Power(radix, length - length / 2);
  return left > 0 && right > 0 && WideNumber{left} * right >= kDomainMin;
}

Ff1::Ff1(std::span<const unsigned char> key, std::string_view tweak, unsigned radix, unsigned length,
         Kind kind)
    : aes_([&] {
        auto aes = std::make_unique<Aes>();
        LEAF_CHECK(AES_set_encrypt_key(key.data(), static_cast<int>(key.size()) * 8, &aes->key) == 0);
        aes->is_native = kind == Kind::kBest && IsNative(aes->key);
        return aes;
      }()) {
  LEAF_CHECK(Fits(radix, length));
  const unsigned left = length / 2;
  left_end_ = Power(radix, left);
  right_end_ = Power(radix, length - left);
  for (std::uint64_t most = right_end_ - 1; most > 0; most >>= 8) ++half_bytes_;
  is_wide_ = half_bytes_ > 4;
  // P of the standard, and of Q what does not depend on the round: the tweak, and 0 up to where the round
  // stands.
  std::string text{
      1, 2, 1, 0, 0, static_cast<char>(radix), static_cast<char>(kRounds), static_cast<char>(left)};
  for (const std::size_t number : {std::size_t{length}, tweak.size()}) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xFFU);
  }
  text += tweak;
  while ((text.size() + 1 + half_bytes_) % chain_.size() != 0) text += '\0';
  const std::size_t whole = text.size() / chain_.size() * chain_.size();
  for (std::size_t at = 0; at < whole; ++at) {
    chain_[at % chain_.size()] ^= static_cast<unsigned char>(text[at]);
    if ((at + 1) % chain_.size() == 0) aes_->Encrypt(chain_);
  }
  for (std::size_t at = whole; at < text.size(); ++at)
    last_.at(at - whole) = static_cast<unsigned char>(text[at]);
}

Ff1::~Ff1() = default;

std::uint64_t Ff1::Round(unsigned round, std::uint64_t half, std::uint64_t end) const {
  Block block = last_;
  std::size_t at = block.size();
  for (std::size_t i = 0; i < half_bytes_; ++i, half >>= 8) block[--at] = static_cast<unsigned char>(half);
  block[--at] = static_cast<unsigned char>(round);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] ^= chain_[i];
  aes_->Encrypt(block);
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number = number << 8 | block[i];
  if (!is_wide_) return number % end;
  std::uint64_t rest = 0;
  for (std::size_t i = 8; i < 12; ++i) rest = rest << 8 | block[i];
  return static_cast<std::uint64_t>((WideNumber{number} << 32 | rest) % end);
}

WideNumber Ff1::Encrypt(WideNumber plain) const {
  LEAF_CHECK(plain < domain());
  auto a = static_cast<std::uint64_t>(plain / right_end_);
  auto b = static_cast<std::uint64_t>(plain % right_end_);
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::uint64_t end = round % 2 == 0 ? left_end_ : right_end_;
    const std::uint64_t sum = a + Round(round, b, end);  // two numbers below 2^63
    a = b;
    b = sum >= end ? sum - end : sum;
  }
  return WideNumber{a} * right_end_ + b;
}

WideNumber Ff1::Decrypt(WideNumber cipher) const {
  LEAF_CHECK(cipher < domain());
  auto a = static_cast<std::uint64_t>(cipher / right_end_);
  auto b = static_cast<std::uint64_t>(cipher % right_end_);
  for (unsigned round = kRounds; round-- > 0;) {
    const std::uint64_t end = round % 2 == 0 ? left_end_ : right_end_;
    const std::uint64_t taken = Round(round, a, end);
    const std::uint64_t difference = b >= taken ? b - taken : b + end - taken;
    b = a;
    a = difference;
  }
  return WideNumber{a} * right_end_ + b;
}

}  // namespace leaf::codes
