#include "leaf/base/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>

#include "leaf/base/text.h"

namespace leaf {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsNameCharacter(char c) { return IsLetterOrDigit(c) || c == '.' || c == '-' || c == '_'; }

// With the zone that a link-local address may have.
bool IsV6Character(char c) { return IsNameCharacter(c) || c == ':' || c == '%'; }

// In the order of the host's bytes; nothing if it is a name. As every resolver reads it: "0" and "127.1",
// too.
std::optional<std::uint32_t> ParseV4(std::string_view host) {
  in_addr address{};
  if (inet_aton(std::string(host).c_str(), &address) == 0) return std::nullopt;
  return ntohl(address.s_addr);
}

std::optional<in6_addr> ParseV6(std::string_view host) {
  in6_addr address{};
  if (inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) return std::nullopt;
  return address;
}

}  // namespace

Result<Endpoint> ParseEndpoint(std::string_view text, std::uint16_t default_port) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not HOST:PORT{}", Quoted(text), why), ""};
  };
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  const bool bracketed = text.starts_with('[');
  if (bracketed) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad(": ']' is missing");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    has_port = !port.empty();
    if (has_port && port.front() != ':') return bad("");
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (text.rfind(':') != colon) return bad(": an IPv6 address needs brackets");
    host = text.substr(0, colon);
    port = text.substr(colon);
    has_port = true;
  }
  if (host.empty() || !std::all_of(host.begin(), host.end(), bracketed ? IsV6Character : IsNameCharacter))
    return bad("");
  if (bracketed && host.find(':') == std::string_view::npos) return bad(": brackets are for IPv6 addresses");
  if (!has_port) return Endpoint{std::string(host), default_port};
  port.remove_prefix(1);
  const auto number = ParseWhole<std::uint16_t>(port).value_or(0);
  if (number == 0) return bad(": the port must be a number from 1 to 65535");
  return Endpoint{std::string(host), number};
}

bool IsLoopbackHost(std::string_view host) {
  if (LowerCase(host) == "localhost") return true;
  if (const auto v4 = ParseV4(host)) return *v4 >> 24 == 127;
  const auto v6 = ParseV6(host);
  return v6 && (IN6_IS_ADDR_LOOPBACK(&*v6) || (IN6_IS_ADDR_V4MAPPED(&*v6) && v6->s6_addr[12] == 127));
}

bool IsWildcardHost(std::string_view host) {
  if (const auto v4 = ParseV4(host)) return *v4 == 0;
  const auto v6 = ParseV6(host);
  return v6 && IN6_IS_ADDR_UNSPECIFIED(&*v6);
}

std::string EndpointText(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
            : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

}  // namespace leaf
