// A message body of which only a short one is kept: no body but a small form means anything here, and what is
// kept of 20 000 connections' bodies would be theirs to choose.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace leaf::server {

// The longest that is kept, of a longer one nothing. The form of /decodeSnowflakeId has less than 40.
inline constexpr std::size_t kShortBodyBytesMax = 256;

// Beast's concept Body, to be parsed only.
struct ShortBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& failed) { failed = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      const std::size_t size = boost::asio::buffer_size(buffers);
      keeps_ = keeps_ && body_.size() + size <= kShortBodyBytesMax;
      if (keeps_) {
        body_ += boost::beast::buffers_to_string(buffers);
      } else {
        body_.clear();
      }
      return size;
    }
    void finish(boost::system::error_code& failed) { failed = {}; }

   private:
    value_type& body_;
    bool keeps_ = true;
  };
};

}  // namespace leaf::server
