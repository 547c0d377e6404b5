// FF1, format-preserving encryption (NIST SP 800-38G): a permutation of the numbers below radix^length,
// chosen by a key and a tweak. AES is libcrypto's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace leaf::codes {

// Enough for every number below radix^length.
__extension__ using WideNumber = unsigned __int128;

// Immutable, so thread-safe.
class Ff1 {
 public:
  static constexpr std::uint64_t kDomainMin = 1'000'000;  // SP 800-38G, revision 1

  // `key`: 16, 24 or 32 bytes. Requires: radix in 2..36; Fits(radix, length).
  // kLibrary: by libcrypto alone, also where the processor has instructions for AES. The outcome is the same.
  enum class Kind : bool { kBest, kLibrary };
  Ff1(std::span<const unsigned char> key, std::string_view tweak, unsigned radix, unsigned length,
      Kind kind = Kind::kBest);
  ~Ff1();
  Ff1(const Ff1&) = delete;
  Ff1& operator=(const Ff1&) = delete;

  // Whether there are kDomainMin numbers, and each half of one has room in 63 bits.
  static bool Fits(unsigned radix, unsigned length);
  // radix^length.
  WideNumber domain() const { return WideNumber{left_end_} * right_end_; }

  // Of a number below domain(). They never allocate.
  WideNumber Encrypt(WideNumber plain) const;
  WideNumber Decrypt(WideNumber cipher) const;

 private:
  using Block = std::array<unsigned char, 16>;
  struct Aes;

  // The pseudorandom number of a round, below `end`.
  std::uint64_t Round(unsigned round, std::uint64_t half, std::uint64_t end) const;

  const std::unique_ptr<const Aes> aes_;
  std::uint64_t left_end_ = 1;   // radix^u: of the first half
  std::uint64_t right_end_ = 1;  // radix^v
  std::size_t half_bytes_ = 0;   // b of the standard
  bool is_wide_ = false;         // d is 12, not 8
  Block chain_{};                // CBC-MAC over everything but the last block
  Block last_{};                 // which has the round and the half still to come
};

}  // namespace leaf::codes
