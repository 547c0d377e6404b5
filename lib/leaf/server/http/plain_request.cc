#include "leaf/server/http/plain_request.h"

#include <array>
#include <cstdint>

#include "leaf/base/secret.h"
#include "leaf/base/text.h"

namespace leaf::server {
namespace {

// Longer heads are no common case, and the library's to limit.
constexpr std::size_t kBytesMax = std::size_t{4} * 1024;
// So are more fields: below what the library's parser is given at most.
constexpr int kFieldsMax = 64;

enum CharKind : std::uint8_t { kTargetChar = 1, kNameChar = 2, kValueChar = 4, kHostChar = 8 };

constexpr std::array<std::uint8_t, 256> CharKinds() {
  std::array<std::uint8_t, 256> kinds{};
  for (std::size_t c = 0x21; c <= 0x7E; ++c) kinds[c] = kTargetChar | kValueChar;
  kinds[' '] = kValueChar;
  kinds['\t'] = kValueChar;
  for (std::size_t c = 'a'; c <= 'z'; ++c) kinds[c] |= kNameChar;
  for (std::size_t c = 'A'; c <= 'Z'; ++c) kinds[c] |= kNameChar;
  for (std::size_t c = '0'; c <= '9'; ++c) kinds[c] |= kNameChar;
  kinds['-'] |= kNameChar;
  for (std::size_t c = 0; c < kinds.size(); ++c) {
    if ((kinds[c] & kNameChar) != 0) kinds[c] |= kHostChar;
  }
  // Of a name, an address and a port; rarer characters are the library's.
  for (const char c : {'.', ':', '_', '[', ']'}) kinds[static_cast<unsigned char>(c)] |= kHostChar;
  return kinds;
}
constexpr std::array<std::uint8_t, 256> kCharKinds = CharKinds();

std::size_t EndOf(CharKind kind, std::string_view bytes, std::size_t at) {
  while (at < bytes.size() && (kCharKinds[static_cast<unsigned char>(bytes[at])] & kind) != 0) ++at;
  return at;
}

// Whether there is nothing but printable ASCII, blanks included, in it. Eight bytes at a time: of a long
// value, such as a token, that is a fifth of the work.
bool IsPrintable(std::string_view text) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  constexpr std::uint64_t kHigh = 0x80 * kEach;
  // The high bit is set by what is below ' ', is DEL, or is not ASCII; or behind such a byte.
  const auto wrong = [](std::uint64_t word) {
    return (word | (word - 0x20 * kEach) | (word + kEach)) & kHigh;
  };
  std::uint64_t found = 0;
  std::size_t at = 0;
  for (; at + sizeof found <= text.size(); at += sizeof found) found |= wrong(WordAt(text, at));
  if (at < text.size() && at > 0) {
    found |= wrong(WordAt(text, text.size() - sizeof found));  // some of it once more
  } else {
    for (; at < text.size(); ++at) found |= text[at] < ' ' || text[at] > '~' ? 1U : 0U;
  }
  return found == 0;
}

// The end of a header's value that begins at `at`.
std::size_t EndOfValue(std::string_view bytes, std::size_t at) {
  const std::size_t line_end = bytes.find('\r', at);
  if (line_end != std::string_view::npos && IsPrintable(bytes.substr(at, line_end - at))) [[likely]]
    return line_end;
  return EndOf(kValueChar, bytes, at);
}

// `text`: printable. `lower`: of letters and hyphens.
bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  // Bit 5 is what upper case lacks, and set in all other characters of a name.
  constexpr std::uint64_t kLowerCase = 0x2020202020202020;
  std::uint64_t different = 0;
  std::size_t at = 0;
  for (; at + sizeof different <= lower.size(); at += sizeof different)
    different |= (WordAt(text, at) | kLowerCase) ^ WordAt(lower, at);
  for (; at < lower.size(); ++at) different |= static_cast<unsigned char>((text[at] | ' ') ^ lower[at]);
  return different == 0;
}

