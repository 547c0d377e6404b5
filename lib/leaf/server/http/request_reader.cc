#include "leaf/server/http/request_reader.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <cctype>
#include <string>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::server {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// Longer lines hold no token, and are read anew.
constexpr std::size_t kKnownLineMax = 512;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Whether a Connection field, of which there may be several (RFC 9110, 5.3), has this token.
template <typename Message>
bool ConnectionSays(const Message& message, std::string_view token) {
  const auto [begin, end] = message.equal_range(http::field::connection);
  return std::any_of(begin, end,
                     [&](const auto& field) { return http::token_list(field.value()).exists(token); });
}

// uri-host [ ":" port ], as far as its characters go (RFC 9110, 7.2). It may be empty.
bool IsHostValue(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-._~%!$&'()*+,;=:[]").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// What RFC 9112, 3.2, wants of the Host field; "" if it is as it should be.
template <typename Message>
std::string_view WrongHost(const Message& message) {
  const std::size_t hosts = message.count(http::field::host);
  if (hosts > 1) return "more than one Host field";
  if (hosts == 0) return message.version() < 11 ? "" : "the Host field is missing";
  return IsHostValue(View(message[http::field::host])) ? "" : "the Host field is malformed";
}

bool IsForm(std::string_view content_type) {
  const std::string_view type = TrimBlanks(content_type.substr(0, content_type.find(';')));
  return boost::beast::iequals({type.data(), type.size()}, "application/x-www-form-urlencoded");
}

// What the header says, before the body is read: fields that follow a chunked body join the others.
template <typename Message>
ReceivedRequest Received(const Message& message) {
  ReceivedRequest request;
  request.method = View(message.method_string());
  request.target = View(message.target());
  request.host = View(message[http::field::host]);
  request.accept = View(message[http::field::accept]);
  if (!request.target.starts_with("/api/") && !request.target.starts_with("/v1/"))
    request.accept_language = View(message[http::field::accept_language]);
  request.content_type = View(message[http::field::content_type]);
  request.is_head = message.method() == http::verb::head;
  request.keep_alive =
      !ConnectionSays(message, "close") && (message.version() >= 11 || ConnectionSays(message, "keep-alive"));
  request.says_keep_alive = message.version() < 11;
  request.authorization = View(message[http::field::authorization]);
  request.origin = View(message[http::field::origin]);
  request.fetch_site = View(message["Sec-Fetch-Site"]);
  request.from_script = message["Sec-Fetch-Dest"] == "empty";
  return request;
}

template <typename Message>
void AddBody(const Message& message, ReceivedRequest& request) {
  const KeptBody& body = message.body();
  if (message.method() == http::verb::post && IsForm(request.content_type)) request.form = body.text;
  request.body = body.text;
  request.body_lost = body.lost;
}

}  // namespace

