// Where a server listens: a host and a TCP port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf {

// Where MySQL and MariaDB listen unless told otherwise.
inline constexpr std::uint16_t kMysqlPort = 3306;

struct Endpoint {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without its brackets
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

// HOST, HOST:PORT, [IPv6] or [IPv6]:PORT. A name consists of letters, digits, '.', '-' and '_', so that it
// can stand in any library's connection string as it is. Errors: kInvalidArgument that names the text.
Result<Endpoint> ParseEndpoint(std::string_view text, std::uint16_t default_port);

// Whether a server that listens there is reached from its own machine only, as far as the text tells, in any
// spelling ("127.1", "LOCALHOST").
bool IsLoopbackHost(std::string_view host);

// Whether it is every address of the machine, in any spelling ("0", "::0").
bool IsWildcardHost(std::string_view host);

// "HOST:PORT" or "[IPv6]:PORT", as people write it.
std::string EndpointText(const Endpoint& endpoint);

}  // namespace leaf
