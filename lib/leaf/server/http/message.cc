#include "leaf/server/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "leaf/base/text.h"

namespace leaf::server {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 421:
      return "Misdirected Request";
    case 428:
      return "Precondition Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

void Render(const Response& response, Persistence persistence, bool head, std::string_view date,
            std::string& out) {
  // Views: the length of what is appended is known, and not looked for.
  using std::string_view_literals::operator""sv;
  const auto number = [&out](std::uint64_t value) {
    const fmt::format_int digits(value);
    out.append(digits.data(), digits.size());
  };
  const auto line = [&out](std::string_view name, std::string_view value) {
    out += name;
    out += value;
    out += "\r\n"sv;
  };
  out.reserve(out.size() + 256 + (head ? 0 : response.body.size()));
  out += "HTTP/1.1 "sv;
  number(static_cast<std::uint64_t>(response.status));
  line(" ", StatusText(response.status));
  line("Date: ", date);
  if (!response.content_type.empty()) line("Content-Type: ", response.content_type);
  if (!response.allow.empty()) line("Allow: ", response.allow);
  if (response.retry_after_s) line("Retry-After: ", fmt::format_int(*response.retry_after_s).c_str());
  out += response.headers;
  out += "Cache-Control: no-store\r\nContent-Length: "sv;
  number(response.body_size());
  out += persistence == Persistence::kClose       ? "\r\nConnection: close\r\n\r\n"sv
         : persistence == Persistence::kKeepAlive ? "\r\nConnection: keep-alive\r\n\r\n"sv
                                                  : "\r\n\r\n"sv;
  if (head) return;
  out += response.body;
  if (response.ids) response.ids->Peek(std::numeric_limits<std::size_t>::max() - out.size(), out);
}

IdsType PreferredType(std::string_view accept) {
  constexpr std::array<std::string_view, 3> types{"application/json", "text/plain",
                                                  "application/octet-stream"};
  std::array<double, types.size()> wanted{};
  while (!accept.empty()) {
    const std::size_t comma = std::min(accept.find(','), accept.size());
    std::string_view item = accept.substr(0, comma);
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    const std::size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view type = TrimBlanks(item.substr(0, semicolon));
    double quality = 1;
    for (std::string_view rest = item.substr(semicolon); !rest.empty();) {
      rest.remove_prefix(1);
      const std::size_t next = std::min(rest.find(';'), rest.size());
      if (const std::string_view parameter = TrimBlanks(rest.substr(0, next)); parameter.starts_with("q=")) {
        // What is no number in 0..1 counts as not wanted.
        const char* const begin = parameter.data() + 2;
        const char* const end = parameter.data() + parameter.size();
        const auto [read, status] = std::from_chars(begin, end, quality);
        if (status != std::errc{} || read != end || !(quality >= 0 && quality <= 1)) quality = 0;
      }
      rest.remove_prefix(next);
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (type == types[i]) wanted[i] = std::max(wanted[i], quality);
    }
  }
  return static_cast<IdsType>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin());
}

Result<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(text[i + 2]) : -1;
    if (low < 0) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("malformed %-escape in {}", Quoted(text)), ""};
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Result<std::optional<std::string_view>> Target::Parameter(std::string_view name) const {
  std::optional<std::string_view> value;
  for (const auto& [key, text] : query) {
    if (key != name) continue;
    if (value)
      return Error{ErrorCode::kInvalidArgument, fmt::format("parameter {} is given twice", name), ""};
    value = text;
  }
  return value;
}

Result<bool> Target::Flag(std::string_view name) const {
  LEAF_ASSIGN_OR_RETURN(const auto value, Parameter(name));
  if (!value || *value == "0") return false;
  if (*value == "1") return true;
  return Error{ErrorCode::kInvalidArgument, fmt::format("bad {} {}: neither 0 nor 1", name, Quoted(*value)),
               ""};
}

Result<Target> ParseTarget(std::string_view target) {
  Target parsed;
  const auto decode = [&parsed](std::string_view text) -> Result<std::string_view> {
    if (text.find('%') == std::string_view::npos) return text;
    LEAF_ASSIGN_OR_RETURN(std::string decoded, PercentDecode(text));
    return std::string_view(parsed.decoded.emplace_front(std::move(decoded)));
  };
  // The form that proxies use: "http://host/path".
  if (!target.starts_with('/')) {
    if (const std::size_t scheme = target.find("://"); scheme != std::string_view::npos)
      target = target.substr(std::min(target.find('/', scheme + 3), target.size()));
  }
  const std::size_t question = std::min(target.find('?'), target.size());
  std::string_view path = target.substr(0, question);
  parsed.raw_path = path;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    std::string_view segment = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    segment = segment.substr(0, segment.find(';'));
    if (segment.empty()) continue;
    LEAF_ASSIGN_OR_RETURN(const std::string_view decoded, decode(segment));
    parsed.segments.push_back(decoded);
  }
  std::string_view query = target.substr(std::min(question + 1, target.size()));
  while (!query.empty()) {
    const std::size_t ampersand = std::min(query.find('&'), query.size());
    const std::string_view item = query.substr(0, ampersand);
    query.remove_prefix(std::min(ampersand + 1, query.size()));
    if (item.empty()) continue;
    const std::size_t equals = std::min(item.find('='), item.size());
    LEAF_ASSIGN_OR_RETURN(const std::string_view key, decode(item.substr(0, equals)));
    LEAF_ASSIGN_OR_RETURN(const std::string_view value,
                          decode(item.substr(std::min(equals + 1, item.size()))));
    parsed.query.emplace_back(key, value);
  }
  return parsed;
}

}  // namespace leaf::server
