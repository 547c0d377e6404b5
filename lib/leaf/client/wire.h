// What the classes of this part that speak HTTP have in common. Internal.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/system/system_error.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "leaf/base/error.h"
#include "leaf/base/result.h"
#include "leaf/client/trust.h"

namespace leaf::client {

using UnixStream = boost::beast::basic_stream<boost::asio::local::stream_protocol>;

// As one segment of a path.
std::string PercentEncode(std::string_view text);

// Why no connection to `server` came about.
Error ConnectError(const std::string& server, const boost::beast::error_code& why);

// Where a server of the configuration is: a socket's path, or the addresses of a host.
struct ServerAddress {
  std::variant<boost::asio::local::stream_protocol::endpoint, boost::asio::ip::tcp::resolver::results_type>
      endpoints;
  std::string host;    // for the Host field
  std::string name{};  // the same without the port
  bool is_tls = false;
};
// Blocks on the resolver. Errors: kInvalidArgument for a path that is too long, kUnreachable.
Result<ServerAddress> FindServer(boost::asio::io_context& loop, const std::string& server);

// Calls `ask` with a loop of its own. Asio throws where the process has no descriptor left for one: then the
// answer is the error of a server that is not reached.
template <typename Ask>
auto WithLoop(const std::string& server, const Ask& ask)
    -> decltype(ask(std::declval<boost::asio::io_context&>())) {
  try {
    boost::asio::io_context loop(1);
    return ask(loop);
  } catch (const boost::system::system_error& failed) {
    return ConnectError(server, failed.code());
  }
}

// What `source` has for a server with TLS. Errors: kConfig.
Result<std::shared_ptr<const tls::ClientContext>> TlsFrom(const TlsSource& source);

}  // namespace leaf::client
