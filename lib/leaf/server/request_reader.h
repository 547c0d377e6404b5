// The bytes of a connection, taken apart into requests; without the connection.
#pragma once

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <optional>

#include "leaf/server/discard_body.h"

namespace leaf::server {

inline constexpr std::size_t kHeaderBytesMax = std::size_t{16} * 1024;
inline constexpr std::size_t kBodyBytesMax = std::size_t{64} * 1024;

using RequestParser = boost::beast::http::request_parser<DiscardBody>;

// Makes it ready for the next request.
inline void Reset(std::optional<RequestParser>& parser) {
  parser.emplace();
  parser->eager(true);
  parser->header_limit(kHeaderBytesMax);
  parser->body_limit(kBodyBytesMax);
}

// Gives the parser what is in the buffer, up to the end of the request; what it cannot use yet stays there.
// The error says what is no request.
//
// Of a chunked body nothing is given in less than five bytes, of which every last chunk has as many: Beast of
// Boost 1.81 asserts that it is called again with no less once it has seen one ("0\r\n", then "\r", then
// "\n"), which a client would decide (boostorg/beast#2861).
template <typename Buffer>
boost::system::error_code Feed(RequestParser& parser, Buffer& buffer) {
  constexpr std::size_t kLastChunkBytes = 5;
  boost::system::error_code failed;
  while (buffer.size() > 0 && !parser.is_done()) {
    if (parser.is_header_done() && parser.chunked() && buffer.size() < kLastChunkBytes) break;
    buffer.consume(parser.put(buffer.data(), failed));
    if (failed == boost::beast::http::error::need_more) return {};
    if (failed) return failed;
  }
  return {};
}

}  // namespace leaf::server
