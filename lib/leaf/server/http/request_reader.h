// The bytes of a connection, taken apart into requests; without the connection.
#pragma once

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/server/http/plain_request.h"
#include "leaf/server/http/short_body.h"
#include "leaf/server/net/protocol.h"

namespace leaf::server {

inline constexpr std::size_t kHeaderBytesMax = std::size_t{16} * 1024;
// Each costs some 75 bytes of memory, however short it is.
inline constexpr std::ptrdiff_t kHeaderFieldsMax = 100;
inline constexpr std::size_t kBodyBytesMax = std::size_t{64} * 1024;
// The parser needs a whole header line at a time; with this much room the header limit is always met first.
static_assert(sizeof(ReadBuffer) >= 2 * kHeaderBytesMax);

// Views of the reader and its buffer, up to RequestReader::Release.
struct ReceivedRequest {
  std::string_view method;
  std::string_view target;
  std::string_view host;             // the Host header; "" if there is none
  std::string_view accept;           // the Accept header, or ""
  std::string_view accept_language;  // the Accept-Language header, or ""; not looked for where IDs are taken
  std::string_view form;             // of a POST: its body, if it is a short form; else ""
  std::string_view content_type;     // the Content-Type header, or ""; not looked for in the plain form
  std::string_view body;             // as far as it is kept, see ShortBody
  BodyLost body_lost = BodyLost::kNo;
  bool is_head = false;
  bool keep_alive = true;
  bool says_keep_alive = false;    // a version by whose default the connection ends wants to be told
  std::string_view authorization;  // the Authorization header, or ""
  std::string_view origin;         // the Origin header, or ""
  std::string_view fetch_site;     // the Sec-Fetch-Site header, or ""
  bool from_script = false;        // a page's script sent it, as a browser says
};

// Not thread-safe. One connection's, for one request after the other.
class RequestReader {
 public:
  // `room`: where longer bodies than short ones count; null where none is kept. Outlives the reader.
  explicit RequestReader(UnreadBytes* room = nullptr) : room_(room) {}
  // It has views of itself.
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  enum class Outcome {
    kMore,      // the request is not whole yet
    kContinue,  // the same, and the client waits to be told to go on ("100-continue"); once a request
    kRequest,   // request() is there
    kBroken,    // what has come is no request, or none for this server: see status() and why()
  };

  // Reads on in what is in the buffer; what it cannot use yet stays there.
  Outcome Read(ReadBuffer& buffer);

  const ReceivedRequest& request() const { return request_; }
  int status() const { return status_; }
  std::string_view why() const { return why_; }

  // Whether the next bytes that are read begin a request.
  bool is_between_requests() const { return plain_bytes_ == 0 && !parser_; }
  // Whether what is being read, or could not be, is a HEAD request, as far as it is known: no answer to one
  // has a body.
  bool is_head() const;
  // Of the request that was read, in bytes, if it has the plain form; 0 if not.
  std::size_t plain_size() const { return plain_bytes_; }
  // The request that was read is done with: its bytes are taken from the buffer.
  void Release(ReadBuffer& buffer);

  // Whether the plain form is read without the library; for tests, which compare. True at first.
  void UsePlainForm(bool use) { uses_plain_form_ = use; }

 private:
  using Parser = boost::beast::http::request_parser<ShortBody>;

  Outcome Refuse(int status, std::string_view why);
  Outcome Refuse(boost::system::error_code failed);
  boost::system::error_code Feed(ReadBuffer& buffer);
  void Remember(std::string_view line, std::string_view value);

  UnreadBytes* const room_;
  ReceivedRequest request_;
  std::string known_line_;        // the last one with an Authorization header
  KnownLine known_;               // views of it
  std::size_t plain_bytes_ = 0;   // of the request, if it has the plain form
  std::optional<Parser> parser_;  // of a request of any other form
  bool header_seen_ = false;
  std::size_t header_bytes_ = 0;  // of the header, as far as the parser has it
  bool uses_plain_form_ = true;
  int status_ = 0;
  std::string why_;
};

}  // namespace leaf::server
