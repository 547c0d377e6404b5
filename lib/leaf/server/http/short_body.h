// A message body of which only what means something is kept: a small form, and the JSON of a request that
// changes tags. What is kept of 20 000 connections' bodies would otherwise be theirs to choose.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/verb.hpp>
#include <boost/optional.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/server/http/message.h"
#include "leaf/server/net/unread_bytes.h"

namespace leaf::server {

// The longest that is kept of any request. The form of /decodeSnowflakeId has less than 40.
inline constexpr std::size_t kShortBodyBytesMax = 256;
// The longest of a request that changes tags.
inline constexpr std::size_t kTagBodyBytesMax = std::size_t{64} * 1024;

struct KeptBody {
  std::string text;
  BodyLost lost = BodyLost::kNo;
  // Where a longer body than a short one counts while it is kept; null where none is kept. Outlives the
  // request.
  UnreadBytes* room = nullptr;
  UnreadBytes::Held held{};
};

// Beast's concept Body, to be parsed only.
struct ShortBody {
  using value_type = KeptBody;

  class reader {
   public:
    // Made before the header is read, and asks it for the limit afterwards.
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>& header, value_type& body)
        : header_(&header),
          limit_of_(&LimitOf<boost::beast::http::header<kIsRequest, Fields>>),
          body_(body) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& failed) {
      limit_ = limit_of_(header_);
      failed = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      const std::size_t size = boost::asio::buffer_size(buffers);
      if (body_.lost == BodyLost::kNo) Keep(buffers, body_.text.size() + size);
      return size;
    }
    void finish(boost::system::error_code& failed) { failed = {}; }

   private:
    template <class Header>
    static std::size_t LimitOf(const void* untyped) {
      const auto& header = *static_cast<const Header*>(untyped);
      const auto target = header.target();
      const bool is_about_tags =
          header.method() != boost::beast::http::verb::get &&
          std::string_view(target.data(), target.size()).find(kTagRoutes) != std::string_view::npos;
      return is_about_tags ? kTagBodyBytesMax : kShortBodyBytesMax;
    }
    template <class Buffers>
    void Keep(const Buffers& buffers, std::size_t whole) {
      if (whole > limit_) return Lose(BodyLost::kTooLong);
      if (whole > kShortBodyBytesMax && !body_.held) {
        if (body_.room == nullptr) return Lose(BodyLost::kTooLong);
        body_.held = body_.room->Hold(kTagBodyBytesMax);
        if (!body_.held) return Lose(BodyLost::kNoRoom);
      }
      body_.text += boost::beast::buffers_to_string(buffers);
    }
    void Lose(BodyLost why) {
      body_.lost = why;
      body_.text.clear();
      body_.held = {};
    }

    const void* header_;
    std::size_t (*limit_of_)(const void*);
    value_type& body_;
    std::size_t limit_ = kShortBodyBytesMax;
  };
};

}  // namespace leaf::server
