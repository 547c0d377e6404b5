// A message body that is read and thrown away: no request here has one that means anything, and what is kept
// of 20 000 connections' bodies would be theirs to choose.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstddef>
#include <cstdint>

namespace leaf::server {

// Beast's concept Body, to be parsed only.
struct DiscardBody {
  struct value_type {};

  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type&) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& failed) { failed = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      return boost::asio::buffer_size(buffers);
    }
    void finish(boost::system::error_code& failed) { failed = {}; }
  };
};

}  // namespace leaf::server
