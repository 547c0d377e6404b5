#include "leaf/client/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>

#include "leaf/base/text.h"

namespace leaf::client {

namespace asio = boost::asio;
using boost::beast::error_code;

std::string PercentEncode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Error ConnectError(const std::string& server, const error_code& why) {
  if (why == boost::system::errc::permission_denied || why == boost::system::errc::operation_not_permitted) {
    return {ErrorCode::kPermission, fmt::format("cannot open {}: {}", server, why.message()), ""};
  }
  return {ErrorCode::kUnreachable, fmt::format("no daemon answers at {}: {}", server, why.message()),
          "start one with leafctl serve"};
}

Result<ServerAddress> FindServer(asio::io_context& loop, const std::string& server) {
  if (server.starts_with("unix:")) {
    const std::string path = server.substr(5);
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad server {}: the path is too long for a socket", Quoted(server)), ""};
    }
    return ServerAddress{.endpoints = asio::local::stream_protocol::endpoint(path), .host = "localhost"};
  }
  const bool is_tls = server.starts_with("https://");
  const std::string_view scheme = is_tls ? "https://" : "http://";
  std::string_view authority = server;
  authority.remove_prefix(std::min<std::size_t>(authority.size(), scheme.size()));
  if (authority.ends_with('/')) authority.remove_suffix(1);
  const std::size_t colon = std::min(authority.rfind(':'), authority.size());
  std::string host(authority.substr(0, colon));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port(authority.substr(std::min(colon + 1, authority.size())));
  error_code failed;
  const auto endpoints = asio::ip::tcp::resolver(loop).resolve(host, port, failed);
  if (failed) return ConnectError(server, failed);
  return ServerAddress{
      .endpoints = endpoints, .host = std::string(authority), .name = std::move(host), .is_tls = is_tls};
}

Result<std::shared_ptr<const tls::ClientContext>> TlsFrom(const TlsSource& source) {
  return source ? source() : tls::ClientContext::Make({});
}

}  // namespace leaf::client
