// Requests in the form that nearly every client sends, taken apart in one pass over their bytes.
//
// Only what is certain is taken: a GET for IDs with a whole head, of plain ASCII, and no header that says
// anything about the connection, a body or a web page. Everything else, what is malformed, and what is not
// whole yet is left to the library's parser, which also reads what is taken here, and says the same of it
// (tests/fuzz, http_requests).
//
// A client with a token sends the same line with each request, and it is the longest one: it is compared with
// that of the request before, and taken apart only if it is another one.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace leaf::server {

// A GET of HTTP/1.1 without a body, on a connection that stays open. Views of its bytes.
struct PlainRequest {
  std::string_view target;
  std::string_view host;           // the Host header
  std::string_view accept;         // the Accept header, or ""
  std::string_view authorization;  // the Authorization header, or "": of the known line, if it is that one
  std::string_view new_line;       // the whole line of it, with its end, unless it is the known one
  std::size_t size = 0;            // of all its bytes, with the empty line
};

// A line with an Authorization header that was taken from an earlier request.
struct KnownLine {
  std::string_view bytes;  // with its end; "" for none
  std::string_view value;
};

// What begins at the first byte; nothing if it has another form.
std::optional<PlainRequest> ParsePlainRequest(std::string_view bytes, const KnownLine& known = {});

}  // namespace leaf::server
