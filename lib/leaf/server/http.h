// HTTP as the router sees it: requests and responses without sockets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::server {

struct Request {
  std::string_view method;  // "GET"
  std::string_view target;  // "/v1/segment/pay?count=3", as sent
  std::string_view accept;  // the Accept header, or ""
  std::string_view accept_language =
      "";  // the Accept-Language header, or ""; not told to routes that take IDs
  // Came over a Unix socket or from this machine, and not out of a web page that somebody looks at here.
  bool from_operator = false;
};

struct Response {
  int status = 200;
  std::string_view content_type;  // static text; "" for none
  std::string body;
  std::string_view allow;  // static text; Allow header, or ""
  std::optional<std::uint32_t> retry_after_s;
  std::string_view headers = "";  // static text; further header lines, each with its end
};

inline constexpr std::string_view kPlainText = "text/plain;charset=UTF-8";
inline constexpr std::string_view kJson = "application/json;charset=UTF-8";

// A reason phrase for the status codes used here.
std::string_view StatusText(int status);

// What the Connection header says: nothing where the version's default holds.
enum class Persistence { kDefault, kKeepAlive, kClose };

// The response on the wire. `head`: as for a HEAD request, without the body.
std::string Render(const Response& response, Persistence persistence, bool head, std::string_view date);

// Whether an Accept header asks for text/plain by name, and not less than for JSON (RFC 9110, 12.5.1).
bool PrefersText(std::string_view accept);

// Decodes %XX; '+' stays '+'. Errors: kInvalidArgument for a malformed escape.
Result<std::string> PercentDecode(std::string_view text);

// A request target, taken apart.
struct Target {
  std::string raw_path;               // as sent, without the query
  std::vector<std::string> segments;  // non-empty path segments, without ;parameters, decoded
  std::vector<std::pair<std::string, std::string>> query;

  // The value of a query parameter; nullopt if it is not there. Errors: kInvalidArgument if it is there
  // twice.
  Result<std::optional<std::string>> Parameter(std::string_view name) const;
};

// Doubled and trailing slashes do not count, as in Java Leaf. Errors: kInvalidArgument.
Result<Target> ParseTarget(std::string_view target);

}  // namespace leaf::server
