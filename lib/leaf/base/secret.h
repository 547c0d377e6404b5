// Comparing what a caller must not be able to guess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace leaf {

// Whether both are the same. How much is done for it depends on their sizes alone: the time says nothing of
// where they differ.
inline bool IsSameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  std::uint64_t different = 0;
  const auto look = [&](std::size_t at) {
    std::uint64_t ours = 0;
    std::uint64_t theirs = 0;
    std::memcpy(&ours, a.data() + at, sizeof ours);
    std::memcpy(&theirs, b.data() + at, sizeof theirs);
    different |= ours ^ theirs;
  };
  constexpr std::size_t kWord = sizeof different;
  std::size_t at = 0;
  for (; at + 4 * kWord <= a.size(); at += 4 * kWord) {
    look(at);
    look(at + kWord);
    look(at + 2 * kWord);
    look(at + 3 * kWord);
  }
  for (; at + kWord <= a.size(); at += kWord) look(at);
  if (at < a.size() && a.size() >= kWord) {
    look(a.size() - kWord);  // some of it once more
  } else {
    for (; at < a.size(); ++at) different |= static_cast<unsigned char>(a[at] ^ b[at]);
  }
  return different == 0;
}

}  // namespace leaf
