#include "leaf/client/tls_stream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace leaf::client {
namespace {

using boost::asio::ip::tcp;

// A port of 127.0.0.1 that takes connections in, but never one more: a connect to it waits.
class FullPort {
 public:
  FullPort() {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, any, sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 0), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    // Those beyond the backlog stay on their way.
    for (int i = 0; i < 8; ++i) {
      const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      (void)::connect(client, any, sizeof address);
      clients_.push_back(client);
    }
  }
  ~FullPort() {
    for (const int client : clients_) ::close(client);
    ::close(listener_);
  }
  FullPort(const FullPort&) = delete;
  FullPort& operator=(const FullPort&) = delete;

  tcp::endpoint endpoint() const { return {boost::asio::ip::address_v4::loopback(), port_}; }

 private:
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::vector<int> clients_;
};

// A host with two addresses: the time is for both together.
TEST(TlsStream, ATimeOutEndsAConnectToAHostOfSeveralAddresses) {
  const FullPort first;
  const FullPort second;
  const std::vector<tcp::endpoint> endpoints{first.endpoint(), second.endpoint()};
  auto context = tls::ClientContext::Make({});
  ASSERT_TRUE(context.ok()) << context.error().message;
  boost::asio::io_context loop;
  TlsStream stream(loop, *context, "host");
  std::optional<boost::beast::error_code> ended;
  stream.expires_after(std::chrono::milliseconds{20});
  stream.async_connect(
      tcp::resolver::results_type::create(endpoints.begin(), endpoints.end(), "host", "https"),
      [&](boost::beast::error_code failed) { ended = failed; });
  loop.run_for(std::chrono::seconds{60});
  ASSERT_TRUE(ended.has_value()) << "it goes on with the other address, and has no time";
  EXPECT_EQ(*ended, boost::beast::error::timeout);
}

}  // namespace
}  // namespace leaf::client
