#include "leaf/server/http/known_request.h"

#include "leaf/base/decimal.h"

namespace leaf::server {

void KnownRequest::Keep(std::string_view bytes, std::string_view authorization, Route route,
                        const OneId& asked) {
  bytes_.clear();
  // The first place with this text will do: only the text counts.
  const std::size_t begin = bytes.find(authorization);
  if (bytes.size() > kBytesMax || begin == std::string_view::npos) return;
  authorization_ = {begin, authorization.size()};
  tag_ = asked.tag;
  route_ = route;
  form_ = asked.form;
  content_type_ = asked.content_type;
  digits_ = 0;
  bytes_ = bytes;
}

Response KnownRequest::ResponseWith(std::string_view digits) const {
  Response response;
  response.content_type = content_type_;
  response.body = form_->lead;
  response.body += digits;
  response.body += form_->tail;
  return response;
}

void KnownRequest::AnswerLast(std::uint64_t id, std::string_view date, std::string& out) const {
  Render(ResponseWith(Decimal(id).text()), Persistence::kClose, /*head=*/false, date, out);
}

void KnownRequest::Answer(std::uint64_t id, std::string_view date, std::string& out) {
  const Decimal decimal(id);
  const std::string_view digits = decimal.text();
  if (digits.size() != digits_ || date != date_) [[unlikely]] {
    head_.clear();
    Render(ResponseWith(digits), Persistence::kDefault, /*head=*/true, date, head_);
    head_ += form_->lead;
    date_ = date;
    digits_ = digits.size();
  }
  out += head_;
  out += digits;
  out += form_->tail;
}

}  // namespace leaf::server
