// A request for one ID of a tag that a connection has sent, to be known again by its bytes: clients ask for
// the next ID of the same tag again and again, with the same header. What was read of it, its route and how
// it is answered hold for the same bytes. Whether its caller may have the ID, and whether there is one, is no
// part of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/secret.h"
#include "leaf/server/http/message.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

// Not thread-safe.
class KnownRequest {
 public:
  // A client library sends less, with a token, too.
  static constexpr std::size_t kBytesMax = 1024;

  // `bytes`: all of the request, with the field that has `authorization`. Longer ones are not kept.
  void Keep(std::string_view bytes, std::string_view authorization, Route route, const OneId& asked);
  void Forget() { bytes_.clear(); }
  // Whether `bytes` begin with that request. How long that takes does not tell where a token differs.
  bool IsNext(std::string_view bytes) const {
    if (bytes_.empty() || bytes.size() < bytes_.size()) return false;
    const std::string_view begin = bytes.substr(0, bytes_.size());
    return authorization_.size == 0 ? begin == bytes_ : IsSameSecret(begin, bytes_);
  }

  std::size_t size() const { return bytes_.size(); }
  std::string_view authorization() const {
    return std::string_view(bytes_).substr(authorization_.begin, authorization_.size);
  }
  Route route() const { return route_; }
  std::string_view tag() const { return tag_; }

  // Appends the answer, as Render does to a response of 200 on a connection that stays; or that ends.
  void Answer(std::uint64_t id, std::string_view date, std::string& out);
  void AnswerLast(std::uint64_t id, std::string_view date, std::string& out) const;

 private:
  Response ResponseWith(std::string_view digits) const;

  std::string bytes_;  // "" for none
  struct Place {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  Place authorization_;  // in bytes_
  std::string tag_;
  Route route_ = Route::kOther;
  const IdsForm* form_ = nullptr;
  std::string_view content_type_;
  // The head of the last answer, which is that of the next one with this date and as many digits.
  std::string head_;
  std::string date_;
  std::size_t digits_ = 0;
};

}  // namespace leaf::server