RequestReader::Outcome RequestReader::Read(ReadBuffer& buffer) {
  LEAF_CHECK(plain_bytes_ == 0);
  if (!parser_) {
    if (buffer.size() == 0) return Outcome::kMore;
    if (uses_plain_form_) {
      const auto bytes = buffer.data();
      if (const auto plain =
              ParsePlainRequest({static_cast<const char*>(bytes.data()), bytes.size()}, known_)) {
        request_ = {.method = "GET",
                    .target = plain->target,
                    .host = plain->host,
                    .accept = plain->accept,
                    .accept_language = {},
                    .form = {},
                    .content_type = {},
                    .body = {},
                    .authorization = plain->authorization,
                    .origin = {},
                    .fetch_site = {}};
        plain_bytes_ = plain->size;
        if (!plain->new_line.empty()) Remember(plain->new_line, plain->authorization);
        return Outcome::kRequest;
      }
    }
    parser_.emplace();
    parser_->eager(false);
    parser_->header_limit(kHeaderBytesMax);
    parser_->body_limit(kBodyBytesMax);
    parser_->get().body().room = room_;
    header_seen_ = false;
    header_bytes_ = 0;
  }
  if (const error_code failed = Feed(buffer)) return Refuse(failed);
  if (!header_seen_) {
    const auto& fields = parser_->get();
    if (std::distance(fields.begin(), fields.end()) > kHeaderFieldsMax)
      return Refuse(431, "too many header fields");
  }
  bool wants_continue = false;
  if (parser_->is_header_done() && !header_seen_) {
    header_seen_ = true;
    const auto& message = parser_->get();
    if (const std::string_view wrong = WrongHost(message); !wrong.empty()) return Refuse(400, wrong);
    // One of them would be looked at, and a proxy may have looked at the other.
    if (message.count(http::field::authorization) > 1)
      return Refuse(400, "more than one Authorization field");
    // A body whose length is not known would be taken for the next request (RFC 9112, 6.3). Of several words
    // the parser goes by the first one, and `chunked()` by the last.
    if (const auto codings = message.count(http::field::transfer_encoding);
        codings > 1 ||
        (codings == 1 && !boost::beast::iequals(message[http::field::transfer_encoding], "chunked")))
      return Refuse(501, "this Transfer-Encoding is not supported");
    request_ = Received(message);
    // A client of HTTP/1.0 would take it for the answer (RFC 9110, 10.1.1).
    wants_continue =
        message.version() >= 11 && boost::beast::iequals(message[http::field::expect], "100-continue");
    parser_->eager(true);
    if (const error_code failed = Feed(buffer)) return Refuse(failed);
  }
  if (parser_->is_done()) {
    AddBody(parser_->get(), request_);
    return Outcome::kRequest;
  }
  if (buffer.size() == buffer.max_size()) return Refuse(431, error_code(http::error::header_limit).message());
  return wants_continue ? Outcome::kContinue : Outcome::kMore;
}

void RequestReader::Remember(std::string_view line, std::string_view value) {
  if (line.size() > kKnownLineMax) return;
  const std::size_t begin = static_cast<std::size_t>(value.data() - line.data());
  known_line_ = line;
  known_.bytes = known_line_;
  known_.value = known_.bytes.substr(begin, value.size());
}

bool RequestReader::is_head() const { return parser_ && parser_->get().method() == http::verb::head; }

void RequestReader::Release(ReadBuffer& buffer) {
  buffer.consume(plain_bytes_);
  plain_bytes_ = 0;
  parser_.reset();
}

RequestReader::Outcome RequestReader::Refuse(int status, std::string_view why) {
  status_ = status;
  why_ = why;
  return Outcome::kBroken;
}

RequestReader::Outcome RequestReader::Refuse(error_code failed) {
  const bool header_too_large = failed == http::error::header_limit || failed == http::error::buffer_overflow;
  return Refuse(failed == http::error::body_limit ? 413 : header_too_large ? 431 : 400, failed.message());
}

// Gives the parser what is in the buffer, up to the end of the header, or of the request.
//
// Of a chunked body nothing is given in less than five bytes, of which every last chunk has as many: Beast of
// Boost 1.81 asserts that it is called again with no less once it has seen one ("0\r\n", then "\r", then
// "\n"), which a client would decide (boostorg/beast#2861).
error_code RequestReader::Feed(ReadBuffer& buffer) {
  constexpr std::size_t kLastChunkBytes = 5;
  error_code failed;
  while (buffer.size() > 0 && !parser_->is_done()) {
    if (parser_->is_header_done() && !header_seen_) break;
    if (parser_->is_header_done() && parser_->chunked() && buffer.size() < kLastChunkBytes) break;
    const std::size_t used = parser_->put(buffer.data(), failed);
    buffer.consume(used);
    // The parser's own limit is one of what it is given at a time (Boost 1.81), whose fields it keeps.
    if (!header_seen_) header_bytes_ += used;
    const std::size_t waiting = parser_->is_header_done() ? 0 : buffer.size();
    if (!header_seen_ && header_bytes_ + waiting > kHeaderBytesMax) return http::error::header_limit;
    if (failed == http::error::need_more) return {};
    if (failed) return failed;
  }
  return {};
}

}  // namespace leaf::server