// What must not come twice.
struct Seen {
  bool host = false;
  bool accept = false;
  bool authorization = false;
};

// Takes note of a header; false if what it says is not for this form.
bool TakeHeader(std::string_view name, std::string_view value, Seen& seen, PlainRequest& request) {
  switch (name.size()) {
    case 4:
      if (EqualsIgnoringCase(name, "host")) {
        if (seen.host || EndOf(kHostChar, value, 0) != value.size()) return false;
        seen.host = true;
        request.host = value;
      }
      return true;
    case 6:
      if (EqualsIgnoringCase(name, "accept")) {
        if (seen.accept) return false;
        seen.accept = true;
        request.accept = value;
      }
      return !EqualsIgnoringCase(name, "expect") && !EqualsIgnoringCase(name, "origin");
    case 7:
      return !EqualsIgnoringCase(name, "upgrade");
    case 10:
      return !EqualsIgnoringCase(name, "connection") || EqualsIgnoringCase(value, "keep-alive");
    case 13:
      if (EqualsIgnoringCase(name, "authorization")) {
        if (seen.authorization) return false;
        seen.authorization = true;
        request.authorization = value;
      }
      return true;
    case 14:
      return !EqualsIgnoringCase(name, "content-length") && !EqualsIgnoringCase(name, "sec-fetch-site") &&
             !EqualsIgnoringCase(name, "sec-fetch-dest");
    case 16:
      return !EqualsIgnoringCase(name, "proxy-connection");
    case 17:
      return !EqualsIgnoringCase(name, "transfer-encoding");
    default:
      return true;
  }
}

// Whether the line that begins at `at` is that one. The time does not say how much of a secret is right; the
// first letters of the name are none.
bool IsNext(const KnownLine& known, std::string_view bytes, std::size_t at) {
  const std::size_t size = known.bytes.size();
  return size >= sizeof(std::uint64_t) && size <= bytes.size() - at &&
         WordAt(bytes, at) == WordAt(known.bytes, 0) && IsSameSecret({bytes.data() + at, size}, known.bytes);
}

}  // namespace

std::optional<PlainRequest> ParsePlainRequest(std::string_view bytes, const KnownLine& known) {
  constexpr std::string_view kMethod = "GET ";
  constexpr std::string_view kVersion = " HTTP/1.1\r\n";
  bytes = bytes.substr(0, kBytesMax);
  if (!bytes.starts_with(kMethod)) return std::nullopt;
  PlainRequest request;
  std::size_t at = EndOf(kTargetChar, bytes, kMethod.size());
  request.target = bytes.substr(kMethod.size(), at - kMethod.size());
  if (!request.target.starts_with("/api/") && !request.target.starts_with("/v1/")) return std::nullopt;
  if (!bytes.substr(at).starts_with(kVersion)) return std::nullopt;
  at += kVersion.size();
  Seen seen;
  for (int fields = 0;; ++fields) {
    if (fields > kFieldsMax) return std::nullopt;
    if (!seen.authorization && IsNext(known, bytes, at)) {
      seen.authorization = true;
      request.authorization = known.value;
      at += known.bytes.size();
      continue;
    }
    const std::size_t name_end = EndOf(kNameChar, bytes, at);
    if (name_end == at) break;
    if (name_end == bytes.size() || bytes[name_end] != ':') return std::nullopt;
    const std::size_t value_end = EndOfValue(bytes, name_end + 1);
    if (!bytes.substr(value_end).starts_with("\r\n")) return std::nullopt;
    const std::string_view value = TrimBlanks(bytes.substr(name_end + 1, value_end - name_end - 1));
    const bool had_authorization = seen.authorization;
    if (!TakeHeader(bytes.substr(at, name_end - at), value, seen, request)) return std::nullopt;
    if (seen.authorization != had_authorization) request.new_line = bytes.substr(at, value_end + 2 - at);
    at = value_end + 2;
  }
  if (!seen.host || !bytes.substr(at).starts_with("\r\n")) return std::nullopt;
  request.size = at + 2;
  return request;
}

}  // namespace leaf::server
