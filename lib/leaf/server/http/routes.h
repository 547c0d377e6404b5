// The table of routes: what there is at which path, what a caller needs to use it, and how it is counted.
//
// A new route is a row in routes.cc, its handler in handlers.h, and its label in request_metrics.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "leaf/server/http/handler.h"
#include "leaf/server/http/message.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

// The role that a caller needs (access/roles.h).
enum class Access : std::uint8_t {
  kFree,         // none: it tells nothing that is not known, or a machine has to know it without a token
  kIds,          // takes IDs
  kRead,         // tells something
  kAdmin,        // changes something
  kReadOrAdmin,  // by GET and HEAD the one, by other methods the other
};

// Where a route answers if there is a door of its own for operators (server.admin_listen).
enum class Doors : std::uint8_t {
  kAll,
  kOperators,  // there, and on the Unix socket
};

// How a route tells of a method that it does not serve.
enum class Dialect : std::uint8_t {
  kLeaf,  // as Java Leaf, which takes any method but TRACE for a request, and tells of them at OPTIONS
  kV1,
  kPage,
};

// A path: "/v1/segment/{tag}" for any one segment in the place of {tag}, "/cache.*" for /cache with or
// without a suffix, which Java Leaf cuts off, "/health/..." for all that begins like that.
class PathPattern {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a row of a table begins with its path
  consteval PathPattern(const char* path) : text_(path) {
    std::string_view rest(path);
    while (rest.size() > 1) {
      rest.remove_prefix(1);  // the slash
      std::string_view part = rest.substr(0, rest.find('/'));
      rest.remove_prefix(part.size());
      if (part == "...") {
        is_open_ = true;
        return;
      }
      if (part.ends_with(".*")) {
        cuts_suffix_ = true;
        part.remove_suffix(2);
      }
      parts_.at(size_++) = part.starts_with('{') ? std::string_view() : part;
    }
  }

  std::string_view text() const { return text_; }

  bool Matches(const Target::Segments& segments) const {
    if (is_open_ ? segments.size() < size_ : segments.size() != size_) return false;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::string_view segment =
          cuts_suffix_ ? segments[i].substr(0, segments[i].find('.')) : segments[i];
      if (!parts_[i].empty() && parts_[i] != segment) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kPartsMax = 4;
  std::string_view text_;
  std::array<std::string_view, kPartsMax> parts_{};  // "" for any
  std::size_t size_ = 0;
  bool is_open_ = false;
  bool cuts_suffix_ = false;
};

struct RouteRow {
  PathPattern path;
  std::string_view methods;  // as in the Allow header; "" for any, that are all the same
  Dialect dialect;
  Access access;
  Doors doors;
  Route label;  // of metrics
  Handler handle;
  // Clients that watch a server have to see that it is full: they are served on connections over a limit,
  // too.
  bool for_watchers = false;

  bool Serves(std::string_view method) const;
  // What a request by `method` needs; never kReadOrAdmin.
  Access AccessFor(std::string_view method) const;
};

// There is one for every path: the last rows say that there is nothing.
const RouteRow& FindRoute(const Target::Segments& segments);
// The row that says so, in this dialect.
const RouteRow& NoRoute(Dialect dialect);
// All of them, for tests, which ask each as every kind of caller.
std::span<const RouteRow> AllRoutes();

}  // namespace leaf::server
