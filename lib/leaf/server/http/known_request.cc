#include "leaf/server/http/known_request.h"

#include <utility>

#include "leaf/base/decimal.h"
#include "leaf/server/ids_text.h"

namespace leaf::server {

void KnownRequest::Keep(std::string_view bytes, std::string_view authorization, Route route, SmallTake take) {
  bytes_.clear();
  // The first place with this text will do: only the text counts.
  const std::size_t begin = bytes.find(authorization);
  if (bytes.size() > kBytesMax || begin == std::string_view::npos) return;
  authorization_ = {begin, authorization.size()};
  take_ = std::move(take);
  is_one_of_tag_ = take_.source == IdSource::kSegment && take_.count == 1 && !take_.as_ranges;
  route_ = route;
  date_.clear();
  bytes_ = bytes;
}

void KnownRequest::RenderHead(std::size_t body_size, bool is_last, std::string_view date, std::string& out) {
  Response response;
  response.content_type = take_.content_type;
  response.body.resize(body_size);
  if (is_last) return Render(response, Persistence::kClose, /*head=*/true, date, out);
  head_.clear();
  Render(response, Persistence::kDefault, /*head=*/true, date, head_);
  date_ = date;
  head_for_ = body_size;
  out += head_;
}

void KnownRequest::Answer(std::uint64_t id, bool is_last, std::string_view date, std::string& out) {
  const Decimal decimal(id);
  const std::string_view digits = decimal.text();
  const IdsForm& form = *take_.form;
  AppendHead(form.lead.size() + digits.size() + form.tail.size(), is_last, date, out);
  out += form.lead;
  out += digits;
  out += form.tail;
}

void KnownRequest::Answer(std::span<const IdRange> ranges, bool is_last, std::string_view date,
                          std::string& out) {
  if (!take_.as_ranges && ranges.size() == 1 && ranges.front().size() == 1)
    return Answer(ranges.front().begin, is_last, date, out);
  body_.clear();
  if (take_.as_ranges) {
    AppendRanges(ranges, take_.type, body_);
  } else {
    AppendIds(ranges, *take_.form, body_);
  }
  AppendHead(body_.size(), is_last, date, out);
  out += body_;
}

}  // namespace leaf::server
