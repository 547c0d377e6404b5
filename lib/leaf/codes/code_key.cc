#include "leaf/codes/code_key.h"

#include <fmt/format.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "leaf/base/text.h"

namespace leaf::codes {
namespace {

std::string HexText(const unsigned char* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string Fingerprint(std::string_view purpose, const void* data, std::size_t size) {
  constexpr std::size_t kBytes = 8;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  SHA256_CTX state;
  SHA256_Init(&state);
  SHA256_Update(&state, purpose.data(), purpose.size());
  SHA256_Update(&state, data, size);
  SHA256_Final(hash.data(), &state);
  return HexText(hash.data(), kBytes);
}

}  // namespace

Result<CodeKey> ParseCodeKey(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  CodeKey key{};
  const Error wrong{ErrorCode::kConfig, "it is not 64 hexadecimal digits", "leafctl code keygen makes a key"};
  if (text.size() != 2 * key.size()) return wrong;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const auto byte = ParseWhole<std::uint8_t>(text.substr(2 * i, 2), 16);
    if (!byte) return wrong;
    key.at(i) = *byte;
  }
  return key;
}

std::string CodeKeyText(const CodeKey& key) { return HexText(key.data(), key.size()); }

std::string FingerprintOf(const CodeKey& key) { return Fingerprint("leafctl codes", key.data(), key.size()); }

std::string FingerprintOfCluster(std::string_view name) {
  return Fingerprint("leafctl codes of a cluster", name.data(), name.size());
}

}  // namespace leaf::codes
