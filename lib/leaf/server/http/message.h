// HTTP as the router sees it: requests and responses without sockets.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/access/caller.h"
#include "leaf/base/result.h"
#include "leaf/server/ids_text.h"
#include "leaf/server/net/unread_bytes.h"

namespace leaf::server {

// What the paths of requests about tags begin with: their bodies are kept.
inline constexpr std::string_view kTagRoutes = "/v1/tags";

// Why a body is not there.
enum class BodyLost : std::uint8_t {
  kNo,
  kTooLong,  // longer than what is kept of this request
  kNoRoom,   // the bodies of other requests take up all the room that there is
};

struct SmallTake;  // take.h

struct Request {
  std::string_view method;  // "GET"
  std::string_view target;  // "/v1/segment/pay?count=3", as sent
  std::string_view accept;  // the Accept header, or ""
  std::string_view accept_language =
      "";                      // the Accept-Language header, or ""; not told to routes that take IDs
  std::string_view form = "";  // the form that a POST has as its body, or ""
  std::string_view content_type = "";
  std::string_view body = "";  // as far as it is kept, see ShortBody
  BodyLost body_lost = BodyLost::kNo;
  // The caller, and what is wrong with its credentials (static text), or "". Outlive the call.
  const access::Caller* caller = &access::Caller::Open();
  std::string_view wrong_credentials = "";
  // A web page of another site sent it: it may not take IDs, nor change anything.
  bool from_other_site = false;
  // A script asks, which can show a form of its own: a browser would show its own for Basic.
  bool from_script = false;
  bool is_public_door = false;  // as of Origin
  bool is_local = false;        // came over a Unix socket
  bool is_counted = false;      // the limits on requests have counted it, and let it pass
  // The handler fills this in if the request got its IDs at once, and the answer is small. Null: not wanted.
  SmallTake* small_take = nullptr;
};

struct Response {
  int status = 200;
  std::string_view content_type;  // static text; "" for none
  std::string body;
  std::string_view allow;  // static text; Allow header, or ""
  std::optional<std::uint32_t> retry_after_s;
  std::string_view headers = "";   // static text; further header lines, each with its end
  std::unique_ptr<IdsText> ids{};  // instead of the body: a large batch, written out while it is sent
  UnreadBytes::Held held{};        // of a large one: from when it exists, or from when the server has it

  std::uint64_t body_size() const { return ids ? ids->size() : body.size(); }
  // It is sent a piece at a time, and counts until it is sent.
  bool is_large() const;
};

// The longest body of an answer that is not large.
inline constexpr std::size_t kSmallAnswerBytes = std::size_t{4} * 1024;
// More IDs than these are written out while they are sent: 20 digits each, two quotes and a comma.
inline constexpr std::uint64_t kSmallBatch = kSmallAnswerBytes / 23;

inline bool Response::is_large() const { return ids != nullptr || body.size() > kSmallAnswerBytes; }

inline constexpr std::string_view kPlainText = "text/plain;charset=UTF-8";
inline constexpr std::string_view kOctetStream = "application/octet-stream";
inline constexpr std::string_view kHtml = "text/html;charset=UTF-8";
inline constexpr std::string_view kJson = "application/json;charset=UTF-8";

// A reason phrase for the status codes used here.
std::string_view StatusText(int status);

// What the Connection header says: nothing where the version's default holds.
enum class Persistence { kDefault, kKeepAlive, kClose };

// Appends the response on the wire. `head`: as for a HEAD request, or of a large one, without the body.
void Render(const Response& response, Persistence persistence, bool head, std::string_view date,
            std::string& out);

// What IDs may be answered as.
enum class IdsType { kJsonObject, kLines, kRangeBytes };
// The one that an Accept header asks for most (RFC 9110, 12.5.1): application/json, text/plain or
// application/octet-stream, each by name. JSON if it names none of them; of equal ones the first.
IdsType PreferredType(std::string_view accept);

// Decodes %XX; '+' stays '+'. Errors: kInvalidArgument for a malformed escape.
Result<std::string> PercentDecode(std::string_view text);

// A request target, taken apart without an allocation where nothing in it is escaped. Its views are of the
// text it was read from, and of `decoded`. To be moved, not copied.
struct Target {
  using Segments = boost::container::small_vector<std::string_view, 6>;
  using Query = boost::container::small_vector<std::pair<std::string_view, std::string_view>, 4>;

  std::string_view raw_path;  // as sent, without the query
  Segments segments;          // non-empty path segments, without ;parameters, decoded
  Query query;
  std::forward_list<std::string> decoded;  // what had escapes

  Target() = default;
  Target(Target&&) = default;
  Target& operator=(Target&&) = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // The value of a query parameter; nullopt if it is not there. Errors: kInvalidArgument if it is there
  // twice.
  Result<std::optional<std::string_view>> Parameter(std::string_view name) const;
  // Whether it is 1; false if it is 0, or not there. Errors: kInvalidArgument for anything else: a caller
  // that writes dry_run=true must not be taken for one that wants the change.
  Result<bool> Flag(std::string_view name) const;
};

// Doubled and trailing slashes do not count, as in Java Leaf. The text outlives what is returned. Errors:
// kInvalidArgument.
Result<Target> ParseTarget(std::string_view target);

}  // namespace leaf::server
