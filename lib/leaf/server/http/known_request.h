// A request for IDs that a connection has sent. It is known again by its bytes, since clients send the same
// bytes again and again. Its route, what it asks for and the form of its answer hold for the same bytes.
// Whether its caller may have the IDs, and whether they are in reserve, is asked each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "leaf/base/id_range.h"
#include "leaf/base/secret.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/take.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

// Not thread-safe.
class KnownRequest {
 public:
  // A client library sends less, with a token, too.
  static constexpr std::size_t kBytesMax = 1024;

  // `bytes`: all of the request, with the field that has `authorization`. Longer ones are not kept.
  void Keep(std::string_view bytes, std::string_view authorization, Route route, SmallTake take);
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
  const SmallTake& take() const { return take_; }
  // Whether it asks for one ID of a tag, and not as a range.
  bool is_one_of_tag() const { return is_one_of_tag_; }

  // Appends the answer, as Render does to a response of 200 on a connection that stays, or that ends with it
  // (`is_last`). The first one is for a request for one ID, and not as a range; the second one for any.
  void Answer(std::uint64_t id, bool is_last, std::string_view date, std::string& out);
  void Answer(std::span<const IdRange> ranges, bool is_last, std::string_view date, std::string& out);

 private:
  // Appends the head of an answer whose body has so many bytes.
  void AppendHead(std::size_t body_size, bool is_last, std::string_view date, std::string& out) {
    if (body_size == head_for_ && date == date_ && !is_last) [[likely]] {
      out += head_;
    } else {
      RenderHead(body_size, is_last, date, out);
    }
  }
  void RenderHead(std::size_t body_size, bool is_last, std::string_view date, std::string& out);

  std::string bytes_;  // "" for none
  struct Place {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  Place authorization_;  // in bytes_
  SmallTake take_;
  bool is_one_of_tag_ = false;
  Route route_ = Route::kOther;
  // The head of the last answer, which is that of the next one with this date and a body of as many bytes.
  std::string head_;
  std::string date_;
  std::size_t head_for_ = 0;
  std::string body_;  // space to write one
};

}  // namespace leaf::server
